package client

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

func consumer(t testing.TB, c *Client, topic string, cfg ConsumerConfig) *Consumer {
	t.Helper()
	if cfg.Subscription == "" {
		cfg.Subscription = "s"
	}
	k, err := c.Consumer(t.Context(), topic, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var earliest = protocol.Position{Kind: protocol.Earliest}

// receive takes n messages.
func receive(t testing.TB, k *Consumer, n int) (all []Message) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range n {
		m, err := k.Receive(ctx)
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", len(all), n, err)
		}
		all = append(all, m)
	}
	return all
}

// nothing checks that no message comes within a moment.
func nothing(t testing.TB, k *Consumer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if m, err := k.Receive(ctx); !errors.Is(err, ErrTimeout) {
		t.Errorf("received %q (offset %d), %v", m.Payload, m.Offset, err)
	}
}

func payloads(ms []Message) (all []string) {
	for _, m := range ms {
		all = append(all, string(m.Payload))
	}
	return all
}

// ackedUpTo reports how many messages the subscription has acknowledged.
func (p *fakePart) acked(sub string) uint64 {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	return p.subs[sub].acked.Len()
}

func TestReceiveInOrderWithCredit(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	want := numbers(0, 5000)
	for i := 0; i < len(want); i += 500 {
		part.put(want[i : i+500]...)
	}
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest, Queue: 100})
	got := receive(t, k, len(want))
	if !slices.Equal(payloads(got), want) {
		t.Error("what is received is not what is stored, in order")
	}
	for i, m := range got {
		if m.Offset != uint64(i) || m.Topic != "/default/a" || m.Deliveries != 1 || m.AppendTime.IsZero() {
			t.Fatalf("message %d: %+v", i, m)
		}
	}
	if n := f.count(protocol.TypeCredit); n < 90 || n > 110 {
		t.Errorf("%d credits for 5,000 messages through a queue of 100", n)
	}
	nothing(t, k)
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestAcksAreGathered(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 2000)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	for _, m := range receive(t, k, 2000) {
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := part.acked("s"); n != 2000 {
		t.Errorf("%d of 2,000 acknowledged", n)
	}
	if n := f.count(protocol.TypeAck); n > 20 {
		t.Errorf("%d ack frames for 2,000 messages", n)
	}
	if _, err := k.Receive(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("receive after close: %v", err)
	}
}

func TestAckUpToLeavesWhatWasNotReceived(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 10)...)
	c := f.dial(Config{})
	k := consumer(t, c, "a", ConsumerConfig{From: earliest})
	got := receive(t, k, 5)
	if err := k.AckUpTo(got[3]); err != nil {
		t.Fatal(err)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := part.acked("s"); n != 4 {
		t.Errorf("%d acknowledged", n)
	}
	k = consumer(t, c, "a", ConsumerConfig{})
	if got := payloads(receive(t, k, 6)); !slices.Equal(got, numbers(4, 10)) {
		t.Errorf("the next consumer got %q", got)
	}
}

// TestReconnectDoesNotRepeatWhatWasAcked crashes a broker that has committed
// none of the acknowledgements: what was acknowledged is not handed out again
// and acknowledged anew; what was received only comes again.
func TestReconnectDoesNotRepeatWhatWasAcked(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 100)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	got := receive(t, k, 60)
	for i, m := range got {
		if i%3 != 0 {
			if err := k.Ack(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "the acks arrive", func() bool { return part.acked("s") == 40 })
	f.crash()
	eventually(t, "the consumer is attached again", func() bool { return f.count(protocol.TypeSubscribe) == 2 })
	// One that is acknowledged only now, from the old connection's delivery.
	if err := k.Ack(got[3]); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, s := range numbers(0, 100) {
		if i != 3 && (i >= 60 || i%3 == 0) {
			want = append(want, s)
		}
	}
	again := receive(t, k, len(want))
	if !slices.Equal(payloads(again), want) {
		t.Errorf("after the crash came %q", payloads(again))
	}
	if again[0].Deliveries != 2 || again[len(again)-1].Deliveries == 0 {
		t.Errorf("deliveries %d, %d", again[0].Deliveries, again[len(again)-1].Deliveries)
	}
	for _, m := range again {
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	nothing(t, k)
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if n := part.acked("s"); n != 100 {
		t.Errorf("%d of 100 acknowledged", n)
	}
}

// TestHandedOutAgainIsMarked crashes a broker that forgets what it has delivered: of what comes again, what the
// application had says so, whatever the broker says of it, and what it had not is a first delivery (I7).
func TestHandedOutAgainIsMarked(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 10)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	receive(t, k, 4)
	f.mu.Lock()
	clear(part.subs["s"].tries)
	f.mu.Unlock()
	f.crash()
	eventually(t, "the consumer is attached again", func() bool { return f.count(protocol.TypeSubscribe) == 2 })
	for i, m := range receive(t, k, 10) {
		want := 1
		if i < 4 {
			want = 2
		}
		if m.Offset != uint64(i) || m.Deliveries != want {
			t.Errorf("offset %d with delivery %d came, want %d with %d", m.Offset, m.Deliveries, i, want)
		}
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNackComesAgain(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1).parts[0].put(numbers(0, 3)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	got := receive(t, k, 3)
	if err := k.Nack(got[2], time.Second, "not today"); err != nil {
		t.Fatal(err)
	}
	again := receive(t, k, 1)[0]
	if again.Offset != 2 || again.Deliveries != 2 {
		t.Errorf("came again: %+v", again)
	}
}

func TestAckConfirmedSaysStale(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 3)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	got := receive(t, k, 3)
	if err := k.AckConfirmed(t.Context(), got[0], got[2]); err != nil {
		t.Fatal(err)
	}
	if n := part.acked("s"); n != 2 {
		t.Errorf("%d acknowledged", n)
	}
	if err := k.AckConfirmed(t.Context(), got[0]); err != nil {
		t.Errorf("acknowledged twice with confirmation: %v", err)
	}
	f.mu.Lock()
	part.subs["s"].on.held.Clear() // given to another one
	f.mu.Unlock()
	if err := k.AckConfirmed(t.Context(), got[1]); !hasCode(err, protocol.CodeStaleGeneration) {
		t.Errorf("acknowledged what another one has: %v", err)
	}
}

func TestSeekForgetsWhatWasBefore(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1).parts[0].put(numbers(0, 100)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	old := receive(t, k, 50)
	if err := k.Ack(old[20]); err != nil {
		t.Fatal(err)
	}
	if err := k.Seek(t.Context(), protocol.Position{Kind: protocol.AtOffset, Offset: 20}); err != nil {
		t.Fatal(err)
	}
	if err := k.Ack(old[0]); !hasCode(err, protocol.CodeStaleGeneration) {
		t.Errorf("ack of a message from before the seek: %v", err)
	}
	if got := payloads(receive(t, k, 80)); !slices.Equal(got, numbers(20, 100)) {
		t.Errorf("after the seek came %q", got)
	}
}

func TestTakenOverAndDeletedAreTold(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{Name: "me"})
	other := consumer(t, f.dial(Config{}), "a", ConsumerConfig{Name: "me"})
	if _, err := k.Receive(t.Context()); !hasCode(err, protocol.CodeConsumerReplaced) {
		t.Errorf("the one taken over is told: %v", err)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	f.mu.Lock()
	for c := range f.conns {
		for h := range c.subs {
			go c.send(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: h, Err: *protocol.Errorf(protocol.CodeNoSuchTopic, "deleted")}, nil)
		}
	}
	f.mu.Unlock()
	if _, err := other.Receive(t.Context()); !errors.Is(err, ErrNoSuchTopic) {
		t.Errorf("after the topic was deleted: %v", err)
	}
	if _, err := f.dial(Config{}).Consumer(t.Context(), "a", ConsumerConfig{Subscription: "none", Existing: true}); !hasCode(err, protocol.CodeNoSuchSub) {
		t.Errorf("a subscription that must exist: %v", err)
	}
}

func TestDamagedDeliveryIsToldAndComesAgain(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	bad := encode(t, batch.Identity{}, "one")
	bad[len(bad)-1] ^= 1
	f.mu.Lock()
	for c := range f.conns {
		for h := range c.subs {
			go c.send(protocol.TypeDeliver, 0, &protocol.Deliver{Handle: h, Generation: 1, Count: 1, Attempt: 1}, bad)
		}
	}
	f.mu.Unlock()
	if _, err := k.Receive(t.Context()); !hasCode(err, protocol.CodeCorruptBatch) {
		t.Errorf("a damaged delivery: %v", err)
	}
	part.put("one")
	if got := receive(t, k, 1)[0]; string(got.Payload) != "one" {
		t.Errorf("after it came %q", got.Payload)
	}
}

func TestGapIsTold(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	gaps := make(chan GapError, 1)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{OnGap: func(g GapError) { gaps <- g }})
	f.mu.Lock()
	for c := range f.conns {
		for h := range c.subs {
			go c.send(protocol.TypeGap, 0, &protocol.GapNotice{Handle: h, From: 3, To: 9, Status: "lost"}, nil)
		}
	}
	f.mu.Unlock()
	if g := <-gaps; g.From != 3 || g.To != 9 || g.Status != "lost" || g.Topic != k.Topic() {
		t.Errorf("told of %v", g)
	}
}

func TestConsumerOverPartitions(t *testing.T) {
	f := newFake(t)
	topic := f.topic("/default/a", 3)
	for i, p := range topic.parts {
		p.put(numbers(i*100, i*100+100)...)
	}
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest, Queue: 10})
	got := receive(t, k, 300)
	last := map[int]uint64{}
	for _, m := range got {
		if m.Offset != last[m.Partition] {
			t.Fatalf("partition %d: offset %d after %d", m.Partition, m.Offset, last[m.Partition])
		}
		last[m.Partition]++
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for i, p := range topic.parts {
		if n := p.acked("s"); n != 100 {
			t.Errorf("partition %d: %d acknowledged", i, n)
		}
	}
}

func TestMessagesEndsWithTheError(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1).parts[0].put(numbers(0, 3)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := 0
	for _, err := range k.Messages(ctx) {
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			break
		}
		if n++; n == 3 {
			cancel()
		}
	}
	if n != 3 {
		t.Errorf("%d messages", n)
	}
}

// TestConfirmedAckGoesToTheNewOwner: the partition is handed over while an
// acknowledgement is on its way. The old owner answers MOVED, the new one has
// not delivered the message yet; the caller hears of neither.
func TestConfirmedAckGoesToTheNewOwner(t *testing.T) {
	tests := map[string]struct {
		do    func(context.Context, *Consumer, Message) error
		acked uint64
	}{
		"confirmed": {func(ctx context.Context, k *Consumer, m Message) error { return k.AckConfirmed(ctx, m) }, 1},
		"closing": {func(ctx context.Context, k *Consumer, m Message) error {
			return errors.Join(k.AckUpTo(m), k.Close(ctx))
		}, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			part := f.topic("/default/a", 1).parts[0]
			part.put(numbers(0, 3)...)
			k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
			m := receive(t, k, 3)[2]
			var moved, early int
			f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
				var a protocol.Ack
				switch {
				case fr.Type != protocol.TypeAck:
					return false
				case a.Decode(fr.Header) != nil || !a.Confirm:
					return true // what nobody waits for is lost with the old owner
				}
				if moved++; moved == 1 {
					part.handOver()
					c.refuse(fr.ID, protocol.Errorf(protocol.CodeMoved, "elsewhere"))
					return true
				}
				if early++; early == 1 { // before it is delivered again
					c.send(protocol.TypeAckOK, fr.ID, &protocol.AckOK{Stale: 1}, nil)
					return true
				}
				return false
			})
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := test.do(ctx, k, m); err != nil {
				t.Fatal(err)
			}
			if n := part.acked("s"); n != test.acked {
				t.Errorf("%d acknowledged at the new owner", n)
			}
			if n := f.count(protocol.TypeSubscribe); n != 2 {
				t.Errorf("subscribed %d times", n)
			}
		})
	}
}

// TestConfirmedAckDoesNotWaitForRoom: a new owner has delivered as many messages again as the consumer has room for, and
// not yet the one to be acknowledged. Who waits for that would wait for himself.
func TestConfirmedAckDoesNotWaitForRoom(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 100)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest, Queue: 10})
	m := receive(t, k, 100)[99]
	part.handOver()
	f.hangUp(false)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := k.AckConfirmed(ctx, m); err == nil || ctx.Err() != nil {
		t.Fatalf("acknowledged what has not come again: %v", err)
	}
	for range 99 { // all but the last come again
		if m, err := k.Receive(t.Context()); err != nil {
			t.Fatal(err)
		} else if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := part.acked("s"); n != 100 {
		t.Errorf("%d acknowledged", n)
	}
}

// TestConfirmedAckEndsWithItsContext: a new owner that never comes is waited for no longer than ctx says, and one at which
// the subscription was moved gets no acknowledgement from before.
func TestConfirmedAckEndsWithItsContext(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 3)...)
	k := consumer(t, f.dial(Config{}), "a", ConsumerConfig{From: earliest})
	got := receive(t, k, 3)
	f.hangUp(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := k.AckConfirmed(ctx, got[0]); !errors.Is(err, ErrTimeout) {
		t.Errorf("acknowledged with nobody there: %v", err)
	}
	f.mu.Lock()
	f.down = false
	part.subs["s"].generation++
	f.mu.Unlock()
	if err := k.AckConfirmed(t.Context(), got[1]); !hasCode(err, protocol.CodeStaleGeneration) {
		t.Errorf("acknowledged after a reset: %v", err)
	}
}
