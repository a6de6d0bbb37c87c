package cluster

import (
	"slices"

	"github.com/danubemq/danube/meta/state"
)

// scale weighs brokers and hands out the lightest: fewest partitions, then fewest bytes a second, then the lowest id, so
// that every leader chooses alike.
type scale struct{ candidates []candidate }

type candidate struct {
	owner      state.Owner
	partitions int
	bytes      float64
}

// take returns the lightest candidate, one of the preferred stores if any of them is a candidate, and counts one
// partition more for it. There must be a candidate.
func (s *scale) take(preferred []state.StoreID) state.Owner {
	best := s.lightest(func(c candidate) bool { return slices.Contains(preferred, c.owner.Store) })
	if best < 0 {
		best = s.lightest(func(candidate) bool { return true })
	}
	return s.count(best)
}

// takeOther is take among all candidates but one store; false if there is no other.
func (s *scale) takeOther(not state.StoreID) (state.Owner, bool) {
	best := s.lightest(func(c candidate) bool { return c.owner.Store != not })
	if best < 0 {
		return state.Owner{}, false
	}
	return s.count(best), true
}

func (s *scale) count(i int) state.Owner {
	s.candidates[i].partitions++
	return s.candidates[i].owner
}

// lightest returns the index of the lightest candidate that may be taken, -1 if none may.
func (s *scale) lightest(may func(candidate) bool) int {
	best := -1
	for i, c := range s.candidates {
		if may(c) && (best < 0 || s.lighter(i, best)) {
			best = i
		}
	}
	return best
}

func (s *scale) lighter(i, j int) bool {
	a, b := s.candidates[i], s.candidates[j]
	switch {
	case a.partitions != b.partitions:
		return a.partitions < b.partitions
	case a.bytes != b.bytes:
		return a.bytes < b.bytes
	}
	return compareStores(a.owner.Store, b.owner.Store) < 0
}

// Place returns n owners for new partitions, spread by load over the active brokers that gossip calls alive; members
// nil: over all active ones. It returns nil if there is none. What gossip is wrong about costs a grant by the leader,
// nothing more.
func Place(v *state.View, members []Member, n int) []state.Owner {
	s := scale{placeable(v, members)}
	if len(s.candidates) == 0 {
		return nil
	}
	owners := make([]state.Owner, n)
	for i := range owners {
		owners[i] = s.take(nil)
	}
	return owners
}

func placeable(v *state.View, members []Member) []candidate {
	var out []candidate
	for s := range v.Stores() {
		if s.Status != state.StoreActive || s.Clean {
			continue
		}
		c := candidate{owner: state.Owner{Store: s.ID, Incarnation: s.Incarnation}, partitions: v.Placed(s.ID)}
		i := slices.IndexFunc(members, func(m Member) bool { return m.Store == s.ID })
		if i >= 0 && members[i].State == Alive {
			c.bytes = members[i].Load.BytesIn + members[i].Load.BytesOut
		} else if members != nil {
			continue
		}
		out = append(out, c)
	}
	return out
}
