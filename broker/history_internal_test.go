package broker

import (
	"reflect"
	"slices"
	"testing"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
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
	var o outcome
	o.add(was, m)
	want := outcome{
		back: []dispatch.Range{{Start: 10, End: 20}, {Start: 50, End: 60}},
		none: []dispatch.Range{{Start: 40, End: 50}, {Start: 60, End: 100}, {Start: 10, End: 12}, {Start: 55, End: 56}},
		lost: []dispatch.Range{{Start: 20, End: 30}},
	}
	if !reflect.DeepEqual(o, want) {
		t.Errorf("got %+v, want %+v", o, want)
	}
}

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
