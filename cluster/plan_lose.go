package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// losses declares brokers lost (R7): the lease has run out, the leader's own probes failed, the leader is well, and not
// too many are lost at the same time. What gossip says is in none of these.
func (p *planning) losses() {
	var suspects []*state.Store
	lost := 0
	for _, s := range p.c.stores {
		switch {
		case s.Status == state.StoreLost:
			lost++
			p.note(s.ID, "%s is lost", s.Broker)
		case p.stopped(s):
			p.note(s.ID, "%s is stopped", s.Broker)
		case s.ID != p.f.self && p.unreachable(s):
			suspects = append(suspects, s)
		}
	}
	if len(suspects) == 0 {
		return
	}
	if why := p.unwell(); why != "" {
		for _, s := range suspects {
			p.note(s.ID, "%s is not declared lost because this leader is not sure of itself: %s", s.Broker, why)
		}
		return
	}
	// Whoever owns most goes first: a dead broker that owns nothing must not use up the allowance.
	slices.SortStableFunc(suspects, func(a, b *state.Store) int { return cmp.Compare(p.c.owned[b.ID], p.c.owned[a.ID]) })
	allowed := max(1, len(p.c.stores)/3)
	for _, s := range suspects {
		if lost >= allowed {
			p.note(s.ID, "%s would be lost too, but %d of %d brokers may be lost at the same time: bring one back or remove one",
				s.Broker, allowed, len(p.c.stores))
			continue
		}
		lost++
		peer := p.f.peers[s.ID]
		p.do(action{
			kind: doLose, store: s.ID, command: &state.LoseStore{Owner: state.Owner{Store: s.ID, Incarnation: s.Incarnation}},
			reason: fmt.Sprintf("its lease ran out %v ago and %d probes failed: %s",
				waited(p.now.Sub(p.deadline(s))), peer.failures, peer.why),
		})
	}
}

// stopped says whether a store ended its run by itself and closed all it owned. One that says so and left something
// open is treated as any other.
func (p *planning) stopped(s *state.Store) bool { return s.Clean && p.c.serving[s.ID] == 0 }

// deadline is when the lease of a store's present run is out. A run that this leader has just met, and every run after
// an election or a pause of the leader, has a full lease.
func (p *planning) deadline(s *state.Store) time.Time {
	at := p.f.since
	if run := p.f.memory.runSince(s); run.After(at) {
		at = run
	}
	at = at.Add(p.f.lease)
	if peer := p.f.peers[s.ID]; peer.run == s.Incarnation && peer.lease.After(at) {
		return peer.lease
	}
	return at
}

// unreachable says whether a store's lease has run out and the leader's own probes of it fail, and notes what is amiss
// with it if not.
func (p *planning) unreachable(s *state.Store) bool {
	peer := p.f.peers[s.ID]
	deadline := p.deadline(s)
	failed := peer.failures > 1 && !peer.failing.Before(p.f.since) &&
		peer.failedAt.Sub(peer.failing) >= probeRow && p.now.Sub(peer.failedAt) <= probeAge
	switch {
	case !p.now.Before(deadline) && failed:
		return true
	case !p.now.Before(deadline) && peer.failures > 0:
		p.note(s.ID, "%s is suspected: its lease ran out %v ago, probes fail: %s", s.Broker, waited(p.now.Sub(deadline)), peer.why)
	case !p.now.Before(deadline):
		p.note(s.ID, "%s holds no lease since %v but answers", s.Broker, waited(p.now.Sub(deadline)))
	case peer.failures > 0:
		p.note(s.ID, "%s is suspected: probes fail: %s; its lease ends in %v", s.Broker, peer.why, waited(deadline.Sub(p.now)))
	case peer.gossip != "":
		p.note(s.ID, "%s is %s in gossip but answers", s.Broker, peer.gossip)
	}
	return false
}

// unwell says why the leader may not judge others: its own log writes and a majority of the voters must have answered
// just now, and since it last stood still (R7).
func (p *planning) unwell() string {
	proof := p.f.proof
	switch {
	case p.f.unwell != "":
		return p.f.unwell
	case proof.to.IsZero() || proof.from.Before(p.f.since):
		return "nothing was committed since it began to count"
	case p.now.Sub(proof.to) > proofAge:
		return fmt.Sprintf("nothing was committed for %v", waited(p.now.Sub(proof.to)))
	case proof.to.Sub(proof.from) > proofTime:
		return fmt.Sprintf("a commit took %v", waited(proof.to.Sub(proof.from)))
	}
	return ""
}
