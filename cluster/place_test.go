package cluster

import (
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// TestPlace spreads new partitions over active brokers that gossip calls alive, by load.
func TestPlace(t *testing.T) {
	b := newBureau(t, 4)
	b.topic(1, 1, 1, 1)
	b.apply(&state.SetStore{Owner: state.Owner{Store: storeN(4), Incarnation: b.view().Store(storeN(4)).Incarnation}, Status: state.StoreDraining})
	members := []Member{{Store: storeN(1)}, {Store: storeN(2)}, {Store: storeN(3), State: Suspect}, {Store: storeN(4)}}
	place := func(members []Member, n int) map[state.StoreID]int {
		got := map[state.StoreID]int{}
		for _, o := range Place(b.view(), members, n) {
			if o.Incarnation == 0 {
				t.Errorf("an owner without an incarnation: %v", o)
			}
			got[o.Store]++
		}
		return got
	}
	if got := place(members, 5); got[storeN(1)] != 1 || got[storeN(2)] != 4 || len(got) != 2 {
		t.Errorf("placed %v, want one on n1 and four on n2", got)
	}
	if got := place(nil, 9); got[storeN(3)] != 4 || got[storeN(4)] != 0 {
		t.Errorf("without gossip %v", got)
	}
	if got := place([]Member{{Store: storeN(1), State: Dead}}, 1); len(got) != 0 {
		t.Errorf("placed %v on the dead", got)
	}
	members[1].Load.BytesIn = 5
	b.topic(2, 2, 2, 2)
	if got := place(members, 1); got[storeN(1)] != 1 {
		t.Errorf("placed %v on the busier of two", got)
	}
}
