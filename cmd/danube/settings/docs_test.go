package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readPage is docs/configuration.md.
func readPage(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestEverySettingIsDocumented with its default, its flag and its variable's form.
func TestEverySettingIsDocumented(t *testing.T) {
	page := readPage(t)
	for _, d := range keys() {
		row := "| `" + d.key + "` |"
		if d.value != "" {
			row += fmt.Sprintf(" `%s` |", d.value)
		} else if d.flag != "" {
			row += " |"
		}
		if d.flag != "" {
			row += fmt.Sprintf(" `--%s` |", d.flag)
		}
		if !strings.Contains(page, row) {
			t.Errorf("docs/configuration.md lacks a row that begins %s", row)
		}
	}
	if !strings.Contains(page, envName("storage.wal.sync")) {
		t.Error("docs/configuration.md does not say how variables are named")
	}
}

// TestEveryDocumentedKeyExists: the example of the page is valid, and no row names a key that is none.
func TestEveryDocumentedKeyExists(t *testing.T) {
	page := readPage(t)
	known := map[string]bool{}
	for _, d := range keys() {
		known[d.key] = true
	}
	for line := range strings.Lines(page) {
		key, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |")
		if ok && strings.HasPrefix(line, "| `") && !known[key] {
			t.Errorf("docs/configuration.md names %s, which does not exist", key)
		}
	}
	_, example, ok := strings.Cut(page, "```yaml\n")
	if !ok {
		t.Fatal("docs/configuration.md has no example")
	}
	example, _, _ = strings.Cut(example, "```")
	if _, _, err := load(t, writeConfig(t, example), nil, nil); err != nil {
		t.Errorf("the example of docs/configuration.md: %v", err)
	}
}
