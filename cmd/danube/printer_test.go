package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
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

func TestTextIsSafeForTerminals(t *testing.T) {
	for payload, want := range map[string]string{
		"plain":            "plain",
		"tab\tkept":        "tab\tkept",
		"grüß → 世界":        "grüß → 世界",
		"\x1b[31mred":      `\x1b[31mred`,
		"a\nb\r":           `a\nb\r`,
		"\xff\xfe":         `\xff\xfe`,
		"\x00":             `\x00`,
		"bidi \u202e here": `bidi \u202e here`,
		"\ufffd":           "\ufffd",
	} {
		if got := string(appendText(nil, &client.Message{Payload: []byte(payload)})); got != want+"\n" {
			t.Errorf("%q is printed as %q, want %q", payload, got, want)
		}
	}
}

// TestMessageJSONAnyBytes: whatever the bytes, the line is JSON that says the same.
func TestMessageJSONAnyBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		payload := make([]byte, rng.IntN(12))
		for i := range payload {
			payload[i] = byte(rng.IntN(256))
			if rng.IntN(2) == 0 {
				payload[i] &= 0x7f
			}
		}
		line := appendMessageJSON(nil, &client.Message{Topic: string(payload), Payload: payload})
		var got struct {
			Payload *string `json:"payload"`
			Base64  string  `json:"payload_base64"`
			Topic   string  `json:"topic"`
		}
		if err := json.Unmarshal(line, &got); err != nil || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("%q: %v", line, err)
		}
		back, err := base64.StdEncoding.DecodeString(got.Base64)
		if err != nil {
			t.Fatal(err)
		}
		if got.Payload != nil {
			back = []byte(*got.Payload)
		}
		if !bytes.Equal(back, payload) || got.Topic != string(bytes.ToValidUTF8(payload, []byte("\ufffd"))) && len(got.Topic) == 0 && len(payload) > 0 {
			t.Fatalf("%q came back as %q", payload, back)
		}
	}
}

// scripted is a feed of n messages, then of an error, or of silence.
func scripted(n int, then error) feed {
	i := 0
	return feed{
		next: func(ctx context.Context) (client.Message, error) {
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
		close: func(context.Context) error { return nil },
	}
}

// TestConsumeExitCodes: how a consumption ends and what that is worth.
func TestConsumeExitCodes(t *testing.T) {
	lost := errors.New("connection lost")
	for name, c := range map[string]struct {
		feed    feed
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
				s := newShell()
				l := &ledger{fail: c.pipe}
				s.app.out = l
				ctx := t.Context()
				if c.ctx != nil {
					ctx = c.ctx(t)
				}
				err := s.drain(ctx, c.feed, "/default/t", consumeFlags{output: &choice{value: "raw"}, count: &c.count, timeout: &c.timeout})
				if code := fail.Report(&s.err, err); code != c.code || bytes.Count(l.written.Bytes(), []byte("\n")) != c.lines {
					t.Errorf("exit code %d, %d bytes, want %d and %d lines\n%s", code, l.written.Len(), c.code, c.lines, s.err.String())
				}
			})
		})
	}
}

func TestGapsAreToldAndPassed(t *testing.T) {
	s := newShell()
	count, timeout := int64(2), time.Duration(0)
	said := false
	source := scripted(2, nil)
	next := source.next
	source.next = func(ctx context.Context) (client.Message, error) {
		if !said {
			said = true
			return client.Message{}, &client.GapError{Topic: "/default/t", From: 5, To: 8, Status: "lost"}
		}
		return next(ctx)
	}
	err := s.drain(t.Context(), source, "/default/t", consumeFlags{output: &choice{value: "raw"}, count: &count, timeout: &timeout})
	if err != nil || s.err.String() != "danube: /default/t:0 has a gap at offsets 5 to 7 (lost)\n" {
		t.Errorf("%v, says %q", err, s.err.String())
	}
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
