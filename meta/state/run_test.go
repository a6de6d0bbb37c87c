package state

import (
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

// TestRunsAreAliveOverOrUnheard: R12, whose objects nobody names may be deleted.
func TestRunsAreAliveOverOrUnheard(t *testing.T) {
	s := New()
	index := uint64(0)
	do := func(c Command) uint64 {
		t.Helper()
		index++
		r := s.Apply(index, c)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r.Incarnation
	}
	do(&InitCluster{ID: [16]byte{1}, Name: "danube"})
	register := func(store uint64, nonce byte) uint64 {
		return do(&RegisterStore{Store: storeID(store), Broker: "b", Nonce: [16]byte{nonce}})
	}
	first, other, again := register(1, 1), register(2, 2), register(1, 3)
	for incarnation, want := range map[uint64]catalog.Run{0: catalog.Unheard, first: catalog.Over, other: catalog.Alive, again: catalog.Alive, again + 1: catalog.Unheard} {
		if got := s.Freeze().Run(incarnation); got != want {
			t.Errorf("run %d: %d, want %d", incarnation, got, want)
		}
	}
	do(&LoseStore{Owner{storeID(2), other}})
	if got := s.Freeze().Run(other); got != catalog.Over {
		t.Errorf("the run of a lost store: %d", got)
	}
	if got := s.Freeze().Run(again + 1); register(2, 4) != again+1 || got != catalog.Unheard || s.Freeze().Run(again+1) != catalog.Alive {
		t.Errorf("a number that was not given yet: %d", got)
	}
}
