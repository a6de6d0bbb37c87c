package dispatch

// Explanation is where a subscription stands and why it does not move.
type Explanation struct {
	Stalled  Reason // Ready: it waits for nothing but the log
	Until    int64  // Unix ns at which a redelivery or timeout is due; MaxInt64: none
	Prefix   uint64
	Fresh    uint64 // lowest offset nobody was given
	InFlight uint64 // messages with consumers; never above MaxUnacked
	Waiting  uint64 // for redelivery
	Poisoned uint64 // given up, the shell's turn
	Blocked  uint64 // beyond their last redelivery and kept by Block
	Holes    uint64 // ORPHANED offsets that were stepped over
	Ranges   int    // acknowledged ranges above the prefix
	// RangesHigh warns that Ranges has reached 80 % of the limit at which
	// delivery pauses.
	RangesHigh bool
	Consumers  []ConsumerState
}

// ConsumerState is the part of one consumer.
type ConsumerState struct {
	ID       ConsumerID
	Name     string
	Credit   uint64
	InFlight uint64
}

// Explain describes the subscription at now. It allocates and may take time
// in proportion to the runs: it is for people and metrics.
func (s *Subscription) Explain(now int64) Explanation {
	st := s.Next(now)
	e := Explanation{
		Stalled: st.Reason, Until: min(st.Until, s.runs.earliest(due)),
		Prefix: s.prefix, Fresh: s.firstFresh(),
		InFlight: s.msgs[held], Waiting: s.msgs[waiting],
		Poisoned: s.msgs[poisoned], Holes: s.msgs[hole],
		Ranges: s.runs.count[acked],
	}
	e.RangesHigh = uint64(e.Ranges)*5 >= uint64(s.cfg.RangeLimit)*4
	for i := range s.runs.nodes {
		for _, r := range s.runs.nodes[i].runs {
			if (r.kind == held || r.kind == waiting) && int(r.count) > s.cfg.MaxRedeliveries {
				e.Blocked += r.end - r.start
			}
		}
	}
	for _, m := range s.members {
		e.Consumers = append(e.Consumers, ConsumerState{m.ID, m.Name, m.credit, m.held})
	}
	return e
}
