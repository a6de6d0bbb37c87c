package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// lastWords is the part of the time for a stop that is kept for what cannot be handed over.
const lastWords = 2 * time.Second

// transferShare is the part of the time for a stop that passing on leadership may
// take: who keeps it can hand over all the same.
const transferShare = 10

// leaderShare is the part of the time for a stop for which handing over goes on without a leader of the metadata.
const leaderShare = 8

// whileLed returns a context that ends after limit, and before that once no
// leader of the metadata was known for so long: the last brokers of a cluster to
// stop have no majority any more, and nothing to wait for.
func (b *Broker) whileLed(limit, leaderless time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() { // returns when ctx ends
		tick := time.NewTicker(leaderPoll)
		defer tick.Stop()
		for led := time.Now(); ; {
			select {
			case now := <-tick.C:
				if _, known := b.meta.Leader(); known {
					led = now
				} else if now.Sub(led) >= leaderless {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

// leaderPoll is how often a stop looks whether there is a leader.
const leaderPoll = 50 * time.Millisecond

// handOverAll moves what this broker owns to others before it stops, as planned
// moves, so that nobody waits for a lease to run out. What is left when the time
// is over, or finds no taker, is sealed by the caller. Nothing here is an error:
// whatever fails, the next owner takes over.
func (b *Broker) handOverAll() {
	limit := b.cfg.Peers.Shutdown
	ctx, cancel := b.whileLed(max(limit-lastWords, limit/2), limit/leaderShare)
	defer cancel()
	if b.store.Err() != nil || b.cluster.Err() != nil || len(b.takers()) == 0 {
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
		calls.Pause(ctx, 100*time.Millisecond)
	}
	return left, len(parts)
}

const (
	// sealTime bounds what a stop waits for the metadata.
	sealTime = 10 * time.Second
	// sealLeaderless bounds it where there is no leader.
	sealLeaderless = time.Second
	// leastSealTime is what is left for it even if the time for the stop is over.
	leastSealTime = 250 * time.Millisecond
	// closeTime is the part of the time for a stop that is kept for the closing of files and connections.
	closeTime = time.Second
)

// seal commits the last cursors and the exact ends of all partitions within a
// time. Without a majority of the metadata the stop is clean all the same: the
// ends are exact on disk, and the next start finds them.
func (b *Broker) seal(parts map[served.Key]*served.Partition, within time.Duration) error {
	if b.meta == nil || b.store == nil || b.store.Err() != nil || b.self() == (state.Owner{}) || b.cluster.Err() != nil {
		return nil // there is nothing to say, or nothing that is this broker's to say
	}
	ctx, cancel := b.whileLed(max(min(sealTime, b.cfg.Peers.Shutdown/2, within), leastSealTime), sealLeaderless)
	defer cancel()
	b.carrier.Commit(ctx)
	err := b.sealAll(ctx, parts)
	if err == nil {
		if _, err = b.propose(ctx, &state.SetStore{Owner: b.self(), Status: state.StoreActive, Clean: true}); err != nil {
			err = fmt.Errorf("note the clean stop: %w", err)
		}
	}
	for _, harmless := range []error{meta.ErrNotLeader, meta.ErrUnknown, meta.ErrBusy, state.ErrFenced} {
		if errors.Is(err, harmless) {
			b.log.Warn("the stop is not noted in the metadata; the next start finds the ends by itself", "err", err)
			return nil
		}
	}
	return err
}

// sealAll commits the exact ends of partitions.
func (b *Broker) sealAll(ctx context.Context, parts map[served.Key]*served.Partition) error {
	var entries []state.PartitionUpdate
	for _, p := range parts {
		if p.Log == nil {
			continue
		}
		if p.Log.Next() != p.Log.Committed() {
			continue // something is still on its way: the next start finds the end by itself
		}
		entries = append(entries, state.PartitionUpdate{
			Topic: p.Key.Topic, Partition: p.Key.N, Epoch: p.Epoch, Floor: p.Log.Committed(), Seal: true, End: p.Log.Committed(),
		})
	}
	errs, err := b.proposeEach(ctx, &state.UpdatePartitions{Entries: entries}, len(entries))
	for _, e := range errs {
		if e != nil && !errors.Is(e, state.ErrStaleEpoch) && !errors.Is(e, state.ErrNotFound) { // another's by now, or deleted
			err = errors.Join(err, e)
		}
	}
	if err != nil {
		return fmt.Errorf("seal partitions: %w", err)
	}
	return nil
}
