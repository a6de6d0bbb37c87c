package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

// outcomes gathers what callbacks are told.
type outcomes struct {
	mu   sync.Mutex
	res  []Result
	errs []error
}

func (o *outcomes) add(r Result, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
		return
	}
	o.res = append(o.res, r)
}

func (o *outcomes) offsets() (all []uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.res {
		all = append(all, r.Offset)
	}
	return all
}

func (o *outcomes) failures() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.errs)
}

// numbers are n different payloads.
func numbers(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("m%06d", i))
	}
	return all
}

func producer(t testing.TB, c *Client, topic string, cfg ProducerConfig) *Producer {
	t.Helper()
	p, err := c.Producer(t.Context(), topic, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSendReturnsOffsetAndTime(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	for i := range 3 {
		res, err := p.Send(t.Context(), text("x"))
		if err != nil {
			t.Fatal(err)
		}
		if res.Offset != uint64(i) || !res.AppendTime.Equal(time.UnixMilli(1_700_000_000_000)) || res.Duplicate {
			t.Errorf("message %d: result %+v", i, res)
		}
	}
	if n, err := p.Close(t.Context()); n != 0 || err != nil {
		t.Errorf("close: %d unknown, %v", n, err)
	}
	if got := len(part.payloads()); got != 3 {
		t.Errorf("%d messages stored", got)
	}
	if _, err := p.Send(t.Context(), text("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("send after close: %v", err)
	}
}

func TestSendAsyncKeepsOrderAndGathersBatches(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	var got outcomes
	want := numbers(0, 20000)
	for _, s := range want {
		if err := p.SendAsync(t.Context(), text(s), got.add); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(part.payloads(), want) {
		t.Error("what is stored is not what was sent, in order")
	}
	offsets := got.offsets()
	if len(offsets) != len(want) || !slices.IsSorted(offsets) {
		t.Errorf("%d results, sorted %v", len(offsets), slices.IsSorted(offsets))
	}
	if n := f.count(protocol.TypeProduce); n > len(want)/4 {
		t.Errorf("%d frames for %d messages: nothing was gathered", n, len(want))
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestInDoubtIsStoredOnce hangs up at every stage of a batch's life: before it
// was stored, after it was stored and before the ack, in the middle of the ack.
func TestInDoubtIsStoredOnce(t *testing.T) {
	tests := map[string]func(c *fakeConn, fr protocol.Frame){
		"before it was stored": func(*fakeConn, protocol.Frame) {},
		"after it was stored":  func(c *fakeConn, fr protocol.Frame) { c.store(fr) },
		"in the middle of the answer": func(c *fakeConn, fr protocol.Frame) {
			if ok, refusal := c.store(fr); refusal == nil {
				c.raw(protocol.AppendFrame(nil, protocol.TypeProduceOK, fr.ID, ok, nil)[:9])
			}
		},
	}
	for name, harm := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			part := f.topic("/default/a", 1).parts[0]
			p := producer(t, f.dial(Config{}), "a", ProducerConfig{BatchBytes: 300})
			n := 0
			var mu sync.Mutex
			f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
				mu.Lock()
				defer mu.Unlock()
				if fr.Type != protocol.TypeProduce {
					return false
				}
				if n++; n%7 != 0 || n > 63 {
					return false
				}
				harm(c, fr)
				_ = c.nc.Close()
				return true
			})
			var got outcomes
			want := numbers(0, 1000)
			for _, s := range want {
				if err := p.SendAsync(t.Context(), text(s), got.add); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if len(got.errs) > 0 {
				t.Fatal(got.errs)
			}
			if !slices.Equal(part.payloads(), want) {
				t.Error("what is stored is not each message once, in order")
			}
			offsets := got.offsets()
			for i, o := range offsets {
				if o != uint64(i) {
					t.Fatalf("message %d was told offset %d", i, o)
				}
			}
			if len(offsets) != len(want) || n < 7 {
				t.Errorf("%d results after %d frames", len(offsets), n)
			}
			if _, err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRefusals answers one frame in five with a code and looks at what becomes
// of its messages and of those behind them.
func TestRefusals(t *testing.T) {
	tests := map[string]struct {
		code   protocol.Code
		store  bool // although it is answered
		fails  bool // for the application
		doubts bool // as an UnknownError
	}{
		"overloaded":              {code: protocol.CodeOverloaded},
		"moving":                  {code: protocol.CodeMoving},
		"moved":                   {code: protocol.CodeMoved},
		"bad handle":              {code: protocol.CodeBadHandle},
		"unknown, not stored":     {code: protocol.CodeUnknownOutcome},
		"unknown, stored":         {code: protocol.CodeUnknownOutcome, store: true},
		"too large":               {code: protocol.CodeTooLarge, fails: true},
		"not allowed":             {code: protocol.CodeNotAllowed, fails: true},
		"internal, stored or not": {code: protocol.CodeInternal, fails: true, doubts: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			part := f.topic("/default/a", 1).parts[0]
			p := producer(t, f.dial(Config{}), "a", ProducerConfig{BatchBytes: 300})
			var mu sync.Mutex
			n := 0
			f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
				mu.Lock()
				defer mu.Unlock()
				if fr.Type != protocol.TypeProduce {
					return false
				}
				if n++; n%5 != 0 || n > 40 {
					return false
				}
				if test.store {
					c.store(fr)
				}
				var q protocol.Produce
				c.decode(fr, &q)
				c.f.mu.Lock()
				c.prods[q.Handle].broken = c.prods[q.Handle].owner == q.Handle
				c.f.mu.Unlock()
				c.refuse(fr.ID, protocol.Errorf(test.code, "as the test wants it"))
				return true
			})
			var mine sync.Mutex
			failed := map[string]error{}
			want := numbers(0, 400)
			for _, s := range want {
				err := p.SendAsync(t.Context(), text(s), func(_ Result, err error) {
					mine.Lock()
					defer mine.Unlock()
					if err != nil {
						failed[s] = err
					}
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			mine.Lock()
			defer mine.Unlock()
			want = slices.DeleteFunc(want, func(s string) bool { return failed[s] != nil })
			if !slices.Equal(part.payloads(), want) {
				t.Errorf("stored are %d messages, acknowledged were %d", len(part.payloads()), len(want))
			}
			if test.fails != (len(failed) > 0) {
				t.Errorf("%d messages failed", len(failed))
			}
			for s, err := range failed {
				_, doubts := errors.AsType[*UnknownError](err)
				if !errors.Is(err, &protocol.Error{Code: test.code}) || doubts != test.doubts {
					t.Fatalf("%s failed with: %v", s, err)
				}
			}
			if _, err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFullProducerBlocksUntilAcks(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	release := make(chan struct{})
	f.intercept(func(_ *fakeConn, fr protocol.Frame) bool {
		if fr.Type == protocol.TypeProduce {
			<-release
		}
		return false
	})
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{MaxPending: 4096})
	sent := 0
	var err error
	for err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err = p.SendAsync(ctx, Message{Payload: make([]byte, 100)}, nil); err == nil {
			sent++
		}
		cancel()
	}
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a full producer says: %v", err)
	}
	if sent < 25 || sent > 41 {
		t.Errorf("%d messages of 100 bytes fit into 4096", sent)
	}
	done := make(chan error, 1)
	go func() { done <- p.SendAsync(t.Context(), text("last"), nil) }()
	close(release)
	if err := <-done; err != nil {
		t.Errorf("send after room was made: %v", err)
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseSaysHowManyAreUnknown(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	f.intercept(func(_ *fakeConn, fr protocol.Frame) bool { return fr.Type == protocol.TypeProduce })
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	var got outcomes
	for range 10 {
		if err := p.SendAsync(t.Context(), text("x"), got.add); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a frame arrives", func() bool { return f.count(protocol.TypeProduce) > 0 })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	unknown, err := p.Close(ctx)
	u, is := errors.AsType[*UnknownError](err)
	if !is || unknown == 0 || u.Count != unknown || !errors.Is(err, ErrTimeout) {
		t.Errorf("close: %d unknown, %v", unknown, err)
	}
	if len(got.errs) != 10 {
		t.Errorf("%d of 10 callbacks were told", len(got.errs))
	}
}

func TestSendTimeoutOfContextIsUnknown(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	f.intercept(func(_ *fakeConn, fr protocol.Frame) bool { return fr.Type == protocol.TypeProduce })
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := p.Send(ctx, text("x"))
	if _, is := errors.AsType[*UnknownError](err); !is || !errors.Is(err, ErrTimeout) {
		t.Errorf("send: %v", err)
	}
}

func TestSendTimeoutEndsMessages(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{SendTimeout: 100 * time.Millisecond})
	f.hangUp(true)
	var got outcomes
	if err := p.SendAsync(t.Context(), text("late"), got.add); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got.errs) != 1 || !errors.Is(got.errs[0], ErrTimeout) {
		t.Fatalf("told: %v", got.errs)
	}
	f.mu.Lock()
	f.down = false
	f.mu.Unlock()
	res, err := p.Send(t.Context(), text("in time"))
	for errors.Is(err, ErrTimeout) { // the connection was not found again yet
		res, err = p.Send(t.Context(), text("in time"))
	}
	if err != nil || res.Offset != 0 || !slices.Equal(part.payloads(), []string{"in time"}) {
		t.Errorf("after the timeout: %+v, %v, stored %q", res, err, part.payloads())
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPartitionsByKeyAndInTurn(t *testing.T) {
	f := newFake(t)
	topic := f.topic("/default/a", 4)
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	for i := range 200 {
		key := fmt.Appendf(nil, "key%d", i%20)
		res, err := p.Send(t.Context(), Message{Key: key, Payload: key})
		if err != nil {
			t.Fatal(err)
		}
		if want := protocol.PartitionOf(key, 4); res.Partition != want {
			t.Errorf("key %s went to partition %d, not %d", key, res.Partition, want)
		}
	}
	for range 8 {
		if _, err := p.Send(t.Context(), text("no key")); err != nil {
			t.Fatal(err)
		}
	}
	for i, part := range topic.parts {
		n := 0
		for _, s := range part.payloads() {
			if s == "no key" {
				n++
			}
		}
		if n != 2 {
			t.Errorf("partition %d got %d of 8 messages without a key", i, n)
		}
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	one := producer(t, f.dial(Config{}), "a:3", ProducerConfig{})
	if res, err := one.Send(t.Context(), text("x")); err != nil || res.Partition != 3 {
		t.Errorf("a producer of one partition: %+v, %v", res, err)
	}
}
