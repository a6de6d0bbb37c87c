package history

import (
	"reflect"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// What was stored again is found message by message, however it was batched.
func TestRepeatsAreFound(t *testing.T) {
	sent := sentIndex{session{7, 1}: {{sequence: 0, base: 100, count: 3}, {sequence: 3, base: 103, count: 4}, {sequence: 9, base: 110, count: 1}}}
	for name, test := range map[string]struct {
		data []byte
		want state.Offsets
	}{
		"nothing":       {nil, nil},
		"later ones":    {pageOf(t, 9, 10, 12), nil},
		"one":           {pageOf(t, 9, 4, 5), state.Offsets{{Start: 104, End: 105}}},
		"over batches":  {pageOf(t, 9, 2, 5), state.Offsets{{Start: 102, End: 105}}},
		"around a hole": {pageOf(t, 9, 6, 10), state.Offsets{{Start: 106, End: 107}, {Start: 110, End: 111}}},
	} {
		r := repeats{sent: sent}
		r.addAll(test.data)
		if got := r.offsets(); len(got)+len(test.want) > 0 && !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
