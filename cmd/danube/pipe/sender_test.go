package pipe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/protocol"
)

// noon is the clock of the tests.
func noon() time.Time { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC) }

// streams is a shell in memory.
type streams struct {
	Shell
	out, err bytes.Buffer
}

func newStreams() *streams {
	s := &streams{}
	s.Shell = Shell{Out: &s.out, Err: &s.err, Now: noon}
	return s
}

// interrupted is a context that a signal ended.
func interrupted(t testing.TB) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fail.ErrInterrupted)
	return ctx
}

// press is a producer in memory. It answers when told to, or at once.
type press struct {
	mu      sync.Mutex
	got     []string
	waiting []func() // answers held back
	held    bool
	refuse  func(n int, payload string) error // nil: everything is stored
	full    bool                              // send blocks until its context ends
	sick    func() error                      // nil: nothing is wrong
}

func (p *press) send(ctx context.Context, m client.Message, done func(client.Result, error)) error {
	p.mu.Lock()
	if p.full {
		p.mu.Unlock()
		<-ctx.Done()
		return context.Cause(ctx)
	}
	n := len(p.got)
	p.got = append(p.got, string(m.Payload))
	answer := func() {
		if p.refuse != nil {
			if err := p.refuse(n, string(m.Payload)); err != nil {
				done(client.Result{}, err)
				return
			}
		}
		done(client.Result{Partition: n % 2, Offset: uint64(n / 2), AppendTime: noon()}, nil)
	}
	if p.held {
		p.waiting = append(p.waiting, answer)
		p.mu.Unlock()
		return nil
	}
	p.mu.Unlock()
	answer()
	return nil
}

// close answers what is held back, the last first: outcomes of several partitions come in any order.
func (p *press) close(context.Context) (int, error) {
	p.mu.Lock()
	waiting := p.waiting
	p.mu.Unlock()
	for i := len(waiting) - 1; i >= 0; i-- {
		waiting[i]()
	}
	return 0, nil
}

func (p *press) outlet() Outlet {
	return Outlet{Topic: "/default/t", Many: true, Send: p.send, Close: p.close, Trouble: func() error {
		if p.sick == nil {
			return nil
		}
		return p.sick()
	}}
}

// produce sends the lines of text through a sender.
func produce(ctx context.Context, s *streams, p *press, text string, asJSON bool) error {
	lines := newLineReader(strings.NewReader(text), 100)
	return NewSender(s.Shell, p.outlet(), client.Message{}, asJSON).Run(ctx, lineInput(lines), 0)
}

// golden compares text with what programs were promised.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got\n%swant, by testdata/%s,\n%s", got, name, want)
	}
}

// TestGoldenProduce holds what produce -o json prints when acknowledgements come in the wrong order and one line fails.
func TestGoldenProduce(t *testing.T) {
	s, p := newStreams(), &press{held: true}
	p.refuse = func(n int, _ string) error {
		if n == 1 {
			return &protocol.Error{Code: protocol.CodeTooLarge}
		}
		return nil
	}
	if err := produce(t.Context(), s, p, "a\nb\nc\nd\n", true); err == nil {
		t.Error("a line failed and produce did not")
	}
	golden(t, "produce.json", s.out.Bytes())
}

func TestProduceSummary(t *testing.T) {
	s, p := newStreams(), &press{}
	if err := produce(t.Context(), s, p, "a\n\nb", false); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(p.got, "|"); got != "a||b" {
		t.Errorf("sent %q", got)
	}
	if want := "sent 3, acknowledged 3, failed 0, offsets 0:0-1 1:0-0\n"; s.err.String() != want {
		t.Errorf("says %q, want %q", s.err.String(), want)
	}
	if s.out.Len() > 0 {
		t.Errorf("prints %q", s.out.String())
	}
}

// TestProduceSaysWhatItWaitsFor: one line for each reason, whose numbers may change, once it has lasted; none of it in
// what -o json prints, and the interruption ends it.
func TestProduceSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newStreams(), &press{full: true}
		s.Now = time.Now
		began := time.Now()
		p.sick = func() error {
			switch past := time.Since(began); {
			case past < 10*time.Second+time.Second/2:
				return fmt.Errorf("send to /default/t: %w", protocol.Errorf(protocol.CodeStorageFull, "%d bytes free", int(past)))
			case past < 20*time.Second:
				return protocol.Errorf(protocol.CodeMoving, "it is moving")
			case past < 30*time.Second:
				return nil
			}
			return protocol.Errorf(protocol.CodeMoving, "it is moving again") // for less than is worth a word
		}
		ctx, stop := context.WithCancelCause(t.Context())
		defer stop(nil)
		time.AfterFunc(32*time.Second, func() { stop(fail.ErrInterrupted) })
		if err := produce(ctx, s, p, "a\n", true); !errors.Is(err, fail.ErrInterrupted) {
			t.Error(err)
		}
		want := "danube: send to /default/t: 4000000000 bytes free; waiting\ndanube: it is moving; waiting\n"
		if got, _, _ := strings.Cut(s.err.String(), "interrupted;"); got != want || s.out.Len() > 0 {
			t.Errorf("says %q, want %q; prints %q", got, want, s.out.String())
		}
	})
}

// TestSummaryNamesThePartition where the topic has several, also when one got all.
func TestSummaryNamesThePartition(t *testing.T) {
	for want, many := range map[string]bool{"offsets 0-0\n": false, "offsets 0:0-0\n": true} {
		s, p := newStreams(), &press{}
		to := p.outlet()
		to.Many = many
		lines := newLineReader(strings.NewReader("a"), 100)
		if err := NewSender(s.Shell, to, client.Message{}, false).Run(t.Context(), lineInput(lines), 0); err != nil || !strings.HasSuffix(s.err.String(), want) {
			t.Errorf("says %q, %v; want %q", s.err.String(), err, want)
		}
	}
}

func TestLineTooLongFailsAlone(t *testing.T) {
	s, p := newStreams(), &press{}
	err := produce(t.Context(), s, p, "a\n"+strings.Repeat("x", 101)+"\nb\n", false)
	if fail.Report(&s.err, err) != fail.Failed || strings.Join(p.got, "|") != "a|b" {
		t.Errorf("%v, sent %q", err, p.got)
	}
	for _, want := range []string{"danube: line 2: 101 bytes are more than a message may have (100)\n", "sent 3, acknowledged 2, failed 1,", "1 of 3 messages not acknowledged"} {
		if !strings.Contains(s.err.String(), want) {
			t.Errorf("says %q without %q", s.err.String(), want)
		}
	}
}

// TestFinalErrorStops: what is wrong with the topic is wrong with every line.
func TestFinalErrorStops(t *testing.T) {
	s, p := newStreams(), &press{}
	p.refuse = func(int, string) error { return client.ErrNoSuchTopic }
	err := produce(t.Context(), s, p, strings.Repeat("a\n", 1000), false)
	if !errors.Is(err, client.ErrNoSuchTopic) || len(p.got) > 1 {
		t.Errorf("%v after %d messages", err, len(p.got))
	}
}

func TestManyFailuresAreCounted(t *testing.T) {
	s, p := newStreams(), &press{}
	p.refuse = func(int, string) error { return &protocol.Error{Code: protocol.CodeTooLarge} }
	_ = produce(t.Context(), s, p, strings.Repeat("a\n", 100), false)
	if n := strings.Count(s.err.String(), "danube: line "); n != failuresShown {
		t.Errorf("%d failures printed, want %d", n, failuresShown)
	}
	if want := fmt.Sprintf("danube: %d more lines failed\n", 100-failuresShown); !strings.Contains(s.err.String(), want) {
		t.Errorf("says %q without %q", s.err.String(), want)
	}
}

// TestInterruptionWaitsForWhatIsInFlight: the input never ends, the producer is full, and the account is exact.
func TestInterruptionWaitsForWhatIsInFlight(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s, p := newStreams(), &press{held: true}
	endless := make(chan struct{})
	defer close(endless)
	n := 0
	in := &Input{next: func() ([]byte, uint64, error) {
		if n++; n > 10 {
			cancel(fail.ErrInterrupted)
			<-endless
			return nil, 0, io.EOF
		}
		return []byte("x"), uint64(n), nil
	}}
	err := NewSender(s.Shell, p.outlet(), client.Message{}, false).Run(ctx, in, 0)
	if !errors.Is(err, fail.ErrInterrupted) || fail.CodeOf(err) != fail.Failed {
		t.Errorf("ended with %v", err)
	}
	if !strings.Contains(s.err.String(), "sent 10, acknowledged 10, failed 0") {
		t.Errorf("says %q", s.err.String())
	}
}

// TestInterruptionEnds: a broker that takes nothing, its disk full, holds up no interruption for ever.
func TestInterruptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		s, p := newStreams(), &press{held: true}
		to := p.outlet()
		to.Close = func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 2, ctx.Err()
		}
		in := &Input{next: func() ([]byte, uint64, error) { return nil, 0, io.EOF }}
		cancel(fail.ErrInterrupted)
		err := NewSender(s.Shell, to, client.Message{}, false).Run(ctx, in, 0)
		if fail.CodeOf(err) != fail.Failed || !strings.Contains(s.err.String(), "unknown 2") {
			t.Errorf("ended with %v, says %q", err, s.err.String())
		}
	})
}

func TestInterruptedWhileFull(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	s, p := newStreams(), &press{full: true}
	timer := time.AfterFunc(20*time.Millisecond, func() { cancel(fail.ErrInterrupted) })
	defer timer.Stop()
	if err := produce(ctx, s, p, "a\nb\n", true); !errors.Is(err, fail.ErrInterrupted) || !strings.Contains(s.err.String(), "sent 0, acknowledged 0, failed 0") {
		t.Errorf("%v, says %q", err, s.err.String())
	}
}

func TestClosedPipeStopsProducing(t *testing.T) {
	s, p := newStreams(), &press{}
	s.Out = &ledger{fail: io.ErrClosedPipe}
	err := produce(t.Context(), s, p, strings.Repeat("a\n", 100_000), true)
	if !errors.Is(err, io.ErrClosedPipe) || len(p.got) == 100_000 {
		t.Errorf("%v after %d messages", err, len(p.got))
	}
}

// TestSendingAllocatesNothing: millions of lines go through here.
func TestSendingAllocatesNothing(t *testing.T) {
	s := NewSender(newStreams().Shell, Outlet{Topic: "t", Trouble: func() error { return nil }, Send: func(_ context.Context, _ client.Message, done func(client.Result, error)) error {
		done(client.Result{Offset: 7}, nil)
		return nil
	}}, client.Message{}, false)
	payload, ctx := bytes.Repeat([]byte("x"), 40), t.Context()
	if n := testing.AllocsPerRun(1000, func() { s.send(ctx, payload, 1) }); n > 0 {
		t.Errorf("%v allocations a message", n)
	}
}

func TestPacerKeepsTheRate(t *testing.T) {
	p := newPacer(100)
	begun := time.Now()
	for range 21 {
		if err := p.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begun); took < 190*time.Millisecond {
		t.Errorf("21 messages at 100 a second took %v", took)
	}
	if err := newPacer(1).wait(interrupted(t)); err != nil {
		t.Errorf("the first is due at once: %v", err)
	}
}

// TestNothingIsSentAfterTheStop: a line that a slow input yields later is not in the account, so it must not be sent.
func TestNothingIsSentAfterTheStop(t *testing.T) {
	s, p := newStreams(), &press{}
	sending := NewSender(s.Shell, p.outlet(), client.Message{}, false)
	empty := &Input{next: func() ([]byte, uint64, error) { return nil, 0, io.EOF }}
	if err := sending.Run(t.Context(), empty, 0); err != nil {
		t.Fatal(err)
	}
	if sending.send(t.Context(), []byte("late"), 1) || sending.refuse(2, io.ErrShortBuffer) || len(p.got) > 0 || sending.sent > 0 {
		t.Errorf("sent %q after the account was closed", p.got)
	}
}
