package state

// Commands that pass a partition from one owner to the next: by grant after a loss, or by a planned move.

// nextEpoch returns the epoch that follows e in the present history (R22).
func (s *State) nextEpoch(e uint64) uint64 { return max(e+1, uint64(s.cluster.History)<<48|1) }

// renew makes p begin anew in a history that does not know all that was done before it.
func (s *State) renew(p Partition) {
	if p.Epoch == 0 || p.Level == LevelNone || p.Ceiling > maxOffset-HistoryGap-OpenCeiling {
		return
	}
	p.Anew, p.Ceiling = true, p.Ceiling+HistoryGap
	if p.State != Closed {
		p.Epoch, p.State = s.nextEpoch(p.Epoch), Opening
		p.Target, p.Move = Owner{}, 0
	}
	s.put(p)
}

// at refuses a command that was made for another epoch of p.
func (p *Partition) at(epoch uint64) error {
	if p.Epoch != epoch {
		return refuse(ErrStaleEpoch, "partition has epoch %d, not %d", p.Epoch, epoch)
	}
	return nil
}

func (c *GrantPartitions) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.grant(c.Entries[i]) })
}

func (s *State) grant(e PartitionGrant) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if p.Epoch == s.nextEpoch(e.Epoch) && p.Owner == e.To && (p.State == Opening || p.State == Open) {
		return nil // this is that grant, and perhaps its open
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	if !s.vacant(&p, e.To) {
		return refuse(ErrConflict, "partition is %s with store %s, which is not lost", p.State, p.Owner.Store)
	}
	if err := s.receives(e.To); err != nil {
		return err
	}
	p.Epoch, p.Owner, p.State = s.nextEpoch(p.Epoch), e.To, Opening
	p.Target, p.Move = Owner{}, 0
	s.put(p)
	return nil
}

// vacant says whether p may be granted to another owner. While a grant is OPENING nobody appends under it, so it may
// pass on to another store; the epoch fences the first one.
func (s *State) vacant(p *Partition, to Owner) bool {
	switch {
	case p.State == Closed, !s.present(p.Owner.Store):
		return true
	case p.State == Opening && p.Owner.Store != to.Store:
		return true
	}
	// The new run of a store that restarted while OPEN opens what it owns by itself, as its own successor (R6).
	return p.State != Open && s.fence(p.Owner) != nil
}

// receives refuses an owner that must be given nothing new.
func (s *State) receives(o Owner) error {
	if err := s.fence(o); err != nil {
		return err
	}
	if st := s.Store(o.Store); st.Status != StoreActive || st.Clean {
		return refuse(ErrConflict, "store %s takes no partitions: it is %s, stopped=%t", o.Store, st.Status, st.Clean)
	}
	return nil
}

func (c *MovePartitions) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.move(c.Entries[i]) })
}

func (s *State) move(e PartitionMove) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	if p.State == Sealing && p.Target == e.To {
		return nil
	}
	if p.State != Open {
		return refuse(ErrConflict, "partition is %s", p.State)
	}
	if e.To.Store == p.Owner.Store {
		return refuse(ErrInvalid, "partition is with store %s already", p.Owner.Store)
	}
	if err := s.receives(e.To); err != nil {
		return err
	}
	p.State, p.Target, p.Move = Sealing, e.To, s.index
	s.put(p)
	return nil
}

func (c *AbortMoves) apply(s *State) Result {
	return each(len(c.Entries), func(i int) error { return s.abort(c.Entries[i]) })
}

func (s *State) abort(e MoveAbort) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	switch {
	case p.State == Open:
		return nil
	case p.State != Sealing:
		return refuse(ErrConflict, "partition is %s", p.State)
	case e.Move != 0 && e.Move != p.Move:
		return refuse(ErrConflict, "partition is in move %d, not %d", p.Move, e.Move)
	}
	p.State, p.Target, p.Move = Open, Owner{}, 0
	s.put(p)
	return nil
}

func (c *HandOver) apply(s *State) Result {
	if err := s.fence(c.Owner); err != nil {
		return Result{Err: err}
	}
	return each(len(c.Entries), func(i int) error { return s.handOver(c.Owner, c.Entries[i]) })
}

func (s *State) handOver(owner Owner, e PartitionHandOver) error {
	p, err := s.partition(e.Topic, e.Partition)
	if err != nil {
		return err
	}
	if p.State == Open && p.Owner == e.To && p.Epoch == s.nextEpoch(e.Epoch) {
		return nil // this is that hand-over again
	}
	if err := p.at(e.Epoch); err != nil {
		return err
	}
	if p.State != Sealing || p.Owner != owner || p.Target != e.To || p.Move != e.Move {
		return refuse(ErrConflict, "partition is %s in move %d from %v to %v: not handed over in move %d from %v to %v",
			p.State, p.Move, p.Owner, p.Target, e.Move, owner, e.To)
	}
	if err := s.fence(e.To); err != nil {
		return err
	}
	if err := p.seal(e.End); err != nil {
		return err
	}
	p.Epoch = s.nextEpoch(p.Epoch)
	p.begin(e.To, e.End)
	s.put(p)
	return nil
}
