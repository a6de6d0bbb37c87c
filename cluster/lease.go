package cluster

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/meta/state"
)

const (
	// leaseMargin is how long before the deadline the owner stops (R8).
	leaseMargin = 300 * time.Millisecond
	// maxUnfinished is the age of an unfinished write above which a broker neither asks for a lease nor gets one: a
	// hung disk keeps none (R8).
	maxUnfinished = 5 * time.Second
	// maxSkew is how far a broker's wall clock may be from the leader's (R8).
	maxSkew = 60 * time.Second
)

// renewal is an owner's request to the leader.
type renewal struct {
	Owner      state.Owner   `msgpack:"o"`
	Applied    uint64        `msgpack:"a"` // index of the metadata it has applied
	Unfinished time.Duration `msgpack:"u"` // age of its oldest unfinished write, sync or apply
	Time       int64         `msgpack:"t"` // its wall clock, Unix milliseconds
}

// grant is the leader's answer.
type grant struct {
	Term    uint64        `msgpack:"e"`
	Lease   time.Duration `msgpack:"l"` // from the moment the request was sent; zero: refused
	Time    int64         `msgpack:"t"` // the leader's wall clock, Unix milliseconds
	Refused string        `msgpack:"r,omitempty"`
	Removed bool          `msgpack:"x,omitempty"` // refused, because the store was removed from the cluster
}

// lease is the owner's side. Times are on the boottime clock.
type lease struct {
	deadline atomic.Int64  // the owner stops here; zero: there is no lease
	again    chan struct{} // room for one: there is another run to renew it for

	mu   sync.Mutex
	term uint64
	text string // why the last renewal failed; empty: it did not
	over bool   // no answer makes it valid again
}

// valid says whether the owner may act: a load and a comparison.
func (l *lease) valid(now time.Duration) bool { return int64(now) < l.deadline.Load() }

// granted takes the answer to a renewal that was sent at sent. term is what the owner's own Raft node knows.
func (l *lease) granted(g grant, sent time.Duration, now time.Time, term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	skew := now.Sub(time.UnixMilli(g.Time)).Abs()
	switch {
	case l.over:
	case g.Term < term || g.Term < l.term:
		l.text = fmt.Sprintf("a lease of term %d, which is over", g.Term)
	case skew > maxSkew:
		l.text = fmt.Sprintf("the clock of this broker is %v off the leader's; at most %v is allowed", skew.Round(time.Second), maxSkew)
		l.deadline.Store(0)
	case g.Refused != "":
		l.text = g.Refused
	default:
		l.term, l.text = g.Term, ""
		if d := int64(sent + g.Lease - leaseMargin); d > l.deadline.Load() {
			l.deadline.Store(d)
		}
	}
}

// failed notes that a renewal got no answer.
func (l *lease) failed(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.text = why
	}
}

// end gives the lease up for good, and the first reason stays: an answer that is under way comes too late.
func (l *lease) end(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over, l.text = true, why
		l.deadline.Store(0)
	}
}

// give gives the lease up at once.
func (l *lease) give(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.text = why
		l.deadline.Store(0)
	}
}

func (l *lease) why() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// leases is the leader's table: until when each broker may believe that it serves, on this node's boottime clock. A new
// leader cannot know what the one before it granted, so it counts a full lease from its election.
type leases struct {
	length time.Duration

	mu      sync.Mutex
	term    uint64
	elected time.Duration
	granted map[state.StoreID]granted
}

// granted is what a leader knows of one broker's lease.
type granted struct {
	Owner      state.Owner
	Until      time.Duration // on the boottime clock
	Applied    uint64        // what it had applied at its last renewal
	Unfinished time.Duration // as of its last renewal
	Condemned  bool          // its loss is being decided: it gets no lease meanwhile
}

func newLeases(length time.Duration) *leases {
	return &leases{length: length, granted: map[state.StoreID]granted{}}
}

// lead says that this node leads in term. A term that is new to it begins an empty table. Whoever comes first says so,
// the controller or a broker that renews: a table that began later than the controller would hold takeovers up.
func (l *leases) lead(term uint64, now time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if term != l.term {
		l.term, l.elected = term, now
		clear(l.granted)
	}
}

// renew grants or refuses a lease. run is the latest run of the broker's store, nil if the metadata do not know it.
func (l *leases) renew(r renewal, run *state.Store, now time.Duration, wall time.Time) grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := grant{Term: l.term, Time: wall.UnixMilli()}
	old := l.granted[r.Owner.Store]
	skew := wall.Sub(time.UnixMilli(r.Time)).Abs()
	switch {
	case run == nil:
		g.Refused = fmt.Sprintf("store %s is not registered", r.Owner.Store)
	case run.Incarnation != r.Owner.Incarnation:
		g.Refused = fmt.Sprintf("run %d of store %s is over; the latest is %d", r.Owner.Incarnation, r.Owner.Store, run.Incarnation)
	case run.Status == state.StoreLost || run.Status == state.StoreRemoved:
		g.Refused = fmt.Sprintf("store %s is %s", r.Owner.Store, run.Status)
		g.Removed = run.Status == state.StoreRemoved
	case old.Condemned && old.Owner == r.Owner:
		g.Refused = fmt.Sprintf("the loss of store %s is being decided", r.Owner.Store)
	case r.Unfinished > maxUnfinished:
		g.Refused = fmt.Sprintf("a write of this broker has been unfinished for %v", r.Unfinished.Round(time.Millisecond))
	case skew > maxSkew:
		g.Refused = fmt.Sprintf("the clock of this broker is %v off the leader's; at most %v is allowed", skew.Round(time.Second), maxSkew)
	default:
		g.Lease = l.length
		l.granted[r.Owner.Store] = granted{Owner: r.Owner, Until: now + l.length, Applied: r.Applied, Unfinished: r.Unfinished}
		return g
	}
	if old.Owner == r.Owner {
		old.Applied, old.Unfinished = r.Applied, r.Unfinished
		l.granted[r.Owner.Store] = old
	}
	return g
}

// of returns what this leader knows of a broker's lease.
func (l *leases) of(store state.StoreID) (granted, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, ok := l.granted[store]
	return g, ok
}

// expired says whether a broker's lease has surely run out, on this leader's clock.
func (l *leases) expired(store state.StoreID, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out(store, now)
}

func (l *leases) out(store state.StoreID, now time.Duration) bool {
	until := l.elected + l.length
	if g, ok := l.granted[store]; ok {
		until = max(until, g.Until)
	}
	return now > until
}

// condemn forbids the lease of a run whose loss is about to be proposed, unless it has not run out after all: a renewal
// between the decision and its commit would make two owners.
func (l *leases) condemn(owner state.Owner, term uint64, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.granted[owner.Store]
	if term != l.term || !l.out(owner.Store, now) || g.Owner.Incarnation > owner.Incarnation {
		return false
	}
	if g.Owner != owner {
		g = granted{Owner: owner}
	}
	g.Condemned = true
	l.granted[owner.Store] = g
	return true
}

// pardon ends condemn, when the loss was not committed.
func (l *leases) pardon(owner state.Owner) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g := l.granted[owner.Store]; g.Owner == owner {
		g.Condemned = false
		l.granted[owner.Store] = g
	}
}
