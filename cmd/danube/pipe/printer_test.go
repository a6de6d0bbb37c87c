package pipe

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/client"
)

// ledger is a writer and an acknowledger that note in what order they were called.
type ledger struct {
	written bytes.Buffer
	acked   []uint64
	early   bool // something was acknowledged before it was written
	fail    error
	perLine int
}

func (l *ledger) Write(p []byte) (int, error) {
	if l.fail != nil {
		return 0, l.fail
	}
	return l.written.Write(p)
}

func (l *ledger) ack(m client.Message) error {
	l.acked = append(l.acked, m.Offset)
	if l.written.Len() < len(l.acked)*l.perLine {
		l.early = true
	}
	return nil
}

func numbered(n int) *client.Message {
	return &client.Message{Offset: uint64(n), Payload: []byte("123456789")}
}

func TestAcknowledgedAfterWritten(t *testing.T) {
	l := &ledger{perLine: 10}
	p := newPrinter(l, "raw", l.ack, func(error) {})
	for i := range 10_000 {
		if err := p.print(numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.acked) < 10_000-printAcks {
		t.Errorf("%d acknowledged before the end: a subscription's window would be full", len(l.acked))
	}
	if err := p.close(); err != nil {
		t.Fatal(err)
	}
	if len(l.acked) != 10_000 || l.written.Len() != 100_000 || l.early {
		t.Errorf("%d acknowledged, %d bytes written, early %v", len(l.acked), l.written.Len(), l.early)
	}
}

func TestNothingAcknowledgedThatWasNotWritten(t *testing.T) {
	l := &ledger{fail: syscall.EPIPE}
	p := newPrinter(l, "raw", l.ack, func(error) {})
	var err error
	for i := 0; i < 1000 && err == nil; i++ {
		err = p.print(numbered(i))
	}
	if !errors.Is(err, syscall.EPIPE) || !errors.Is(p.close(), syscall.EPIPE) || len(l.acked) > 0 {
		t.Errorf("%v, %d acknowledged", err, len(l.acked))
	}
}

func TestFlushedWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{perLine: 10}
		p := newPrinter(l, "raw", l.ack, func(error) {})
		// The timer's goroutine uses the ledger under the printer's lock.
		written := func() (bytes, acked int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return l.written.Len(), len(l.acked)
		}
		if err := p.print(numbered(0)); err != nil {
			t.Fatal(err)
		}
		if n, _ := written(); n > 0 {
			t.Error("every message is a write")
		}
		<-time.After(2 * printDelay)
		if n, acked := written(); n != 10 || acked != 1 {
			t.Errorf("%d bytes written, %d acknowledged after a pause", n, acked)
		}
		stopped := make(chan error, 1)
		p.mu.Lock()
		l.fail, p.stop = syscall.EPIPE, func(err error) { stopped <- err }
		p.mu.Unlock()
		if err := p.print(numbered(1)); err != nil {
			t.Fatal(err)
		}
		if err := <-stopped; !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a closed pipe stops with %v", err)
		}
		if err := p.close(); !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	})
}

func BenchmarkPrintRaw(b *testing.B) {
	p := newPrinter(discard{}, "raw", nil, func(error) {})
	m := &client.Message{Payload: bytes.Repeat([]byte("x"), 40)}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.print(m); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.close(); err != nil {
		b.Fatal(err)
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
