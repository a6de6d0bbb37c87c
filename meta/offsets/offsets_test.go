package offsets

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawOffsets(t *rapid.T, label string) Set {
	var o Set
	at := rapid.Uint64Range(0, 1<<40).Draw(t, label+" base")
	dense := rapid.Bool().Draw(t, label+" dense")
	for range rapid.IntRange(0, 1200).Draw(t, label+" ranges") {
		gap := uint64(1)
		if !dense {
			gap = rapid.Uint64Range(1, 5000).Draw(t, "gap")
		}
		end := at + gap + 1
		o = append(o, Range{at + gap, end})
		at = end
	}
	return o
}

func TestOffsetsSurviveEncoding(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := drawOffsets(rt, "set")
		got, err := decodeOffsets(o.encode(nil))
		if err != nil || !slices.Equal(got, o) {
			rt.Fatalf("%v became %v: %v", o, got, err)
		}
	})
}

func TestOffsetsUnionHoldsBoth(t *testing.T) {
	draw := rapid.Custom(func(t *rapid.T) Set {
		var o Set
		at := uint64(0)
		for range rapid.IntRange(0, 12).Draw(t, "ranges") {
			start := at + rapid.Uint64Range(1, 6).Draw(t, "gap")
			at = start + rapid.Uint64Range(1, 6).Draw(t, "length")
			o = append(o, Range{start, at})
		}
		return o
	})
	rapid.Check(t, func(rt *rapid.T) {
		a, b := draw.Draw(rt, "a"), draw.Draw(rt, "b")
		u := a.Union(b)
		if !u.Valid() {
			rt.Fatalf("union %v is out of order", u)
		}
		for n := range uint64(160) {
			if u.Contains(n) != (a.Contains(n) || b.Contains(n)) {
				rt.Fatalf("%v ∪ %v = %v is wrong at %d", a, b, u, n)
			}
		}
		prefix, above := u.Fold(3)
		for n := range uint64(160) {
			if (n < prefix || above.Contains(n)) != (n < 3 || u.Contains(n)) {
				rt.Fatalf("fold of %v at 3 = %d, %v is wrong at %d", u, prefix, above, n)
			}
		}
		if above.Contains(prefix) || len(above) > 0 && above[0].Start <= prefix {
			rt.Fatalf("fold left %d, %v", prefix, above)
		}
	})
}

func TestOffsetsTakeTheSmallerForm(t *testing.T) {
	var alternate, sparse, whole Set
	for i := range uint64(100_000) {
		alternate = append(alternate, Range{2 * i, 2*i + 1})
		sparse = append(sparse, Range{1000 * i, 1000*i + 1})
	}
	whole = Set{{0, 100_000}}
	for name, c := range map[string]struct {
		set  Set
		most int
	}{
		"every second offset is a bitmap": {alternate, 26_000},
		"every thousandth are ranges":     {sparse, 301_000},
		"one run is one range":            {whole, 6},
	} {
		t.Run(name, func(t *testing.T) {
			if n := len(c.set.encode(nil)); n > c.most {
				t.Fatalf("%d bytes, at most %d are needed", n, c.most)
			}
		})
	}
}

func TestBadOffsetSetsAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"no ranges in a group":           {0},
		"more ranges than bytes":         {200, 1, 0},
		"bitmap longer than the bytes":   {40<<1 | 1, 0, 1, 2},
		"empty range between two others": {3 << 1, 1, 1, 5, 0, 1, 0},
		"cut number":                     {1 << 1, 0x80},
		"end beyond every offset":        {1 << 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
		"ends wrap around":               {2 << 1, 5, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := decodeOffsets(b)
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("made %v, %v", o, err)
			}
		})
	}
}
