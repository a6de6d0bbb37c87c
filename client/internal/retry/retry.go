// Package retry is what to do about an operation that failed: whether to try it again and after how long, and the error it
// ends with when time runs out meanwhile.
package retry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/protocol"
)

// First is the pause before the first attempt that follows a failure.
const First = 50 * time.Millisecond

// longest is the longest pause.
const longest = 500 * time.Millisecond

// errTimeout has the code by which callers know that time ran out.
var errTimeout error = protocol.Errorf(protocol.CodeTimeout, "timed out")

// LostError ends what was under way on a connection that is over.
type LostError struct {
	Address string
	Err     error
}

// Lost is the error of what was under way on the connection to address, which err ended.
func Lost(address string, err error) error { return &LostError{Address: address, Err: err} }

// Error is the text for a person.
func (e *LostError) Error() string { return fmt.Sprintf("connection to %s: %v", e.Address, e.Err) }

// Unwrap is why the connection is over.
func (e *LostError) Unwrap() error { return e.Err }

// Verdict is what to do about err.
func Verdict(err error) protocol.Meaning {
	if _, ok := errors.AsType[*LostError](err); ok {
		return protocol.Meaning{Retriable: true, Action: protocol.LookUp}
	}
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Code.Meaning()
	}
	return protocol.Meaning{Action: protocol.GiveUp}
}

// Backoff is how long to wait after so many failures in a row.
func Backoff(fails int) time.Duration {
	if fails <= 0 {
		return 0
	}
	return min(First<<min(fails-1, 10), longest)
}

// Pause waits for d or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stopped is the error of an operation whose context ended; last is what went
// wrong before, or nil.
func Stopped(ctx context.Context, op string, last error) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		return &timeoutError{op: op, cause: cause, last: last}
	}
	if last != nil && !errors.Is(last, cause) {
		return fmt.Errorf("%s: %w; the last attempt: %w", op, cause, last)
	}
	return fmt.Errorf("%s: %w", op, cause)
}

// TimedOut is the error of an operation whose time ran out, with cause, while it was being tried again; last is what went
// wrong before, or nil.
func TimedOut(op string, cause, last error) error {
	return &timeoutError{op: op, cause: cause, last: last}
}

// timeoutError ends an operation whose time ran out while it was being tried again.
type timeoutError struct {
	op          string
	cause, last error
}

func (e *timeoutError) Error() string {
	said := e.op + ": timed out"
	if e.last == nil || e.last.Error() == said {
		return said
	}
	return fmt.Sprintf("%s: timed out; the last attempt: %v", e.op, e.last)
}

func (e *timeoutError) Unwrap() []error {
	if e.last == nil {
		return []error{errTimeout, e.cause}
	}
	return []error{errTimeout, e.cause, e.last}
}
