package state

import "slices"

// Operations on a partition's list of ranges. Each returns a new list and leaves the old one, which views share, alone.

// sealRange ends the open range, the last one, at end, held by stores. A range that never got a message leaves the list.
func sealRange(old []Range, end uint64, stores []StoreID) []Range {
	n := len(old) - 1
	r := old[n]
	list := slices.Clone(old[:n])
	if end == r.Start {
		return list
	}
	r.Status, r.End, r.Stores = RangeSealed, end, stores
	return appendRange(list, r)
}

// appendRange adds r, which lies above the list, and joins it with the last range if the two have the same fate: a
// thousand restarts of one store leave one range with a thousand epoch starts. It writes to list.
func appendRange(list []Range, r Range) []Range {
	if r.Status != RangeOpen && r.Start == r.End {
		return list
	}
	if n := len(list); n > 0 && joinable(&list[n-1], &r) {
		last := &list[n-1]
		epochs := r.Epochs
		if last.Epochs[len(last.Epochs)-1].Epoch == epochs[0].Epoch {
			epochs = epochs[1:]
		}
		// The old slice may be shared with views; growing in place would be a write beyond their length only, but two
		// states that grew from one snapshot must not see each other's tail.
		last.Epochs = append(last.Epochs[:len(last.Epochs):len(last.Epochs)], epochs...)
		last.End = r.End
		return list
	}
	return append(list, r)
}

// joinable says whether b goes on where a ends, with the same fate. What may end earlier than its range stays by itself.
func joinable(a, b *Range) bool {
	if a.Tail || b.Tail || a.Doubt != b.Doubt {
		return false
	}
	if a.Status != b.Status || a.Status == RangeOpen || a.End != b.Start || a.Lowest != b.Lowest || a.Accepted != b.Accepted || a.Exporter != b.Exporter {
		return false
	}
	return slices.Equal(a.Stores, b.Stores)
}

// doubted are ranges as an epoch leaves them that begins at an offset without a hand-over: its owner knows of producers what
// its own disk tells, and may store again what any other range holds (R17).
func doubted(old []Range, store StoreID, from uint64) (list []Range) {
	for _, r := range old {
		known := r.Status == RangeSealed && slices.Contains(r.Stores, store)
		if !known && r.Status != RangeLost && r.Doubt == 0 {
			r.Doubt = from
		}
		list = appendRange(list, r)
	}
	return list
}

// doubtLeft is what stays of the doubt about a range that was held against all that can be read behind: what is ORPHANED
// there may come back with what was stored again.
func doubtLeft(list []Range, r *Range) uint64 {
	for i := range list {
		if list[i].Status == RangeOrphaned && list[i].Start >= r.Doubt {
			return r.Doubt
		}
	}
	return 0
}

// overlaps says whether an offset of [from, to) lies in r.
func (r *Range) overlaps(from, to uint64) bool {
	return from < to && r.Start < to && (r.Status == RangeOpen || from < r.End)
}

// spliceRange adds r to list, the part of it within w as change makes it.
func spliceRange(list []Range, r Range, w OffsetRange, change func(mid *Range)) []Range {
	from, to := max(r.Start, w.Start), min(r.End, w.End)
	if r.Start < from {
		list = appendRange(list, cutRange(r, r.Start, from))
	}
	mid := cutRange(r, from, to)
	change(&mid)
	list = appendRange(list, mid)
	if to < r.End {
		list = appendRange(list, cutRange(r, to, r.End))
	}
	return list
}

// trimRanges gives up everything below start.
func trimRanges(old []Range, start uint64) []Range {
	var list []Range
	for _, r := range old {
		if r.Status != RangeOpen && r.End <= start {
			continue
		}
		if r.Start < start {
			r = cutRange(r, start, r.End)
		}
		list = append(list, r)
	}
	return list
}

// cutRange returns the part of r within [from, to); to counts only if r is not open.
func cutRange(r Range, from, to uint64) Range {
	var epochs []EpochStart
	for _, e := range r.Epochs {
		if r.Status != RangeOpen && e.Start >= to {
			break
		}
		if e.Start <= from {
			epochs = epochs[:0]
			e.Start = from
		}
		epochs = append(epochs, e)
	}
	r.Epochs, r.Start = epochs, from
	if r.Status != RangeOpen {
		r.End = to
	}
	return r
}

// markRanges gives every part of a range within [m.From, m.To) the status of m, or refuses all of it. Of the open range
// what lies below the floor may be marked: its messages were acknowledged, and damage met while the epoch lives is as
// much a fact as damage that a recovery finds (R10). The epoch goes on above it.
func (s *State) markRanges(p *Partition, m RangeMark) ([]Range, error) {
	var list []Range
	for _, whole := range p.Ranges {
		for _, r := range p.pieces(whole) {
			known := r.Status == m.Status && (r.Accepted == m.Accepted || r.Accepted && m.Status == RangeLost) // what was given up stays so
			readable := r.Status == RangeSealed && p.Catalog.Covers(r.Start, r.End)
			if !r.overlaps(m.From, m.To) || known || readable {
				list = appendRange(list, r)
				continue
			}
			var err error
			if list, err = s.markRange(list, p, r, m); err != nil {
				return nil, err
			}
		}
	}
	return list, nil
}

// markRange appends r, a piece of a range of p, to list, with what m says of a part of it.
func (s *State) markRange(list []Range, p *Partition, r Range, m RangeMark) ([]Range, error) {
	open := r.Status == RangeOpen
	if open && (m.Status != RangeOrphaned || m.To > p.Floor) {
		return nil, refuse(ErrConflict, "[%d, %d) reaches into the open range at %d, acknowledged up to %d", m.From, m.To, r.Start, p.Floor)
	}
	from, to := max(r.Start, m.From), min(p.end(&r), m.To)
	if open {
		if from = p.Catalog.Gap(from); from >= to {
			return appendRange(list, r), nil
		}
	}
	if (open || m.Status == RangeSealed && !p.Catalog.Covers(from, to)) && !slices.ContainsFunc(r.Stores, s.present) {
		return nil, refuse(ErrConflict, "every store of [%d, %d) is lost", r.Start, r.End)
	}
	whole := r
	if open {
		r.Status, r.End = RangeSealed, to
	}
	if !mayBecome(r.Status, m.Status) {
		return nil, refuse(ErrConflict, "range [%d, %d) is %s", r.Start, r.End, r.Status)
	}
	if r.Start < from {
		list = appendRange(list, cutRange(r, r.Start, from))
	}
	mid := cutRange(r, from, to)
	mid.Status, mid.Accepted, mid.Tail = m.Status, m.Accepted, r.Tail && m.Status == RangeOrphaned
	if m.Status != RangeOrphaned {
		mid.Exporter = Owner{}
	}
	if m.Status == RangeLost {
		mid.Doubt = 0
	}
	list = appendRange(list, mid)
	if open || to < r.End {
		list = appendRange(list, cutRange(whole, to, whole.End))
	}
	return list, nil
}

// mayBecome says which status may follow which; a status may always be said again.
func mayBecome(from, to RangeStatus) bool {
	return from == to || from == RangeSealed || from == RangeOrphaned
}

// strikeStore removes a store from the copies of every range, and the ranges that no store holds any more.
func strikeStore(old []Range, store StoreID) []Range {
	var list []Range
	for _, r := range old {
		if slices.Contains(r.Stores, store) {
			r.Stores = slices.DeleteFunc(slices.Clone(r.Stores), func(s StoreID) bool { return s == store })
		}
		if len(r.Stores) > 0 {
			list = append(list, r)
		}
	}
	return list
}
