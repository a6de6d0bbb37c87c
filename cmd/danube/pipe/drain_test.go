package pipe

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
)

// scripted is a Feed of n messages, then of an error, or of silence.
func scripted(n int, then error) Feed {
	i := 0
	return Feed{
		Next: func(ctx context.Context) (client.Message, error) {
			if i < n {
				i++
				return *numbered(i), nil
			}
			if then != nil {
				return client.Message{}, then
			}
			<-ctx.Done()
			return client.Message{}, context.Cause(ctx)
		},
		Close: func(context.Context) error { return nil },
	}
}

// TestConsumeExitCodes: how a consumption ends and what that is worth.
func TestConsumeExitCodes(t *testing.T) {
	lost := errors.New("connection lost")
	for name, c := range map[string]struct {
		feed    Feed
		ctx     func(testing.TB) context.Context
		count   int64
		timeout time.Duration
		pipe    error
		code    int
		lines   int
	}{
		"count reached":               {feed: scripted(10, nil), count: 5, code: fail.Done, lines: 5},
		"interrupted":                 {feed: scripted(3, nil), ctx: interrupted, code: fail.Done, lines: 3},
		"interrupted with open count": {feed: scripted(3, nil), ctx: interrupted, count: 5, code: fail.Failed, lines: 3},
		"closed pipe":                 {feed: scripted(10_000, nil), pipe: syscall.EPIPE, code: fail.Done},
		"closed pipe, open count":     {feed: scripted(10_000, nil), count: 20_000, pipe: syscall.EPIPE, code: fail.Failed},
		"full disk":                   {feed: scripted(10_000, nil), pipe: syscall.ENOSPC, code: fail.Failed},
		"time is up":                  {feed: scripted(3, nil), timeout: time.Second, code: fail.Done, lines: 3},
		"time is up, open count":      {feed: scripted(3, nil), timeout: time.Second, count: 5, code: fail.TimedOut, lines: 3},
		"failed":                      {feed: scripted(3, lost), code: fail.Failed, lines: 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStreams()
				l := &ledger{fail: c.pipe}
				s.Out = l
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(t)
				}
				err := Drain{Where: "/default/t", Format: "raw", Count: c.count, Timeout: c.timeout}.Run(ctx, c.feed, s.Shell)
				if code := fail.Report(&s.err, err); code != c.code || bytes.Count(l.written.Bytes(), []byte("\n")) != c.lines {
					t.Errorf("exit code %d, %d bytes, want %d and %d lines\n%s", code, l.written.Len(), c.code, c.lines, s.err.String())
				}
			})
		})
	}
}

func TestGapsAreToldAndPassed(t *testing.T) {
	s := newStreams()
	said := false
	source := scripted(2, nil)
	next := source.Next
	source.Next = func(ctx context.Context) (client.Message, error) {
		if !said {
			said = true
			return client.Message{}, &client.GapError{Topic: "/default/t", From: 5, To: 8, Status: "lost"}
		}
		return next(ctx)
	}
	err := Drain{Where: "/default/t", Format: "raw", Count: 2}.Run(t.Context(), source, s.Shell)
	if err != nil || s.err.String() != "danube: /default/t:0 has a gap at offsets 5 to 7 (lost)\n" {
		t.Errorf("%v, says %q", err, s.err.String())
	}
}
