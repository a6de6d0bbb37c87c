package history

import (
	"fmt"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// What is held under another epoch is missing (R19).
func TestMissingGoesByEpoch(t *testing.T) {
	rg := &state.Range{Start: 10, End: 30, Epochs: []state.EpochStart{{Epoch: 3, Start: 10}, {Epoch: 5, Start: 20}}}
	for name, test := range map[string]struct {
		have        []storage.Span
		from, until uint64
	}{
		"nothing":         {nil, 10, 20},
		"the front":       {[]storage.Span{{Epoch: 3, Start: 0, End: 15}}, 15, 20},
		"of another":      {[]storage.Span{{Epoch: 4, Start: 10, End: 30}}, 10, 20},
		"up to the next":  {[]storage.Span{{Epoch: 3, Start: 10, End: 30}}, 20, 30},
		"the end":         {[]storage.Span{{Epoch: 5, Start: 25, End: 30}, {Epoch: 3, Start: 10, End: 20}}, 20, 25},
		"a hole":          {[]storage.Span{{Epoch: 3, Start: 10, End: 12}, {Epoch: 3, Start: 14, End: 20}}, 12, 14},
		"all":             {[]storage.Span{{Epoch: 3, Start: 10, End: 20}, {Epoch: 5, Start: 20, End: 30}}, 30, 30},
		"all and more":    {[]storage.Span{{Epoch: 3, Start: 0, End: 20}, {Epoch: 5, Start: 20, End: 90}}, 30, 30},
		"of the end only": {[]storage.Span{{Epoch: 5, Start: 20, End: 30}}, 10, 20},
	} {
		if from, until := missing(test.have, rg, 10); from != test.from || until != test.until {
			t.Errorf("%s: [%d, %d), want [%d, %d)", name, from, until, test.from, test.until)
		}
	}
}

// What the cold tier has need not be kept by others, nor by the owner what lies below history that is not its own: the
// ranges around it become one as soon as nobody has them. What the cold tier lacks is kept.
func TestStrikesLeaveTheOwnersLog(t *testing.T) {
	me, you := state.StoreID{1}, state.StoreID{2}
	sealed, open, orphaned := state.RangeSealed, state.RangeOpen, state.RangeOrphaned
	for name, test := range map[string]struct {
		stores  [][]state.StoreID // of ranges of ten offsets each; the last one is open
		covered uint64
		odd     int // the range that is orphaned, -1 none
		want    string
	}{
		"the log alone":               {[][]state.StoreID{{me}, {me}, {me}}, 20, -1, ""},
		"of another":                  {[][]state.StoreID{{you}, {me}, {me}}, 20, -1, "[0 10)"},
		"of this and another":         {[][]state.StoreID{{me, you}, {me}, {me}}, 20, -1, ""},
		"below one of nobody":         {[][]state.StoreID{{me}, nil, {me}}, 20, -1, "[0 10)"},
		"below one of another":        {[][]state.StoreID{{me}, {you}, {me}, {me}}, 30, -1, "[0 10)[10 20)"},
		"not covered":                 {[][]state.StoreID{{me}, {you}, {me}}, 0, -1, ""},
		"not covered above, own":      {[][]state.StoreID{{me}, {you}, {me}}, 10, -1, "[0 10)"},
		"below an orphaned one":       {[][]state.StoreID{{me}, {you}, {me}}, 10, 1, "[0 10)"},
		"an orphaned one is kept":     {[][]state.StoreID{{you}, {me}, {me}}, 20, 0, ""},
		"what nobody has any more":    {[][]state.StoreID{nil, nil, {me}}, 20, -1, ""},
		"the open one is not covered": {[][]state.StoreID{{me}}, 0, -1, ""},
	} {
		m := &state.Partition{}
		for i, stores := range test.stores {
			r := state.Range{Start: uint64(10 * i), End: uint64(10*i + 10), Status: sealed, Stores: stores}
			switch i {
			case test.odd:
				r.Status = orphaned
			case len(test.stores) - 1:
				r.Status = open
			}
			m.Ranges = append(m.Ranges, r)
		}
		if test.covered > 0 {
			m.Catalog = m.Catalog.Add(catalog.Segment{Start: 0, End: test.covered})
		}
		got := ""
		for _, e := range strikes(m, me) {
			got += fmt.Sprintf("[%d %d)", e.From, e.To)
		}
		if got != test.want {
			t.Errorf("%s: %s are struck, want %s", name, got, test.want)
		}
	}
}
