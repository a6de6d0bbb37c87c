package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestRuleShown: the tests that the documents name as what shows a promise or a case are there, in the folder that stands
// before them.
func TestRuleShown(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	have := map[string][]string{} // by name, the folders
	walkTree(t, func(path string, text []byte) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, m := range declared.FindAllSubmatch(text, -1) {
			have[string(m[1])] = append(have[string(m[1])], filepath.ToSlash(filepath.Dir(path)))
		}
	})
	for _, doc := range []string{"docs/guarantees.md", "docs/testing.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join("..", doc))
		if err != nil {
			t.Fatal(err)
		}
		claims := shown(string(text))
		if doc == "docs/guarantees.md" && len(claims) < 30 {
			t.Errorf("%s names only %d tests", doc, len(claims))
		}
		for _, complaint := range judgeShown(claims, have) {
			t.Errorf("%s: %s", doc, complaint)
		}
	}
}

// claim is a test that a document names, and the folder it gives for it; empty: none.
type claim struct{ folder, test string }

// shown finds `TestX` in tables, and the folders of "`folder`: `TestX`, `TestY`; …".
func shown(text string) (claims []claim) {
	text = regexp.MustCompile(`(?m)^[^|\n].*$`).ReplaceAllString(text, "")
	word := regexp.MustCompile("`([^`\n]+)`(:?)|[;|\n]")
	name := regexp.MustCompile(`^Test\w+`)
	folder := ""
	for _, m := range word.FindAllStringSubmatch(text, -1) {
		switch test := name.FindString(m[1]); {
		case m[1] == "":
			folder = ""
		case test != "":
			claims = append(claims, claim{folder, test})
		case m[2] != "":
			folder = m[1]
		}
	}
	return claims
}

func judgeShown(claims []claim, have map[string][]string) (complaints []string) {
	for _, c := range claims {
		found := false
		for _, dir := range have[c.test] {
			found = found || c.folder == "" || dir == c.folder || strings.HasSuffix(dir, "/"+strings.TrimPrefix(c.folder, "../"))
		}
		if !found {
			complaints = append(complaints, strings.TrimPrefix(c.folder+": "+c.test+" is not there", ": "))
		}
	}
	return complaints
}

func TestJudgeShownFindsViolations(t *testing.T) {
	have := map[string][]string{"TestA": {"storage/wal"}, "TestB": {"integration", "broker"}}
	claims := shown("`TestD`\n| x | `storage/wal`: `TestA`, `TestB`; `TestB`, `wal`: `TestA/deep/…` |\n| `TestC` | `Test…` and `code`: nothing |")
	want := []claim{{"storage/wal", "TestA"}, {"storage/wal", "TestB"}, {"", "TestB"}, {"wal", "TestA"}, {"", "TestC"}}
	if len(claims) != len(want) {
		t.Fatalf("found %v", claims)
	}
	for i := range want {
		if claims[i] != want[i] {
			t.Errorf("claim %d is %v, want %v", i, claims[i], want[i])
		}
	}
	if got := judgeShown(claims, have); len(got) != 2 || !strings.Contains(got[0], "TestB") || !strings.Contains(got[1], "TestC") {
		t.Errorf("complains %q", got)
	}
}
