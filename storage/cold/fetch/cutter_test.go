package fetch

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

// small is a batch of count messages, with a CRC that fits.
func small(t testing.TB, base, epoch uint64, count int) batch.Batch {
	t.Helper()
	var w batch.Builder
	for i := range count {
		w.Add(&batch.Message{Payload: fmt.Appendf(nil, "message %d of %d", base+uint64(i), epoch)})
	}
	b, err := w.AppendTo(nil, batch.None, batch.Identity{Sequence: base})
	if err != nil {
		t.Fatal(err)
	}
	batch.Batch(b).Stamp(batch.Stamp{Base: base, Epoch: epoch})
	return b
}

func joined(list ...batch.Batch) (all []byte) {
	for _, b := range list {
		all = append(all, b...)
	}
	return all
}

// twoEpochs is a piece of offsets 10 to 30: epoch 5 gave those below 20, epoch 6 the rest.
func twoEpochs() *Piece {
	return &Piece{Start: 10, End: 30, Epochs: []segment.EpochStart{{Epoch: 5, Start: 8}, {Epoch: 6, Start: 20}}}
}

// What is handed out, passed over or refused, by what stands there.
func TestCutter(t *testing.T) {
	mark := batch.AppendMark(nil, 5, 12, 0)
	for name, test := range map[string]struct {
		next  uint64
		exact bool
		data  []byte
		most  int
		want  []uint64 // base and end of what is handed out
		used  int      // batches that are done with; -1: what stands there is wrong
	}{
		"one":                     {10, true, joined(small(t, 10, 5, 3)), 1, []uint64{10, 13}, 1},
		"many":                    {10, true, joined(small(t, 10, 5, 3), small(t, 13, 5, 1), small(t, 14, 5, 6)), 1 << 20, []uint64{10, 20}, 3},
		"over an epoch":           {10, true, joined(small(t, 10, 5, 10), small(t, 20, 6, 10)), 1 << 20, []uint64{10, 30}, 2},
		"no more than asked for":  {10, true, joined(small(t, 10, 5, 3), small(t, 13, 5, 1)), 130, []uint64{10, 13}, 1},
		"from inside a batch":     {11, false, joined(small(t, 10, 5, 3)), 1, []uint64{10, 13}, 1},
		"behind others":           {13, false, joined(small(t, 10, 5, 3), small(t, 13, 5, 1)), 1, []uint64{13, 14}, 2},
		"behind a mark":           {12, true, joined(mark, small(t, 12, 5, 3)), 1, []uint64{12, 15}, 2},
		"up to a mark":            {10, true, joined(small(t, 10, 5, 2), mark, small(t, 12, 5, 3)), 1 << 20, []uint64{10, 12}, 1},
		"another epoch's beside":  {10, true, joined(small(t, 10, 4, 3), small(t, 10, 5, 3)), 1, []uint64{10, 13}, 2},
		"a later epoch's too":     {10, true, joined(small(t, 10, 6, 3), small(t, 10, 5, 3)), 1, []uint64{10, 13}, 2},
		"another epoch's alone":   {10, true, joined(small(t, 10, 4, 3), small(t, 13, 5, 3)), 1, nil, -1},
		"over the end of its own": {18, true, joined(small(t, 18, 5, 3), small(t, 21, 6, 3)), 1, nil, -1},
		"a hole":                  {10, true, joined(small(t, 11, 5, 3)), 1, nil, -1},
		"a hole further on":       {10, true, joined(small(t, 10, 5, 1), small(t, 12, 5, 3)), 1 << 20, []uint64{10, 11}, 1},
		"an overlap":              {12, true, joined(small(t, 11, 5, 3)), 1, nil, -1},
		"below the piece":         {10, true, joined(small(t, 8, 5, 4), small(t, 10, 5, 1)), 1, []uint64{10, 11}, 2},
		"beyond the piece":        {28, true, joined(small(t, 28, 6, 4)), 1, nil, 1},
		"nothing":                 {28, true, make([]byte, 100), 1, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			c := cutter{piece: twoEpochs(), next: test.next, exact: test.exact}
			var got taken
			used := 0
			for data := test.data; len(data) > 0 && got.to == got.from && got.err == nil; data = data[got.used:] {
				got = c.take(data, test.most)
				used += got.used
				if got.used == 0 && got.err == nil {
					t.Fatalf("stands still: %+v", got)
				}
			}
			switch {
			case test.used < 0:
				if got.err == nil {
					t.Fatalf("took %+v", got)
				}
				return
			case got.err != nil:
				t.Fatal(got.err)
			}
			want := 0
			for range test.used {
				want += batch.Batch(test.data[want:]).Len()
			}
			if used != want {
				t.Errorf("used %d bytes, want %d", used, want)
			}
			if len(test.want) == 0 && got.to != got.from || len(test.want) > 0 && (got.to == got.from || got.base != test.want[0] || got.end != test.want[1]) {
				t.Errorf("handed out %+v", got)
			}
			if got.to > got.from && (c.next != got.end || !c.exact) {
				t.Errorf("the cutter is at %d", c.next)
			}
		})
	}
}

// Wherever the bytes end, what is whole is handed out, and the rest is asked for by
// its length.
func TestCutterAtEveryTruncation(t *testing.T) {
	list := []batch.Batch{small(t, 10, 5, 3), small(t, 13, 5, 1), small(t, 14, 5, 6)}
	data := joined(list...)
	for n := range len(data) + 1 {
		c := cutter{piece: twoEpochs(), next: 10, exact: true}
		at, i := 0, 0
		for i < len(list) && at+len(list[i]) <= n {
			at += len(list[i])
			i++
		}
		got := c.take(data[:n:n], 1<<20)
		if got.err != nil || got.used != at || i > 0 && (got.from != 0 || got.to != at || got.end != list[i-1].End()) {
			t.Fatalf("of %d bytes: %+v", n, got)
		}
		if i == len(list) || at == n {
			continue
		}
		want := batch.HeaderSize
		if n-at >= batch.HeaderSize {
			want = len(list[i])
		}
		if got = c.take(data[at:n:n], 1<<20); got.need != want || got.used != 0 || got.err != nil {
			t.Fatalf("of %d bytes, behind %d: %+v, want %d", n, at, got, want)
		}
	}
}

// No flipped bit is ever handed out.
func TestCutterAtEveryBit(t *testing.T) {
	first, second := small(t, 10, 5, 3), small(t, 13, 5, 2)
	data := joined(first, second)
	for bit := range 8 * len(data) {
		hurt := bytes.Clone(data)
		hurt[bit/8] ^= 1 << (bit % 8)
		c := cutter{piece: twoEpochs(), next: 10, exact: true}
		got := c.take(hurt, 1<<20)
		if got.to > got.from && !bytes.Equal(hurt[got.from:got.to], data[got.from:got.to]) {
			t.Fatalf("bit %d was handed out", bit)
		}
		inFirst := bit/8 < len(first)
		if inFirst && got.err == nil && got.need == 0 || !inFirst && (got.end != 13 || got.used != len(first)) {
			t.Fatalf("bit %d: %+v", bit, got)
		}
	}
}

// FuzzCutter never panics, never goes back, and hands out nothing that its piece
// does not have at that offset.
func FuzzCutter(f *testing.F) {
	f.Add(joined(small(f, 10, 5, 3), small(f, 13, 5, 1)), uint16(0))
	f.Add(joined(small(f, 10, 4, 3), batch.AppendMark(nil, 5, 10, 0), small(f, 10, 5, 3)), uint16(300))
	f.Fuzz(func(t *testing.T, data []byte, most uint16) {
		c := cutter{piece: twoEpochs(), next: 10, exact: true}
		for {
			from := c.next
			got := c.take(data, int(most))
			if got.to > got.from {
				end := from
				for rest := data[got.from:got.to]; len(rest) > 0; {
					b, err := batch.Check(rest, limits)
					if err != nil || b.Base() != end || b.End() <= end {
						t.Fatalf("handed out offsets %d to %d at %d: %v", b.Base(), b.End(), end, err)
					}
					end, rest = b.End(), rest[len(b):]
				}
				if end != got.end || end != c.next {
					t.Fatalf("ends at %d, says %d", end, got.end)
				}
			}
			if got.err != nil || got.need > 0 || got.used <= 0 || got.used >= len(data) {
				return
			}
			data = data[got.used:]
		}
	})
}
