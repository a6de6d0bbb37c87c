package state

import "slices"

func (c *CreateSubscription) apply(s *State) Result {
	if err := CheckName("subscription", c.Name); err != nil {
		return Result{Err: err}
	}
	if c.Type > KeyShared {
		return Result{Err: refuse(ErrInvalid, "subscription type %d", c.Type)}
	}
	t := s.liveTopic(c.Topic)
	if t == nil {
		return Result{Err: refuse(ErrNotFound, "no topic with id %s", c.Topic)}
	}
	if err := invalid(c.Options.Check()); err != nil {
		return Result{Err: err}
	}
	if old := s.Subscription(c.Topic, c.Name); old != nil {
		if old.Type != c.Type {
			return Result{Err: refuse(ErrExists, "subscription %s exists: type is %s, not %s", c.Name, old.Type, c.Type)}
		}
		if !old.Options.Equal(c.Options) {
			return Result{Err: refuse(ErrExists, "subscription %s exists with other options", c.Name)}
		}
		return Result{Subscription: old.ID}
	}
	if err := s.checkStart(t, c.Start); err != nil {
		return Result{Err: err}
	}
	n := &Subscription{
		ID: s.nextSub, Topic: c.Topic, Name: c.Name, Type: c.Type, Options: c.Options,
		Start: c.Start, Cursors: s.cursorsAt(t.ID, c.Start),
	}
	s.nextSub++
	s.subs.Set(n.ID, n)
	s.subNames.Set(subKey{c.Topic, c.Name}, n.ID)
	return Result{Subscription: n.ID, Created: true}
}

func (s *State) cursorsAt(topic TopicID, start []uint64) []Cursor {
	c := make([]Cursor, len(start))
	for i, o := range start {
		c[i] = s.Partition(topic, uint32(i)).cursorAt(o)
	}
	return c
}

// cursorAt returns a cursor that begins at start. Superseded offsets count as acknowledged from the beginning (R15).
func (p *Partition) cursorAt(start uint64) (c Cursor) {
	c.Prefix, c.Acked = p.Superseded.From(start).Fold(start)
	return c
}

// checkStart refuses positions that are not one per partition, or lie where no message can be yet.
func (s *State) checkStart(t *Topic, start []uint64) error {
	if len(start) != int(t.Settings.Partitions) {
		return refuse(ErrInvalid, "%d start positions for %d partitions", len(start), t.Settings.Partitions)
	}
	for i, o := range start {
		if p := s.Partition(t.ID, uint32(i)); o > p.Ceiling {
			return aboveCeiling(o, p)
		}
	}
	return nil
}

func aboveCeiling(start uint64, p *Partition) error {
	return refuse(ErrInvalid, "start position %d of partition %d lies above the ceiling %d", start, p.Number, p.Ceiling)
}

func (c *SetSubscription) apply(s *State) Result {
	old := s.SubscriptionByID(c.Subscription)
	if old == nil {
		return Result{Err: refuse(ErrNotFound, "no subscription %d", c.Subscription)}
	}
	if err := invalid(c.Options.Check()); err != nil {
		return Result{Err: err}
	}
	n := *old
	n.Options = c.Options
	s.subs.Set(n.ID, &n)
	return Result{}
}

func (c *DeleteSubscription) apply(s *State) Result {
	if sub := s.SubscriptionByID(c.Subscription); sub != nil {
		s.deleteSubscription(sub)
	}
	return Result{}
}

func (s *State) deleteSubscription(sub *Subscription) {
	s.subs.Delete(sub.ID)
	s.subNames.Delete(subKey{sub.Topic, sub.Name})
}

func (c *ResetSubscription) apply(s *State) Result {
	old := s.SubscriptionByID(c.Subscription)
	if old == nil {
		return Result{Err: refuse(ErrNotFound, "no subscription %d", c.Subscription)}
	}
	n := *old
	n.Start, n.Cursors = slices.Clone(old.Start), slices.Clone(old.Cursors)
	r := each(len(c.Entries), func(i int) error { return s.resetCursor(&n, &c.Entries[i]) })
	s.subs.Set(n.ID, &n)
	return r
}

// resetCursor moves one cursor of sub, which is the caller's own copy.
func (s *State) resetCursor(sub *Subscription, c *CursorReset) error {
	p := s.Partition(sub.Topic, c.Partition)
	if p == nil {
		return refuse(ErrNotFound, "subscription %s has no partition %d", sub.Name, c.Partition)
	}
	cursor, start := &sub.Cursors[c.Partition], &sub.Start[c.Partition]
	if cursor.Generation == c.Generation && c.Generation > 0 && *start == c.Start {
		return nil // this is the reset that began the generation, again
	}
	if c.Generation != cursor.Generation+1 {
		return staleGeneration(sub, c.Partition, c.Generation)
	}
	if c.Start > p.Ceiling {
		return aboveCeiling(c.Start, p)
	}
	*cursor, *start = p.cursorAt(c.Start), c.Start
	cursor.Generation = c.Generation
	return nil
}

func staleGeneration(sub *Subscription, partition uint32, named uint64) error {
	return refuse(ErrStaleGeneration, "subscription %s is in generation %d on partition %d: %d was named",
		sub.Name, sub.Cursors[partition].Generation, partition, named)
}

func (c *MoveCursors) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.moveCursor(&c.Entries[i]) })
}

func (s *State) moveCursor(d *CursorDelta) error {
	sub := s.SubscriptionByID(d.Subscription)
	if sub == nil {
		return refuse(ErrNotFound, "no subscription %d", d.Subscription)
	}
	p := s.Partition(sub.Topic, d.Partition)
	if p == nil {
		return refuse(ErrNotFound, "subscription %s has no partition %d", sub.Name, d.Partition)
	}
	if p.Epoch != d.Epoch {
		return refuse(ErrStaleEpoch, "partition has epoch %d, not %d", p.Epoch, d.Epoch)
	}
	if p.State == Opening {
		return refuse(ErrConflict, "partition is granted and not open yet: nothing was delivered under its epoch")
	}
	old := &sub.Cursors[d.Partition]
	if old.Generation != d.Generation {
		return staleGeneration(sub, d.Partition, d.Generation)
	}
	// No acknowledgement covers what cannot have been delivered (R18, R21).
	if n := len(d.Acked); d.Prefix > p.Ceiling || n > 0 && d.Acked[n-1].End > p.Ceiling {
		return refuse(ErrInvalid, "acknowledged above the ceiling %d", p.Ceiling)
	}
	cursor := old.move(&CursorDelta{
		Acked: old.cumulative(d.Prefix, p.Ranges).Union(d.Acked), Counts: d.Counts, Due: d.Due,
	})
	if max(len(cursor.Acked), len(cursor.Counts), len(cursor.Due)) > MaxCursorRanges {
		return refuse(ErrInvalid, "subscription %s holds more than %d ranges above its prefix", sub.Name, MaxCursorRanges)
	}
	s.setCursor(sub, d.Partition, cursor)
	return nil
}

// cumulative returns what a new prefix acknowledges: everything below it that is not acknowledged yet, but for orphaned
// ranges, which nobody can have been given. They stay holes that a repair fills (R18).
func (c *Cursor) cumulative(prefix uint64, ranges []Range) Offsets {
	if prefix <= c.Prefix {
		return nil
	}
	var out Offsets
	from := c.Prefix
	for i := range ranges {
		r := &ranges[i]
		if r.Status != RangeOrphaned || r.End <= from || r.Start >= prefix {
			continue
		}
		out = out.Extend(OffsetRange{Start: from, End: max(from, r.Start)})
		from = min(r.End, prefix)
	}
	return out.Extend(OffsetRange{Start: from, End: prefix})
}

// move returns the cursor with what d adds. A delivery count only grows; the latest due time wins.
func (c *Cursor) move(d *CursorDelta) Cursor {
	n := Cursor{Generation: c.Generation}
	n.Prefix, n.Acked = c.Acked.Union(d.Acked).Fold(c.Prefix)
	n.Counts = c.Counts.Merge(d.Counts, n.Acknowledged, func(old, new uint64) uint64 { return max(old, new) })
	n.Due = c.Due.Merge(d.Due, n.Acknowledged, func(_, new uint64) uint64 { return new })
	return n
}

func (s *State) setCursor(sub *Subscription, partition uint32, c Cursor) {
	n := *sub
	n.Cursors = slices.Clone(sub.Cursors)
	n.Cursors[partition] = c
	s.subs.Set(n.ID, &n)
}

// passGap lets every subscription pass over [from, to) of p: nothing is there, or it is lost (R18).
func (s *State) passGap(p *Partition, from, to uint64) {
	s.pass(p, Offsets(nil).Extend(OffsetRange{Start: from, End: to}))
}

// pass lets every subscription pass over offsets of p.
func (s *State) pass(p *Partition, over Offsets) {
	if len(over) == 0 {
		return
	}
	gap := CursorDelta{Acked: over}
	for sub := range s.Subscriptions(p.Topic) {
		// A cursor at its bound still passes: the gap adds to it, and refusing would stop it for good.
		s.setCursor(sub, p.Number, sub.Cursors[p.Number].move(&gap))
	}
}
