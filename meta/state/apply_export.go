package state

import (
	"slices"

	"github.com/danubemq/danube/meta/catalog"
)

// Commands that put what was exported into a catalog (R11, R15).

func (c *CommitSegments) apply(s *State) Result {
	if err := s.fence(c.Owner); err != nil {
		return Result{Err: err}
	}
	return each(len(c.Entries), func(i int) error { return s.commit(c.Owner, &c.Entries[i]) })
}

func (s *State) commit(owner Owner, e *SegmentCommit) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	seg := e.Segment
	if there, ok := p.Catalog.Find(seg.Start); ok && there == seg {
		return nil // this is that commit again
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	if !seg.Valid() {
		return refuse(ErrInvalid, "segment [%d, %d) is none", seg.Start, seg.End)
	}
	if err := p.exports(owner, seg); err != nil {
		return err
	}
	// What was exported must be what the ranges say now (R19).
	if epochs := p.Epochs(max(seg.Start, p.LogStart), seg.End); !slices.Equal(e.Epochs, epochs) {
		return refuse(ErrConflict, "segment [%d, %d) is of epochs %v, not %v", seg.Start, seg.End, epochs, e.Epochs)
	}
	if err := s.usable(catalog.NewName(p.Topic, p.Number, seg.Object, seg.Start, seg.End), owner); err != nil {
		return err
	}
	p.Catalog = p.Catalog.Add(seg)
	s.objects.Add(seg)
	s.put(p)
	return nil
}

// exports refuses a segment that is not the next one of its range, or not the proposer's to commit (R11).
func (p *Partition) exports(proposer Owner, seg catalog.Segment) error {
	// Retention may pass the beginning of a segment while it is under way.
	start := max(seg.Start, p.LogStart)
	if seg.End <= start {
		return refuse(ErrConflict, "segment [%d, %d) lies below the log's start %d", seg.Start, seg.End, p.LogStart)
	}
	r := p.Range(start)
	if r == nil || r.Status == RangeLost {
		return refuse(ErrConflict, "segment [%d, %d) begins where no range is", seg.Start, seg.End)
	}
	next, to, ok := p.NextExport()
	maker := p.Owner
	if r.Status == RangeOrphaned {
		if ok && next < start {
			return refuse(ErrConflict, "what lies before the orphaned range goes first: [%d, %d) is not committed", next, to)
		}
		maker = r.Exporter
		next, to = p.Catalog.Gap(r.Start), r.End
		to = min(to, p.Catalog.Room(next))
	} else if p.State == Opening {
		return refuse(ErrConflict, "partition is granted and not open yet")
	}
	switch {
	case proposer != maker:
		return refuse(ErrFenced, "%v exports offset %d, not %v", maker, start, proposer)
	case start != next:
		return refuse(ErrConflict, "segment begins at %d; the next one begins at %d", seg.Start, next)
	case seg.End > to:
		return refuse(ErrConflict, "segment ends at %d, above %d", seg.End, to)
	}
	return nil
}

func (c *GrantExports) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.grantExport(&c.Entries[i]) })
}

func (s *State) grantExport(e *ExportGrant) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	if err := s.fence(e.Exporter); err != nil {
		return err
	}
	var list []Range
	granted := false
	for _, r := range p.Ranges {
		if r.overlaps(e.From, e.To) {
			if r.Status != RangeOrphaned || !slices.Contains(r.Stores, e.Exporter.Store) {
				return refuse(ErrConflict, "range at %d is %s: store %s cannot bring it back", r.Start, r.Status, e.Exporter.Store)
			}
			r.Exporter, granted = e.Exporter, true
		}
		list = appendRange(list, r)
	}
	if !granted {
		return refuse(ErrConflict, "no range is in [%d, %d)", e.From, e.To)
	}
	p.Ranges = list
	s.put(p)
	return nil
}
