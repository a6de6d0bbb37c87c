package served

import (
	"context"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/meta/state"
)

// Forget drops a partition that is served no more.
func (h *Host) Forget(p *Partition) { h.ceilings.forget(p) }

// ceilingKeeper extends the ceilings of partitions ahead of need (R3), all that
// ask at one time in one command.
type ceilingKeeper struct {
	h     *Host
	wake  chan struct{}
	mu    sync.Mutex
	asked map[*Partition]time.Time // when each was last extended
	todo  map[*Partition]struct{}
}

// The bounds of a block of offsets: small gaps after a takeover, few commands under load.
const (
	minBlock = state.OpenCeiling
	maxBlock = 1_000_000
)

func newCeilingKeeper(h *Host) *ceilingKeeper {
	return &ceilingKeeper{h: h, wake: make(chan struct{}, 1), asked: map[*Partition]time.Time{}, todo: map[*Partition]struct{}{}}
}

// ask says that a partition is about to need more offsets. It does not wait.
func (k *ceilingKeeper) ask(p *Partition) {
	k.mu.Lock()
	k.todo[p] = struct{}{}
	k.mu.Unlock()
	notify(k.wake)
}

// forget drops a partition that is served no more.
func (k *ceilingKeeper) forget(p *Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.todo, p)
	delete(k.asked, p)
}

// run extends until ctx ends.
func (k *ceilingKeeper) run(ctx context.Context) {
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		parts := k.take()
		if len(parts) == 0 {
			continue
		}
		if err := k.extend(ctx, parts); err != nil && ctx.Err() == nil {
			k.h.cfg.Log.Warn("ceilings not extended, trying again", "partitions", len(parts), "err", err)
			k.later(ctx, parts)
		}
	}
}

// later asks again for parts after a pause.
func (k *ceilingKeeper) later(ctx context.Context, parts []*Partition) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
	for _, p := range parts {
		k.ask(p)
	}
}

// take returns who asked, with the size of their next blocks adapted to how
// fast they used up the last: about two seconds' worth.
func (k *ceilingKeeper) take() []*Partition {
	now := k.h.cfg.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	var parts []*Partition
	for p := range k.todo {
		delete(k.todo, p)
		if p.Log.Next() < p.extendAt.Load() && p.raisedEnough() {
			continue // extended since it asked
		}
		since := now.Sub(k.asked[p])
		switch {
		case since < time.Second:
			p.block = min(p.block*2, maxBlock)
		case since > 8*time.Second:
			p.block = max(p.block/2, minBlock)
		}
		k.asked[p] = now
		parts = append(parts, p)
	}
	return parts
}

// raisedEnough reports whether nobody waits for the ceiling.
func (p *Partition) raisedEnough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raised == nil
}

// extend commits new ceilings and makes them known.
func (k *ceilingKeeper) extend(ctx context.Context, parts []*Partition) error {
	if !k.h.cfg.Leased() {
		return delivery.ErrNoLease
	}
	entries := make([]state.PartitionUpdate, len(parts))
	for i, p := range parts {
		entries[i] = state.PartitionUpdate{
			Topic: p.Key.Topic, Partition: p.Key.N, Epoch: p.Epoch,
			Ceiling: max(p.Log.Next(), p.Log.Ceiling()) + p.block, Floor: p.Floor(),
		}
	}
	errs, err := k.h.cfg.Meta.DecideEach(ctx, &state.UpdatePartitions{Entries: entries}, len(entries))
	if err != nil {
		return err
	}
	for i, p := range parts {
		if errs[i] != nil {
			k.h.cfg.Log.Error("ceiling refused", "partition", p.Name(), "err", errs[i])
			continue
		}
		p.raise(entries[i].Ceiling, p.block)
	}
	return nil
}

// notify wakes whoever waits at a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
