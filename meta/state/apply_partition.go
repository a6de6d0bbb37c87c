package state

// Commands about partitions: who owns one, under which epoch, and what is known of its offsets.

// partition returns a private copy of a partition of a live topic, whose slices still must not be written to.
func (s *State) partition(topic TopicID, n uint32) (Partition, error) {
	t := s.liveTopic(topic)
	if t == nil {
		return Partition{}, refuse(ErrNotFound, "no topic with id %s", topic)
	}
	p := s.Partition(topic, n)
	if p == nil {
		return Partition{}, refuse(ErrNotFound, "topic %s has no partition %d", t.Name, n)
	}
	return *p, nil
}

func (s *State) put(p Partition) { s.partitions.set(partitionKey{p.Topic, p.Number}, &p) }

// begin opens the next epoch of p for owner at start.
func (s *State) begin(p *Partition, owner Owner, start uint64) {
	p.Epoch = max(p.Epoch+1, uint64(s.cluster.History)<<48|1)
	p.Owner, p.State = owner, Open
	p.Ceiling, p.Floor = start+OpenCeiling, start
	if p.Level == LevelNone {
		// Nothing of a non-reliable topic is ever stored, so nothing of it is remembered either.
		p.Ranges, p.LogStart = nil, start
		return
	}
	p.Ranges = append(p.Ranges[:len(p.Ranges):len(p.Ranges)], Range{
		Epochs: []EpochStart{{p.Epoch, start}}, Start: start, Stores: []StoreID{owner.Store}, Lowest: p.Level,
	})
}

func (c *OpenPartitions) apply(s *State) Result {
	if err := s.fence(c.Owner); err != nil {
		return Result{Err: err}
	}
	return each(len(c.Entries), func(i int) error { return s.open(c.Owner, c.Entries[i]) })
}

func (s *State) open(owner Owner, e PartitionOpen) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if p.State == Open && p.Owner == owner && p.Epoch > e.Epoch {
		return nil // a run of a process opens a partition once: this is that command again
	}
	if p.Epoch != e.Epoch {
		return refuse(ErrStaleEpoch, "partition has epoch %d, not %d", p.Epoch, e.Epoch)
	}
	if e.Tail > TailOrphaned {
		return refuse(ErrInvalid, "tail %d", e.Tail)
	}
	start := e.End
	switch {
	case p.State == Closed:
		if e.End != p.Floor || e.Tail != TailProven {
			return refuse(ErrInvalid, "partition was sealed at %d, not %d", p.Floor, e.End)
		}
	case p.Level == LevelNone:
		start = p.Ceiling
	default:
		if start, err = s.sealForOpen(&p, owner, e); err != nil {
			return err
		}
	}
	if start > maxOffset-OpenCeiling {
		return refuse(ErrInvalid, "offset %d is out of bounds", start)
	}
	s.begin(&p, owner, start)
	s.put(p)
	return nil
}

// sealForOpen ends the open epoch of p and returns where the next one begins: at the end that recovery proved if the
// same store goes on, else at the ceiling, so that an offset never has two values (R3, R6).
func (s *State) sealForOpen(p *Partition, owner Owner, e PartitionOpen) (uint64, error) {
	open := p.Ranges[len(p.Ranges)-1]
	if e.End < open.Start || e.End > p.Ceiling {
		return 0, refuse(ErrInvalid, "end %d lies outside of the epoch, [%d, %d)", e.End, open.Start, p.Ceiling)
	}
	if e.Tail <= TailGap && e.End < p.Floor {
		return 0, refuse(ErrInvalid, "end %d lies below the acknowledged end %d", e.End, p.Floor)
	}
	if e.Tail == TailProven && owner.Store != p.Owner.Store {
		return 0, refuse(ErrInvalid, "another store opens at the ceiling")
	}
	p.Ranges = sealRange(p.Ranges, e.End)
	if e.Tail == TailProven {
		return e.End, nil
	}
	tail := Range{
		Epochs: []EpochStart{{p.Epoch, e.End}}, Start: e.End, End: p.Ceiling, Stores: open.Stores, Lowest: open.Lowest,
	}
	switch e.Tail {
	case TailLost:
		tail.Status = RangeLost
		p.Ranges = appendRange(p.Ranges, tail)
	case TailOrphaned:
		tail.Status = RangeOrphaned
		p.Ranges = appendRange(p.Ranges, tail)
	}
	if e.Tail != TailOrphaned {
		s.passGap(p, e.End, p.Ceiling)
	}
	return p.Ceiling, nil
}

func (c *UpdatePartitions) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.update(c.Entries[i]) })
}

func (s *State) update(e PartitionUpdate) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if p.Epoch != e.Epoch || p.Epoch == 0 {
		return refuse(ErrStaleEpoch, "partition has epoch %d, not %d", p.Epoch, e.Epoch)
	}
	if e.Ceiling > maxOffset || e.Floor > max(p.Ceiling, e.Ceiling) {
		return refuse(ErrInvalid, "floor %d or ceiling %d is out of bounds", e.Floor, e.Ceiling)
	}
	if p.State == Closed {
		// The epoch is over; only what is said again, or moves the log's start, may pass.
		if e.Ceiling > p.Ceiling || e.Floor > p.Floor || e.Seal && e.End != p.Floor {
			return refuse(ErrConflict, "partition is sealed at %d", p.Floor)
		}
	}
	p.Ceiling, p.Floor = max(p.Ceiling, e.Ceiling), max(p.Floor, e.Floor)
	if e.LogStart > p.LogStart {
		if err := p.advanceLogStart(e.LogStart); err != nil {
			return err
		}
	}
	if e.Seal && p.State != Closed {
		if err := p.seal(e.End); err != nil {
			return err
		}
	}
	s.put(p)
	return nil
}

// seal ends the open epoch at end, and nobody owns the next one yet. The floor keeps the end.
func (p *Partition) seal(end uint64) error {
	if end < p.Floor || end > p.Ceiling {
		return refuse(ErrInvalid, "end %d lies outside of [%d, %d]", end, p.Floor, p.Ceiling)
	}
	if p.Level != LevelNone {
		p.Ranges = sealRange(p.Ranges, end)
	}
	p.State, p.Floor = Closed, end
	return nil
}

func (p *Partition) advanceLogStart(to uint64) error {
	if to > p.Floor {
		return refuse(ErrInvalid, "log start %d lies above the acknowledged end %d", to, p.Floor)
	}
	for _, r := range p.Ranges {
		if r.Status == RangeOrphaned && r.Start < to {
			return refuse(ErrOrphaned, "range [%d, %d) is orphaned", r.Start, r.End)
		}
	}
	p.LogStart, p.Ranges = to, trimRanges(p.Ranges, to)
	return nil
}

// setLevel changes the level in force; the open range remembers the lowest (R1).
func (s *State) setLevel(key partitionKey, l Level) {
	p := *s.Partition(key.topic, key.number)
	p.Level = l
	if n := len(p.Ranges); n > 0 && p.Ranges[n-1].Status == RangeOpen && l < p.Ranges[n-1].Lowest {
		p.Ranges = append([]Range(nil), p.Ranges...)
		p.Ranges[n-1].Lowest = l
	}
	s.put(p)
}

func (c *MarkRanges) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.mark(c.Entries[i]) })
}

func (s *State) mark(m RangeMark) error {
	p, err := s.partition(m.Topic, m.Partition)
	if err != nil {
		return err
	}
	if p.Epoch != m.Epoch {
		return refuse(ErrStaleEpoch, "partition has epoch %d, not %d", p.Epoch, m.Epoch)
	}
	if m.From >= m.To || m.Status == RangeOpen || m.Status > RangeLost || m.Accepted && m.Status != RangeOrphaned {
		return refuse(ErrInvalid, "mark [%d, %d) as %s", m.From, m.To, m.Status)
	}
	ranges, err := markRanges(&p, m)
	if err != nil {
		return err
	}
	p.Ranges = ranges
	if m.Status == RangeLost {
		for _, r := range ranges {
			if r.Status == RangeLost && r.Start < m.To && m.From < r.End {
				s.passGap(&p, max(r.Start, m.From), min(r.End, m.To))
			}
		}
	}
	s.put(p)
	return nil
}
