package words

import (
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// Lag counts messages: no offset that none can have, and none that nobody can read now.
func TestLagCountsMessagesAlone(t *testing.T) {
	const jump = 1 << 32
	tail := state.Range{Start: 100, End: 1000, Status: state.RangeOrphaned, Tail: true, Stores: []state.StoreID{{1}}}
	sealed, open := state.Range{End: 100, Status: state.RangeSealed}, state.Range{Start: 1000}
	away := state.Range{Start: 100, End: jump + 1000, Status: state.RangeOrphaned, Tail: true, Accepted: true}
	for name, x := range map[string]struct {
		m        state.Partition
		c        state.Cursor
		end      uint64
		lag, may uint64
	}{
		"whole":         {state.Partition{Ranges: []state.Range{{}}}, state.Cursor{Prefix: 7}, 50, 43, 0},
		"nothing read":  {state.Partition{Ranges: []state.Range{{}}}, state.Cursor{}, 50, 50, 0},
		"some read":     {state.Partition{Ranges: []state.Range{{}}}, state.Cursor{Prefix: 7, Acked: state.Offsets{{Start: 3, End: 9}, {Start: 20, End: 30}}}, 25, 11, 0},
		"beyond it":     {state.Partition{Ranges: []state.Range{{}}}, state.Cursor{Prefix: 60}, 50, 0, 0},
		"a plain gap":   {state.Partition{Ranges: []state.Range{sealed, open}}, state.Cursor{Prefix: 90}, 1005, 15, 0},
		"in a gap":      {state.Partition{Ranges: []state.Range{sealed, open}}, state.Cursor{Prefix: 500}, 1005, 5, 0},
		"a tail away":   {state.Partition{Ranges: []state.Range{sealed, tail, open}}, state.Cursor{Prefix: 90}, 1005, 15, 900},
		"in a tail":     {state.Partition{Ranges: []state.Range{sealed, tail, open}}, state.Cursor{Prefix: 161}, 1005, 5, 839},
		"a new history": {state.Partition{Ranges: []state.Range{sealed, away, {Start: jump + 1000}}}, state.Cursor{Prefix: 39}, jump + 1002, 63, 0},
		"lost":          {state.Partition{Ranges: []state.Range{{End: 100, Status: state.RangeLost}, {Start: 100}}}, state.Cursor{}, 101, 1, 0},
		"sent again":    {state.Partition{Ranges: []state.Range{sealed, open}, Superseded: state.Offsets{{Start: 5, End: 10}, {Start: 95, End: 120}}}, state.Cursor{Prefix: 8}, 1000, 85, 0},
	} {
		if lag, may := Lag(&x.m, x.end, Unacked(&x.c)), Orphaned(&x.m, x.c.Prefix); lag != x.lag || may != x.may {
			t.Errorf("%s: lag %d and %d more, want %d and %d", name, lag, may, x.lag, x.may)
		}
	}
	if lag := Lag(nil, 5, func(n uint64) uint64 { return n }) + Orphaned(nil, 0); lag != 0 {
		t.Errorf("of nothing: %d", lag)
	}
}
