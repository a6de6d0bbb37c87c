package broker_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// sender sends numbered messages; offsets may jump.
func sendNumbered(t testing.TB, c *client.Client, topic string, from, to int) {
	t.Helper()
	p, err := c.Producer(t.Context(), topic, client.ProducerConfig{Create: &protocol.TopicConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		if _, err := p.Send(t.Context(), client.Message{Payload: fmt.Appendf(nil, "m%d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// takenOver kills the owner of a topic and waits for the next.
func (f *fleet) takenOver(topic string) (lost, owner int) {
	f.t.Helper()
	lost = f.owner(topic, 0)
	f.kill(lost)
	eventually(f.t, "another broker takes over", func() bool {
		owner = f.owner(topic, 0)
		return owner >= 0 && owner != lost && f.nodes[owner].Serves(topic, 0) > 0
	})
	return lost, owner
}

func (f *fleet) has(via int, topic string, what state.RangeStatus) bool {
	return slices.Contains(statuses(f.nodes[via].Partition(topic, 0)), what.String())
}

// A subscription in mid-stream waits at the tail of a lost owner; when that is
// back it gets all of it, in order, and so does a fresh reader (R15).
func TestTailComesBackWithItsBroker(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "tail", 0, 500)
	consume(t, f.dial(0), "tail/s", 0, 200)
	lost, owner := f.takenOver("tail")
	c := f.dial(owner)
	sendNumbered(t, c, "tail", 500, 600)
	cons := consumer(t, c, "tail", client.ConsumerConfig{Subscription: "s", From: earliest})
	name := fmt.Sprintf("n%d", lost+1)
	eventually(t, "the subscription counts down at the gap", func() bool {
		d, err := c.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "tail", Subscription: "s"})
		if err != nil {
			t.Fatal(err)
		}
		s := d.Partitions[0].State
		return strings.Contains(s, "waiting at a gap") && strings.Contains(s, "broker "+name) && strings.Contains(s, "passes it in 5")
	})
	s, err := c.Admin().Status(t.Context())
	if err != nil || s.Orphaned != 1 || !strings.Contains(strings.Join(s.Degraded, "\n"), "may come back with a broker that is away: ") || brokerIn(s.Brokers, name).State != "lost" {
		t.Errorf("status %+v, %v", s, err)
	}
	if v := verify(t, c, "tail"); len(v.Findings) != 1 || v.Findings[0].From != 0 || !strings.Contains(v.Findings[0].What, "comes back with broker "+name) || v.Messages != 100 {
		t.Errorf("verified while the tail is away: %+v", v)
	}
	f.start(lost)
	for i := range 600 {
		m := receive(t, cons)
		if i += 200; i == 600 {
			break
		}
		if string(m.Payload) != fmt.Sprintf("m%d", i) || i < 500 && m.Offset != uint64(i) {
			t.Fatalf("message %d: got %q at offset %d", i, m.Payload, m.Offset)
		}
		if err := cons.Ack(m); err != nil {
			t.Fatal(err)
		}
		if i == 599 {
			break
		}
	}
	closeConsumer(t, cons)
	got, gaps := readAll(t, c, "tail")
	if wantNumbered(t, got, 600); len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
	if v := verify(t, c, "tail"); len(v.Findings) > 0 || v.Messages != 600 {
		t.Errorf("verified when the tail is back: %+v", v)
	}
	if m := f.nodes[owner].Partition("tail", 0); f.has(owner, "tail", state.RangeOrphaned) || len(m.Superseded) > 0 {
		t.Errorf("ranges %v, superseded %v", statuses(m), m.Superseded)
	}
}

// A broker that was lost with history that lay only there, and comes back as the
// owner itself, takes that history back: nobody else can.
func TestOwnHistoryComesBackWithTheOwner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "own", 0, 100)
	first := f.owner("own", 0)
	aside := (first + 1) % 3 // is given no partition
	if err := f.dial(first).Admin().BrokerDrain(t.Context(), protocol.BrokerArgs{Broker: fmt.Sprintf("n%d", aside+1)}); err != nil {
		t.Fatal(err)
	}
	_, second := f.takenOver("own")
	f.start(first)
	eventually(t, "the tail to be with the second owner", func() bool { return !f.has(aside, "own", state.RangeOrphaned) })
	if _, again := f.takenOver("own"); again != first || !f.has(aside, "own", state.RangeOrphaned) {
		t.Fatalf("n%d took over from n%d: %+v", again+1, second+1, f.nodes[aside].Partition("own", 0))
	}
	f.kill(first)
	f.start(second)
	eventually(t, "the second owner to have its own again", func() bool {
		m := f.nodes[second].Partition("own", 0)
		return f.nodes[second].Serves("own", 0) > 0 && m.Ranges[0].Status == state.RangeSealed
	})
	f.start(first)
	eventually(t, "nothing to be orphaned", func() bool { return !f.has(second, "own", state.RangeOrphaned) })
	got, gaps := readAll(t, f.dial(second), "own")
	if wantNumbered(t, got, 100); len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
}

// A subscription that passed the gap gets what was in it late, marked, and once.
func TestHoleIsDeliveredLate(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(c *broker.Config) { c.GapWait = 100 * time.Millisecond })
	publish(t, f.dial(0), "late", 0, 300)
	consume(t, f.dial(0), "late/s", 0, 100)
	lost, owner := f.takenOver("late")
	c := f.dial(owner)
	sendNumbered(t, c, "late", 300, 400)
	cons := consumer(t, c, "late", client.ConsumerConfig{Subscription: "s", From: earliest})
	for i := 300; i < 400; i++ {
		m := receive(t, cons)
		if string(m.Payload) != fmt.Sprintf("m%d", i) || m.Late {
			t.Fatalf("past the gap: %q, late %v", m.Payload, m.Late)
		}
		if err := cons.AckConfirmed(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	got, gaps := readAll(t, c, "late")
	if len(got) != 100 || len(gaps) != 1 || gaps[0].Status != "orphaned" {
		t.Errorf("a reader while it is away: %d messages, gaps %v", len(got), gaps)
	}
	f.start(lost)
	for i := 100; i < 300; i++ {
		m := receive(t, cons)
		if m.Offset != uint64(i) || !m.Late {
			t.Fatalf("got offset %d, late %v, want the late %d", m.Offset, m.Late, i)
		}
		if err := cons.AckConfirmed(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	closeConsumer(t, cons)
	d, err := c.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "late", Subscription: "s"})
	if err != nil || d.Partitions[0].Lag != 0 || d.Partitions[0].Skipped != 0 {
		t.Errorf("described as %+v, %v", d, err)
	}
	got, gaps = readAll(t, c, "late")
	if wantNumbered(t, got, 400); len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
}

// A producer that sends through a loss stores some messages again; when the tail
// is back everybody reads each once (R15, R17).
func TestWhatWasSentAgainIsReadOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "again", 0, 1)
	c := f.dial((f.owner("again", 0) + 1) % 3)
	p, err := c.Producer(t.Context(), "again", client.ProducerConfig{Name: "p"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var sending sync.WaitGroup
	n := 1
	sending.Go(func() {
		for ; ctx.Err() == nil; n++ {
			err := p.SendAsync(context.Background(), client.Message{Payload: fmt.Appendf(nil, "m%d", n)}, func(_ client.Result, err error) {
				if err != nil {
					t.Errorf("send: %v", err)
				}
			})
			if err != nil {
				t.Errorf("send: %v", err)
				return
			}
			if n%50 == 0 {
				<-time.After(time.Millisecond)
			}
		}
	})
	eventually(t, "messages flow", func() bool {
		d, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "again", Partition: -1})
		return err == nil && d.Partitions[0].CommittedEnd > 2000
	})
	lost, owner := f.takenOver("again")
	eventually(t, "messages flow again", func() bool {
		d, err := f.dial(owner).Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "again", Partition: -1})
		return err == nil && d.Partitions[0].CommittedEnd > d.Partitions[0].Ranges[len(d.Partitions[0].Ranges)-1].Start+500
	})
	f.start(lost)
	eventually(t, "the tail is back", func() bool { return !f.has(owner, "again", state.RangeOrphaned) })
	stop()
	sending.Wait()
	if left, err := p.Close(t.Context()); err != nil || left != 0 {
		t.Fatalf("close producer: %d unknown, %v", left, err)
	}
	got, gaps := readAll(t, f.dial(owner), "again")
	if wantNumbered(t, got, n); len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
	t.Logf("%d messages, superseded %v", n, f.nodes[owner].Partition("again", 0).Superseded)
}

// Sealed history that a lost broker held alone comes back with it, as it was.
func TestSealedHistoryComesBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(c *broker.Config) { c.Peers.CopyDelay = time.Hour })
	publish(t, f.dial(0), "sealed", 0, 400)
	first := f.owner("sealed", 0)
	f.stop(first)
	eventually(t, "another broker serves", func() bool { o := f.owner("sealed", 0); return o >= 0 && o != first })
	owner := f.owner("sealed", 0)
	c := f.dial(owner)
	sendNumbered(t, c, "sealed", 400, 450)
	f.start(first)
	eventually(t, "its history can be read", func() bool {
		d, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "sealed", Partition: -1})
		return err == nil && d.Partitions[0].Ranges[0].Detail == ""
	})
	f.kill(first)
	eventually(t, "it is lost and its history orphaned", func() bool { return f.has(owner, "sealed", state.RangeOrphaned) })
	f.start(first)
	eventually(t, "the history is back", func() bool { return !f.has(owner, "sealed", state.RangeOrphaned) })
	got, gaps := readAll(t, c, "sealed")
	if wantNumbered(t, got, 450); len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
}

// An operator gives a tail up while its broker is away; what returns after that is adopted by hand (R15).
func TestLostTailIsAdopted(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "given-up", 0, 300)
	consume(t, f.dial(0), "given-up/s", 0, 100)
	lost, owner := f.takenOver("given-up")
	c := f.dial((owner + 1) % 3)
	if (owner+1)%3 == lost {
		c = f.dial(owner)
	}
	sendNumbered(t, c, "given-up", 300, 350)
	cons := consumer(t, c, "given-up", client.ConsumerConfig{Subscription: "s", From: earliest})
	tail := orphaned(f.nodes[owner].Partition("given-up", 0))[0]
	if err := f.nodes[owner].Lose(t.Context(), "given-up", tail); err != nil { // as where nothing of it is left
		t.Fatal(err)
	}
	if v := verify(t, c, "given-up"); len(v.Findings) != 1 || v.Findings[0].From != 0 || v.Findings[0].To != tail.End || len(v.Notes) > 0 || v.Messages != 50 {
		t.Errorf("verified while nobody has given the tail up: %+v", v)
	}
	resolve := protocol.Resolve{Topic: "given-up", Partition: 0, How: "lost"}
	if err := c.Admin().TopicResolve(t.Context(), resolve); err != nil {
		t.Fatal(err)
	}
	if v := verify(t, c, "given-up"); len(v.Findings) > 0 || len(v.Notes) != 1 || v.Notes[0].From != 0 || v.Notes[0].To != tail.End {
		t.Errorf("verified when it is given up: %+v", v)
	}
	wantRefused(t, "give it up again", c.Admin().TopicResolve(t.Context(), resolve), "no orphaned range there")
	for i := 300; i < 350; i++ {
		m := receive(t, cons)
		if string(m.Payload) != fmt.Sprintf("m%d", i) {
			t.Fatalf("behind what was lost: %q", m.Payload)
		}
		if err := cons.AckConfirmed(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	resolve.How = "adopt"
	wantRefused(t, "adopt while it is away", c.Admin().TopicResolve(t.Context(), resolve), "nothing to adopt")
	f.start(lost)
	eventually(t, "the broker is back, by what the owner knows", func() bool {
		s, err := f.dial(owner).Admin().Status(t.Context())
		return err == nil && brokerIn(s.Brokers, fmt.Sprintf("n%d", lost+1)).State == "active"
	})
	if got, gaps := readAll(t, c, "given-up"); len(got) != 50 || len(gaps) == 0 || gaps[0].Status != "lost" {
		t.Errorf("%d messages, gaps %v", len(got), gaps)
	}
	if err := c.Admin().TopicResolve(t.Context(), resolve); err != nil {
		t.Fatal(err)
	}
	got, _ := readAll(t, c, "given-up")
	wantNumbered(t, got, 350)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if m, err := cons.Receive(short); err == nil {
		t.Errorf("the subscription got %q, which it was told is lost", m.Payload)
	}
	closeConsumer(t, cons)
}

// The store that wrote the tail owns the partition again before it could be
// taken back: it takes back its own, and knows again what it stored there (R17).
func TestOwnTailIsTakenBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(c *broker.Config) { c.Peers.CopyDelay = time.Hour })
	publish(t, f.dial(0), "mine", 0, 190)
	raw := rawDial(t, f.nodes[f.owner("mine", 0)].client)
	ok := raw.openFrom("mine", 0)
	for n := range uint64(10) {
		raw.send(ok, n)
	}
	lost, owner := f.takenOver("mine")
	c := f.dial(owner)
	sendNumbered(t, c, "mine", 200, 250)
	eventually(t, "no history is brought", func() bool { return f.nodes[owner].HoldHistory("mine", 0) })
	f.start(lost)
	eventually(t, "the broker is back", func() bool {
		s, err := c.Admin().Status(t.Context())
		return err == nil && brokerIn(s.Brokers, fmt.Sprintf("n%d", lost+1)).State == "active"
	})
	if _, err := c.Admin().TopicMove(t.Context(), protocol.TopicMove{Topic: "mine", Partition: -1, To: fmt.Sprintf("n%d", lost+1)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its own tail is taken back", func() bool { return !f.has(lost, "mine", state.RangeOrphaned) })
	raw = rawDial(t, f.nodes[lost].client)
	ok = raw.openFrom("mine", 4)
	for n := uint64(4); n < 10; n++ {
		if s := raw.send(ok, n); !s.Duplicate || s.Base != 190+n {
			t.Errorf("sequence %d sent again: %+v", n, s)
		}
	}
	got, gaps := readAll(t, c, "mine")
	if len(got) != 250 || len(gaps) > 0 {
		t.Errorf("%d messages, gaps %v", len(got), gaps)
	}
}

// send sends one sequence and returns what became of it.
func (c *rawConn) send(ok protocol.OpenProducerOK, n uint64) (stored protocol.ProduceOK) {
	c.t.Helper()
	if err := stored.Decode(c.ask(produceFrame(c.t, ok, n), protocol.TypeProduceOK).Header); err != nil {
		c.t.Fatal(err)
	}
	return stored
}

// storeAgain sends sequences 6 to 8 of ten again to an owner that knows nothing
// of them, and returns at which offsets they lie now.
func (c *rawConn) storeAgain(ok protocol.OpenProducerOK) map[uint64]uint64 {
	c.t.Helper()
	again := map[uint64]uint64{}
	for n := uint64(6); n < 9; n++ {
		s := c.send(ok, n)
		if s.Duplicate || s.Base < 1000 {
			c.t.Fatalf("sequence %d sent again: %+v", n, s)
		}
		again[n] = s.Base
	}
	return again
}

// knowsAll sends what is known of ten sequences once more: each is where it lies,
// those that were stored again at their later offset.
func (c *rawConn) knowsAll(ok protocol.OpenProducerOK, again map[uint64]uint64) {
	c.t.Helper()
	for n := uint64(3); n < 10; n++ {
		want := n + 1
		if at, is := again[n]; is {
			want = at
		}
		if s := c.send(ok, n); !s.Duplicate || s.Base != want {
			c.t.Errorf("sequence %d sent again after that: %+v, want offset %d", n, s, want)
		}
	}
}

// Messages whose acknowledgements the loss has swallowed are stored again by the
// next owner; when the tail is back they are read at their later offsets alone,
// and what was not sent again is known at its old one (R15, R17).
func TestStoredAgainIsReadOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "twice", 0, 1)
	raw := rawDial(t, f.nodes[f.owner("twice", 0)].client)
	ok := raw.openFrom("twice", 0)
	for n := range uint64(10) {
		if s := raw.send(ok, n); s.Base != n+1 {
			t.Fatalf("sequence %d is at offset %d", n, s.Base)
		}
	}
	lost, owner := f.takenOver("twice")
	raw = rawDial(t, f.nodes[owner].client)
	ok = raw.openFrom("twice", 6)
	again := raw.storeAgain(ok)
	f.start(lost)
	eventually(t, "the tail is back", func() bool { return !f.has(owner, "twice", state.RangeOrphaned) })
	if s := f.nodes[owner].Partition("twice", 0).Superseded; len(s) != 1 || s[0] != (state.OffsetRange{Start: 7, End: 10}) {
		t.Errorf("superseded %v, want offsets 7 to 10", s)
	}
	raw.knowsAll(ok, again)
	var told []client.GapError
	want := []uint64{0, 1, 2, 3, 4, 5, 6, 10, again[6], again[7], again[8]}
	r, err := f.dial(owner).Reader(t.Context(), "twice", client.ReaderConfig{
		From: earliest, ToEnd: true, OnSuperseded: func(g client.GapError) { told = append(told, g) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cons := consumer(t, f.dial(owner), "twice", client.ConsumerConfig{Subscription: "new", From: earliest})
	for _, at := range want {
		m, err := r.Next(t.Context())
		if err != nil || m.Offset != at {
			t.Fatalf("reader: offset %d, %v, want %d", m.Offset, err, at)
		}
		if m := receive(t, cons); m.Offset != at {
			t.Fatalf("subscription: offset %d, want %d", m.Offset, at)
		}
	}
	if m, err := r.Next(t.Context()); err == nil {
		t.Errorf("offset %d comes too", m.Offset)
	}
	if len(told) != 1 || told[0].From != 7 || told[0].To != 10 || told[0].Status != "superseded" {
		t.Errorf("the reader was told of %v, want offsets 7 to 10", told)
	}
	closeConsumer(t, cons)
}

// A range with an exact end that comes back is held against what was sent again
// too, where an owner has taken over since without knowing it: what was stored
// twice is read once, and what is sent again after that is known (R15, R17).
func TestStoredAgainOfSealedHistoryIsReadOnce(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	reached, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	f := newFleet(t, 3, func(c *broker.Config) {
		c.Peers.CopyDelay = time.Hour
		c.At = func(step string) {
			if step == "return.report" && armed.CompareAndSwap(true, false) {
				close(reached)
				<-goOn
			}
		}
	})
	publish(t, f.dial(0), "twice", 0, 1)
	first := f.owner("twice", 0)
	second, third := (first+1)%3, (first+2)%3
	raw := rawDial(t, f.nodes[first].client)
	ok := raw.openFrom("twice", 0)
	for n := range uint64(10) {
		raw.send(ok, n)
	}
	eventually(t, "no history is brought", func() bool { return f.nodes[second].HoldHistory("twice", 0) })
	f.move("twice", second)
	f.kill(first)
	eventually(t, "its history is orphaned", func() bool { return f.has(second, "twice", state.RangeOrphaned) })
	f.start(first)
	c := f.dial(third)
	eventually(t, "the first is there and takes nothing more", func() bool {
		return c.Admin().BrokerDrain(t.Context(), protocol.BrokerArgs{Broker: fmt.Sprintf("n%d", first+1)}) == nil
	})
	armed.Store(true)
	f.kill(second)
	eventually(t, "the third takes over", func() bool { return f.owner("twice", 0) == third && f.nodes[third].Serves("twice", 0) > 0 })
	select {
	case <-reached:
	case <-time.After(20 * time.Second):
		t.Fatal("the history is not asked for")
	}
	raw = rawDial(t, f.nodes[third].client)
	ok = raw.openFrom("twice", 6)
	again := raw.storeAgain(ok)
	release()
	eventually(t, "the history is back", func() bool {
		m := f.nodes[third].Partition("twice", 0)
		return m.Ranges[0].Status == state.RangeSealed
	})
	if s := f.nodes[third].Partition("twice", 0).Superseded; len(s) != 1 || s[0] != (state.OffsetRange{Start: 7, End: 10}) {
		t.Errorf("superseded %v, want offsets 7 to 10", s)
	}
	raw.knowsAll(ok, again)
}

// A store gives out nothing but what the metadata list for it, whatever it has (R19).
func TestStoreGivesWhatIsListedAlone(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "fenced", 0, 50)
	lost, owner := f.takenOver("fenced")
	other := 3 - lost - owner
	eventually(t, "no history is brought", func() bool { return f.nodes[owner].HoldHistory("fenced", 0) })
	f.start(lost)
	for name, test := range map[string]struct {
		of       int
		from     uint64
		returned bool
		want     bool
	}{
		"orphaned, asked for as history":    {lost, 10, false, false},
		"orphaned, asked for as returned":   {lost, 10, true, true},
		"orphaned, of a store without it":   {other, 10, true, false},
		"what the owner writes":             {owner, 1000, false, false},
		"nothing":                           {lost, 1 << 40, true, false},
		"the open epoch of another, as its": {lost, 1000, true, false},
	} {
		data, err := f.nodes[test.of].ReadHeld(t.Context(), "fenced", test.from, test.returned)
		if got := err == nil && len(data) > 0; got != test.want {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}

// An owner that dies when the metadata have taken a tail back, and it has not yet
// taken over who had stored it, knows it when it is there again: what is sent
// again is not stored twice (R15, R17).
func TestTailIsKnownAfterACrashBeforeItsProducersAre(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	crashed := make(chan struct{})
	f := newFleet(t, 3, func(c *broker.Config) {
		c.At = func(step string) {
			if step == "return.restored" && armed.CompareAndSwap(true, false) {
				close(crashed)
				runtime.Goexit() // as far as the tail is concerned the owner dies here
			}
		}
	})
	publish(t, f.dial(0), "dies", 0, 1)
	raw := rawDial(t, f.nodes[f.owner("dies", 0)].client)
	ok := raw.openFrom("dies", 0)
	for n := range uint64(10) {
		raw.send(ok, n)
	}
	lost, owner := f.takenOver("dies")
	raw = rawDial(t, f.nodes[owner].client)
	ok = raw.openFrom("dies", 8)
	again := raw.send(ok, 8)
	if again.Duplicate || again.Base < 1000 {
		t.Fatalf("sequence 8 sent again: %+v", again)
	}
	armed.Store(true)
	f.start(lost)
	select {
	case <-crashed:
	case <-time.After(20 * time.Second):
		t.Fatal("the tail did not come back")
	}
	f.kill(owner)
	f.start(owner)
	eventually(t, "it is served and whole", func() bool {
		owner = f.owner("dies", 0)
		return f.nodes[owner].Serves("dies", 0) > 0 && !f.has(owner, "dies", state.RangeOrphaned)
	})
	raw = rawDial(t, f.nodes[owner].client)
	ok = raw.openFrom("dies", 3)
	for n := uint64(3); n < 10; n++ {
		want := n + 1
		if n == 8 {
			want = again.Base
		}
		if s := raw.send(ok, n); !s.Duplicate || s.Base != want {
			t.Errorf("sequence %d sent again: %+v, want offset %d", n, s, want)
		}
	}
}
