package dispatch

import "math"

// Reason says why nothing is to be read, or Ready.
type Reason uint8

const (
	Ready      Reason = iota // read and Offer
	NoConsumer               // nobody is connected
	NoCredit                 // no consumer has asked for more
	Full                     // those that have are paused
	Window                   // MaxUnacked messages are not acknowledged
	Ranges                   // RangeLimit acknowledged ranges lie above the prefix
)

// String says it to an operator.
func (r Reason) String() string {
	switch r {
	case Ready:
		return "ready"
	case NoConsumer:
		return "no consumer is connected"
	case NoCredit:
		return "no consumer has credit"
	case Full:
		return "the connections of the consumers are full: they do not read what was sent"
	case Window:
		return "waiting for acknowledgements: the window of unacknowledged messages is full"
	case Ranges:
		return "waiting for older messages to be acknowledged: too many acknowledged ranges"
	}
	return "unknown"
}

// Step is what the shell is to do next. If Reason is Ready it reads the batch
// that holds From and offers it; if the log ends there, it waits for the log.
type Step struct {
	Reason     Reason
	Redelivery bool   // From to To was delivered before (or lay in a hole)
	Attempt    uint32 // number of the delivery that would follow
	From, To   uint64 // To: where something else begins, MaxUint64 if nothing does
	Max        uint64 // messages that could be delivered now
	// Until is when to call Next again even if nothing happens before,
	// in Unix ns; MaxInt64 if nothing is waiting for a time.
	Until      int64
	generation uint64
}

// Batch is a stretch of the log that was read: Count messages from Base on.
type Batch struct {
	Base  uint64
	Count uint32
	Key   func(i int) []byte // key of message i; nil unless NeedsKeys
}

// Delivery is an order to send a part of the offered batch to a consumer.
type Delivery struct {
	Range
	Consumer   ConsumerID
	Attempt    uint32 // 1 for the first
	Generation uint64 // to be given back in Settle
	Late       bool   // from a hole that was filled (R15), or given back unseen below what others were given
}

// Next times out what is due at now and says what to read. Redeliveries come
// before fresh messages, in the order of offsets among those that are due.
func (s *Subscription) Next(now int64) Step {
	s.Tick(now)
	st := Step{generation: s.generation, Until: s.runs.earliest(deadline)}
	limit := uint64(s.cfg.MaxUnacked)
	switch {
	case len(s.members) == 0:
		st.Reason = NoConsumer
		return st
	case s.credit == 0:
		st.Reason = NoCredit
		for _, m := range s.members {
			if m.credit > 0 {
				st.Reason = Full
			}
		}
		return st
	case s.msgs[held] >= limit:
		st.Reason = Window
		return st
	}
	if p, ok := s.runs.timed(due, s.prefix, now); ok {
		r := s.runs.at(p)
		st.Redelivery, st.Attempt = true, attempt(r.count)
		st.From, st.To = r.start, r.end
		st.Max = min(s.credit, limit-s.msgs[held])
		return st
	}
	st.Until = min(st.Until, s.runs.earliest(due))
	if st.Max = min(s.credit, s.room()); st.Max == 0 {
		st.Reason = Window
		return st
	}
	st.Attempt = 1
	st.From, st.To = s.firstFresh(), s.frontier()
	if st.From >= st.To {
		return Step{Reason: Ranges, Until: st.Until, generation: s.generation}
	}
	if r := s.runs.at(s.runs.find(st.From)); r != nil {
		st.To = min(st.To, r.start)
	}
	return st
}

// frontier is the offset up to which fresh messages are delivered. At the
// limit of acknowledged ranges it stops rising: nothing new goes out before all
// that is out is acknowledged. What was passed over below it still goes, or the
// ranges could never close (A60).
func (s *Subscription) frontier() uint64 {
	if s.runs.count[acked] >= s.cfg.RangeLimit && s.unacked() > 0 {
		return s.high
	}
	return math.MaxUint64
}

// unacked is how many messages were delivered and neither acknowledged nor
// taken back as never seen.
func (s *Subscription) unacked() uint64 {
	return s.msgs[held] + s.msgs[waiting] + s.msgs[poisoned]
}

// room is how many fresh messages the window admits: what waits for its
// redelivery is delivered and not acknowledged too.
func (s *Subscription) room() uint64 {
	limit := uint64(s.cfg.MaxUnacked)
	return limit - min(s.unacked(), limit)
}

func attempt(count uint16) uint32 { return min(uint32(count)+1, maxCount) }

// Offer decides about a batch that was read for st and appends to dst who is
// to be sent what of it, in the order of offsets. It delivers what Next
// promised as far as it still stands: what was acknowledged, given out or
// reset in between is left out. What remains undelivered Next names again.
func (s *Subscription) Offer(st Step, b Batch, now int64, dst []Delivery) []Delivery {
	if st.generation != s.generation || st.Reason != Ready {
		return dst
	}
	off, end := max(st.From, b.Base, s.prefix), b.Base+uint64(b.Count)
	for off < end && s.credit > 0 {
		var d Delivery
		if st.Redelivery {
			d = s.redeliver(off, end, now)
		} else {
			d = s.deliver(off, end, now)
		}
		if d.Start == d.End {
			break
		}
		d.Generation = s.generation
		dst = append(dst, d)
		off = d.End
	}
	return dst
}

// deliver gives one consumer the first fresh offsets of [off, end).
func (s *Subscription) deliver(off, end uint64, now int64) Delivery {
	r := s.runs.at(s.runs.find(off))
	for r != nil && r.start <= off {
		off = r.end
		r = s.runs.at(s.runs.find(off))
	}
	end = min(end, s.frontier())
	if r != nil {
		end = min(end, r.start)
	}
	n := min(end-min(off, end), s.room())
	if n == 0 {
		return Delivery{}
	}
	m := s.pick()
	n = s.charge(m, n)
	to := run{kind: held, count: 1}
	s.handTo(m, &to, now)
	to.start, to.end = off, off+n
	s.cover(to)
	s.high, m.top = max(s.high, to.end), max(m.top, to.end)
	return Delivery{Range: Range{to.start, to.end}, Consumer: m.ID, Attempt: 1}
}

// redeliver gives one consumer the first due offsets of [off, end).
func (s *Subscription) redeliver(off, end uint64, now int64) Delivery {
	p, ok := s.runs.timed(due, off, now)
	if !ok {
		return Delivery{}
	}
	r := s.runs.at(p)
	off, end = max(off, r.start), min(end, r.end)
	n := min(end-min(off, end), uint64(s.cfg.MaxUnacked)-min(s.msgs[held], uint64(s.cfg.MaxUnacked)))
	if n == 0 {
		return Delivery{}
	}
	m := s.pick()
	n = s.charge(m, n)
	to := run{kind: held, count: uint16(attempt(r.count)), flags: r.flags}
	s.handTo(m, &to, now)
	s.recast(p, off, off+n, to)
	s.high = max(s.high, off+n)
	return Delivery{Range: Range{off, off + n}, Consumer: m.ID,
		Attempt: uint32(to.count), Late: to.flags&late != 0}
}

// pick returns the next consumer in turn that has credit; there is one.
func (s *Subscription) pick() *member {
	for {
		if s.turn >= len(s.members) {
			s.turn = 0
		}
		m := s.members[s.turn]
		s.turn++
		if m.credit > 0 && !m.paused {
			return m
		}
	}
}

// charge takes up to n messages from the credit of m and returns how many.
func (s *Subscription) charge(m *member, n uint64) uint64 {
	n = min(n, m.credit)
	m.credit -= n
	s.credit -= n
	return n
}

func (s *Subscription) handTo(m *member, r *run, now int64) {
	r.consumer = m.ID
	if m.NoReceipts {
		s.startClock(r, now)
	}
}

// startClock marks r as received at now. Deadlines are rounded up to a 64th
// of the timeout, so that messages received one by one still make few runs.
func (s *Subscription) startClock(r *run, now int64) {
	r.flags |= received
	if r.count > 1 {
		r.flags |= dirty // that it was seen again must outlive a restart
	}
	if s.cfg.AckTimeout > 0 {
		grain := max(int64(s.cfg.AckTimeout)/64, 1)
		at := now + int64(s.cfg.AckTimeout) + grain - 1
		r.at = at - at%grain
	}
}
