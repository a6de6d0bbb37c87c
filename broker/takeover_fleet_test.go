package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// orphaned returns the orphaned ranges of a partition.
func orphaned(m *state.Partition) (out []state.Range) {
	for _, r := range m.Ranges {
		if r.Status == state.RangeOrphaned {
			out = append(out, r)
		}
	}
	return out
}

// ask sends one message, trying for at most ten seconds.
func ask(t testing.TB, p *client.Producer) (client.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return p.Send(ctx, client.Message{Payload: []byte("after")})
}

// The owner is killed: another broker takes its topics over within the time of
// a lease and a moment. It opens at the ceiling, whatever it may know, and what
// the lost disk may hold is ORPHANED, not lost and not passed in silence (R3, R15).
func TestKilledOwnerIsReplaced(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, nil)
			topic, owner := ownedTopic(t, f, leads)
			c := f.dial((owner + 1) % 3)
			publish(t, c, topic, 0, 100)
			p, err := c.Producer(t.Context(), topic, client.ProducerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			before := f.nodes[owner].Partition(topic, 0)
			began := time.Now()
			f.kill(owner)
			r, err := ask(t, p)
			took := time.Since(began)
			if err != nil || r.Offset < before.Ceiling {
				t.Fatalf("the next message is at offset %d, %v; the ceiling was %d", r.Offset, err, before.Ceiling)
			}
			if took > 5*time.Second {
				t.Errorf("writes went on after %v", took)
			}
			t.Logf("writes went on after %v", took)
			heir := f.owner(topic, 0)
			m := f.nodes[heir].Partition(topic, 0)
			lost := orphaned(m)
			if heir == owner || m.Epoch != before.Epoch+1 || len(lost) != 1 || lost[0].Start != 0 || lost[0].End != before.Ceiling || !lost[0].Tail {
				t.Errorf("taken over by n%d: %+v", heir+1, m)
			}
			// The killed one comes back as a member, and not as the owner.
			f.start(owner)
			eventually(t, "the old owner to know", func() bool { return f.nodes[owner].OwnerOf(topic, 0) == fmt.Sprintf("n%d", heir+1) })
			if f.nodes[owner].Serves(topic, 0) != 0 {
				t.Error("the old owner serves")
			}
		})
	}
}

// ownedTopic makes topics until the leader owns one, or until another broker does.
func ownedTopic(t testing.TB, f *fleet, leads bool) (topic string, owner int) {
	t.Helper()
	c := f.dial(0)
	for i := range 20 {
		topic = fmt.Sprintf("topic-%d", i)
		if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: topic}); err != nil {
			t.Fatal(err)
		}
		if owner = f.owner(topic, 0); f.nodes[owner].Leads() == leads {
			return topic, owner
		}
	}
	t.Fatal("no such owner in twenty topics")
	return "", 0
}

// A broker that was cut off gives up at its lease, and when it is back finds
// itself declared lost: it registers again and goes on (R8).
func TestLostBrokerRegistersAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	topic, owner := ownedTopic(t, f, false)
	n := f.nodes[owner]
	run := n.Incarnation()
	raw := rawDial(t, n.client)
	ok := raw.open(topic)
	n.wire.pull()
	eventually(t, "the lease to run out", func() bool { return !n.Leased() })
	raw.write(produceFrame(t, ok, 0))
	if e := raw.refusal(); e.Code != protocol.CodeNotReady || !e.Code.Meaning().NotStored {
		t.Errorf("without a lease: %v", e)
	}
	other := (owner + 1) % 3
	eventually(t, "the takeover", func() bool {
		m := f.nodes[other].Partition(topic, 0)
		return m.State == state.Open && m.Epoch > ok.Epoch
	})
	n.wire.mend()
	eventually(t, "another run of the store", func() bool { return n.Incarnation() > run && n.Leased() })
	eventually(t, "the old epoch to be closed", func() bool { return n.Serves(topic, 0) == 0 })
	raw.write(produceFrame(t, ok, 0))
	if e := raw.refusal(); e.Code != protocol.CodeNotReady && e.Code != protocol.CodeMoved {
		t.Errorf("under the old epoch: %v", e)
	}
	publish(t, f.dial(owner), "new", 0, 10)
}

// An owner that lost its partition and goes by no lease still writes only what
// nobody mistakes for the new owner's: its offsets lie below the ceiling at
// which that one opened, and are those of the orphaned range (R2, R3, R4).
func TestZombieWithoutLeaseCheckTakesNoOffsetOfTheNextOwner(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, func(c *broker.Config) { c.Peers.LeaseCheckOff = true })
	topic, owner := ownedTopic(t, f, false)
	n := f.nodes[owner]
	raw := rawDial(t, n.client)
	ok := raw.open(topic)
	ceiling := n.Partition(topic, 0).Ceiling
	n.wire.pull()
	other := (owner + 1) % 3
	eventually(t, "the takeover", func() bool {
		m := f.nodes[other].Partition(topic, 0)
		return m != nil && m.State == state.Open && m.Epoch > ok.Epoch // it may not have heard of the topic yet
	})
	raw.write(produceFrame(t, ok, 0))
	var stored protocol.ProduceOK
	if err := stored.Decode(raw.expect(protocol.TypeProduceOK).Header); err != nil || stored.Base >= ceiling {
		t.Errorf("the zombie stored at %d, %v; the ceiling is %d", stored.Base, err, ceiling)
	}
	p, err := f.dial(other).Producer(t.Context(), topic, client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ask(t, p); err != nil || r.Offset < ceiling {
		t.Errorf("the new owner stored at %d, %v; the ceiling is %d", r.Offset, err, ceiling)
	}
	n.wire.mend()
	eventually(t, "the zombie to close", func() bool { return n.Serves(topic, 0) == 0 })
	raw.write(produceFrame(t, ok, 1))
	if e := raw.refusal(); !errors.Is(e, &protocol.Error{Code: protocol.CodeMoved}) && !errors.Is(e, &protocol.Error{Code: protocol.CodeNotReady}) {
		t.Errorf("the zombie: %v", e)
	}
}

// alarms keeps what is logged of damage.
type alarms struct {
	slog.Handler
	mu   sync.Mutex
	said []string
}

func (a *alarms) Enabled(context.Context, slog.Level) bool { return true }

func (a *alarms) Handle(_ context.Context, r slog.Record) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.Level >= slog.LevelError && strings.Contains(r.Message, "damaged") {
		a.said = append(a.said, r.Message)
	}
	return nil
}

func (a *alarms) WithAttrs([]slog.Attr) slog.Handler { return a }

// Messages that were only ever on the lost disk are ORPHANED, and no damage of
// the disk of the broker that takes over: its log is as it should be.
func TestTakeoverRaisesNoAlarmForWhatWasNeverHere(t *testing.T) {
	t.Parallel()
	heard := &alarms{}
	f := newFleet(t, 3, func(c *broker.Config) { c.Log = slog.New(heard) })
	topic, owner := ownedTopic(t, f, false)
	publish(t, f.dial(0), topic, 0, 10)
	for _, n := range f.nodes {
		eventually(t, "the topic", func() bool { return n.Partition(topic, 0) != nil })
		eventually(t, "no history is brought", func() bool { return n.HoldHistory(topic, 0) })
	}
	// There and back at once, before anything is copied: all of it lies on the owner alone.
	for i, to := range []int{(owner + 1) % 3, owner} {
		eventually(t, "the epoch is known there", func() bool { return f.nodes[to].Partition(topic, 0).Epoch == uint64(i+1) })
		if err := f.nodes[to].Move(t.Context(), topic, 0, fmt.Sprintf("n%d", to+1)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the move", func() bool { return f.nodes[to].Serves(topic, 0) == uint64(i+2) })
	}
	f.kill(owner)
	heir := -1
	eventually(t, "the takeover", func() bool {
		for i, n := range f.nodes {
			if i != owner && n.Serves(topic, 0) == 4 {
				heir = i
			}
		}
		return heir >= 0
	})
	if m := f.nodes[heir].Partition(topic, 0); len(orphaned(m)) == 0 {
		t.Errorf("nothing is orphaned: %+v", m.Ranges)
	}
	heard.mu.Lock()
	defer heard.mu.Unlock()
	if len(heard.said) > 0 {
		t.Errorf("logged: %q", heard.said)
	}
}

// An empty log that begins at a ceiling, as a takeover of one leaves it, moves
// like any other, and so does one that was emptied by truncation.
func TestEmptyLogMoves(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"nothing before": 0, "messages before": 5} {
		t.Run(name, func(t *testing.T) { emptyLogMoves(t, before) })
	}
}

func emptyLogMoves(t *testing.T, before int) {
	f := newFleet(t, 3, nil)
	topic, owner := ownedTopic(t, f, false)
	publish(t, f.dial(owner), topic, 0, before)
	f.kill(owner)
	heir := -1
	eventually(t, "an heir", func() bool {
		for i := range f.nodes {
			if i != owner && f.nodes[i].Serves(topic, 0) > 1 {
				heir = i
			}
		}
		return heir >= 0
	})
	f.start(owner)
	f.move(topic, owner)
	c := f.dial(heir)
	p, err := c.Producer(t.Context(), topic, client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(t, p)
	if err != nil {
		t.Fatal(err)
	}
	f.move(topic, heir)
	if again, err := ask(t, p); err != nil || again.Offset != r.Offset+1 {
		t.Fatalf("behind offset %d came %d, %v", r.Offset, again.Offset, err)
	}

	publish(t, c, "cut", 0, 10)
	if _, err := c.Admin().TopicTruncate(t.Context(), protocol.Truncate{Topic: "cut", Before: 10}); err != nil {
		t.Fatal(err)
	}
	f.move("cut", (f.owner("cut", 0)+1)%3)
	publish(t, c, "cut", 10, 10)
}
