package protocol

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// codes returns every code that has a row, in order.
func codes() []Code {
	var all []Code
	for c := range Code(len(meanings)) {
		if meanings[c].Name != "" {
			all = append(all, c)
		}
	}
	return all
}

// The list is append-only: a line that is there stays as it is. -update adds lines.
func TestErrorCodesAreAppendOnly(t *testing.T) {
	const path = "testdata/error-codes.txt"
	var now strings.Builder
	for _, c := range codes() {
		fmt.Fprintf(&now, "%d %s\n", c, c)
	}
	old, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	if !strings.HasPrefix(now.String(), string(old)) {
		t.Fatalf("a code was renamed, renumbered or taken away; the list was\n%sand would be\n%s", old, now.String())
	}
	if *update {
		if err := os.WriteFile(path, []byte(now.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if now.String() != string(old) {
		t.Errorf("new codes are not in %s: run with -update", path)
	}
}

func TestErrorTable(t *testing.T) {
	all := codes()
	if len(all) != len(meanings)-1 {
		t.Errorf("%d rows for the codes 1 to %d: one has none", len(all), len(meanings)-1)
	}
	names := map[string]Code{}
	for _, c := range all {
		m := c.Meaning()
		if other, twice := names[m.Name]; twice {
			t.Errorf("%s is the name of %d and %d", m.Name, other, uint16(c))
		}
		names[m.Name] = c
		if m.Text == "" || m.Name != strings.ToUpper(m.Name) {
			t.Errorf("row %d: %+v", c, m)
		}
		// What can be tried again says how, and what cannot does not.
		if m.Retriable == (m.Action == GiveUp) {
			t.Errorf("%s: retriable %v, action %s", m.Name, m.Retriable, m.Action)
		}
		// An unknown outcome is asked for under the same sequence; a certain one never needs to be.
		if (m.Action == AskAgain) != (m.Retriable && !m.NotStored) {
			t.Errorf("%s: action %s, not stored %v", m.Name, m.Action, m.NotStored)
		}
	}
	if m := Code(9999).Meaning(); m.Retriable || m.NotStored || m.Name != "CODE_9999" {
		t.Errorf("a code of a newer broker: %+v", m)
	}
}

func TestErrorsCompareByCode(t *testing.T) {
	err := fmt.Errorf("produce: %w", Errorf(CodeMoved, "partition %d lies elsewhere", 3))
	if !errors.Is(err, &Error{Code: CodeMoved}) || errors.Is(err, &Error{Code: CodeMoving}) {
		t.Error("errors.Is does not go by the code")
	}
	if got := (&Error{Code: CodeMoved}).Error(); got != "another broker owns the partition" {
		t.Errorf("an error without a text says %q", got)
	}
	if got := Errorf(CodeMoved, "x %d", 1).Error(); got != "x 1" {
		t.Errorf("text %q", got)
	}
}
