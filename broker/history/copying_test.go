package history

import (
	"testing"

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
