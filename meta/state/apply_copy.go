package state

import "slices"

// Commands about who holds sealed offsets, and about orphaned ones that come back.

func (c *CopyRanges) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.copyRange(&c.Entries[i]) })
}

func (s *State) copyRange(e *RangeCopy) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	adds := e.Add != StoreID{}
	if e.From >= e.To || adds && slices.Contains(e.Drop, e.Add) {
		return refuse(ErrInvalid, "copy [%d, %d) to and from store %s", e.From, e.To, e.Add)
	}
	if adds && !s.present(e.Add) {
		return refuse(ErrConflict, "store %s is lost, removed or unknown", e.Add)
	}
	var list []Range
	for _, r := range p.Ranges {
		if !r.overlaps(e.From, e.To) {
			list = appendRange(list, r)
			continue
		}
		if r.Status != RangeSealed {
			return refuse(ErrConflict, "range at %d is %s", r.Start, r.Status)
		}
		stores := slices.DeleteFunc(slices.Clone(r.Stores), func(id StoreID) bool { return slices.Contains(e.Drop, id) })
		if adds {
			stores = sortedStores(append(stores, e.Add))
		}
		if !slices.ContainsFunc(stores, s.present) && !p.Catalog.Covers(max(r.Start, e.From), min(r.End, e.To)) {
			return refuse(ErrConflict, "no store would hold [%d, %d)", r.Start, r.End)
		}
		list = spliceRange(list, r, OffsetRange{Start: e.From, End: e.To}, func(mid *Range) { mid.Stores = stores })
	}
	p.Ranges = list
	s.put(p)
	return nil
}

// sortedStores sorts ids, which it may write to, and drops what comes twice.
func sortedStores(ids []StoreID) []StoreID {
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

func (c *RestoreRange) apply(s *State) Result { return Result{Err: s.restoreRange(c)} }

func (s *State) restoreRange(c *RestoreRange) error {
	p, err := s.partition(c.Topic, c.Partition)
	if err != nil {
		return err
	}
	if err := p.at(c.Epoch); err != nil {
		return err
	}
	if c.From > c.End || c.End > c.To || c.From == c.To {
		return refuse(ErrInvalid, "restore [%d, %d) of [%d, %d)", c.From, c.End, c.From, c.To)
	}
	if n := len(c.Superseded); n > 0 && (c.Superseded[0].Start < c.From || c.Superseded[n-1].End > c.End) {
		return refuse(ErrInvalid, "superseded offsets outside of [%d, %d)", c.From, c.End)
	}
	if len(c.Stores) == 0 && !p.Catalog.Covers(c.From, c.End) {
		return refuse(ErrInvalid, "no store holds [%d, %d)", c.From, c.End)
	}
	if p.restored(c) {
		return nil
	}
	if i := slices.IndexFunc(c.Stores, func(id StoreID) bool { return !s.present(id) }); i >= 0 {
		return refuse(ErrConflict, "store %s is lost, removed or unknown", c.Stores[i])
	}
	if !c.Adopt && p.Catalog.Room(c.End) < c.To {
		return refuse(ErrConflict, "the catalog covers offsets of [%d, %d)", c.End, c.To)
	}
	if p.Ranges, err = c.splice(p.Ranges); err != nil {
		return err
	}
	p.Superseded = p.Superseded.Union(c.Superseded)
	pass := c.Superseded
	if c.End < c.To && !c.Adopt {
		pass = pass.Union(Offsets{{Start: c.End, End: c.To}})
	}
	s.pass(&p, pass)
	s.put(p)
	return nil
}

// restored says whether c was carried out before.
func (p *Partition) restored(c *RestoreRange) bool {
	from := max(c.From, p.LogStart)
	at := from
	for i := range p.Ranges {
		r := &p.Ranges[i]
		if from < c.End && r.overlaps(from, c.End) {
			holds := func(id StoreID) bool { return slices.Contains(r.Stores, id) }
			if r.Status != RangeSealed || r.Doubt != doubtLeft(p.Ranges, r) && !c.Adopt || r.Start > at || slices.ContainsFunc(c.Stores, func(id StoreID) bool { return !holds(id) }) {
				return false
			}
			at = r.End
		}
		if end := max(c.End, p.LogStart); !c.Adopt && end < c.To && r.overlaps(end, c.To) {
			return false
		}
	}
	return at >= c.End && slices.Equal(p.Superseded.Union(c.Superseded.From(p.LogStart)), p.Superseded)
}

// away is the status of what c takes back.
func (c *RestoreRange) away() RangeStatus {
	if c.Adopt {
		return RangeLost
	}
	return RangeOrphaned
}

// takes says whether c takes a range back: one that is away, or one in doubt that the stores of c hold.
func (c *RestoreRange) takes(r *Range) bool {
	if r.Status != RangeSealed || r.Doubt == 0 || c.Adopt {
		return r.Status == c.away()
	}
	return !slices.ContainsFunc(c.Stores, func(id StoreID) bool { return !slices.Contains(r.Stores, id) })
}

// splice puts what came back in the place of what was away.
func (c *RestoreRange) splice(old []Range) ([]Range, error) {
	i := slices.IndexFunc(old, func(r Range) bool { return c.takes(&r) && r.Start <= c.From && c.To <= r.End })
	if i < 0 {
		return nil, refuse(ErrConflict, "[%d, %d) does not lie in one range that is %s", c.From, c.To, c.away())
	}
	r := old[i]
	if !c.Adopt && c.End < c.To && (!r.Tail || r.Epoch(c.End) != r.Epoch(c.To-1)) {
		return nil, refuse(ErrConflict, "range [%d, %d) does not end at %d: what is not there was lost", r.Start, r.End, c.End)
	}
	list := slices.Clone(old[:i])
	if r.Start < c.From {
		list = appendRange(list, cutRange(r, r.Start, c.From))
	}
	if c.From < c.End {
		back := cutRange(r, c.From, c.End)
		if back.Doubt = doubtLeft(old, &r); r.Status != RangeSealed {
			back.Stores = sortedStores(slices.Clone(c.Stores))
		}
		back.Status, back.Accepted, back.Tail, back.Exporter = RangeSealed, false, false, Owner{}
		list = appendRange(list, back)
	}
	rest := c.To
	if c.Adopt {
		rest = c.End
	}
	if rest < r.End {
		list = appendRange(list, cutRange(r, rest, r.End))
	}
	for _, r := range old[i+1:] {
		list = appendRange(list, r)
	}
	return list, nil
}
