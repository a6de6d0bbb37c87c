package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/client/internal/acks"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// toConsumers sends a frame to every consumer attached to the fake.
func (f *fake) toConsumers(t protocol.Type, h func(handle uint32) protocol.Header, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		for handle := range c.subs {
			frame := protocol.AppendFrame(nil, t, 0, h(handle), body)
			f.wg.Go(func() { c.raw(frame) }) // returns when it is written
		}
	}
}

// TestPartsAreReceived delivers chosen messages of a batch, as a broker does for redeliveries.
func TestPartsAreReceived(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	whole := encode(t, batch.Identity{}, numbers(0, 10)...)
	whole.Stamp(batch.Stamp{Base: 100})
	part, err := batch.AppendPart(nil, whole, []int{2, 3, 4}, batch.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	f.toConsumers(protocol.TypeDeliver, func(h uint32) protocol.Header {
		return &protocol.Deliver{Handle: h, Generation: 1, First: 102, Count: 3, Attempt: 2, Late: true}
	}, part)
	for i, m := range receive(t, k, 3) {
		if m.Offset != uint64(102+i) || string(m.Payload) != fmt.Sprintf("m%06d", 2+i) || m.Deliveries != 2 || !m.Late {
			t.Errorf("received %+v", m)
		}
	}
	nothing(t, k)
}

// TestLyingDeliveries end the connection and hand out nothing.
func TestLyingDeliveries(t *testing.T) {
	good := encode(t, batch.Identity{}, "one", "two")
	tests := map[string]struct {
		d    protocol.Deliver
		body []byte
	}{
		"no body":            {protocol.Deliver{Count: 1}, nil},
		"no message":         {protocol.Deliver{Count: 0}, good},
		"more than it holds": {protocol.Deliver{Count: 3}, good},
		"behind its end":     {protocol.Deliver{First: 1, Count: 2}, good},
		"bytes behind it":    {protocol.Deliver{Count: 2}, append(slices.Clone([]byte(good)), 0)},
		"a control batch":    {protocol.Deliver{Count: 1}, batch.AppendMark(nil, 1, 0, 0)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.topic("/default/a", 1)
			k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{})
			f.toConsumers(protocol.TypeDeliver, func(h uint32) protocol.Header {
				d := test.d
				d.Handle, d.Generation = h, 1
				return &d
			}, test.body)
			if m, err := k.Receive(t.Context()); !hasCode(err, protocol.CodeCorruptBatch) {
				t.Errorf("received %q, %v", m.Payload, err)
			}
			eventually(t, "it is attached again", func() bool { return f.count(protocol.TypeSubscribe) == 2 })
		})
	}
}

// TestStaleGenerationIsDropped: what was under way when the subscription was moved is not handed out.
func TestStaleGenerationIsDropped(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put("one", "two", "three")
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	first := receive(t, k, 1)[0]
	again := encode(t, batch.Identity{}, "after the move")
	again.Stamp(batch.Stamp{Base: 50})
	f.toConsumers(protocol.TypeDeliver, func(h uint32) protocol.Header {
		return &protocol.Deliver{Handle: h, Generation: 7, First: 50, Count: 1, Attempt: 1}
	}, again)
	var got Message
	eventually(t, "the new generation arrives", func() bool {
		got = receive(t, k, 1)[0]
		return got.Offset == 50
	})
	if err := k.Ack(first); !hasCode(err, protocol.CodeStaleGeneration) {
		t.Errorf("ack from before: %v", err)
	}
	if err := k.Ack(got); err != nil {
		t.Error(err)
	}
	f.toConsumers(protocol.TypeDeliver, func(h uint32) protocol.Header {
		return &protocol.Deliver{Handle: h, Generation: 1, First: 50, Count: 1, Attempt: 1}
	}, again)
	nothing(t, k)
}

// TestReceivedIsReported: what waits in the queue is not, what the application took is.
func TestReceivedIsReported(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 100)...)
	reported := make(chan []protocol.Range, 100)
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type == protocol.TypeReceived {
			var r protocol.Ranges
			c.decode(fr, &r)
			reported <- slices.Clone(r.Ranges)
		}
		return false
	})
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	got := receive(t, k, 10)
	if err := k.Ack(got[4]); err != nil {
		t.Fatal(err)
	}
	var all acks.Set
	eventually(t, "ten are reported or acknowledged", func() bool {
		select {
		case rs := <-reported:
			for _, r := range rs {
				all.Add(r.From, r.To)
			}
		default:
		}
		return all.Len() >= 9
	})
	if all.Len() > 10 || !all.Has(9) || all.Has(10) {
		t.Errorf("reported: %v", all.Ranges())
	}
}

func TestCloseSaysWhatIsNotCommitted(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1).parts[0].put(numbers(0, 10)...)
	f.intercept(func(_ *fakeConn, fr protocol.Frame) bool { return fr.Type == protocol.TypeAck })
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	for _, m := range receive(t, k, 10) {
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := k.Close(ctx); !errors.Is(err, ErrTimeout) {
		t.Errorf("close: %v", err)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

// TestNonReliableTopic takes far more than was asked for, and acknowledges nothing.
func TestNonReliableTopic(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1).reliable = false
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{})
	for range 5 {
		f.toConsumers(protocol.TypeDeliver, func(h uint32) protocol.Header {
			return &protocol.Deliver{Handle: h, Generation: 1, Count: 3, Attempt: 1}
		}, encode(t, batch.Identity{}, "a", "b", "c"))
	}
	for _, m := range receive(t, k, 15) {
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := f.count(protocol.TypeAck) + f.count(protocol.TypeReceived); n != 0 {
		t.Errorf("%d acknowledgements of what is not kept", n)
	}
}

// TestDetachedForNowComesBack: a consumer that was moved or too slow attaches again.
func TestDetachedForNowComesBack(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{})
	f.toConsumers(protocol.TypeUnsubscribed, func(h uint32) protocol.Header {
		return &protocol.Detached{Handle: h, Err: protocol.Error{Code: protocol.CodeSlowConsumer}}
	}, nil)
	eventually(t, "it is attached again", func() bool { return f.count(protocol.TypeSubscribe) == 2 })
	part.put("x")
	if m := receive(t, k, 1)[0]; string(m.Payload) != "x" {
		t.Errorf("received %q", m.Payload)
	}
}

// TestSubscriptionGoneIsToldNotMadeAgain: after a reconnect the subscription is
// there no more. To make it again, at the end, would skip messages without a word.
func TestSubscriptionGoneIsToldNotMadeAgain(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{})
	f.mu.Lock()
	delete(part.subs, "s")
	f.mu.Unlock()
	f.hangUp(false)
	if _, err := k.Receive(t.Context()); !hasCode(err, protocol.CodeNoSuchSub) {
		t.Errorf("receive: %v", err)
	}
	if err := k.Ack(Message{}); err == nil {
		t.Error("a message of nobody was acknowledged")
	}
}

// TestGoAway: a broker announces that it closes; new requests go elsewhere, and
// closing the client does not wait for the broker.
func TestGoAway(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	c := f.dial(Config{})
	p := producer(t, c, "a", ProducerConfig{})
	f.mu.Lock()
	for fc := range f.conns {
		frame := protocol.AppendFrame(nil, protocol.TypeGoAway, 0, protocol.Errorf(protocol.CodeShuttingDown, "bye"), nil)
		f.wg.Go(func() { fc.raw(frame) }) // returns when it is written
	}
	f.mu.Unlock()
	eventually(t, "a new connection is made", func() bool {
		if _, err := c.Admin().Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		return f.count(protocol.TypeHello) == 2
	})
	if _, err := p.Send(t.Context(), text("still taken")); err != nil || len(part.payloads()) != 1 {
		t.Errorf("send on the old connection: %v", err)
	}
	c.Close()
}

// TestReceiveAllocatesLittle counts what receiving and acknowledging a message costs.
func TestReceiveAllocatesLittle(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	var w batch.Builder
	for range 1000 {
		w.Add(&batch.Message{Payload: make([]byte, 128)})
	}
	b, err := w.AppendTo(nil, batch.None, batch.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	for range 20 {
		part.append(b)
	}
	f.mu.Unlock()
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest, Queue: 20_000})
	eventually(t, "all is in the queue", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.streams[0].box.Bytes() == 20*len(b)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 5000 {
		m, err := k.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 1500 {
		t.Errorf("%d allocations for 5,000 messages", n)
	}
}
