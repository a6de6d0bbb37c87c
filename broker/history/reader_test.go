package history

import (
	"testing"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
)

// pageOf makes batches of one message each at offsets from..to-1 under an epoch.
func pageOf(t *testing.T, epoch, from, to uint64) []byte {
	t.Helper()
	var out []byte
	for at := from; at < to; at++ {
		var w batch.Builder
		w.Add(&batch.Message{Payload: []byte("a message"), PublishTime: 1})
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 7, Session: 1, Sequence: at})
		if err != nil {
			t.Fatal(err)
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: at, Epoch: epoch, AppendTime: 1})
		out = append(out, b...)
	}
	return out
}

// The value of an offset is the batch that carries the epoch its range gives it;
// whatever else a store sends does not exist (R19, R21).
func TestPageIsHeldAgainstItsRange(t *testing.T) {
	rg := &state.Range{Start: 10, End: 30, Epochs: []state.EpochStart{{Epoch: 3, Start: 10}, {Epoch: 5, Start: 20}}, Status: state.RangeSealed}
	join := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	flipped := pageOf(t, 3, 10, 14)
	flipped[len(flipped)-1] ^= 1
	for name, test := range map[string]struct {
		data []byte
		end  uint64 // 0: refused
	}{
		"as asked for":         {pageOf(t, 3, 12, 16), 16},
		"over two epochs":      {join(pageOf(t, 3, 12, 20), pageOf(t, 5, 20, 25)), 25},
		"empty":                {nil, 0},
		"of an earlier epoch":  {pageOf(t, 2, 12, 16), 0},
		"of a later epoch":     {pageOf(t, 5, 12, 16), 0},
		"of the epoch before":  {join(pageOf(t, 3, 12, 20), pageOf(t, 3, 20, 25)), 0},
		"beyond the range":     {join(pageOf(t, 3, 12, 20), pageOf(t, 5, 20, 31)), 0},
		"with a hole in front": {pageOf(t, 3, 13, 16), 0},
		"with a hole":          {join(pageOf(t, 3, 12, 14), pageOf(t, 3, 15, 17)), 0},
		"twice":                {join(pageOf(t, 3, 12, 14), pageOf(t, 3, 13, 15)), 0},
		"all in front":         {pageOf(t, 3, 10, 12), 0},
		"a flipped bit":        {flipped, 0},
		"cut short":            {pageOf(t, 3, 12, 16)[:200], 0},
	} {
		end, err := checkPage(test.data, &fetchArg{From: 12, To: 30}, rg)
		if test.end == 0 && err == nil || test.end != 0 && (err != nil || end != test.end) {
			t.Errorf("%s: end %d, %v, want %d", name, end, err, test.end)
		}
	}
}
