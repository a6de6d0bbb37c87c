package state

// Acked returns up to which offset every subscription of the topic has acknowledged all of p, and there is one; the log's
// start if there is none. What is ORPHANED nobody was given, so it ends there at the latest (R18).
func (v *View) Acked(p *Partition) uint64 {
	acked, any := uint64(maxOffset), false
	for sub := range v.Subscriptions(p.Topic) {
		acked, any = min(acked, sub.Cursors[p.Number].Prefix), true
	}
	if !any {
		return p.LogStart
	}
	for i := range p.Ranges {
		if r := &p.Ranges[i]; r.Status == RangeOrphaned {
			acked = min(acked, r.Start)
		}
	}
	return max(acked, p.LogStart)
}

// acked refuses a log's start that was chosen because everybody had acknowledged what lies below, and passes what somebody
// has not: a subscription was made, or moved back, after the owner looked.
func (s *State) acked(p *Partition, e *PartitionUpdate) error {
	if acked := s.Acked(p); e.Acked && e.LogStart > acked {
		return refuse(ErrConflict, "not every subscription has acknowledged what lies below %d, but up to %d", e.LogStart, acked)
	}
	return nil
}
