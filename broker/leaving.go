package broker

import (
	"context"
	"errors"
	"time"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
)

// lastWords is the part of the time for a stop that is kept for what cannot be handed over.
const lastWords = 2 * time.Second

// transferShare is the part of the time for a stop that passing on leadership may
// take: who keeps it can hand over all the same.
const transferShare = 10

// handOverAll moves what this broker owns to others before it stops, as planned
// moves, so that nobody waits for a lease to run out. What is left when the time
// is over, or finds no taker, is sealed by the caller. Nothing here is an error:
// whatever fails, the next owner takes over.
func (b *Broker) handOverAll() {
	limit := b.cfg.Peers.Shutdown
	ctx, cancel := context.WithTimeout(context.Background(), max(limit-lastWords, limit/2))
	defer cancel()
	if b.store.Err() != nil || len(b.takers()) == 0 {
		return
	}
	began := time.Now()
	if _, leads := b.meta.Leading(); leads {
		transfer, cancel := context.WithTimeout(ctx, limit/transferShare)
		if err := b.meta.Transfer(transfer, nil); err != nil {
			b.log.Warn("leadership not passed on", "err", err)
		}
		cancel()
	}
	// From here on nothing new comes to this broker.
	if _, err := b.propose(ctx, &state.SetStore{Owner: b.self(), Status: state.StoreActive, Clean: true}); err != nil {
		b.log.Warn("stop not announced", "err", err)
		return
	}
	moved := 0
	for ctx.Err() == nil {
		changed := b.meta.Changed()
		left, asked := b.moveOff(ctx)
		moved += asked
		if left == 0 {
			break
		}
		timer := time.NewTimer(time.Second)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	b.log.Info("handed over", "partitions", moved, "took", time.Since(began).Round(time.Millisecond))
}

// takers are the other brokers that gossip shows alive.
func (b *Broker) takers() []cluster.Member {
	var out []cluster.Member
	for _, m := range b.cluster.Members() {
		if m.Store != b.self().Store && m.State == cluster.Alive {
			out = append(out, m)
		}
	}
	return out
}

// moveOff asks for moves of everything that this broker owns and that does not
// move yet. It returns how much it owns still, 0 also if nobody can take it.
func (b *Broker) moveOff(ctx context.Context) (left, asked int) {
	view := b.meta.View()
	var parts []*state.Partition
	for m := range view.Owned(b.self().Store) {
		if t := view.TopicByID(m.Topic); m.Owner != b.self() || t == nil || t.Deleted() || m.State == state.Closed {
			continue
		}
		left++
		if m.State == state.Open {
			parts = append(parts, m)
		}
	}
	if len(parts) == 0 {
		return left, 0
	}
	owners := cluster.Place(view, b.takers(), len(parts))
	if owners == nil {
		return 0, 0
	}
	c := &state.MovePartitions{}
	for i, m := range parts {
		c.Entries = append(c.Entries, state.PartitionMove{Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, To: owners[i]})
	}
	errs, err := b.proposeEach(ctx, c, len(parts))
	if err = errors.Join(append(errs, err)...); err != nil && ctx.Err() == nil {
		b.log.Warn("not everything can be handed over", "err", err)
		wait(ctx, 100*time.Millisecond)
	}
	return left, len(parts)
}
