package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/danubemq/danube/cluster/plan"
	"github.com/danubemq/danube/meta/state"
)

const (
	// probeInterval is how often a suspected broker is probed.
	probeInterval = 250 * time.Millisecond
	// probeTime is how long a probe waits for its answer.
	probeTime = time.Second
	// maxProbes is how many probes of one broker may be under way.
	maxProbes = 4
)

// probe is the leader's question to a broker: do you live, and how far are you.
type probe struct {
	store state.StoreID
	index uint64 // if not zero, it answers when it has applied this, or a moment later
	fresh bool   // on a connection of its own: that of every day may be what is broken
}

// probeAnswer is what a broker says of itself.
type probeAnswer struct {
	Run        uint64        `msgpack:"r"` // of its store, zero while it is only starting
	Applied    uint64        `msgpack:"a"` // index of the metadata it has applied
	Unfinished time.Duration `msgpack:"u"` // age of its oldest unfinished write, sync or apply
}

// inquiry is what the leader found out about one broker by asking it.
type inquiry struct {
	flying    int       // probes under way
	asked     time.Time // when the last one began
	succeeded time.Time // when the last answer came
	applied   uint64
	starting  time.Time // when it first answered that it is only starting; zero: it said nothing of that kind since
	failing   time.Time // when the first of the present row of failures began; zero: there is none
	failures  int
	failedAt  time.Time // when the last of them ended
	why       string
}

// doubts says whether some broker's probes fail: then this leader proves itself again and again.
func (r *reign) doubts() bool {
	n := 0
	for _, q := range r.inquiries {
		if q.failures > 0 {
			n++
		}
	}
	r.metrics.suspects.Set(float64(n))
	return n > 0
}

// inquire probes every broker that there is a reason to ask. Suspicion is not a decision: it starts an inquiry, and
// nothing more (R7).
func (r *reign) inquire(ctx context.Context, now time.Time) {
	members := map[state.StoreID]MemberState{}
	for _, m := range r.office.members() {
		members[m.Store] = m.State
	}
	for _, s := range r.census.Stores {
		if s.ID == r.office.self || s.Status == state.StoreLost {
			delete(r.inquiries, s.ID)
			continue
		}
		q := r.inquiries[s.ID]
		if q == nil {
			q = &inquiry{}
			r.inquiries[s.ID] = q
		}
		if q.flying >= maxProbes || now.Sub(q.asked) < probeInterval {
			continue
		}
		suspect := members[s.ID] != Alive || q.failures > 0 || r.office.broken(s.ID) || r.missed(s, now)
		behind := s.Status == state.StoreActive && r.behind(s, q)
		if suspect || behind {
			r.ask(ctx, q, probe{store: s.ID, index: r.index, fresh: suspect})
		}
	}
	for id := range r.inquiries {
		if s := r.census.View.Store(id); s == nil || s.Status == state.StoreRemoved {
			delete(r.inquiries, id)
		}
	}
}

// missed says whether a broker has missed two renewals; it renews four times in a lease.
func (r *reign) missed(s *state.Store, now time.Time) bool {
	g, until := r.office.lease(s.ID)
	if g.Owner.Incarnation != s.Incarnation || until.Before(r.since.Add(r.set.Lease)) {
		until = r.since.Add(r.set.Lease)
	}
	return until.Sub(now) < r.set.Lease/2
}

func (r *reign) behind(s *state.Store, q *inquiry) bool {
	g, _ := r.office.lease(s.ID)
	return max(g.Applied, q.applied) < r.index
}

// ask sends a probe and has its outcome noted.
func (r *reign) ask(ctx context.Context, q *inquiry, p probe) {
	started := r.office.now()
	q.flying++
	q.asked = started
	r.helpers.Go(func() { // returns when the probe is answered or has failed, or the term is over
		probing, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		answer, err := r.office.probe(probing, p)
		ended := r.office.now()
		r.tell(ctx, func() {
			q.flying--
			if started.Before(r.since) {
				return // from before this leader stood still
			}
			if err == nil && answer.Unfinished > maxUnfinished {
				err = fmt.Errorf("it answers, but a write of it has been unfinished for %v", waited(answer.Unfinished))
			}
			if err == nil {
				err = q.starts(answer, ended, r.set.Lease)
			}
			before := q.failures
			q.note(answer, err, plan.Span{From: started, To: ended})
			switch {
			case before == 0 && q.failures > 0:
				r.log.Info("a broker is suspected", "broker", r.name(p.store), "error", q.why)
			case before > 0 && q.failures == 0:
				r.log.Info("a suspected broker answers", "broker", r.name(p.store))
			}
		})
	})
}

// starts judges the answer of a broker that has not taken up its run: it lives, and gets a lease's time. One that never
// gets further, because it dies each time it starts, is as bad as one that does not answer.
func (q *inquiry) starts(answer probeAnswer, now time.Time, lease time.Duration) error {
	if answer.Run != 0 {
		q.starting = time.Time{}
		return nil
	}
	if q.starting.IsZero() {
		q.starting = now
	}
	if d := now.Sub(q.starting); d >= lease {
		return fmt.Errorf("it answers, but has been starting for %v", waited(d))
	}
	return nil
}

// note takes the outcome of one probe. Probes overlap: a failure that began before an answer came says nothing.
func (q *inquiry) note(answer probeAnswer, err error, took plan.Span) {
	switch {
	case err == nil:
		q.succeeded, q.applied = took.To, max(q.applied, answer.Applied)
		q.failing, q.failures, q.failedAt = time.Time{}, 0, time.Time{}
	case took.From.Before(q.succeeded):
	default:
		if q.failures == 0 || took.From.Before(q.failing) {
			q.failing = took.From
		}
		q.failures++
		q.failedAt, q.why = took.To, err.Error()
	}
}
