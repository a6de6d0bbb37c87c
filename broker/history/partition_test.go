package history

import (
	"reflect"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// What became of ORPHANED offsets: back, nothing there, or lost (R15, R18).
func TestOutcomeOfOrphanedOffsets(t *testing.T) {
	was := &state.Range{Start: 10, End: 100, Status: state.RangeOrphaned}
	m := &state.Partition{
		Ranges: []state.Range{
			{Start: 0, End: 20, Status: state.RangeSealed}, {Start: 20, End: 30, Status: state.RangeLost},
			{Start: 30, End: 40, Status: state.RangeOrphaned}, {Start: 50, End: 60, Status: state.RangeSealed}, {Start: 100},
		},
		Superseded: state.Offsets{{Start: 5, End: 12}, {Start: 55, End: 56}},
	}
	var o Outcome
	o.add(was, m)
	want := Outcome{
		Back: []state.OffsetRange{{Start: 10, End: 20}, {Start: 50, End: 60}},
		None: []state.OffsetRange{{Start: 40, End: 50}, {Start: 60, End: 100}, {Start: 10, End: 12}, {Start: 55, End: 56}},
		Lost: []state.OffsetRange{{Start: 20, End: 30}},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got %+v, want %+v", o, want)
	}
}
