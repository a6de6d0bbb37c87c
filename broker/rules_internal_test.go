package broker

import (
	"testing"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// An epoch opens at the end only where nothing above it can have been acknowledged (R3, R6, R10).
func TestEpochOpensWhereTheEndIsProven(t *testing.T) {
	t.Parallel()
	damagedTail := []storage.Damage{{From: 7, To: 9}}
	damagedInside := []storage.Damage{{From: 2, To: 4}}
	for name, test := range map[string]struct {
		meta state.Partition
		what storage.Recovery
		tail state.Tail
		end  uint64
	}{
		"proven":              {state.Partition{State: state.Open, Floor: 9}, storage.Recovery{End: 9, Proven: true}, state.TailProven, 9},
		"not proven":          {state.Partition{State: state.Open, Floor: 9}, storage.Recovery{End: 9}, state.TailLost, 9},
		"below the floor":     {state.Partition{State: state.Open, Floor: 9}, storage.Recovery{End: 8, Proven: true}, state.TailOrphaned, 8},
		"damaged at the end":  {state.Partition{State: state.Open, Floor: 7}, storage.Recovery{End: 9, Proven: true, Damaged: damagedTail}, state.TailOrphaned, 9},
		"damaged before that": {state.Partition{State: state.Open, Floor: 7}, storage.Recovery{End: 9, Proven: true, Damaged: damagedInside}, state.TailProven, 9},
		"sealed":              {state.Partition{Floor: 5, State: state.Closed}, storage.Recovery{End: 9}, state.TailProven, 5},
	} {
		r := recovered{meta: &test.meta, what: test.what}
		if got := r.open(); got.Tail != test.tail || got.End != test.end {
			t.Errorf("%s: opens with tail %d at %d, want %d at %d", name, got.Tail, got.End, test.tail, test.end)
		}
	}
}
