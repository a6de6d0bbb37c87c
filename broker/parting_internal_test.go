package broker

import (
	"testing"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
)

// What a stop waits for is what others own and nobody else has.
func TestOnlyInOneStore(t *testing.T) {
	me, other := state.StoreID{1}, state.StoreID{2}
	covered := (*catalog.Catalog)(nil).Add(catalog.Segment{Start: 10, End: 20, Bytes: 100, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: 1}})
	for name, test := range map[string]struct {
		r    state.Range
		c    *catalog.Catalog
		from uint64
		want bool
	}{
		"here alone":          {state.Range{Start: 10, End: 20, Status: state.RangeSealed, Stores: []state.StoreID{me}}, nil, 0, true},
		"there alone":         {state.Range{Start: 10, End: 20, Status: state.RangeSealed, Stores: []state.StoreID{other}}, nil, 0, false},
		"here and there":      {state.Range{Start: 10, End: 20, Status: state.RangeSealed, Stores: []state.StoreID{me, other}}, nil, 0, false},
		"in the cold tier":    {state.Range{Start: 10, End: 20, Status: state.RangeSealed, Stores: []state.StoreID{me}}, covered, 0, false},
		"for a part there":    {state.Range{Start: 10, End: 21, Status: state.RangeSealed, Stores: []state.StoreID{me}}, covered, 0, true},
		"below the log's end": {state.Range{Start: 5, End: 20, Status: state.RangeSealed, Stores: []state.StoreID{me}}, covered, 10, false},
		"not sealed":          {state.Range{Start: 10, End: 20, Status: state.RangeOrphaned, Stores: []state.StoreID{me}}, nil, 0, false},
	} {
		m := &state.Partition{Catalog: test.c, LogStart: test.from}
		if got := onlyIn(m, &test.r, me); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
