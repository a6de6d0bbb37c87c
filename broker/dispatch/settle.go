package dispatch

import (
	"fmt"
	"math"
	"time"
)

// Settle names deliveries that a consumer speaks of.
type Settle struct {
	Consumer   ConsumerID
	Generation uint64 // from the Delivery
	Ranges     []Range
}

// Settled says what came of a request, in messages.
type Settled struct {
	Done  uint64 // changed by it
	Again uint64 // acknowledged before: nothing to do, and no error
	Stale uint64 // not with this consumer: given to another, given back, or never delivered
}

// check returns the consumer a request may speak for.
func (s *Subscription) check(id ConsumerID, generation uint64) (*member, error) {
	m := s.byID[id]
	switch {
	case m == nil:
		return nil, fmt.Errorf("consumer %d: %w", id, ErrUnknownConsumer)
	case generation != s.generation:
		return nil, fmt.Errorf("generation %d is over, %d is current: %w", generation, s.generation, ErrStale)
	}
	return m, nil
}

// Ack acknowledges what the consumer holds. Messages that timed out and were
// not given to anybody since are accepted; those that another one has got
// are counted as Stale and stay as they are (A65).
func (s *Subscription) Ack(a Settle) (Settled, error) {
	var res Settled
	if _, err := s.check(a.Consumer, a.Generation); err != nil {
		return res, fmt.Errorf("ack: %w", err)
	}
	for _, r := range a.Ranges {
		s.each(r, &res, func(p pos, u *run, off, end uint64) bool {
			if u.consumer != a.Consumer || u.kind != held && u.kind != waiting {
				return false
			}
			s.acknowledge(p, off, end)
			return true
		})
	}
	return res, nil
}

// AckUpTo acknowledges everything up to and including an offset that was
// delivered to the consumer, also what it has refused since. It covers
// nothing that was not delivered to it: holes stay (R18).
func (s *Subscription) AckUpTo(id ConsumerID, generation, offset uint64) (Settled, error) {
	if s.cfg.Policy != Exclusive {
		return Settled{}, ErrCumulative
	}
	end := offset + 1
	if offset == math.MaxUint64 {
		end = offset
	}
	res, err := s.Ack(Settle{Consumer: id, Generation: generation, Ranges: []Range{{s.prefix, end}}})
	res.Stale = 0 // what was never delivered to it is not meant
	return res, err
}

// Nack refuses what the consumer holds: it is delivered again after delay, or
// after the subscription's backoff if delay is negative. It counts as
// received.
func (s *Subscription) Nack(a Settle, delay time.Duration, now int64) (Settled, error) {
	var res Settled
	if _, err := s.check(a.Consumer, a.Generation); err != nil {
		return res, fmt.Errorf("nack: %w", err)
	}
	for _, r := range a.Ranges {
		s.each(r, &res, func(p pos, u *run, off, end uint64) bool {
			if u.kind != held || u.consumer != a.Consumer {
				return false
			}
			d := delay
			if d < 0 {
				d = s.cfg.backoff(u.count)
			}
			s.requeue(p, off, end, run{consumer: u.consumer, count: u.count, at: now + int64(d)})
			return true
		})
	}
	return res, nil
}

// Received says that the consumer's application has got these messages: their
// ack timeout runs from now. Until then a delivery does not time out however
// long it lies in the client's queue; the window bounds how much that can be.
func (s *Subscription) Received(a Settle, now int64) (Settled, error) {
	var res Settled
	if _, err := s.check(a.Consumer, a.Generation); err != nil {
		return res, fmt.Errorf("received: %w", err)
	}
	for _, r := range a.Ranges {
		s.each(r, &res, func(p pos, u *run, off, end uint64) bool {
			if u.kind != held || u.consumer != a.Consumer {
				return false
			}
			if u.flags&received == 0 {
				to := *u
				s.startClock(&to, now)
				s.recast(p, off, end, to)
			}
			return true
		})
	}
	return res, nil
}

// Tick sends what has timed out at now to redelivery. Next does it too; a
// shell that has nothing to read calls Tick or Next when Step.Until is reached.
func (s *Subscription) Tick(now int64) {
	for {
		p, ok := s.runs.timed(deadline, s.prefix, now)
		if !ok {
			break
		}
		r := s.runs.at(p)
		at := now + int64(s.cfg.backoff(r.count))
		s.requeue(p, r.start, r.end, run{consumer: r.consumer, count: r.count, at: at})
	}
}

// each calls do for the parts of r that a run covers and counts the outcome.
func (s *Subscription) each(r Range, res *Settled, do func(p pos, u *run, off, end uint64) bool) {
	for off := r.Start; off < r.End; {
		if off < s.prefix { // also because what was just done has moved it
			end := min(s.prefix, r.End)
			res.Again += end - off
			off = end
			continue
		}
		p := s.runs.find(off)
		u := s.runs.at(p)
		if u == nil || u.start >= r.End {
			res.Stale += r.End - off
			return
		}
		if u.start > off {
			res.Stale += u.start - off
			off = u.start
		}
		end := min(u.end, r.End)
		switch {
		case u.kind == acked:
			res.Again += end - off
		case do(p, u, off, end):
			res.Done += end - off
		default:
			res.Stale += end - off
		}
		off = end
	}
}

// acknowledge settles [a, b) of the run at p for good.
func (s *Subscription) acknowledge(p pos, a, b uint64) {
	if a > s.prefix {
		s.recast(p, a, b, run{kind: acked, flags: dirty})
		return
	}
	s.cut(p, a, b)
	s.prefix = b
	s.fold()
}

// requeue ends a delivery of [a, b) without an acknowledgement; to says who
// had it (if that one may still acknowledge it), how many deliveries count,
// when the next is due, and whether it comes late.
func (s *Subscription) requeue(p pos, a, b uint64, to run) {
	to.kind = waiting
	to.flags = dirty | (to.flags|s.runs.at(p).flags)&late
	if s.spent(to.count) {
		to.kind, to.consumer, to.at = poisoned, 0, 0
	}
	s.recast(p, a, b, to)
}

// giveBack ends the delivery r because its consumer is gone; see Leave.
func (s *Subscription) giveBack(r run, clean bool, now int64) {
	p := s.runs.find(r.start)
	count, at := r.count, int64(0)
	seen := r.flags&received != 0
	switch {
	case seen && !clean && int(count) > s.cfg.MaxRedeliveries:
		at = now + int64(s.cfg.BackoffMax) // a consumer killer, kept by Block: let others go first
	case seen:
	case !clean && count == 1:
		count = uint16(min(1, s.cfg.MaxRedeliveries)) // it may have been seen; that alone never poisons
	default:
		count--
	}
	to := run{count: count, at: at}
	if count == 0 && r.flags&late == 0 {
		if !s.passed(&r) {
			s.cut(p, r.start, r.end)
			s.fresh = min(s.fresh, r.start)
			return
		}
		to.flags = late
	}
	s.requeue(p, r.start, r.end, to)
}

// passed reports whether another consumer was given messages above r for the
// first time: to that one r comes late, and not as what is simply next (I7).
func (s *Subscription) passed(r *run) bool {
	for _, m := range s.members {
		if m.ID != r.consumer && m.top > r.start {
			return true
		}
	}
	return false
}

// Poisoned is a stretch of messages that were given up.
type Poisoned struct {
	Range
	Deliveries uint32 // how often they were delivered
	Action     Poison // DeadLetter or Drop
}

// Poisoned appends to dst what waits for the shell to dead-letter or drop it,
// until Bury. It is no longer delivered, and still holds the cursor.
func (s *Subscription) Poisoned(dst []Poisoned) []Poisoned {
	for i := 0; s.msgs[poisoned] > 0 && i < len(s.runs.nodes); i++ {
		for _, r := range s.runs.nodes[i].runs {
			if r.kind == poisoned {
				dst = append(dst, Poisoned{Range{r.start, r.end}, uint32(r.count), s.cfg.Poison})
			}
		}
	}
	return dst
}

// Bury acknowledges poisoned messages that the shell has dealt with: the
// dead-letter topic has them for good, or they are dropped. It leaves alone
// what is not poisoned and returns the number of messages buried.
func (s *Subscription) Bury(r Range) uint64 {
	var res Settled
	s.each(r, &res, func(p pos, u *run, off, end uint64) bool {
		if u.kind != poisoned {
			return false
		}
		s.acknowledge(p, off, end)
		return true
	})
	return res.Done
}
