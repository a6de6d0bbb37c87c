package plan

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
	for _, s := range p.c.Stores {
		switch {
		case s.Status == state.StoreLost:
			lost++
			p.note(s.ID, "%s is lost", p.called(s))
		case p.stopped(s):
			p.note(s.ID, "%s is stopped", p.called(s))
		case s.ID != p.f.Self && p.unreachable(s):
			suspects = append(suspects, s)
		}
	}
	if len(suspects) == 0 {
		return
	}
	if why := p.unwell(); why != "" {
		for _, s := range suspects {
			p.note(s.ID, "%s is not declared lost because this leader is not sure of itself: %s", p.called(s), why)
		}
		return
	}
	// Whoever owns most goes first: a dead broker that owns nothing must not use up the allowance.
	slices.SortStableFunc(suspects, func(a, b *state.Store) int { return cmp.Compare(p.c.owned[b.ID], p.c.owned[a.ID]) })
	allowed := max(1, len(p.c.Stores)/3)
	for _, s := range suspects {
		if lost >= allowed {
			p.note(s.ID, "%s would be lost too, but %d of %d brokers may be lost at the same time: bring one back or remove one",
				p.called(s), allowed, len(p.c.Stores))
			continue
		}
		lost++
		peer := p.f.Peers[s.ID]
		p.do(Action{
			Kind: Lose, Store: s.ID, Command: &state.LoseStore{Owner: state.Owner{Store: s.ID, Incarnation: s.Incarnation}},
			Reason: fmt.Sprintf("its lease ran out %v ago and %d probes failed: %s",
				waited(p.now.Sub(p.deadline(s))), peer.Failures, peer.Why),
		})
	}
}

// stopped says whether a store ended its run by itself and closed all it owned. One that says so and left something
// open is treated as any other.
func (p *planning) stopped(s *state.Store) bool { return s.Clean && p.c.serving[s.ID] == 0 }

// deadline is when the lease of a store's present run is out. A run that this leader has just met, and every run after
// an election or a pause of the leader, has a full lease.
func (p *planning) deadline(s *state.Store) time.Time {
	at := p.f.Since
	if run := p.f.Memory.runSince(s); run.After(at) {
		at = run
	}
	at = at.Add(p.f.Lease)
	if peer := p.f.Peers[s.ID]; peer.Run == s.Incarnation && peer.Lease.After(at) {
		return peer.Lease
	}
	return at
}

// unreachable says whether a store's lease has run out and the leader's own probes of it fail, and notes what is amiss
// with it if not.
func (p *planning) unreachable(s *state.Store) bool {
	peer := p.f.Peers[s.ID]
	deadline := p.deadline(s)
	failed := peer.Failures > 1 && !peer.Failing.Before(p.f.Since) &&
		peer.FailedAt.Sub(peer.Failing) >= probeRow && p.now.Sub(peer.FailedAt) <= probeAge
	switch {
	case !p.now.Before(deadline) && failed:
		return true
	case !p.now.Before(deadline) && peer.Failures > 0:
		p.note(s.ID, "%s is suspected: its lease ran out %v ago, probes fail: %s", p.called(s), waited(p.now.Sub(deadline)), peer.Why)
	case !p.now.Before(deadline):
		p.note(s.ID, "%s holds no lease since %v but answers", p.called(s), waited(p.now.Sub(deadline)))
	case peer.Failures > 0:
		p.note(s.ID, "%s is suspected: probes fail: %s; its lease ends in %v", p.called(s), peer.Why, waited(deadline.Sub(p.now)))
	case peer.Gossip != "":
		p.note(s.ID, "%s is %s in gossip but answers", p.called(s), peer.Gossip)
	}
	return false
}

// unwell says why the leader may not judge others: its own log writes and a majority of the voters must have answered
// just now, and since it last stood still (R7).
func (p *planning) unwell() string {
	proof := p.f.Proof
	switch {
	case p.f.Unwell != "":
		return p.f.Unwell
	case proof.To.IsZero() || proof.From.Before(p.f.Since):
		return "nothing was committed since it began to count"
	case p.now.Sub(proof.To) > ProofAge:
		return fmt.Sprintf("nothing was committed for %v", waited(p.now.Sub(proof.To)))
	case proof.To.Sub(proof.From) > ProofTime:
		return fmt.Sprintf("a commit took %v", waited(proof.To.Sub(proof.From)))
	}
	return ""
}
