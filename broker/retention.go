package broker

import (
	"context"
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// retainEvery is how often topic retention is applied.
const retainEvery = 5 * time.Second

// retain applies topic retention (R13: committed first, deleted later) and
// removes what is left of deleted topics. It returns when ctx ends.
func (b *Broker) retain(ctx context.Context) {
	b.buryTombstones(ctx)
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

// buryTombstones finishes deletions that an earlier run began.
func (b *Broker) buryTombstones(ctx context.Context) {
	for _, t := range slices.Collect(b.meta.View().Tombstones()) {
		if err := b.bury(ctx, t); err != nil && ctx.Err() == nil {
			b.log.Warn("deleted topic not removed whole, tried again at the next start", "topic", t.Name, "err", err)
		}
	}
}

// applyRetention moves the start of every log whose topic bounds its age or size.
func (b *Broker) applyRetention(ctx context.Context) {
	now := b.cfg.Now().UnixMilli()
	var parts []*partition
	var entries []state.PartitionUpdate
	for _, p := range b.reliable() {
		t := b.meta.View().TopicByID(p.key.topic)
		if t == nil || t.Settings.RetentionTime == 0 && t.Settings.RetentionBytes == 0 {
			continue
		}
		to := p.log.RetentionPoint(now, t.Settings.RetentionTime.Milliseconds(), int64(t.Settings.RetentionBytes))
		if to <= p.log.Start() {
			continue
		}
		parts = append(parts, p)
		entries = append(entries, state.PartitionUpdate{Topic: p.key.topic, Partition: p.key.n, Epoch: p.epoch, Floor: p.floor(), LogStart: to})
	}
	errs, err := b.proposeEach(ctx, &state.UpdatePartitions{Entries: entries}, len(entries))
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
