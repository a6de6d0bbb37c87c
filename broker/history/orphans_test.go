package history

import (
	"reflect"
	"slices"
	"testing"

	"github.com/danubemq/danube/storage"
)

// A range is taken back in pieces: what came back already keeps its end while the rest is looked at.
func TestOnlyTheRestIsReadAsSealed(t *testing.T) {
	ranges := []storage.Range{
		{Start: 10, End: 50, Status: storage.RangeSealed}, {Start: 50, End: 100, Status: storage.RangeOrphaned, Away: true}, {Start: 100, Status: storage.RangeOpen},
	}
	got := asSealed(ranges, 60, 100) // 50 to 60 are damaged
	want := slices.Clone(ranges)
	want[1].Status, want[1].Away = storage.RangeSealed, false
	if !slices.EqualFunc(got, want, func(a, b storage.Range) bool { return reflect.DeepEqual(a, b) }) {
		t.Errorf("got %+v", got)
	}
	if tail := asSealed(ranges, 50, 50)[1]; tail.End != 50 || ranges[1].End != 100 {
		t.Errorf("a tail with nothing in it: %+v of %+v", tail, ranges[1])
	}
}
