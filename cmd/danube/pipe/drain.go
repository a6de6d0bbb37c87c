package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/terminal"
)

// Feed yields messages: a reader or a consumer.
type Feed struct {
	Next  func(context.Context) (client.Message, error)
	Ack   func(client.Message) error // nil: nothing is acknowledged
	Close func(context.Context) error
}

// Drain is what to do with what a feed yields.
type Drain struct {
	Where   string        // the topic, for what is said
	Format  string        // text, json or raw
	Count   int64         // how many messages are wanted; 0 for no end
	Timeout time.Duration // 0 for no end
}

// Run prints what the feed yields until the count is reached, the time is up, or someone says stop. A reader of standard
// output that went away and an interruption are ordinary ends, unless a count was asked for.
func (d Drain) Run(ctx context.Context, source Feed, to Shell) error {
	receiving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if d.Timeout > 0 {
		timer := time.AfterFunc(d.Timeout, func() { stop(ErrTimeIsUp) })
		defer timer.Stop()
	}
	p := newPrinter(to.Out, d.Format, source.Ack, stop)
	if terminal.Is(to.Err) {
		waiting := time.AfterFunc(500*time.Millisecond, func() {
			if p.count() == 0 {
				to.noticef("waiting at the end of %s (--from earliest reads what is there)", d.Where)
			}
		})
		defer waiting.Stop()
	}
	err := to.pull(receiving, source, p, d.Count)
	// What was received and not printed is given back; what was printed is acknowledged.
	flushErr := p.close()
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	closeErr := source.Close(closing)
	return ended{where: d.Where, err: err, flush: flushErr, close: closeErr, got: p.count(), want: uint64(d.Count)}.verdict()
}

// ErrTimeIsUp is the cause of a context that --timeout ended.
var ErrTimeIsUp = errors.New("timed out")

// pull hands message after message to the printer; it returns why it ended, nil for the count.
func (s Shell) pull(ctx context.Context, source Feed, p *printer, count int64) error {
	var m client.Message // outside the loop, or every message would be one more on the heap
	var err error
	for n := int64(0); count == 0 || n < count; {
		m, err = source.Next(ctx)
		if gap, ok := errors.AsType[*client.GapError](err); ok {
			s.noticef("danube: %v", gap)
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if err := p.print(&m); err != nil {
			return err
		}
		n++
	}
	return nil
}

// ended is how a consumption came to its end.
type ended struct {
	where             string
	err, flush, close error
	got, want         uint64
}

// verdict chooses the exit code.
func (e ended) verdict() error {
	err := e.err
	if e.flush != nil {
		err = e.flush
	}
	switch {
	case err == nil:
		err = e.close
		if err == nil {
			return nil
		}
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe), errors.Is(err, fail.ErrInterrupted):
		if e.want == 0 {
			return nil
		}
	case errors.Is(err, ErrTimeIsUp):
		if e.want == 0 {
			return nil
		}
		return fail.With(fail.TimedOut, fmt.Errorf("consume %s: %w with %d of %s", e.where, err, e.got, render.Plural(e.want, "message")))
	}
	if e.want > 0 && e.got < e.want {
		return fail.Doing(err, "consume %s: %d of %s came", e.where, e.got, render.Plural(e.want, "message"))
	}
	return fail.Doing(err, "consume %s", e.where)
}
