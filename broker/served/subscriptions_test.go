package served

import (
	"errors"
	"testing"
	"time"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// A shell that begins while a reset is being committed stands where the reset
// says: one of the generation before would have all its acknowledgements refused.
func TestSubscriptionThatBeginsDuringAResetIsOfTheNewGeneration(t *testing.T) {
	store, topic := state.StoreID{1}, state.TopicID{1}
	node, err := meta.Open(t.Context(), meta.Config{Dir: t.TempDir(), Store: store, ElectionTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := node.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	decide := func(c state.Command) state.Result {
		res, err := node.Decide(t.Context(), c)
		if err = errors.Join(append(res.Entries, err)...); err != nil {
			t.Fatal(err)
		}
		return res
	}
	run := decide(&state.RegisterStore{Store: store, Broker: "n1", Nonce: [16]byte{1}, Boot: "b"}).Incarnation
	decide(&state.CreateTopic{
		ID: topic, Name: "/default/t", Owners: []state.Owner{{Store: store, Incarnation: run}},
		Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal},
	})
	decide(&state.CreateSubscription{Topic: topic, Name: "s", Start: []uint64{0}, Options: state.SubscriptionOptions{MaxUnacked: 10}})
	m := node.View().Subscription(topic, "s")
	p := &Partition{
		Key: Key{Topic: topic}, subs: map[string]*delivery.Subscription{},
		h: &Host{cfg: Config{Meta: node, Carrier: delivery.Open(delivery.Config{})}},
	}
	begun := make(chan *delivery.Subscription, 1)
	p.mu.Lock() // the shell is made behind this, of what was read before
	go func() {
		s, err := p.Subscription(m)
		if err != nil {
			t.Error(err)
		}
		begun <- s
	}()
	decide(&state.ResetSubscription{Subscription: m.ID, Entries: []state.CursorReset{{Generation: 1}}})
	p.mu.Unlock()
	s := <-begun
	if s == nil {
		t.Fatal("no shell")
	}
	if _, generation := s.Standing(); generation != 1 {
		t.Errorf("begun in generation %d after a reset", generation)
	}
}
