package state

import (
	"iter"

	"github.com/danubemq/danube/meta/catalog"
)

// What a partition has in the cold tier, and what follows from it.

// end returns where r, a range of p, ends at most.
func (p *Partition) end(r *Range) uint64 {
	if r.Status == RangeOpen {
		return p.Ceiling
	}
	return r.End
}

// ColdEnd returns K: the lowest offset, from the log's start on, that the catalog does not cover, plain gaps and LOST
// ranges passed.
func (p *Partition) ColdEnd() uint64 {
	k := p.LogStart
	for i := range p.Ranges {
		r := &p.Ranges[i]
		if r.Status != RangeLost {
			if gap := p.Catalog.Gap(r.Start); r.Status == RangeOpen || gap < r.End {
				return gap
			}
		}
		k = r.End
	}
	return k
}

// NextExport returns the offsets that the owner exports next: a segment that it commits begins at from and ends at to or
// below (R11). Of the open range to is the ceiling: how far there is something to export the owner's log knows. ORPHANED
// and LOST ranges are passed. False: there is nothing.
func (p *Partition) NextExport() (from, to uint64, ok bool) {
	for i := range p.Ranges {
		r := &p.Ranges[i]
		if r.Status == RangeOrphaned || r.Status == RangeLost {
			continue
		}
		if gap, end := p.Catalog.Gap(r.Start), p.end(r); gap < end {
			return gap, min(end, p.Catalog.Room(gap)), true
		}
	}
	return 0, 0, false
}

// NextOrphan returns the offsets that an exporter of ORPHANED ranges exports next (R15). What is SEALED below them goes
// first: until the owner has exported that there is nothing.
func (p *Partition) NextOrphan(exporter Owner) (from, to uint64, ok bool) {
	for i := range p.Ranges {
		r := &p.Ranges[i]
		gap, end := p.Catalog.Gap(r.Start), p.end(r)
		switch {
		case gap >= end || r.Status == RangeLost:
		case r.Status != RangeOrphaned:
			return 0, 0, false
		case r.Exporter == exporter:
			return gap, min(end, p.Catalog.Room(gap)), true
		}
	}
	return 0, 0, false
}

// Epochs returns the epochs whose batches are the values of [from, to), each with where it begins there (R19).
func (p *Partition) Epochs(from, to uint64) []EpochStart {
	var out []EpochStart
	for i := range p.Ranges {
		r := &p.Ranges[i]
		if !r.overlaps(from, to) {
			continue
		}
		for j, e := range r.Epochs {
			if e.Start >= to {
				break
			}
			if j+1 < len(r.Epochs) && r.Epochs[j+1].Start <= from {
				continue
			}
			if n := len(out); n == 0 || out[n-1].Epoch != e.Epoch {
				out = append(out, EpochStart{e.Epoch, max(e.Start, from)})
			}
		}
	}
	return out
}

// Takeover says with what a store that has not seen the disk of the lost owner opens a partition it was granted, as far
// as the catalog proves it (section 4 of the design's ownership rules): the epoch ends where the catalog does. Above
// that nothing was acknowledged if all of the epoch waited for the catalog; otherwise it may lie on the lost disk. A store
// that has proven more, as from a warm tier, ends the epoch higher.
func (p *Partition) Takeover() (end uint64, tail Tail) {
	open := p.OpenRange()
	if open == nil {
		return p.Floor, TailProven
	}
	end = p.Catalog.Gap(open.Start)
	if open.Lowest == LevelObject && end >= p.Floor && !p.Anew {
		return end, TailGap
	}
	return end, TailOrphaned
}

// pieces cuts r, a range of p, where it begins or ends to be covered. Only of what is SEALED does that matter.
func (p *Partition) pieces(r Range) []Range {
	if r.Status != RangeSealed || p.Catalog.Covers(r.Start, r.End) || p.Catalog.Room(r.Start) >= r.End {
		return []Range{r}
	}
	var list []Range
	for at := r.Start; at < r.End; {
		to := p.Catalog.Gap(at)
		if to == at {
			to = p.Catalog.Room(at)
		}
		to = min(to, r.End)
		list = append(list, cutRange(r, at, to))
		at = to
	}
	return list
}

// Garbage yields the objects that nobody needs any more, those of a partition side by side; those that are Gone too.
func (v *View) Garbage() iter.Seq[*catalog.Garbage] { return v.objects.Garbage() }

// GarbageOf returns what is known of an object that nobody needs, nil if it is none.
func (v *View) GarbageOf(n catalog.Name) *catalog.Garbage { return v.objects.GarbageOf(n) }

// Named says whether a catalog names the object. What a page lists is known to those who read it: Named is false of it.
func (v *View) Named(n catalog.Name) bool {
	return v.objects.Named(n, v.catalogOf(n.Topic, n.Partition))
}

func (v *View) catalogOf(topic [16]byte, n uint32) *catalog.Catalog {
	if p := v.Partition(topic, n); p != nil {
		return p.Catalog
	}
	return nil
}

// Auditing says whether an operator has still to look at what earlier histories left: nothing is deleted (R22).
func (v *View) Auditing() bool { return v.cluster.Audited != v.cluster.History }

// Run says what is known of the run of a process with an incarnation (R12).
func (v *View) Run(incarnation uint64) catalog.Run {
	switch {
	case v.lives(incarnation):
		return catalog.Alive
	case incarnation == 0, incarnation >= v.nextIncarnation:
		return catalog.Unheard
	}
	return catalog.Over
}

// Runs yields the runs that may still commit what they made.
func (v *View) Runs() iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for st := range v.Stores() {
			if st.Status != StoreLost && st.Status != StoreRemoved && !yield(st.Incarnation) {
				return
			}
		}
	}
}

// lives says whether a run may still commit what it made.
func (v *View) lives(incarnation uint64) bool {
	for run := range v.Runs() {
		if run == incarnation {
			return true
		}
	}
	return false
}

// release takes note that the catalog of p does not name a segment any more.
func (s *State) release(p *Partition, seg catalog.Segment, why catalog.Garbage) {
	if name, garbage := s.objects.Release(p.Topic, p.Number, seg); garbage {
		why.Name = name
		s.discard(why)
	}
}

// discard makes an object garbage. The cuts of a run are committed in the order of their numbers: from then on none is up
// to this one, so a piece that comes late cannot name what is deleted.
func (s *State) discard(g catalog.Garbage) {
	s.objects.Discard(g)
	o := g.Name.Object
	if st := s.Store(o.Store); o.Kind == catalog.Cut && st != nil && st.Incarnation == o.Incarnation && st.Cuts <= o.Number {
		n := *st
		n.Cuts = o.Number + 1
		s.stores.Set(n.ID, &n)
	}
}

// usable refuses an object that must not be named: one that is garbage, or that another run than maker has made.
func (s *State) usable(name catalog.Name, maker Owner) error {
	o := name.Object
	if !name.Valid() || o.Incarnation != maker.Incarnation || o.Kind == catalog.Cut && StoreID(o.Store) != maker.Store {
		return refuse(ErrInvalid, "%v is no object that %v made", name, maker)
	}
	if s.GarbageOf(name) != nil {
		return refuse(ErrConflict, "%v is condemned", name)
	}
	if o.Kind == catalog.Cut && o.Number < s.Store(maker.Store).Cuts && !s.Named(name) {
		return refuse(ErrConflict, "%v was given up", name)
	}
	return nil
}
