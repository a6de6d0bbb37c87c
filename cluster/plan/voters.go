package plan

import (
	"fmt"
	"maps"

	"github.com/danubemq/danube/meta/state"
)

// The leader's duties towards Raft's configuration: three or five voters, every other broker replicates without a vote,
// and who was removed is out. One change at a time; none after which the voters that are up would be no majority.

// membership does the one change of Raft's configuration that is due first.
func (p *planning) membership() {
	if p.handOverLeadership() {
		return
	}
	for _, s := range p.c.Stores {
		if p.welcome(s) {
			return
		}
	}
	if p.leave() {
		return
	}
	p.fillVotes()
}

func (p *planning) change(kind Kind, server Server, format string, args ...any) {
	p.do(Action{Kind: kind, Store: server.Store, Server: server, Reason: fmt.Sprintf(format, args...)})
}

func (p *planning) server(id state.StoreID) (Server, bool) {
	for _, s := range p.f.Servers {
		if s.Store == id {
			return s, true
		}
	}
	return Server{}, false
}

// at returns the server that has an address.
func (p *planning) at(address string) (Server, bool) {
	for _, s := range p.f.Servers {
		if s.Address == address {
			return s, true
		}
	}
	return Server{}, false
}

// handOverLeadership passes leadership on if this leader drains, was removed, or cannot keep its own lease: its disk
// hangs, and only another leader can judge it.
func (p *planning) handOverLeadership() bool {
	self := p.c.View.Store(p.f.Self)
	if self == nil {
		return false
	}
	var why string
	switch {
	case drains(self):
		why = "this leader drains"
	case self.Status == state.StoreRemoved:
		why = "this leader was removed"
	case self.Status == state.StoreActive && !self.Clean && !p.now.Before(p.deadline(self)):
		why = "this leader cannot keep its own lease"
	default:
		return false
	}
	for _, s := range p.f.Servers {
		if st := p.c.View.Store(s.Store); s.Voter && s.Store != p.f.Self && p.fit(st) {
			p.change(Transfer, s, "%s", why)
			return true
		}
	}
	p.note(p.f.Self, "%s, and there is no other voter that could lead", why)
	return false
}

// fit says whether a store may get a vote or lead: active, leased, answering and not far behind.
func (p *planning) fit(s *state.Store) bool {
	if s == nil || s.Status != state.StoreActive || s.Clean || !p.leased(s) || p.f.Peers[s.ID].Failures > 0 {
		return false
	}
	return p.f.Peers[s.ID].Applied+voterLag >= p.f.Head
}

// welcome adds a registered store that Raft does not know.
func (p *planning) welcome(s *state.Store) bool {
	if s.Addresses.Peer == "" || !p.leased(s) {
		return false
	}
	if _, known := p.server(s.ID); known {
		return false
	}
	if holder, taken := p.at(s.Addresses.Peer); taken {
		// The store that was there before, whose lease runs on for a moment: it first.
		p.note(s.ID, "store %s of %s is not added: store %s is at its address %s", s.ID, p.called(s), holder.Store, holder.Address)
		return false
	}
	p.change(Add, Server{Store: s.ID, Address: s.Addresses.Peer}, "%s joined", s.Broker)
	return true
}

// leave takes removed stores out of the configuration, and the vote from a voter that is lost for good once another has
// its place.
func (p *planning) leave() bool {
	votes := p.votes()
	for _, server := range p.f.Servers {
		s := p.c.View.Store(server.Store)
		if s == nil || server.Store == p.f.Self {
			continue
		}
		switch {
		case s.Status == state.StoreRemoved:
			if _, ok := p.heir(votes); ok && server.Voter {
				continue // its successor first
			}
			if server.Voter && !votes.without(s.ID).quorate() {
				p.note(s.ID, "%s was removed but its vote is needed until another voter is up", p.called(s))
				continue
			}
			p.change(Drop, server, "%s was removed from the cluster", s.Broker)
			return true
		case server.Voter && p.lostForGood(s):
			if votes.good < p.target() || !votes.without(s.ID).quorate() {
				continue
			}
			p.change(Demote, server, "%s is lost and another voter took its place", s.Broker)
			return true
		}
	}
	return false
}

func (p *planning) lostForGood(s *state.Store) bool {
	return s.Status == state.StoreLost && p.now.Sub(p.f.Memory.statusSince(s)) >= replaceTime
}

func (p *planning) target() int { return max(1, p.f.Voters) }

// votes are the voters as they stand.
type votes struct {
	all  map[state.StoreID]bool // voter → whether it is up
	good int                    // voters that are to stay
}

func (p *planning) votes() votes {
	v := votes{all: map[state.StoreID]bool{}}
	for _, server := range p.f.Servers {
		if !server.Voter {
			continue
		}
		s := p.c.View.Store(server.Store)
		up := server.Store == p.f.Self || s != nil && p.leased(s) && p.f.Peers[s.ID].Failures == 0
		v.all[server.Store] = up
		if s == nil || s.Status != state.StoreRemoved && !p.lostForGood(s) {
			v.good++
		}
	}
	return v
}

// quorate says whether the voters that are up are a majority.
func (v votes) quorate() bool {
	up := 0
	for _, u := range v.all {
		if u {
			up++
		}
	}
	return up > len(v.all)/2
}

// without is v when a voter has lost its vote.
func (v votes) without(id state.StoreID) votes {
	all := maps.Clone(v.all)
	delete(all, id)
	return votes{all: all, good: v.good}
}

// plus is v when a store that is up has got a vote.
func (v votes) plus(id state.StoreID) votes {
	all := maps.Clone(v.all)
	all[id] = true
	return votes{all: all, good: v.good + 1}
}

// heirs are the non-voters that may get a vote, in the order of their ids.
func (p *planning) heirs() []Server {
	var out []Server
	for _, s := range p.c.Stores {
		if server, ok := p.server(s.ID); ok && !server.Voter && p.fit(s) {
			out = append(out, server)
		}
	}
	return out
}

// heir returns who gets a vote next. An even number of voters survives no more losses than one voter less, and stops
// more easily: so from an odd number it goes on only if two can follow.
func (p *planning) heir(v votes) (Server, bool) {
	if v.good >= p.target() {
		return Server{}, false
	}
	heirs := p.heirs()
	if len(heirs) == 0 || v.good%2 == 1 && len(heirs) < 2 {
		return Server{}, false
	}
	if !v.plus(heirs[0].Store).quorate() {
		p.note(heirs[0].Store, "%s gets no vote: too many voters are down", p.name(heirs[0].Store))
		return Server{}, false
	}
	return heirs[0], true
}

// fillVotes gives votes to caught-up brokers until there are as many as wanted.
func (p *planning) fillVotes() {
	v := p.votes()
	if heir, ok := p.heir(v); ok {
		p.change(Promote, heir, "%d of %d voters are well", v.good, p.target())
	}
}
