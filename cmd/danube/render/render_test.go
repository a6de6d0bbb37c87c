package render

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
)

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 3300000: "3,300,000", -1234567: "-1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("Grouped(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 3 << 30: "3.0 GiB"} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

// TestListsAreNeverNull: a list that is empty is [], also below pointers, in lists and in fields that are lists of lists.
func TestListsAreNeverNull(t *testing.T) {
	type inner struct {
		Names []string `json:"names"`
	}
	v := struct {
		Lists [][]int `json:"lists"`
		Inner *inner  `json:"inner"`
		Many  []inner `json:"many"`
	}{Lists: [][]int{nil}, Inner: &inner{}, Many: []inner{{}}}
	var b bytes.Buffer
	if err := JSON(&b, v); err != nil || strings.Contains(b.String(), "null") {
		t.Errorf("prints %v\n%s", err, b.String())
	}
}

// closed is a pipe that nobody reads.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestClosedPipeIsNoFailure: whoever closed the pipe has seen enough.
func TestClosedPipeIsNoFailure(t *testing.T) {
	tab := Table{Header: []string{"a"}}
	for what, err := range map[string]error{"JSON": JSON(closed{}, 1), "a table": tab.Print(closed{})} {
		if err == nil || fail.CodeOf(err) != fail.Done {
			t.Errorf("%s into a closed pipe is %v with exit code %d", what, err, fail.CodeOf(err))
		}
	}
}
