package pipe

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

// Sender sends the messages of an input, many in flight, and keeps the account of what became of them.
type Sender struct {
	shell   Shell
	to      Outlet
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

// Outlet is a producer as a sender uses it.
type Outlet struct {
	Topic string
	Many  bool // the topic has several partitions
	Send  func(context.Context, client.Message, func(client.Result, error)) error
	// Close waits for what is in flight and says of how many messages the outcome stays unknown.
	Close func(context.Context) (unknown int, err error)
	// Trouble is what is being waited for, or nil.
	Trouble func() error
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

// NewSender makes a sender of messages that have the key and the properties of message. asJSON: each acknowledgement is
// printed, in the order of the messages.
func NewSender(shell Shell, to Outlet, message client.Message, asJSON bool) *Sender {
	s := &Sender{shell: shell, to: to, message: message, account: account{spans: map[int]*protocol.Range{}}}
	if asJSON {
		s.acks = &ackPrinter{out: bufio.NewWriterSize(shell.Out, 64<<10), now: shell.Now}
	}
	s.pool.New = func() any {
		f := &flight{}
		f.done = func(r client.Result, err error) { s.settle(f, r, err) }
		return f
	}
	return s
}

// Run sends everything, waits for what is in flight, also after an interruption, and prints the summary.
func (s *Sender) Run(ctx context.Context, in *Input, rate int) error {
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	s.stop, s.began = stop, s.shell.Now()
	watching, calm := context.WithCancel(context.WithoutCancel(ctx))
	var watch sync.WaitGroup
	watch.Go(func() { s.worry(watching) }) // returns when calm is called
	defer watch.Wait()
	defer calm()
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
	in.bar.Done()
	interrupted := errors.Is(context.Cause(ctx), fail.ErrInterrupted)
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
	unknown, closeErr := s.to.Close(closing)
	return s.report(err, closeErr, unknown, interrupted)
}

// worry tells what is being waited for, until ctx ends.
func (s *Sender) worry(ctx context.Context) {
	var w worry
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if err := s.to.Trouble(); w.look(s.shell.Now(), err) {
				s.notice("danube: %v; waiting", err)
			}
		}
	}
}

// notice is noticef while failures may be told as well.
func (s *Sender) notice(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shell.noticef(format, args...)
}

// pump hands over message after message. It returns nil at the end of the input or when it was stopped.
func (s *Sender) pump(ctx context.Context, in *Input, pace *pacer) error {
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
			in.bar.Set(in.read())
		}
	}
}

// send hands one message over; false says that no more are wanted.
func (s *Sender) send(ctx context.Context, payload []byte, number uint64) bool {
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
	if err := s.to.Send(ctx, s.message, f.done); err != nil {
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
func (s *Sender) forget(f *flight) {
	if s.acks != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.acks.queue = s.acks.queue[:len(s.acks.queue)-1]
	}
}

// refuse counts a message that is not even sent.
func (s *Sender) refuse(number uint64, err error) bool {
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
func (s *Sender) settle(f *flight, r client.Result, err error) {
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
func (s *Sender) fail(number uint64, err error) {
	a := &s.account
	if a.failed++; a.failed <= failuresShown {
		fmt.Fprintf(s.shell.Err, "danube: line %d: %v\n", number, err)
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
func (s *Sender) report(err, closeErr error, unknown int, interrupted bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var outErr error
	if s.acks != nil {
		outErr = s.acks.close()
	}
	a := &s.account
	if a.failed > failuresShown {
		s.shell.noticef("danube: %d more lines failed", a.failed-failuresShown)
	}
	s.shell.noticef("%s", a.summary(s.sent, unknown, s.to.Many, s.shell.Now().Sub(s.began)))
	failed := func(err error) error { return fail.Doing(err, "produce to %s", s.to.Topic) }
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
		return failed(fmt.Errorf("%w before the end of the input", fail.ErrInterrupted))
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
