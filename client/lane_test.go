package client

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// TestAnswersOutOfOrder has a broker that answers every three frames backwards,
// or the last of them twice, which ends the connection and loses nothing.
func TestAnswersOutOfOrder(t *testing.T) {
	for name, times := range map[string]int{"once": 1, "twice": 2} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			part := f.topic("/default/a", 1).parts[0]
			var held []func()
			harmed := false
			var mu sync.Mutex
			f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
				mu.Lock()
				defer mu.Unlock()
				if fr.Type != protocol.TypeProduce || harmed && times > 1 {
					return false
				}
				ok, refusal := c.store(fr)
				if refusal != nil {
					c.refuse(fr.ID, refusal)
					return true
				}
				id := fr.ID
				held = append(held, func() { c.send(protocol.TypeProduceOK, id, ok, nil) })
				if len(held) == 3 {
					all := held
					held, harmed = nil, true
					for range times - 1 {
						all[2]()
					}
					for _, do := range slices.Backward(all) {
						do()
					}
				}
				return true
			})
			p := producer(t, f.dial(Config{}), "a", ProducerConfig{BatchBytes: 200})
			var got outcomes
			for _, s := range numbers(0, 9) {
				if err := p.SendAsync(t.Context(), Message{Payload: append([]byte(s), make([]byte, 150)...)}, got.add); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			offsets := got.offsets()
			slices.Sort(offsets)
			if !slices.Equal(offsets, []uint64{0, 1, 2, 3, 4, 5, 6, 7, 8}) || len(part.payloads()) != 9 {
				t.Errorf("offsets %v, %d stored", offsets, len(part.payloads()))
			}
			if n := f.count(protocol.TypeHello); n != times {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestProducerFollowsItsPartition moves a partition between two brokers.
func TestProducerFollowsItsPartition(t *testing.T) {
	a, b := newFake(t), newFake(t)
	part := a.topic("/default/a", 1).parts[0]
	b.mu.Lock()
	b.topics["/default/a"] = a.topics["/default/a"] // one log, as if it had moved with it
	b.mu.Unlock()
	var mu sync.Mutex
	owner, n := a, 0
	serve := func(me *fake) func(c *fakeConn, fr protocol.Frame) bool {
		return func(c *fakeConn, fr protocol.Frame) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case fr.Type == protocol.TypeLookup:
				c.send(protocol.TypeLookupOK, fr.ID, &protocol.LookupOK{Reliable: true, Partitions: []protocol.PartitionOwner{{Address: owner.addr, Epoch: uint64(n)}}}, nil)
				return true
			case fr.Type != protocol.TypeProduce:
				c.handle(fr) // under mu, since the two fakes share the log
				return true
			}
			if n++; n%5 == 0 {
				owner = map[*fake]*fake{a: b, b: a}[owner]
			}
			if owner != me {
				c.refuse(fr.ID, protocol.Errorf(protocol.CodeMoved, "ask the other"))
				return true
			}
			c.handle(fr)
			return true
		}
	}
	a.intercept(serve(a))
	b.intercept(serve(b))
	p := producer(t, a.dial(Config{}), "a", ProducerConfig{})
	for i, s := range numbers(0, 40) {
		res, err := p.Send(t.Context(), text(s))
		if err != nil || res.Offset != uint64(i) {
			t.Fatalf("message %d: %+v, %v", i, res, err)
		}
	}
	if got := part.payloads(); !slices.Equal(got, numbers(0, 40)) {
		t.Errorf("stored %q", got)
	}
	if b.count(protocol.TypeProduce) == 0 {
		t.Error("nothing went to the other broker")
	}
}

func TestLingerAndFlush(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{Linger: time.Hour})
	var got outcomes
	for range 10 {
		if err := p.SendAsync(t.Context(), text("x"), got.add); err != nil {
			t.Fatal(err)
		}
	}
	if n := f.count(protocol.TypeProduce); n != 0 {
		t.Errorf("%d frames before the linger was over", n)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.count(protocol.TypeProduce); n != 1 || len(got.offsets()) != 10 {
		t.Errorf("%d frames, %d results", n, len(got.offsets()))
	}
	short := producer(t, f.dial(Config{}), "a", ProducerConfig{Linger: 20 * time.Millisecond})
	began := time.Now()
	if _, err := short.Send(t.Context(), text("x")); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 20*time.Millisecond {
		t.Errorf("a message did not linger: %v", took)
	}
}

// TestEverythingOfAMessageArrives sends it through every codec.
func TestEverythingOfAMessageArrives(t *testing.T) {
	for _, codec := range []batch.Codec{batch.None, batch.S2, batch.Zstd} {
		t.Run(codec.String(), func(t *testing.T) {
			f := newFake(t)
			part := f.topic("/default/a", 1).parts[0]
			c := f.dial(Config{})
			p := producer(t, c, "a", ProducerConfig{Compression: codec, Linger: time.Hour})
			k := consumer(t, c, "a", ConsumerConfig{})
			at := time.UnixMilli(1_800_000_000_123)
			want := Message{
				Key: []byte("key"), Payload: bytes.Repeat([]byte("payload "), 100), Schema: 7,
				Properties: []batch.Property{{Name: "a", Value: "1"}, {Name: "a", Value: "2"}}, PublishTime: at, DeliverAt: at.Add(time.Hour),
			}
			for range 20 {
				if err := p.SendAsync(t.Context(), want, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			if got := part.log[0].Codec(); got != codec {
				t.Errorf("the batch is compressed with %v", got)
			}
			f.mu.Unlock()
			for _, m := range receive(t, k, 20) {
				if !bytes.Equal(m.Key, want.Key) || !bytes.Equal(m.Payload, want.Payload) || !slices.Equal(m.Properties, want.Properties) ||
					m.Schema != 7 || !m.PublishTime.Equal(at) || !m.DeliverAt.Equal(want.DeliverAt) {
					t.Fatalf("arrived: %+v", m)
				}
			}
		})
	}
}

func TestFencedProducerStaysFenced(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeProduce {
			return false
		}
		c.refuse(fr.ID, protocol.Errorf(protocol.CodeProducerFenced, "another took over"))
		return true
	})
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{Exclusive: true, BatchBytes: 200})
	var got outcomes
	for range 300 { // more than are in flight at once
		if err := p.SendAsync(t.Context(), Message{Payload: make([]byte, 100)}, got.add); err != nil {
			break
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, err := range got.errs {
		if !hasCode(err, protocol.CodeProducerFenced) {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := p.Send(t.Context(), text("x")); !hasCode(err, protocol.CodeProducerFenced) {
			t.Errorf("send: %v", err)
		}
	}
	if n := f.count(protocol.TypeOpenProducer); n != 1 {
		t.Errorf("the session was opened %d times: a fenced producer must not fence back", n)
	}
	if n, err := p.Close(t.Context()); n != 0 || err != nil {
		t.Errorf("close: %d, %v", n, err)
	}
}

// TestTopicGone deletes the topic under a producer, and makes it again.
func TestTopicGone(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	f.mu.Lock()
	delete(f.topics, "/default/a")
	f.mu.Unlock()
	f.hangUp(false)
	var err error
	eventually(t, "the producer is told", func() bool {
		_, err = p.Send(t.Context(), text("x"))
		return err != nil
	})
	if !errors.Is(err, ErrNoSuchTopic) {
		t.Errorf("send: %v", err)
	}
	part := f.topic("/default/a", 1).parts[0]
	eventually(t, "sends succeed again", func() bool {
		_, err = p.Send(t.Context(), text("y"))
		return err == nil
	})
	if got := part.payloads(); !slices.Equal(got, []string{"y"}) {
		t.Errorf("stored %q", got)
	}
}

// TestRefusedAfterDoubtIsUnknown: the first attempt stored the message and its
// answer was lost; the second is refused as "not stored", which is true of that
// attempt only. To tell the application that would be a lie.
func TestRefusedAfterDoubtIsUnknown(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	n := 0
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeProduce {
			return false
		}
		if n++; n == 1 {
			c.store(fr)
			_ = c.nc.Close()
		} else {
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeNotAllowed, "not any more"))
		}
		return true
	})
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	_, err := p.Send(t.Context(), text("x"))
	if u, is := errors.AsType[*UnknownError](err); !is || u.Count != 1 || !errors.Is(err, ErrNotAllowed) {
		t.Errorf("send: %v", err)
	}
}

// TestSendTimeoutInFlight: a message under way whose time runs out is told as
// unknown, those behind it as not stored; the late answer hurts nothing, what
// was told as not stored is never sent, and the next message goes on behind it.
func TestSendTimeoutInFlight(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	late := make(chan func(), quickFlying)
	n := 0
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeProduce {
			return false
		}
		if n++; n > quickFlying {
			return false
		}
		ok, _ := c.store(fr)
		id := fr.ID
		late <- func() { c.send(protocol.TypeProduceOK, id, ok, nil) }
		return true
	})
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{SendTimeout: 300 * time.Millisecond})
	var slow, behind outcomes
	var want []string
	for i := range quickFlying { // as many as go out without company
		if err := p.SendAsync(t.Context(), text("slow"), slow.add); err != nil {
			t.Fatal(err)
		}
		want = append(want, "slow")
		eventually(t, "it arrives", func() bool {
			if len(late) > i {
				return true
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.st.lanes[0].kick(time.Now()) // quickPause is over
			return false
		})
	}
	for range 3 {
		if err := p.SendAsync(t.Context(), text("behind"), behind.add); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "all are told", func() bool { return slow.failures()+behind.failures() == quickFlying+3 })
	if _, is := errors.AsType[*UnknownError](slow.errs[0]); !is || !errors.Is(slow.errs[0], ErrTimeout) {
		t.Errorf("in flight: %v", slow.errs)
	}
	if _, is := errors.AsType[*UnknownError](behind.errs[0]); is || len(behind.errs) != 3 || !errors.Is(behind.errs[0], ErrTimeout) {
		t.Errorf("behind it: %v", behind.errs)
	}
	var next outcomes
	if err := p.SendAsync(t.Context(), text("next"), next.add); err != nil {
		t.Fatal(err)
	}
	for range quickFlying {
		(<-late)()
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := part.payloads(); !slices.Equal(got, append(want, "next")) || !slices.Equal(next.offsets(), []uint64{quickFlying}) {
		t.Errorf("stored %q, the next at %d, %v", got, next.offsets(), next.errs)
	}
}

// TestClosingWhileTheBrokerIsAway ends at once when ctx does, and says of the
// messages never written that they are not stored.
func TestClosingWhileTheBrokerIsAway(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	f.hangUp(true)
	eventually(t, "the loss is seen", func() bool { return p.Trouble() != nil })
	var got outcomes
	for range 5 {
		if err := p.SendAsync(t.Context(), text("x"), got.add); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	n, err := p.Close(ctx)
	if n != 0 || !errors.Is(err, ErrTimeout) {
		t.Errorf("close: %d unknown, %v", n, err)
	}
	if len(got.errs) != 5 || !errors.Is(got.errs[0], ErrClosed) {
		t.Errorf("told: %v", got.errs)
	}
}

func TestCreatedAndTooLarge(t *testing.T) {
	f := newFake(t)
	f.hello.MaxMessage = 1000
	c := f.dial(Config{})
	p := producer(t, c, "a", ProducerConfig{Create: &protocol.TopicConfig{Partitions: 3}})
	if !p.Created() || p.Topic() != "/default/a" || len(f.topics["/default/a"].parts) != 3 {
		t.Errorf("created %v", p.Created())
	}
	if again := producer(t, c, "a", ProducerConfig{Create: &protocol.TopicConfig{}}); again.Created() {
		t.Error("created again")
	}
	if err := p.SendAsync(t.Context(), Message{Payload: make([]byte, 1001)}, nil); !hasCode(err, protocol.CodeTooLarge) {
		t.Errorf("too large: %v", err)
	}
	if _, err := c.Producer(t.Context(), "no good name", ProducerConfig{}); !hasCode(err, protocol.CodeBadName) {
		t.Errorf("bad name: %v", err)
	}
}

// TestFlushReportsSilentFailures: messages without a callback do not fail unheard.
func TestFlushReportsSilentFailures(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeProduce {
			return false
		}
		c.refuse(fr.ID, protocol.Errorf(protocol.CodeNotAllowed, "no"))
		return true
	})
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	if err := p.SendAsync(t.Context(), text("x"), nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context()); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("flush: %v", err)
	}
	if n, err := p.Close(t.Context()); n != 0 || err != nil {
		t.Errorf("close: %d, %v", n, err)
	}
}

// TestSteadyStateAllocatesNothing counts what a message costs in allocations, the fake's included.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	f := newFake(t)
	f.topic("/default/a", 1)
	f.quick()
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{})
	m := Message{Payload: make([]byte, 128), Key: []byte("key")}
	send := func(n int) {
		for range n {
			if err := p.SendAsync(t.Context(), m, func(Result, error) {}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	send(50_000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	send(50_000)
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 5000 {
		t.Errorf("%d allocations for 50,000 messages", n)
	}
}
