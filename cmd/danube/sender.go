package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
)

// sender sends the messages of an input, many in flight, and keeps the account of what became of them.
type sender struct {
	app     *app
	to      outlet
	message client.Message // key and properties of every message
	pool    sync.Pool      // of *flight; one serves many messages, so that none is allocated for each
	began   time.Time
	stop    context.CancelCauseFunc // ends the sending

	gate    sync.Mutex // held while a message is handed over, so that none is after stopped
	stopped bool
	sent    uint64

	mu      sync.Mutex // guards what follows
	account account
	acks    *ackPrinter // nil: not asked for
}

// outlet is a producer as the sender uses it.
type outlet struct {
	topic string
	many  bool // the topic has several partitions
	send  func(context.Context, client.Message, func(client.Result, error)) error
	close func(context.Context) (unknown int, err error)
	// trouble is what is being waited for, or nil.
	trouble func() error
}

// worry says what a command waits for, once it has waited for long, and again when the reason is another.
type worry struct {
	since time.Time // when it began to wait, zero while it does not
	told  string    // the reason that was told
}

// worryAfter is how long there may be trouble before a word is said of it: a hand-over takes less.
const worryAfter = 3 * time.Second

// look reports whether err, which may be nil, is to be told now.
func (w *worry) look(now time.Time, err error) bool {
	if err == nil {
		*w = worry{}
		return false
	}
	if w.since.IsZero() {
		w.since = now
	}
	reason := err.Error()
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		reason = e.Code.String() // its text may have numbers that change
	}
	if now.Sub(w.since) < worryAfter || reason == w.told {
		return false
	}
	w.told = reason
	return true
}

// account is what became of the messages.
type account struct {
	acked, failed uint64
	spans         map[int]*protocol.Range // offsets acknowledged, by partition
	last          *protocol.Range         // the span used last, of partition of
	of            int
	fatal         error // an error that concerns more than one message
}

// flight is one message on its way.
type flight struct {
	line   uint64
	result client.Result
	state  flightState
	done   func(client.Result, error) // bound once
}

type flightState uint8

const (
	flying flightState = iota
	landed
	crashed
)

// interruptedTime bounds how long an interrupted command waits for answers: a broker whose disk is full may never give
// them, and what is then unknown is counted.
const interruptedTime = 10 * time.Second

// Failures printed one by one before the rest is only counted.
const failuresShown = 20

func newSender(a *app, to outlet, asJSON bool) *sender {
	s := &sender{app: a, to: to, account: account{spans: map[int]*protocol.Range{}}}
	if asJSON {
		s.acks = &ackPrinter{out: bufio.NewWriterSize(a.out, 64<<10), now: a.now}
	}
	s.pool.New = func() any {
		f := &flight{}
		f.done = func(r client.Result, err error) { s.settle(f, r, err) }
		return f
	}
	return s
}

// run sends everything, waits for what is in flight, also after an interruption, and prints the summary.
func (s *sender) run(ctx context.Context, in *input, rate int) error {
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop, s.began = stop, s.app.now()
	var w worry
	defer every(time.Second, func() {
		if err := s.to.trouble(); w.look(s.app.now(), err) {
			s.notice("danube: %v; waiting", err)
		}
	}, func() {})()
	finished := make(chan error, 1)
	// Returns when the input ends or sending does; a read of standard input that never returns is left behind.
	go func() { finished <- s.pump(sending, in, newPacer(rate)) }()
	var err error
	select {
	case err = <-finished:
	case <-sending.Done():
	}
	s.gate.Lock()
	s.stopped = true
	s.gate.Unlock()
	if in.bar != nil {
		in.bar.done()
	}
	interrupted := errors.Is(context.Cause(ctx), errInterrupted)
	if interrupted {
		s.notice("interrupted; waiting for what is in flight, at most %s (once more gives up)", settings.FormatDuration(interruptedTime))
	}
	// The first signal ended ctx; the second ends the process.
	closing := context.WithoutCancel(ctx)
	if interrupted {
		var cancel context.CancelFunc
		closing, cancel = context.WithTimeout(closing, interruptedTime)
		defer cancel()
	}
	unknown, closeErr := s.to.close(closing)
	return s.report(err, closeErr, unknown, interrupted)
}

// notice is noticef while failures may be told as well.
func (s *sender) notice(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.app.noticef(format, args...)
}

// pump hands over message after message. It returns nil at the end of the input or when it was stopped.
func (s *sender) pump(ctx context.Context, in *input, pace *pacer) error {
	for {
		payload, number, err := in.next()
		tooLong, skip := errors.AsType[*tooLongError](err)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !skip:
			return fmt.Errorf("read messages: %w", err)
		}
		if pace.wait(ctx) != nil {
			return nil
		}
		more := true
		if skip {
			more = s.refuse(number, tooLong)
		} else {
			more = s.send(ctx, payload, number)
		}
		if !more {
			return nil
		}
		if in.bar != nil && number&1023 == 0 {
			in.bar.set(in.read())
		}
	}
}

// send hands one message over; false says that no more are wanted.
func (s *sender) send(ctx context.Context, payload []byte, number uint64) bool {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.stopped || ctx.Err() != nil {
		return false
	}
	f := s.pool.Get().(*flight)
	f.line, f.state = number, flying
	if s.acks != nil {
		s.mu.Lock()
		s.acks.queue = append(s.acks.queue, f)
		s.mu.Unlock()
	}
	s.message.Payload = payload
	if err := s.to.send(ctx, s.message, f.done); err != nil {
		if ctx.Err() != nil {
			s.forget(f)
			return false
		}
		s.sent++
		f.done(client.Result{}, err)
		return ctx.Err() == nil
	}
	s.sent++
	return true
}

// forget takes back the flight of a message that was not handed over.
func (s *sender) forget(f *flight) {
	if s.acks != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acks.queue = s.acks.queue[:len(s.acks.queue)-1]
	}
}

// refuse counts a message that is not even sent.
func (s *sender) refuse(number uint64, err error) bool {
	s.gate.Lock()
	defer s.gate.Unlock()
	if s.stopped {
		return false
	}
	s.sent++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail(number, err)
	return true
}

// settle is called once for each message with its outcome.
func (s *sender) settle(f *flight, r client.Result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.fail(f.line, err)
		f.state = crashed
	} else {
		s.account.cover(r)
		f.state, f.result = landed, r
	}
	if s.acks == nil {
		s.pool.Put(f)
		return
	}
	if err := s.acks.print(&s.pool); err != nil {
		s.stop(err)
	}
}

// fail counts and tells; an error that is no matter of the one message stops the sending. s.mu is held.
func (s *sender) fail(number uint64, err error) {
	a := &s.account
	if a.failed++; a.failed <= failuresShown {
		fmt.Fprintf(s.app.err, "danube: line %d: %v\n", number, err)
	}
	_, tooLong := errors.AsType[*tooLongError](err)
	if !tooLong && !errors.Is(err, &protocol.Error{Code: protocol.CodeTooLarge}) && a.fatal == nil {
		a.fatal = err
		s.stop(err)
	}
}

// cover counts an acknowledged message and widens the offsets of its partition.
func (a *account) cover(r client.Result) {
	a.acked++
	span := a.last
	if span == nil || a.of != r.Partition {
		if span = a.spans[r.Partition]; span == nil {
			span = &protocol.Range{From: r.Offset, To: r.Offset + 1}
			a.spans[r.Partition] = span
		}
		a.last, a.of = span, r.Partition
	}
	span.From, span.To = min(span.From, r.Offset), max(span.To, r.Offset+1)
}

// report prints the summary and says whether all went well.
func (s *sender) report(err, closeErr error, unknown int, interrupted bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var outErr error
	if s.acks != nil {
		outErr = s.acks.close()
	}
	a := &s.account
	if a.failed > failuresShown {
		s.app.noticef("danube: %d more lines failed", a.failed-failuresShown)
	}
	s.app.noticef("%s", a.summary(s.sent, unknown, s.to.many, s.app.now().Sub(s.began)))
	failed := func(err error) error { return fail.Doing(err, "produce to %s", s.to.topic) }
	switch {
	case err != nil:
		return failed(err)
	case outErr != nil:
		return fmt.Errorf("write acknowledgements: %w", outErr)
	case a.fatal != nil:
		return failed(a.fatal)
	case closeErr != nil:
		return failed(closeErr)
	case a.failed > 0 || unknown > 0:
		return failed(fmt.Errorf("%d of %s not acknowledged", a.failed+uint64(unknown), render.Plural(s.sent, "message")))
	case interrupted:
		return failed(fmt.Errorf("%w before the end of the input", errInterrupted))
	}
	return nil
}

// summary is the line at the end: sent, acknowledged, failed, first and last offset, rate. With many
// partitions in the topic each is named, also when it is the only one that got something.
func (a *account) summary(sent uint64, unknown int, many bool, took time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sent %d, acknowledged %d, failed %d", sent, a.acked, a.failed)
	if unknown > 0 {
		fmt.Fprintf(&b, ", unknown %d", unknown)
	}
	partitions := slices.Sorted(maps.Keys(a.spans))
	if len(partitions) > 0 {
		b.WriteString(", offsets")
	}
	for _, p := range partitions {
		b.WriteByte(' ')
		if many {
			fmt.Fprintf(&b, "%d:", p)
		}
		b.WriteString(render.Offsets(a.spans[p].From, a.spans[p].To))
	}
	if took > 0 && a.acked > 0 {
		fmt.Fprintf(&b, ", %.0f messages/s", float64(a.acked)/took.Seconds())
	}
	return b.String()
}
