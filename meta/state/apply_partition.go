package state

import (
	"slices"

	"github.com/danubemq/danube/meta/catalog"
)

// Commands about partitions: who opens one, under which epoch, and what is known of its offsets.

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

func (s *State) put(p Partition) {
	key := partitionKey{p.Topic, p.Number}
	old := s.Partition(p.Topic, p.Number)
	if old != nil {
		p.decided = old.decided
	}
	if old == nil || old.differs(&p) {
		s.decide(&p)
	}
	if old == nil || old.home() != p.home() {
		s.count(old, -1)
		s.count(&p, 1)
	}
	s.partitions.Set(key, &p)
}

// begin opens p's epoch, which is its new one already, for owner at start. The ceiling never falls (R3).
func (p *Partition) begin(owner Owner, start uint64) {
	p.Owner, p.State, p.Target, p.Move, p.Anew = owner, Open, Owner{}, 0, false
	p.Ceiling, p.Floor = max(p.Ceiling, start+OpenCeiling), start
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
	if p.State == Open && p.Owner == owner && p.Epoch >= e.Epoch {
		return nil // it is open: by that command, at its creation or by a hand-over
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	if err := p.opens(owner); err != nil {
		return err
	}
	if e.Tail > TailOrphaned {
		return refuse(ErrInvalid, "tail %d", e.Tail)
	}
	start, err := s.endForOpen(&p, owner, e)
	if err != nil {
		return err
	}
	if start > maxOffset-OpenCeiling {
		return refuse(ErrInvalid, "offset %d is out of bounds", start)
	}
	if p.State != Opening || p.Epoch < s.nextEpoch(0) {
		p.Epoch = s.nextEpoch(p.Epoch) // a grant of an older history gets an epoch of this one (R22)
	}
	p.Ranges = doubted(p.Ranges, owner.Store, start)
	p.begin(owner, start)
	s.put(p)
	return nil
}

// opens refuses everybody but who was granted p and, while nobody was, the next run of the store that had it. A new history
// grants nothing: what was open is its store's, in whatever run.
func (p *Partition) opens(owner Owner) error {
	switch {
	case p.State == Opening && owner != p.Owner && (!p.Anew || owner.Store != p.Owner.Store):
		return refuse(ErrConflict, "partition was granted to %v", p.Owner)
	case p.State == Opening, p.Epoch == 0:
		return nil
	case owner.Store != p.Owner.Store:
		return refuse(ErrConflict, "partition is %s with store %s: another store needs a grant", p.State, p.Owner.Store)
	case p.State == Sealing && owner == p.Owner:
		return refuse(ErrConflict, "partition is on its way to store %s", p.Target.Store)
	}
	return nil
}

// endForOpen ends what is open of p and returns where the next epoch begins.
func (s *State) endForOpen(p *Partition, owner Owner, e PartitionOpen) (uint64, error) {
	switch {
	case p.OpenRange() != nil:
		return s.sealForOpen(p, owner, e)
	case p.Level == LevelNone && p.State != Closed:
		return p.Ceiling, nil // nobody has kept where it ended
	case e.End != p.Floor || e.Tail != TailProven:
		return 0, refuse(ErrInvalid, "partition was sealed at %d and has no tail: not at %d", p.Floor, e.End)
	case p.Anew:
		p.Ranges = appendRange(slices.Clone(p.Ranges), p.forgotten(e.End, p.lastEpoch(), p.Level))
		return p.Ceiling, nil
	}
	return e.End, nil
}

// sealForOpen ends the open range of p and returns where the next epoch begins: at the end that recovery proved if the
// same store goes on, else at the ceiling, so that an offset never has two values (R3, R6).
func (s *State) sealForOpen(p *Partition, owner Owner, e PartitionOpen) (uint64, error) {
	open := *p.OpenRange()
	if e.End < open.Start || e.End > p.Ceiling {
		return 0, refuse(ErrInvalid, "end %d lies outside of the epoch, [%d, %d)", e.End, open.Start, p.Ceiling)
	}
	if covered := p.Catalog.Gap(open.Start); e.End < covered {
		return 0, refuse(ErrInvalid, "end %d lies below %d, up to where the catalog has the epoch", e.End, covered)
	}
	if e.Tail <= TailGap && e.End < p.Floor {
		return 0, refuse(ErrInvalid, "end %d lies below the acknowledged end %d", e.End, p.Floor)
	}
	stores := open.Stores
	if !slices.Contains(stores, owner.Store) {
		// What the old disk holds above the end is unknown, and nobody but an operator gives it up (R2, R15).
		if e.Tail != TailOrphaned && (e.Tail != TailGap || open.Lowest <= LevelLocal || p.Anew) {
			return 0, refuse(ErrInvalid, "another store opens at the ceiling and leaves an orphaned range")
		}
		if !p.Catalog.Covers(open.Start, e.End) {
			stores = []StoreID{owner.Store}
		}
	}
	p.Ranges = sealRange(p.Ranges, e.End, stores)
	if p.Anew && slices.Contains(open.Stores, owner.Store) {
		// The store that had it has given its end; above that is what this history was never told of.
		p.Ranges = appendRange(p.Ranges, p.forgotten(e.End, open.Epochs[len(open.Epochs)-1].Epoch, open.Lowest))
		return p.Ceiling, nil
	}
	if e.Tail == TailProven {
		return e.End, nil
	}
	tail := Range{
		// Of an OPENING partition p.Epoch is the granted one; the offsets belong to the one that ends.
		Epochs: []EpochStart{{open.Epochs[0].Epoch, e.End}}, Start: e.End, End: p.Ceiling, Stores: open.Stores, Lowest: open.Lowest,
	}
	switch e.Tail {
	case TailLost:
		tail.Status = RangeLost
		p.Ranges = appendRange(p.Ranges, tail)
	case TailOrphaned:
		tail.Status, tail.Tail = RangeOrphaned, true
		p.Ranges = appendRange(p.Ranges, tail)
	}
	if e.Tail != TailOrphaned {
		s.passGap(p, e.End, p.Ceiling)
	}
	return p.Ceiling, nil
}

// forgotten is what may lie between the end that is known and where a new history goes on: in which store, nobody knows.
// So nobody waits for it, and an operator says when it is LOST (R22).
func (p *Partition) forgotten(end, epoch uint64, lowest Level) Range {
	return Range{Epochs: []EpochStart{{epoch, end}}, Start: end, End: p.Ceiling, Lowest: lowest, Status: RangeOrphaned, Tail: true, Accepted: true}
}

// lastEpoch is the newest epoch that has a range.
func (p *Partition) lastEpoch() uint64 {
	if n := len(p.Ranges); n > 0 {
		last := &p.Ranges[n-1]
		return last.Epochs[len(last.Epochs)-1].Epoch
	}
	return 1
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
	if p.State == Opening {
		return refuse(ErrConflict, "partition is granted and not open yet")
	}
	if !s.present(p.Owner.Store) {
		return refuse(ErrFenced, "store %s, which had the partition, was declared lost", p.Owner.Store)
	}
	if p.State == Closed {
		// The epoch is over; only what is said again, or moves the log's start, may pass.
		if e.Ceiling > p.Ceiling || e.Floor > p.Floor || e.Seal && e.End != p.Floor {
			return refuse(ErrConflict, "partition is sealed at %d", p.Floor)
		}
	}
	p.Ceiling, p.Floor = max(p.Ceiling, e.Ceiling), max(p.Floor, e.Floor)
	if e.LogStart > p.LogStart {
		if err := s.acked(&p, &e); err != nil {
			return err
		}
		if err := p.advanceLogStart(e.LogStart); err != nil {
			return err
		}
	}
	if e.Seal && p.State != Closed {
		if err := p.seal(e.End); err != nil {
			return err
		}
	}
	if e.LogStart > 0 {
		s.trim(&p, p.LogStart, catalog.Garbage{Since: e.At, Reason: catalog.Expired})
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
		open := p.OpenRange()
		if covered := p.Catalog.Gap(open.Start); end < covered {
			return refuse(ErrInvalid, "end %d lies below %d, up to where the catalog has the epoch", end, covered)
		}
		p.Ranges = sealRange(p.Ranges, end, open.Stores)
	}
	p.State, p.Floor = Closed, end
	p.Target, p.Move = Owner{}, 0
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
	p.LogStart, p.Ranges, p.Superseded = to, trimRanges(p.Ranges, to), p.Superseded.From(to)
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
	if m.From >= m.To || m.Status == RangeOpen || m.Status > RangeLost || m.Accepted && m.Status == RangeSealed {
		return refuse(ErrInvalid, "mark [%d, %d) as %s", m.From, m.To, m.Status)
	}
	ranges, err := s.markRanges(&p, m)
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
