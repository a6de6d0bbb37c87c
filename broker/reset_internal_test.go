package broker

import (
	"sync"
	"testing"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// subscribed makes a subscription on a topic of n partitions; positions up to
// the opening ceiling are legal without a message.
func subscribed(t *testing.T, n int) (*Broker, *state.Subscription) {
	t.Helper()
	b := running(t, "/default/moved", protocol.TopicConfig{Partitions: n})
	if _, err := b.admin.CreateSubscription(t.Context(), &protocol.SubCreate{Topic: "/default/moved", Subscription: "s"}); err != nil {
		t.Fatal(err)
	}
	return b, b.subNow("s")
}

func (b *Broker) subNow(name string) *state.Subscription {
	v := b.meta.View()
	return v.Subscription(v.Topic("/default/moved").ID, name)
}

// What is acknowledged above the prefix of one partition is not forgotten
// because the cursor of another is moved (R18).
func TestSeekOfOnePartitionLeavesTheOthersAlone(t *testing.T) {
	t.Parallel()
	b, m := subscribed(t, 2)
	epoch := b.meta.View().Partition(m.Topic, 1).Epoch
	acked := state.CursorDelta{Subscription: m.ID, Partition: 1, Epoch: epoch, Acked: state.Offsets{{Start: 5, End: 9}}, Counts: state.OffsetNumbers{{Offset: 3, Number: 4}}}
	if errs, err := b.proposeEach(t.Context(), &state.MoveCursors{Entries: []state.CursorDelta{acked}}, 1); err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	// The shell of the other partition is running and has acknowledgements that are not committed yet.
	p, err := b.serving(t.Context(), "/default/moved", 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := b.subscription(t.Context(), p, &protocol.Subscribe{Topic: "/default/moved", Subscription: "s", Existing: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.admin.ResetSubscription(t.Context(), m.Topic, "s", 0, protocol.Position{Kind: protocol.Earliest}); err != nil {
		t.Fatal(err)
	}
	m = b.subNow("s")
	if c := m.Cursors[1]; c.Generation != 0 || !c.Acknowledged(8) || c.Counts.Get(3) != 4 {
		t.Errorf("partition 1 after a seek of partition 0: %+v", c)
	}
	if d := s.Describe(); m.Cursors[0].Generation != 1 || d.Generation != 0 || d.Ranges != 1 {
		t.Errorf("generation %d, the shell of the other holds %+v", m.Cursors[0].Generation, d)
	}
	if err := b.admin.ResetSubscription(t.Context(), m.Topic, "s", -1, protocol.Position{Kind: protocol.Earliest}); err != nil {
		t.Fatal(err)
	}
	_, generation := s.Standing()
	if m = b.subNow("s"); m.Cursors[0].Generation != 2 || m.Cursors[1].Generation != 1 || generation != 1 || m.Cursors[1].Acknowledged(8) {
		t.Errorf("after a reset of all: %+v, the shell in generation %d", m.Cursors, generation)
	}
}

// fill appends n messages to a partition that has none.
func fill(t *testing.T, p *served.Partition, n int) {
	t.Helper()
	var w batch.Builder
	for range n {
		w.Add(&batch.Message{Payload: []byte("m"), PublishTime: 1})
	}
	data, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 7, Session: 1})
	if err == nil {
		_, _, err = p.Log.OpenSession(7, 1, 0)
	}
	var pending storage.Pending
	if err == nil {
		pending, err = p.Log.Append(data)
	}
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Seeks that run side by side are carried out one after the other, on one
// partition and on several, and none is refused; shells end where the metadata do.
func TestSeeksSideBySideAllSucceed(t *testing.T) {
	t.Parallel()
	const partitions, each = 2, 4
	b, m := subscribed(t, partitions)
	shells := make([]*delivery.Subscription, partitions)
	for n := range shells {
		p, err := b.serving(t.Context(), "/default/moved", n, 0)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, p, 20)
		if shells[n], _, err = b.subscription(t.Context(), p, &protocol.Subscribe{Topic: "/default/moved", Subscription: "s", Existing: true}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range partitions * each {
		wg.Go(func() {
			to := protocol.Position{Kind: protocol.AtOffset, Offset: uint64(10 + i)}
			if err := b.admin.ResetSubscription(t.Context(), m.Topic, "s", i%partitions, to); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	m = b.subNow("s")
	for n, s := range shells {
		at, generation := s.Standing()
		if c := m.Cursors[n]; c.Generation != each || generation != each || at != c.Prefix {
			t.Errorf("partition %d: metadata at %d in generation %d, shell at %d in %d", n, c.Prefix, c.Generation, at, generation)
		}
	}
}
