package state

import "slices"

// Commands about stores that are gone, for now or for good.

func (c *LoseStore) apply(s *State) Result {
	st := s.Store(c.Owner.Store)
	if st == nil || st.Incarnation != c.Owner.Incarnation || st.Status == StoreRemoved {
		return Result{Err: refuse(ErrFenced, "%v is not the latest", c.Owner)}
	}
	if st.Status == StoreLost {
		return Result{}
	}
	n := *st
	n.Status = StoreLost
	s.setStore(&n)
	for p := range s.holding(n.ID) {
		if ranges, changed := s.orphan(p, n.ID); changed {
			q := *p
			q.Ranges = ranges
			s.put(q)
		}
	}
	return Result{}
}

// present says whether what a store holds can be read, now or when its broker is up again.
func (s *State) present(id StoreID) bool {
	st := s.Store(id)
	return st != nil && st.Status != StoreLost && st.Status != StoreRemoved
}

// holding yields the partitions of live topics that have to do with a store. The state may be written to meanwhile.
func (s *State) holding(store StoreID) func(yield func(*Partition) bool) {
	before := s.freeze()
	return func(yield func(*Partition) bool) {
		for p := range before.Held(store) {
			if s.liveTopic(p.Topic) != nil && !yield(p) {
				return
			}
		}
	}
}

// orphan makes each sealed range ORPHANED whose last present holder was the store, as far as the catalog does not have it.
func (s *State) orphan(p *Partition, store StoreID) (list []Range, changed bool) {
	for _, r := range p.Ranges {
		if r.Status != RangeSealed || !slices.Contains(r.Stores, store) || slices.ContainsFunc(r.Stores, s.present) {
			list = appendRange(list, r)
			continue
		}
		for _, piece := range p.pieces(r) {
			if !p.Catalog.Covers(piece.Start, piece.End) {
				piece.Status, changed = RangeOrphaned, true
			}
			list = appendRange(list, piece)
		}
	}
	return list, changed
}

func (c *RemoveStore) apply(s *State) Result {
	st := s.Store(c.Store)
	if st == nil {
		return Result{Err: refuse(ErrNotFound, "no store %s", c.Store)}
	}
	if st.Status == StoreRemoved {
		return Result{}
	}
	for p := range values(s.partitions.All()) {
		if err := s.needs(p, c); err != nil {
			return Result{Err: err}
		}
	}
	n := *st
	n.Status = StoreRemoved
	s.setStore(&n)
	for p := range s.holding(n.ID) {
		s.strike(*p, n.ID)
	}
	for _, t := range slices.Collect(s.Tombstones()) {
		s.purge(t, n.ID)
	}
	return Result{}
}

// needs refuses to remove a store while p cannot do without it.
func (s *State) needs(p *Partition, c *RemoveStore) error {
	t := s.liveTopic(p.Topic)
	switch {
	case t == nil:
		return nil
	case p.Owner.Store == c.Store:
		return refuse(ErrConflict, "it owns %s:%d, which is %s", t.Name, p.Number, p.State)
	case p.State == Sealing && p.Target.Store == c.Store:
		return refuse(ErrConflict, "%s:%d is moving to it", t.Name, p.Number)
	}
	for i := range p.Ranges {
		r := p.Ranges[i]
		if !slices.Contains(r.Stores, c.Store) {
			continue
		}
		if r.Status == RangeOpen {
			return refuse(ErrConflict, "%s:%d is being taken over from it", t.Name, p.Number)
		}
		for _, piece := range p.pieces(r) {
			if left := s.without(p, piece, c.Store); !c.Lose && left.Status != piece.Status {
				return refuse(ErrConflict, "it has the only copy of offsets %d to %d of %s:%d", piece.Start, piece.End-1, t.Name, p.Number)
			}
		}
	}
	return nil
}

// without returns r, a piece of a range of p, when a store does not hold it any more.
func (s *State) without(p *Partition, r Range, store StoreID) Range {
	left := r
	left.Stores = slices.DeleteFunc(slices.Clone(r.Stores), func(id StoreID) bool { return id == store })
	if r.Exporter.Store == store {
		left.Exporter = Owner{}
	}
	switch {
	case r.Status == RangeSealed && p.Catalog.Covers(r.Start, r.End):
	case len(left.Stores) == 0:
		// A store is removed with what lies only there by somebody who said so, and who gives it up with that.
		left.Status, left.Accepted, left.Tail, left.Doubt = RangeLost, r.Status != RangeLost || r.Accepted, false, 0
	case r.Status == RangeSealed && !slices.ContainsFunc(left.Stores, s.present):
		left.Status = RangeOrphaned
	}
	return left
}

// strike takes a store from the holders of p's ranges. What nobody may hold any more is LOST, and passed.
func (s *State) strike(p Partition, store StoreID) {
	var list []Range
	var lost Offsets
	for _, r := range p.Ranges {
		if !slices.Contains(r.Stores, store) {
			list = appendRange(list, r)
			continue
		}
		for _, piece := range p.pieces(r) {
			left := s.without(&p, piece, store)
			if left.Status == RangeLost && r.Status != RangeLost {
				lost = lost.Extend(OffsetRange{Start: left.Start, End: left.End})
			}
			list = appendRange(list, left)
		}
	}
	p.Ranges = list
	s.pass(&p, lost)
	s.put(p)
}
