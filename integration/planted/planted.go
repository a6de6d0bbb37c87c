// Package planted keeps bugs as data, to prove that the suites would see them.
//
// A bug is a small file under bugs/: which rule it breaks, one passage of one source file as it is, the passage as the
// bug has it, and the test that must go red. The passage must occur exactly once, which `make check` asserts, so that
// a bug cannot silently stop applying. `make planted` builds each bug with -overlay, leaving the tree alone, and
// asserts that its test fails. Whoever carries out a rule plants its bug the same day.
//
//	rule: R1 the ack comes after a sync that started after the write
//	file: storage/wal/commit.go
//	run: ./storage/wal ^TestAckWaitsForSync$
//	--- old
//		if err := j.file.Datasync(); err != nil {
//	--- new
//		if err := error(nil); err != nil {
//
// The run line is a package and the -run pattern of its tests, or `chaos MINUTES SEED`.
package planted

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Bug is one planted bug.
type Bug struct {
	// Name is the name of its file without the extension.
	Name string
	// Rule says in a line which rule it breaks.
	Rule string
	// File is the source file it changes, from the root of the repository.
	File string
	// Package and Pattern are the tests that must fail: `go test -run Pattern Package`. For chaos Package is "chaos"
	// and Pattern "MINUTES SEED".
	Package, Pattern string
	// Old is the passage as it stands, Replacement as the bug has it; whole lines, with their newlines.
	Old, Replacement string
}

// Load reads every *.bug file of a folder, in the order of their names.
func Load(dir string) ([]Bug, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.bug"))
	if err != nil {
		return nil, fmt.Errorf("list bugs: %w", err)
	}
	var bugs []Bug
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read bug: %w", err)
		}
		bug, err := parse(strings.TrimSuffix(filepath.Base(path), ".bug"), string(text))
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", path, err)
		}
		bugs = append(bugs, bug)
	}
	return bugs, nil
}

func parse(name, text string) (Bug, error) {
	b := Bug{Name: name}
	head, rest, ok := strings.Cut(text, "--- old\n")
	if !ok {
		return b, errors.New(`no line "--- old"`)
	}
	if b.Old, b.Replacement, ok = strings.Cut(rest, "--- new\n"); !ok {
		return b, errors.New(`no line "--- new"`)
	}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "rule":
			b.Rule = value
		case "file":
			b.File = value
		case "run":
			b.Package, b.Pattern, _ = strings.Cut(value, " ")
		default:
			return b, fmt.Errorf("unknown line %q", strings.TrimSpace(line))
		}
	}
	for what, value := range map[string]string{"rule": b.Rule, "file": b.File, "run": b.Package, "run pattern": b.Pattern, "old passage": strings.TrimSpace(b.Old)} {
		if value == "" {
			return b, fmt.Errorf("no %s", what)
		}
	}
	if b.Old == b.Replacement {
		return b, errors.New("the new passage is the old one")
	}
	return b, nil
}

// Apply returns the source file as the bug has it. It fails unless the old passage occurs exactly once.
func (b Bug) Apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, b.File))
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	if n := strings.Count(string(text), b.Old); n != 1 {
		return nil, fmt.Errorf("the passage occurs %d times in %s, not once: plant the bug anew", n, b.File)
	}
	return []byte(strings.Replace(string(text), b.Old, b.Replacement, 1)), nil
}
