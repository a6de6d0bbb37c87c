package broker_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// traffic is a producer that sends numbered messages and a consumer that must
// get them once and in order.
type traffic struct {
	t        testing.TB
	producer *client.Producer
	consumer *client.Consumer
	sent     atomic.Uint64 // acknowledged
	got      atomic.Uint64
	stop     chan struct{}
	sending  sync.WaitGroup
	getting  sync.WaitGroup

	mu     sync.Mutex
	slow   time.Duration // longest time from send to acknowledgement
	faults []string
}

func (w *traffic) fault(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) < 20 {
		w.faults = append(w.faults, fmt.Sprintf(format, args...))
	}
}

// flow begins traffic on a topic through two brokers.
func flow(t testing.TB, send, receive *client.Client, topic string) *traffic {
	t.Helper()
	w := &traffic{t: t, stop: make(chan struct{})}
	var err error
	if w.producer, err = send.Producer(t.Context(), topic, client.ProducerConfig{Create: &protocol.TopicConfig{}}); err != nil {
		t.Fatal(err)
	}
	w.consumer = consumer(t, receive, topic, client.ConsumerConfig{Subscription: "s", From: earliest})
	w.sending.Go(w.send)
	w.getting.Go(w.receive)
	return w
}

// send sends about a thousand messages a second until stop is closed.
func (w *traffic) send() {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := uint64(0); ; {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		for range 5 {
			began, sent := time.Now(), n
			err := w.producer.SendAsync(context.Background(), client.Message{Payload: binary.BigEndian.AppendUint64(nil, n)}, func(_ client.Result, err error) {
				if err != nil {
					w.fault("send %d: %v", sent, err)
					return
				}
				w.sent.Add(1)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.slow = max(w.slow, time.Since(began))
			})
			if err != nil {
				w.fault("send %d: %v", n, err)
				return
			}
			n++
		}
	}
}

// receive checks that each message comes once, in order.
func (w *traffic) receive() {
	last := uint64(0)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
		m, err := w.consumer.Receive(ctx)
		cancel()
		if err != nil {
			w.fault("receive: %v", err)
			return
		}
		n := binary.BigEndian.Uint64(m.Payload)
		if n == ^uint64(0) {
			return
		}
		if want := w.got.Load(); n != want {
			w.fault("got message %d at offset %d (delivery %d), want %d", n, m.Offset, m.Deliveries, want)
		}
		if w.got.Store(n + 1); n > 0 && m.Offset <= last {
			w.fault("offset %d behind %d", m.Offset, last)
		}
		last = m.Offset
		if err := w.consumer.Ack(m); err != nil {
			w.fault("ack %d: %v", n, err)
		}
	}
}

// end stops the traffic and checks that all that was acknowledged was received.
func (w *traffic) end() {
	w.t.Helper()
	close(w.stop)
	w.sending.Wait()
	ctx, cancel := context.WithTimeout(w.t.Context(), 20*time.Second)
	defer cancel()
	if err := w.producer.Flush(ctx); err != nil {
		w.fault("flush: %v", err)
	}
	if _, err := w.producer.Send(ctx, client.Message{Payload: binary.BigEndian.AppendUint64(nil, ^uint64(0))}); err != nil {
		w.fault("send the last: %v", err)
	}
	w.getting.Wait()
	if err := w.consumer.Close(ctx); err != nil {
		w.fault("close consumer: %v", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		w.t.Error(f)
	}
	if w.sent.Load() != w.got.Load() || w.sent.Load() == 0 {
		w.t.Errorf("%d messages acknowledged, %d received", w.sent.Load(), w.got.Load())
	}
	w.t.Logf("%d messages, the slowest acknowledged after %v", w.sent.Load(), w.slow)
}

// await waits until so many messages more went through.
func (w *traffic) await(more uint64) {
	w.t.Helper()
	to := w.got.Load() + more
	eventually(w.t, "messages to flow", func() bool { return w.got.Load() >= to || w.failed() })
	if w.failed() {
		w.end()
		w.t.FailNow()
	}
}

func (w *traffic) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.faults) > 0
}

// Planned moves under a producer and a consumer: no error, nothing lost,
// doubled or out of order, and offsets without a gap (R16).
func TestPlannedMovesUnderTraffic(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	w := flow(t, f.dial(0), f.dial(1), "moved")
	for range 12 {
		w.await(20)
		from := f.owner("moved", 0)
		to := (from + 1) % 3
		if err := f.nodes[from].Move(t.Context(), "moved", 0, fmt.Sprintf("n%d", to+1)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the move", func() bool { return f.nodes[to].Serves("moved", 0) != 0 })
	}
	w.await(20)
	w.end()
	m := f.nodes[0].Partition("moved", 0)
	if m.Epoch != 13 {
		t.Errorf("epoch %d after 12 moves", m.Epoch)
	}
	for i := 1; i < len(m.Ranges); i++ {
		if m.Ranges[i].Start != m.Ranges[i-1].End {
			t.Errorf("a gap between offsets %d and %d", m.Ranges[i-1].End, m.Ranges[i].Start)
		}
	}
}

// A move whose target does not answer is taken back, and the partition goes on
// where it is under its old epoch.
func TestMoveToABrokerThatIsCutOffIsAborted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(c *broker.Config) { c.Peers.Lease = 20 * time.Second })
	w := flow(t, f.dial(0), f.dial(1), "kept")
	w.await(20)
	from := f.owner("kept", 0)
	to := (from + 1) % 3
	if f.nodes[to].Leads() {
		to = (from + 2) % 3
	}
	f.nodes[to].wire.pull()
	before := f.nodes[from].Partition("kept", 0)
	if err := f.nodes[from].Move(t.Context(), "kept", 0, fmt.Sprintf("n%d", to+1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the abort", func() bool {
		m := f.nodes[from].Partition("kept", 0)
		return m.Epoch == before.Epoch && m.Move == 0
	})
	w.await(50)
	f.nodes[to].wire.mend()
	w.end()
}

// Producers go on while the target gets ready, and are told where to go before
// the last cursors are committed: they wait for the hand-over alone.
func TestProducersWaitForTheHandOverAlone(t *testing.T) {
	t.Parallel()
	type pass struct{ reached, release chan struct{} }
	var mu sync.Mutex
	passes := map[string]pass{}
	at := func(step string) pass {
		mu.Lock()
		defer mu.Unlock()
		return passes[step]
	}
	f := newFleet(t, 2, func(c *broker.Config) {
		c.At = func(step string) {
			if w := at(step); w.release != nil {
				w.reached <- struct{}{}
				select {
				case <-w.release:
				case <-t.Context().Done():
				}
			}
		}
	})
	publish(t, f.dial(0), "on", 0, 10)
	from := f.owner("on", 0)
	mu.Lock()
	for _, step := range []string{"move.preparing", "move.sent-away"} {
		passes[step] = pass{make(chan struct{}, 2), make(chan struct{})}
	}
	mu.Unlock()
	if err := f.nodes[from].Move(t.Context(), "on", 0, fmt.Sprintf("n%d", 2-from)); err != nil {
		t.Fatal(err)
	}
	<-at("move.preparing").reached
	publish(t, f.dial(0), "on", 10, 20)
	if m := f.nodes[from].Partition("on", 0); m.Epoch != 1 {
		t.Errorf("epoch %d while the target gets ready", m.Epoch)
	}
	close(at("move.preparing").release)
	<-at("move.sent-away").reached
	publish(t, f.dial(0), "on", 20, 30)
	if epoch := f.nodes[1-from].Serves("on", 0); epoch != 2 {
		t.Errorf("served under epoch %d", epoch)
	}
	close(at("move.sent-away").release)
	if m := f.nodes[from].Partition("on", 0); m.Epoch != 2 || m.OpenStart() != 20 {
		t.Errorf("epoch %d begins at %d, want 2 at 20", m.Epoch, m.OpenStart())
	}
	cons := consumer(t, f.dial(0), "on", client.ConsumerConfig{Subscription: "s", From: earliest})
	for want := range uint64(30) {
		if m := receive(t, cons); m.Offset != want {
			t.Fatalf("offset %d, want %d", m.Offset, want)
		}
	}
}

// What is acknowledged between the hand-over and the moment the old owner lets
// go is committed under the next epoch, and the one who waits for that hears so.
// Nobody says it again at the new owner: of two connections one only waits, and
// the other is gone.
func TestAckBehindTheHandOverIsCommitted(t *testing.T) {
	t.Parallel()
	reached, goOn := make(chan struct{}), make(chan struct{})
	halt := sync.OnceFunc(func() { close(reached); <-goOn })
	f := newFleet(t, 2, func(c *broker.Config) {
		c.CursorInterval = time.Hour
		c.At = func(step string) {
			if step == "move.handed-over" {
				halt()
			}
		}
	})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	publish(t, f.dial(0), "late", 0, 10)
	from := f.owner("late", 0)
	old, next := f.nodes[from], f.nodes[1-from]
	waits, gone := rawDial(t, old.client), rawDial(t, old.client)
	acks := map[string][]byte{"waits": waits.consume("late", "waits", 10, true), "gone": gone.consume("late", "gone", 10, false)}
	if err := old.Move(t.Context(), "late", 0, fmt.Sprintf("n%d", 2-from)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reached:
	case <-time.After(20 * time.Second):
		t.Fatal("not handed over")
	}
	waits.write(acks["waits"])
	gone.write(acks["gone"])
	for name := range acks {
		eventually(t, "the acknowledgement of "+name, func() bool { return old.Acknowledged("late", 0, name) == 10 })
	}
	_ = gone.nc.Close()
	// A commit that does not know of the hand-over yet is refused: what it held must not be given up.
	old.CommitCursors(t.Context())
	for name := range acks {
		if at := old.Cursor("late", 0, name); at != 0 {
			t.Fatalf("%s: the cursor is at %d already: nothing was acknowledged behind the hand-over", name, at)
		}
	}
	release()
	waits.expect(protocol.TypeAckOK)
	for name := range acks {
		eventually(t, "the cursor of "+name, func() bool { return next.Cursor("late", 0, name) == 10 })
	}
}

// The producer table goes along: a batch whose acknowledgement was lost in a
// move is sent again to the new owner, and is not stored twice (R16, R17).
func TestProducerTableMovesAlong(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	publish(t, f.dial(0), "deduped", 0, 5)
	from := f.owner("deduped", 0)
	raw := rawDial(t, f.nodes[from].client)
	ok := raw.open("deduped")
	var first, second protocol.ProduceOK
	raw.write(produceFrame(t, ok, 0))
	if err := first.Decode(raw.expect(protocol.TypeProduceOK).Header); err != nil {
		t.Fatal(err)
	}
	if err := f.nodes[from].Move(t.Context(), "deduped", 0, fmt.Sprintf("n%d", 2-from)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the move", func() bool { return f.nodes[1-from].Serves("deduped", 0) == 2 })
	raw = rawDial(t, f.nodes[1-from].client)
	ok = raw.open("deduped")
	raw.write(produceFrame(t, ok, 0))
	if err := second.Decode(raw.expect(protocol.TypeProduceOK).Header); err != nil || !second.Duplicate || second.Base != first.Base {
		t.Errorf("sent again: %+v, %v; first it was %+v", second, err, first)
	}
}
