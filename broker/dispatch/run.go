package dispatch

import "math"

// kind says what is known of the offsets of a run. Offsets at or above the
// prefix that no run covers are fresh: nobody has been given them yet.
type kind uint8

const (
	acked    kind = iota // acknowledged, or stepped over as a gap
	held                 // delivered to run.consumer and not settled
	waiting              // to be delivered (again) when run.at is reached
	hole                 // ORPHANED: neither delivered nor acknowledged (R18)
	poisoned             // given up; the shell has not yet dealt with it
	kinds
)

type mark uint8

const (
	dirty    mark = 1 << iota // not in any delta yet
	sent                      // in the delta that is out
	received                  // held: the application has got it
	late                      // from a hole that was filled (R15), or given back below what others were given
)

// never is later than every time.
const never = math.MaxInt64

// run is a stretch [start, end) of offsets that share one fate. State is kept
// as runs and never per message: a consumer that acknowledges in order costs
// one run, whatever the rate.
type run struct {
	start, end uint64
	at         int64      // waiting, hole: due; held: deadline, 0 for none; Unix ns
	consumer   ConsumerID // held: holder; waiting: last holder, 0 for nobody
	count      uint16     // deliveries that count, the present one included
	kind       kind
	flags      mark
}

// same reports whether x and y may be one run. Dirt does not part them: what
// a delta says twice is harmless.
func same(x, y *run) bool {
	const fate = received | late
	return x.kind == y.kind && x.at == y.at && x.consumer == y.consumer &&
		x.count == y.count && x.flags&fate == y.flags&fate
}

func joins(x, y *run) bool { return x.end == y.start && same(x, y) }

// timer numbers the two things that wait for a time.
type timer uint8

const (
	due      timer = iota // a waiting run may go out
	deadline              // a held run has timed out
	timers
)

// time returns when r needs attention for t, or never.
func (r *run) time(t timer) int64 {
	switch {
	case t == due && r.kind == waiting:
		return r.at
	case t == deadline && r.kind == held && r.at != 0:
		return r.at
	}
	return never
}
