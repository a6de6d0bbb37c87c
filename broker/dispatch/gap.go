package dispatch

// Gap says that the offsets of r will never be delivered: no message was ever
// there, it was trimmed, superseded or is LOST. They count as acknowledged
// from now on and as nothing in Lag.
func (s *Subscription) Gap(r Range) {
	s.paint(r, run{kind: acked, flags: dirty}, func(u *run) bool { return u.kind != acked })
	s.fold()
}

// Hole says that the messages of r are ORPHANED: they may exist on a disk that
// is away. They are stepped over and stay unacknowledged; no acknowledgement
// covers them (R18), but what was already delivered can still be settled.
func (s *Subscription) Hole(r Range) {
	for off := r.Start; off < r.End; {
		p := s.runs.find(off)
		u := s.runs.at(p)
		if u == nil || u.start >= r.End {
			break
		}
		a := max(off, u.start)
		off = min(u.end, r.End)
		if u.kind == waiting {
			to := *u
			to.kind, to.consumer = hole, 0
			s.recast(p, a, off, to)
		}
	}
	s.paint(r, run{kind: hole}, func(*run) bool { return false })
}

// Fill says that the messages of r, which were a hole, can be read now. What
// others were delivered above in the meantime makes them late; without that
// they are simply the next. A subscription that is made anew from its cursor
// knows nothing of a hole that was filled before, and needs no mark: whoever
// joins it is given the oldest fresh messages first, so that these come in
// their place, below all else that this consumer is given for the first time.
func (s *Subscription) Fill(r Range) {
	for off := r.Start; off < r.End; {
		p := s.runs.find(off)
		u := s.runs.at(p)
		if u == nil || u.start >= r.End {
			break
		}
		a := max(off, u.start)
		off = min(u.end, r.End)
		if u.kind != hole {
			continue
		}
		if u.count == 0 {
			s.cut(p, a, off)
			s.fresh = min(s.fresh, a)
			continue
		}
		to := *u
		to.kind = waiting
		s.recast(p, a, off, to)
	}
	if past := (Range{r.Start, min(r.End, s.high)}); past.Start < past.End {
		s.paint(past, run{kind: waiting, flags: late}, func(*run) bool { return false })
	}
}

// Lag is how many messages below end wait to be acknowledged. Gaps are none,
// and neither are holes: nobody can work them off (Explain has them).
func (s *Subscription) Lag(end uint64) uint64 {
	if end <= s.prefix {
		return 0
	}
	lag := end - s.prefix - s.msgs[acked] - s.msgs[hole]
	// What was declared above end, such as the rest of an epoch that was
	// never written, was not in end to begin with.
	for i := len(s.runs.nodes) - 1; i >= 0; i-- {
		n := &s.runs.nodes[i]
		if n.end <= end {
			break
		}
		for _, r := range n.runs {
			if r.end > end && (r.kind == acked || r.kind == hole) {
				lag += r.end - max(r.start, end)
			}
		}
	}
	return lag
}
