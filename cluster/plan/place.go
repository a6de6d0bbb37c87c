package plan

import (
	"cmp"
	"slices"

	"github.com/danubemq/danube/meta/state"
)

// scale weighs brokers and hands out the lightest: fewest partitions, then fewest bytes a second, then the lowest id, so
// that every leader chooses alike.
type scale struct{ candidates []Candidate }

type Candidate struct {
	Owner      state.Owner
	Partitions int
	Bytes      float64
}

// take returns the lightest candidate, one of the preferred stores if any of them is a candidate, and counts one
// partition more for it. There must be a candidate.
func (s *scale) take(preferred []state.StoreID) state.Owner {
	best := s.lightest(func(c Candidate) bool { return slices.Contains(preferred, c.Owner.Store) })
	if best < 0 {
		best = s.lightest(func(Candidate) bool { return true })
	}
	return s.count(best)
}

// takeOther is take among all candidates but one store; false if there is no other.
func (s *scale) takeOther(not state.StoreID) (state.Owner, bool) {
	best := s.lightest(func(c Candidate) bool { return c.Owner.Store != not })
	if best < 0 {
		return state.Owner{}, false
	}
	return s.count(best), true
}

func (s *scale) count(i int) state.Owner {
	s.candidates[i].Partitions++
	return s.candidates[i].Owner
}

// lightest returns the index of the lightest candidate that may be taken, -1 if none may.
func (s *scale) lightest(may func(Candidate) bool) int {
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
	case a.Partitions != b.Partitions:
		return a.Partitions < b.Partitions
	case a.Bytes != b.Bytes:
		return a.Bytes < b.Bytes
	}
	return compareStores(a.Owner.Store, b.Owner.Store) < 0
}

// Spread returns who of the candidates gets each of n new partitions, the lightest first; nil if there is no candidate.
func Spread(candidates []Candidate, n int) []state.Owner {
	if len(candidates) == 0 {
		return nil
	}
	s := scale{candidates}
	owners := make([]state.Owner, n)
	for i := range owners {
		owners[i] = s.take(nil)
	}
	return owners
}

func compareStores(a, b state.StoreID) int { return cmp.Compare(string(a[:]), string(b[:])) }
