package words

import (
	"iter"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Partition describes a partition by what the metadata say of it alone; next is
// the offset its next message gets, as far as that is known.
func Partition(view *state.View, m *state.Partition, next uint64) protocol.PartitionDescription {
	d := protocol.PartitionDescription{
		Partition: int(m.Number), Epoch: m.Epoch, State: strings.ToLower(m.State.String()), LogStart: m.LogStart, Ceiling: m.Ceiling,
		NextOffset: next, CommittedEnd: m.Floor, Protected: m.Floor, ColdEnd: m.LogStart, Ranges: []protocol.RangeDescription{},
	}
	if s := view.Store(m.Owner.Store); s != nil {
		d.Owner = s.Broker
	}
	if m.State == state.Sealing {
		d.Reason = "moving to broker " + Name(view, m.Target.Store)
	}
	if m.Catalog != nil {
		d.ColdEnd = m.ColdEnd()
	}
	for i := range m.Ranges {
		d.Ranges = append(d.Ranges, Range(view, m, &m.Ranges[i], next))
	}
	for _, x := range m.Superseded {
		d.Superseded = append(d.Superseded, protocol.OffsetSpan(x))
	}
	return d
}

// Covered says whether the cold tier has all of a range that is sealed.
func Covered(m *state.Partition, r *state.Range) bool {
	return r.Status == state.RangeSealed && m.Catalog.Covers(max(r.Start, m.LogStart), r.End)
}

// Range describes a range of m; an open one ends at next.
func Range(view *state.View, m *state.Partition, r *state.Range, next uint64) protocol.RangeDescription {
	d := protocol.RangeDescription{Epoch: r.Epochs[len(r.Epochs)-1].Epoch, Start: r.Start, End: r.End, Status: r.Status.String(), Stores: []string{}}
	if r.Status == state.RangeOpen {
		d.End = next
	}
	var away []string
	for _, id := range r.Stores {
		name := id.String()
		if s := view.Store(id); s != nil {
			name = s.Broker
			if s.Status == state.StoreLost || s.Clean {
				away = append(away, name+" ("+Status(s)+")")
			}
		}
		d.Stores = append(d.Stores, name)
	}
	switch {
	case Covered(m, r):
		d.Detail = "in the cold tier"
	case r.Status == state.RangeOrphaned && len(r.Stores) == 0:
		d.Detail = "no broker is known to have it; consumers pass it"
	case r.Status == state.RangeOrphaned && r.Accepted:
		d.Detail = "consumers may pass it"
	case r.Status == state.RangeOrphaned && len(away) == len(r.Stores):
		d.Detail = "may come back with broker " + strings.Join(away, " or ")
	case r.Status == state.RangeLost && r.Accepted:
		d.Detail = "given up"
	case r.Status == state.RangeLost:
		d.Detail = "gone, and nobody has given it up"
	case r.Status == state.RangeSealed && len(away) == len(r.Stores):
		d.Detail = "pending until broker " + strings.Join(away, " or ") + " is back"
	}
	return d
}

// Messages is how many offsets of [from, to) the metadata says a message has:
// plain gaps, ORPHANED and LOST ranges hold none that can be read.
func Messages(m *state.Partition, from, to uint64) (n uint64) {
	for r := range readable(m, from, to) {
		n += r.End - r.Start
	}
	return n
}

// readable yields the runs of offsets of [from, to) that hold messages as far as the metadata know.
func readable(m *state.Partition, from, to uint64) iter.Seq[state.OffsetRange] {
	return func(yield func(state.OffsetRange) bool) {
		if m == nil {
			return
		}
		for i := range m.Ranges {
			r := &m.Ranges[i]
			end := min(r.End, to)
			if r.Status == state.RangeOpen {
				end = to
			} else if r.Status != state.RangeSealed {
				continue
			}
			if start := max(r.Start, from); start < end && !yield(state.OffsetRange{Start: start, End: end}) {
				return
			}
		}
	}
}
