package broker

import (
	"context"
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// retainEvery is how often topic retention is applied.
const retainEvery = 5 * time.Second

// retain applies topic retention (R13: committed first, deleted later). It returns when ctx ends.
func (b *Broker) retain(ctx context.Context) {
	tick := time.NewTicker(retainEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			b.applyRetention(ctx)
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

// mourns says whether a tombstone waits for this store, or for nobody.
func (b *Broker) mourns(view *state.View, t *state.Topic) bool {
	nobody := true
	for m := range view.Partitions(t.ID) {
		for i := range m.Ranges {
			if slices.Contains(m.Ranges[i].Stores, b.self().Store) {
				return true
			}
			nobody = false
		}
	}
	return nobody
}

// applyRetention moves the start of every log whose topic bounds its age or size.
func (b *Broker) applyRetention(ctx context.Context) {
	if !b.leased() {
		return
	}
	now := b.cfg.Now().UnixMilli()
	view := b.meta.View()
	var parts []*partition
	var entries []state.PartitionUpdate
	var marks []state.RangeMark
	for _, p := range b.reliable() {
		t, m := view.TopicByID(p.key.topic), view.Partition(p.key.topic, p.key.n)
		if t == nil || m == nil || t.Settings.RetentionTime == 0 && t.Settings.RetentionBytes == 0 {
			continue
		}
		to := p.log.RetentionPoint(now, t.Settings.RetentionTime.Milliseconds(), int64(t.Settings.RetentionBytes))
		if to <= p.log.Start() {
			continue
		}
		if lost := orphanedBelow(m, to); len(lost) > 0 {
			marks = append(marks, lost...)
			b.log.Warn("retention gives up messages that could not be read", "partition", p.name(), "below", to, "ranges", len(lost))
		}
		parts = append(parts, p)
		entries = append(entries, state.PartitionUpdate{Topic: p.key.topic, Partition: p.key.n, Epoch: p.epoch, Floor: p.floor(), LogStart: to})
	}
	// What was refused shows in the refusal of the start that would pass it.
	_, err := b.proposeEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
	var errs []error
	if err == nil {
		errs, err = b.proposeEach(ctx, &state.UpdatePartitions{Entries: entries}, len(entries))
	}
	if err != nil {
		if ctx.Err() == nil {
			b.log.Warn("retention not applied, trying again", "partitions", len(entries), "err", err)
		}
		return
	}
	for i, p := range parts {
		if errs[i] == nil {
			errs[i] = p.log.Trim(entries[i].LogStart)
		}
		if errs[i] != nil {
			b.log.Warn("retention not applied", "partition", p.name(), "err", errs[i])
		}
	}
}

// orphanedBelow returns the marks that make LOST what is ORPHANED below an
// offset: the start of a log passes such a range in no other way (R18). All of
// it is older than what retention bounds, and one bad sector must not keep the
// rest of the topic on disk for ever.
func orphanedBelow(m *state.Partition, to uint64) []state.RangeMark {
	var out []state.RangeMark
	for i := range m.Ranges {
		if r := &m.Ranges[i]; r.Status == state.RangeOrphaned && r.Start < to {
			out = append(out, state.RangeMark{
				Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, From: r.Start, To: min(r.End, to), Status: state.RangeLost,
			})
		}
	}
	return out
}

// reliable returns the partitions served that have a log.
func (b *Broker) reliable() []*partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]*partition, 0, len(b.parts))
	for _, p := range b.parts {
		if p.log != nil {
			out = append(out, p)
		}
	}
	return out
}
