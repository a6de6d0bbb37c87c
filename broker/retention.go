package broker

import (
	"context"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/meta/state"
)

// retainEvery is how often topic retention is applied.
const retainEvery = 5 * time.Second

// retain applies topic retention. It returns when ctx ends.
func (b *Broker) retain(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.host.Retain(ctx, b.reliable())
		case <-ctx.Done():
			return
		}
	}
}

// buryTombstones removes what this store still holds of deleted topics.
func (b *Broker) buryTombstones(ctx context.Context) {
	view := b.meta.View()
	for _, t := range slices.Collect(view.Tombstones()) {
		if !b.mourns(view, t) {
			continue
		}
		if err := b.bury(ctx, t); err != nil && ctx.Err() == nil {
			b.log.Warn("deleted topic not removed whole, trying again", "topic", t.Name, "err", err)
		}
	}
}

// mourns says whether a tombstone waits for this store, or for nobody; what the cold
// tier has of it, it waits for first.
func (b *Broker) mourns(view *state.View, t *state.Topic) bool {
	nobody := true
	for m := range view.Partitions(t.ID) {
		for i := range m.Ranges {
			if slices.Contains(m.Ranges[i].Stores, b.self().Store) {
				return true
			}
			nobody = false
		}
		nobody = nobody && m.Catalog == nil
	}
	return nobody
}

// reliable returns the partitions served that have a log.
func (b *Broker) reliable() []*served.Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]*served.Partition, 0, len(b.parts))
	for _, p := range b.parts {
		if p.Log != nil {
			out = append(out, p)
		}
	}
	return out
}
