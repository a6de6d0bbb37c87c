package retry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

// TestStoppedTellsWhatWentWrong: time that ran out is a timeout by its code, and the last failure stands beside it, once.
func TestStoppedTellsWhatWentWrong(t *testing.T) {
	late, cancel := context.WithDeadline(t.Context(), time.Now())
	defer cancel()
	ended, end := context.WithCancelCause(t.Context())
	end(io.ErrClosedPipe)
	lost := Lost("a:1", io.EOF)
	for name, c := range map[string]struct {
		ctx     context.Context
		last    error
		want    string
		timeout bool
	}{
		"late":                 {late, nil, "send: timed out", true},
		"late after a failure": {late, lost, "send: timed out; the last attempt: connection to a:1: EOF", true},
		"late twice":           {late, TimedOut("send", context.DeadlineExceeded, nil), "send: timed out", true},
		"ended":                {ended, nil, "send: io: read/write on closed pipe", false},
		"ended, with a reason": {ended, lost, "send: io: read/write on closed pipe; the last attempt: connection to a:1: EOF", false},
		"ended by the failure": {ended, fmt.Errorf("read: %w", io.ErrClosedPipe), "send: io: read/write on closed pipe", false},
	} {
		err := Stopped(c.ctx, "send", c.last)
		if err.Error() != c.want || errors.Is(err, &protocol.Error{Code: protocol.CodeTimeout}) != c.timeout || !errors.Is(err, context.Cause(c.ctx)) {
			t.Errorf("%s: %v", name, err)
		}
		if c.last != nil && !errors.Is(err, c.last) && name != "ended by the failure" {
			t.Errorf("%s: what went wrong is lost: %v", name, err)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for name, c := range map[string]struct {
		err       error
		retriable bool
		action    protocol.Action
	}{
		"lost":       {fmt.Errorf("fetch: %w", Lost("a:1", io.EOF)), true, protocol.LookUp},
		"refused":    {fmt.Errorf("fetch: %w", protocol.Errorf(protocol.CodeNoSuchTopic, "no")), false, protocol.CodeNoSuchTopic.Meaning().Action},
		"moved":      {protocol.Errorf(protocol.CodeMoving, "wait"), true, protocol.CodeMoving.Meaning().Action},
		"unexpected": {io.EOF, false, protocol.GiveUp},
	} {
		if got := Verdict(c.err); got.Retriable != c.retriable || got.Action != c.action {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestBackoffGrowsToItsEnd(t *testing.T) {
	for fails, want := range map[int]time.Duration{-1: 0, 0: 0, 1: First, 2: 2 * First, 4: 8 * First, 5: longest, 1000: longest} {
		if got := Backoff(fails); got != want {
			t.Errorf("after %d failures %v, want %v", fails, got, want)
		}
	}
}
