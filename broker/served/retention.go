package served

import (
	"context"

	"github.com/danubemq/danube/meta/state"
)

// Retain moves the start of every log of parts whose topic bounds its age or size
// (R13: committed first, deleted later).
func (h *Host) Retain(ctx context.Context, of []*Partition) {
	if !h.cfg.Leased() {
		return
	}
	now := h.cfg.Now().UnixMilli()
	view := h.cfg.Meta.View()
	var parts []*Partition
	var entries []state.PartitionUpdate
	var marks []state.RangeMark
	for _, p := range of {
		t, m := view.TopicByID(p.Key.Topic), view.Partition(p.Key.Topic, p.Key.N)
		if t == nil || m == nil || t.Settings.RetentionTime == 0 && t.Settings.RetentionBytes == 0 {
			continue
		}
		to := p.Past.RetentionPoint(m, now, t.Settings.RetentionTime.Milliseconds(), int64(t.Settings.RetentionBytes))
		if to <= p.Log.Start() {
			continue
		}
		if lost := orphanedBelow(m, to); len(lost) > 0 {
			marks = append(marks, lost...)
			h.cfg.Log.Warn("retention gives up messages that could not be read", "partition", p.Name(), "below", to, "ranges", len(lost))
		}
		parts = append(parts, p)
		entries = append(entries, state.PartitionUpdate{Topic: p.Key.Topic, Partition: p.Key.N, Epoch: p.Epoch, Floor: p.Floor(), LogStart: to, At: now})
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
