package broker_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// objectTopic makes a topic of level object.
func objectTopic(t testing.TB, c *client.Client, topic string) {
	t.Helper()
	if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: topic, Config: protocol.TopicConfig{Durability: "object"}}); err != nil {
		t.Fatal(err)
	}
}

// At level object nothing is acknowledged or read before the catalog has it, and
// everything soon after it was sent.
func TestObjectIsAcknowledgedFromTheCatalog(t *testing.T) {
	t.Parallel()
	b := &bucket{}
	n := start(t, t.TempDir(), func(c *broker.Config) {
		b.config(c)
		c.Storage.SegmentAge = time.Hour
	})
	c := dial(t, n)
	objectTopic(t, c, "sure")
	p, err := c.Producer(t.Context(), "sure", client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	cons := consumer(t, c, "sure", client.ConsumerConfig{Subscription: "s", From: earliest})
	var slowest time.Duration
	for i := range 6 {
		began := time.Now()
		r, err := p.Send(t.Context(), client.Message{Payload: fmt.Appendf(nil, "m%d", i)})
		if err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		if m := n.Partition("sure", 0); !m.Catalog.Covers(0, r.Offset+1) {
			t.Fatalf("offset %d is acknowledged, the catalog has all below %d", r.Offset, m.Catalog.Gap(0))
		}
		if m := receive(t, cons); m.Offset != r.Offset {
			t.Fatalf("got offset %d, want %d", m.Offset, r.Offset)
		}
	}
	t.Logf("acknowledged within %v", slowest)
	if slowest > 5*time.Second { // a fifth of a second in quiet
		t.Errorf("acknowledged after %v", slowest)
	}
	b.away.Store(true)
	if err := p.SendAsync(t.Context(), client.Message{Payload: []byte("m6")}, func(client.Result, error) {}); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if m, err := cons.Receive(short); err == nil {
		t.Fatalf("offset %d is read, and not in the catalog", m.Offset)
	}
	b.away.Store(false)
	if m := receive(t, cons); string(m.Payload) != "m6" {
		t.Errorf("got %q", m.Payload)
	}
	closeConsumer(t, cons)
}

// The owner's process is killed and its disk deleted, under load: at level object
// nothing that was acknowledged is lost, and no offset is passed as orphaned.
func TestObjectSurvivesTheLossOfItsDisk(t *testing.T) {
	t.Parallel()
	change, _ := inCold(t)
	f := newFleet(t, 3, change)
	c := f.dial(0)
	objectTopic(t, c, "safe")
	w := flow(t, c, f.dial(1), "safe")
	w.await(200)
	lost := f.owner("safe", 0)
	f.kill(lost)
	if err := os.RemoveAll(f.nodes[lost].dir); err != nil {
		t.Fatal(err)
	}
	w.await(200)
	w.end()
	other := (lost + 1) % 3
	for _, r := range f.nodes[other].Partition("safe", 0).Ranges {
		if r.Status == state.RangeOrphaned || r.Status == state.RangeLost {
			t.Errorf("[%d, %d) is %v", r.Start, r.End, r.Status)
		}
	}
}

// Producers and consumers of level object see a move as those of any other.
func TestObjectMoves(t *testing.T) {
	t.Parallel()
	change, _ := inCold(t)
	f := newFleet(t, 2, change)
	c := f.dial(0)
	objectTopic(t, c, "goes")
	w := flow(t, c, f.dial(1), "goes")
	w.await(100)
	for range 4 {
		f.move("goes", 1-f.owner("goes", 0))
		w.await(50)
	}
	w.end()
}
