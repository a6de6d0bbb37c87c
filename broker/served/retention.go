package served

import (
	"context"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// Retain moves the start of every log of parts whose topic bounds what is kept
// (R13: committed first, deleted later). Age and size go over what somebody has not
// acknowledged; what everybody has goes without them.
func (h *Host) Retain(ctx context.Context, of []*Partition) {
	if !h.cfg.Leased() {
		return
	}
	now := h.cfg.Now().UnixMilli()
	view := h.cfg.Meta.View() // of one version, so that what it says is acknowledged belongs to the log's start there
	var parts []*Partition
	var entries []state.PartitionUpdate
	var marks []state.RangeMark
	for _, p := range of {
		t, m := view.TopicByID(p.Key.Topic), view.Partition(p.Key.Topic, p.Key.N)
		if t == nil || m == nil {
			continue
		}
		keep := bounds(view, t, m, now)
		if keep == (storage.Retention{Now: now}) {
			continue
		}
		to := p.Past.RetentionPoint(m, keep)
		if to <= p.Log.Start() {
			continue
		}
		unacked := t.Settings.RetentionAcked && to > keep.Acked
		if unacked {
			h.cfg.Log.Warn("retention gives up messages that not every subscription has acknowledged", "partition", p.Name(), "below", to, "acknowledged", keep.Acked)
		}
		if lost := orphanedBelow(m, to); len(lost) > 0 {
			marks = append(marks, lost...)
			h.cfg.Log.Warn("retention gives up messages that could not be read", "partition", p.Name(), "below", to, "ranges", len(lost))
		}
		parts = append(parts, p)
		entries = append(entries, state.PartitionUpdate{Topic: p.Key.Topic, Partition: p.Key.N, Epoch: p.Epoch, Floor: p.Floor(), LogStart: to, At: now, Acked: t.Settings.RetentionAcked && !unacked})
	}
	// What was refused shows in the refusal of the start that would pass it.
	_, err := h.cfg.Meta.DecideEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
	var errs []error
	if err == nil {
		errs, err = h.cfg.Meta.DecideEach(ctx, &state.UpdatePartitions{Entries: entries}, len(entries))
	}
	if err != nil {
		if ctx.Err() == nil {
			h.cfg.Log.Warn("retention not applied, trying again", "partitions", len(entries), "err", err)
		}
		return
	}
	for i, p := range parts {
		if errs[i] == nil {
			errs[i] = p.Log.Trim(entries[i].LogStart)
		}
		if errs[i] != nil {
			h.cfg.Log.Warn("retention not applied", "partition", p.Name(), "err", errs[i])
		}
	}
}

// bounds are those of a topic, for a partition.
func bounds(view *state.View, t *state.Topic, m *state.Partition, now int64) storage.Retention {
	r := storage.Retention{Now: now, Age: t.Settings.RetentionTime.Milliseconds(), Bytes: int64(t.Settings.RetentionBytes)}
	if t.Settings.RetentionAcked {
		r.Acked = view.Acked(m)
	}
	return r
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
