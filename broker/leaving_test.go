package broker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// A broker that is stopped hands over all its topics first, as planned moves:
// nobody takes anything over, no client sees an error, and no range is orphaned (R16).
func TestStoppedBrokerHandsOver(t *testing.T) {
	for name, leads := range map[string]bool{"leader": true, "follower": false} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, nil)
			topic, owner := ownedTopic(t, f, leads)
			var flows []*traffic
			for i := range 3 {
				flows = append(flows, flow(t, f.dial(i), f.dial(i+1), fmt.Sprintf("flow-%d", i)))
			}
			for i := range 9 {
				publish(t, f.dial(0), fmt.Sprintf("idle-%d", i), 0, 3)
			}
			for _, w := range flows {
				w.await(20)
			}
			began := time.Now()
			f.stop(owner)
			t.Logf("stopped after %v", time.Since(began))
			other := f.nodes[(owner+1)%3]
			for _, name := range append([]string{topic, "flow-0", "flow-1", "flow-2"}, "idle-0", "idle-4", "idle-8") {
				m := other.Partition(name, 0)
				if m.State != state.Open || f.owner(name, 0) == owner || len(orphaned(m)) > 0 {
					t.Errorf("%s after the stop: %+v", name, m)
				}
			}
			for _, w := range flows {
				w.await(20)
				w.end()
			}
			f.start(owner)
			consume(t, f.dial(owner), "idle-0/s", 0, 3)
		})
	}
}

// A disk that was emptied is another store: the broker joins as a new member,
// and what only the old disk held stays ORPHANED until somebody decides (R9).
func TestEmptiedDiskIsAnotherStore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	topic, owner := ownedTopic(t, f, false)
	publish(t, f.dial(0), topic, 0, 10)
	f.kill(owner)
	other := f.nodes[(owner+1)%3]
	eventually(t, "the takeover", func() bool { return f.owner(topic, 0) != owner && other.Partition(topic, 0).Epoch == 2 })
	old := f.nodes[owner].dir
	f.nodes[owner].dir = t.TempDir()
	f.start(owner)
	if f.nodes[owner].Incarnation() < 4 {
		t.Errorf("run %d", f.nodes[owner].Incarnation())
	}
	eventually(t, "a lease", f.nodes[owner].Leased)
	m := other.Partition(topic, 0)
	if lost := orphaned(m); len(lost) != 1 || lost[0].End < 10 {
		t.Errorf("after the disk was emptied: %+v", m.Ranges)
	}
	if entries, err := os.ReadDir(filepath.Join(old, "wal")); err != nil || len(entries) == 0 {
		t.Errorf("the old disk: %v, %v", entries, err)
	}
	publish(t, f.dial(owner), "more", 0, 10)
}

// A store that was removed from the cluster stops, and does not start again.
func TestRemovedStoreStops(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	victim := 0
	for f.nodes[victim].Leads() {
		victim++
	}
	n := f.nodes[victim]
	other := f.nodes[(victim+1)%3]
	if err := other.RemoveStore(t.Context(), fmt.Sprintf("n%d", victim+1)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.done:
		if err == nil || !strings.Contains(err.Error(), "removed from the cluster") {
			t.Errorf("stopped with %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it runs on")
	}
	if err := n.Abandon(); err != nil {
		t.Error(err)
	}
	n.done = nil
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	b, err := broker.Open(ctx, f.config(victim))
	if err == nil {
		t.Fatal(errors.Join(errors.New("started again"), b.Abandon()))
	}
	if !strings.Contains(err.Error(), "removed from the cluster") {
		t.Errorf("the start says: %v", err)
	}
}

// What was acknowledged before a planned move does not come again behind it, to
// whichever consumer of a shared subscription. What a consumer takes out of its
// queue before it hears of the move may come to the other one, not to itself.
func TestAcknowledgedIsNotDeliveredAgainAfterAMove(t *testing.T) {
	t.Parallel()
	const messages = 300
	f := newFleet(t, 2, nil)
	publish(t, f.dial(0), "shared", 0, messages)
	from := f.owner("shared", 0)
	cfg := client.ConsumerConfig{Subscription: "s", Type: protocol.Shared, From: earliest, Queue: 10}
	one, two := consumer(t, f.dial(0), "shared", cfg), consumer(t, f.dial(1), "shared", cfg)
	acked := map[uint64]*client.Consumer{} // by whom
	take := func(c *client.Consumer) {
		m := receive(t, c)
		if acked[m.Offset] != nil {
			t.Errorf("offset %d comes again, delivery %d", m.Offset, m.Deliveries)
		}
		if err := c.AckConfirmed(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		acked[m.Offset] = c
	}
	for range 50 {
		take(one)
		take(two)
	}
	before := maps.Clone(acked)
	if err := f.nodes[from].Move(t.Context(), "shared", 0, fmt.Sprintf("n%d", 2-from)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the move", func() bool { return f.nodes[1-from].Serves("shared", 0) != 0 && f.nodes[from].Serves("shared", 0) == 0 })
	// Both hold messages in their queues that the move took back; the rest comes to either.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for len(acked) < messages && ctx.Err() == nil {
		for _, c := range []*client.Consumer{one, two} {
			short, done := context.WithTimeout(ctx, 50*time.Millisecond)
			m, err := c.Receive(short)
			done()
			if err != nil {
				continue
			}
			if before[m.Offset] != nil || acked[m.Offset] == c {
				t.Errorf("offset %d comes again, delivery %d", m.Offset, m.Deliveries)
			}
			if err := c.Ack(m); err != nil {
				t.Error(err)
			}
			acked[m.Offset] = c
		}
	}
	if len(acked) != messages {
		t.Errorf("%d of %d messages", len(acked), messages)
	}
}

// All brokers of a cluster are stopped one after the other. The last ones have
// no majority to tell of it: that is a clean stop all the same, and a quick one,
// with the time for a stop as it is by default; nothing is lost by it.
func TestAllBrokersStopInTurn(t *testing.T) {
	for name, topics := range map[string]int{"with topics": 4, "empty": 0} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, func(c *broker.Config) { c.Peers.Shutdown = 30 * time.Second })
			for i := range topics {
				publish(t, f.dial(0), fmt.Sprintf("stopped-%d", i), 0, 10)
			}
			for i := range f.nodes {
				began := time.Now()
				f.stop(i)
				if took := time.Since(began); took > 8*time.Second {
					t.Errorf("n%d took %v to stop", i+1, took)
				} else {
					t.Logf("n%d stopped after %v", i+1, took)
				}
			}
			var starting sync.WaitGroup
			for i := range f.nodes {
				starting.Go(func() { f.start(i) })
			}
			starting.Wait()
			for i := range topics {
				consume(t, f.dial(0), fmt.Sprintf("stopped-%d/s", i), 0, 10)
			}
		})
	}
}
