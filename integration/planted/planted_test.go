package planted

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestRulePlantedBugsApply fails when a passage has gone, stands twice, leaves no Go behind, or names no test.
func TestRulePlantedBugsApply(t *testing.T) {
	bugs, err := Load("bugs")
	if err != nil {
		t.Fatal(err)
	}
	if len(bugs) == 0 {
		t.Fatal("no bug is planted")
	}
	for _, b := range bugs {
		text, err := b.Apply(root)
		if err != nil {
			t.Errorf("%s: %v", b.Name, err)
			continue
		}
		if _, err := parser.ParseFile(token.NewFileSet(), b.File, text, parser.SkipObjectResolution); err != nil {
			t.Errorf("%s leaves no Go behind: %v", b.Name, err)
		}
		if err := namesTest(b); err != "" {
			t.Errorf("%s: %s", b.Name, err)
		}
	}
}

// namesTest says what is wrong with the run line: it must name a test that exists.
func namesTest(b Bug) string {
	if b.Package == "chaos" {
		if !regexp.MustCompile(`^[0-9.]+ [0-9]+$`).MatchString(b.Pattern) {
			return "chaos wants MINUTES SEED, not " + b.Pattern
		}
		return ""
	}
	pattern, err := regexp.Compile(strings.SplitN(b.Pattern, "/", 2)[0])
	if err != nil {
		return err.Error()
	}
	files, err := filepath.Glob(filepath.Join(root, b.Package, "*_test.go"))
	if err != nil {
		return err.Error()
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`).FindAllStringSubmatch(string(text), -1) {
			if pattern.MatchString(m[1]) {
				return ""
			}
		}
	}
	return "no test of " + b.Package + " matches " + b.Pattern
}

func TestParseRefusesHalfABug(t *testing.T) {
	const whole = "rule: R1 order\nfile: a/b.go\nrun: ./a ^TestA$\n--- old\n\tx\n--- new\n\ty\n"
	b, err := parse("n", whole)
	want := Bug{Name: "n", Rule: "R1 order", File: "a/b.go", Package: "./a", Pattern: "^TestA$", Old: "\tx\n", Replacement: "\ty\n"}
	if err != nil || b != want {
		t.Fatalf("parsed %+v, %v", b, err)
	}
	for name, text := range map[string]string{
		"no rule":     strings.Replace(whole, "rule: R1 order\n", "", 1),
		"no file":     strings.Replace(whole, "file: a/b.go\n", "", 1),
		"no run":      strings.Replace(whole, "run: ./a ^TestA$\n", "", 1),
		"no pattern":  strings.Replace(whole, " ^TestA$", "", 1),
		"no old":      strings.Replace(whole, "--- old\n", "", 1),
		"no new":      strings.Replace(whole, "--- new\n", "", 1),
		"empty old":   strings.Replace(whole, "\tx\n", "", 1),
		"same":        strings.Replace(whole, "\ty\n", "\tx\n", 1),
		"unknown key": "ruel: R2\n" + whole,
	} {
		if _, err := parse("n", text); err == nil {
			t.Errorf("%s: parsed", name)
		}
	}
}

func TestApplyWantsThePassageOnce(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		text, want string
	}{
		"once":  {"a\nx\nb\n", "a\ny\nb\n"},
		"never": {"a\nb\n", ""},
		"twice": {"x\nx\n", ""},
	} {
		if err := os.WriteFile(filepath.Join(dir, "f.go"), []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := Bug{File: "f.go", Old: "x\n", Replacement: "y\n"}.Apply(dir)
		if string(got) != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s: applied to %q, %v", name, got, err)
		}
	}
}
