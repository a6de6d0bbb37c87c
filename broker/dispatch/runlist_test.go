package dispatch

import (
	"testing"

	"pgregory.net/rapid"
)

// checkRuns asserts what the list promises about itself.
func checkRuns(t rapid.TB, s *Subscription) {
	t.Helper()
	var count [kinds]int
	var msgs [kinds]uint64
	var last *run
	for i := range s.runs.nodes {
		n := &s.runs.nodes[i]
		if len(n.runs) == 0 || len(n.runs) > nodeMax || n.end != n.runs[len(n.runs)-1].end {
			t.Fatalf("node %d is broken: %+v", i, n)
		}
		for j := range n.runs {
			r := &n.runs[j]
			if r.start >= r.end || r.start < s.prefix || last != nil && last.end > r.start {
				t.Fatalf("run %+v after %+v, prefix %d", r, last, s.prefix)
			}
			if last != nil && joins(last, r) {
				t.Fatalf("runs %+v and %+v are not joined", last, r)
			}
			if n.flags&r.flags&(dirty|sent) != r.flags&(dirty|sent) {
				t.Fatalf("node misses the dirt of %+v", r)
			}
			for k := range timers {
				if at := r.time(k); at < n.soon[k] || at < s.runs.soon[k] {
					t.Fatalf("time of %+v is below the bounds", r)
				}
			}
			count[r.kind]++
			msgs[r.kind] += r.end - r.start
			last = r
		}
	}
	if count != s.runs.count || msgs != s.msgs {
		t.Fatalf("counts %v %v, want %v %v", s.runs.count, s.msgs, count, msgs)
	}
}

// TestRunlistAgainstMap paints stretches of random fate at random places and
// compares with one record per offset, over enough runs to split and join
// nodes.
func TestRunlistAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const width = 900
		s, err := New(Config{}, Cursor{})
		if err != nil {
			t.Fatal(err)
		}
		s.byID[1] = &member{} // recast and cover keep its books
		var want [width]run
		for i := range want {
			want[i].kind = fresh
		}
		paint := func(a, b uint64, to run) {
			s.paint(Range{a, b}, to, func(*run) bool { return true })
			for i := a; i < b; i++ {
				want[i] = to
			}
		}
		for range rapid.IntRange(1, 12).Draw(t, "strokes") {
			to := rapid.SampledFrom([]run{
				{kind: acked, flags: dirty}, {kind: waiting, at: 50, flags: sent}, {kind: waiting, at: 70}, {kind: hole}, {kind: held, consumer: 1, at: 90},
			}).Draw(t, "fate")
			a := rapid.Uint64Range(0, width-1).Draw(t, "from")
			b := min(a+rapid.Uint64Range(1, width).Draw(t, "length"), width)
			every := rapid.SampledFrom([]uint64{1, 2, 3, 7, width}).Draw(t, "every")
			if rapid.Bool().Draw(t, "wipe") {
				for off := a; off < b; {
					p := s.runs.find(off)
					r := s.runs.at(p)
					if r == nil || r.start >= b {
						break
					}
					from := max(off, r.start)
					off = min(r.end, b)
					s.cut(p, from, off)
					for i := from; i < off; i++ {
						want[i] = run{kind: fresh}
					}
				}
			} else if every == width {
				paint(a, b, to)
			} else {
				for off := a; off < b; off += every {
					paint(off, off+1, to)
				}
			}
			checkRuns(t, s)
			for i, w := range want {
				r := s.runs.at(s.runs.find(uint64(i)))
				if r == nil || r.start > uint64(i) {
					r = &run{kind: fresh}
				}
				if !same(r, &w) {
					t.Fatalf("offset %d is %+v, want %+v", i, *r, w)
				}
			}
			for k, kind := range []kind{waiting, held} {
				first, soonest := -1, int64(never)
				for i, w := range want {
					if w.kind == kind {
						soonest = min(soonest, w.at)
						if w.at <= 60+int64(k)*40 && first < 0 {
							first = i
						}
					}
				}
				if got := s.runs.earliest(timer(k)); got != soonest {
					t.Fatalf("earliest time %d is %d, want %d", k, got, soonest)
				}
				p, ok := s.runs.timed(timer(k), 0, 60+int64(k)*40)
				if ok != (first >= 0) || ok && s.runs.at(p).start != uint64(first) {
					t.Fatalf("first that is due: %v, want %d", ok, first)
				}
			}
		}
	})
}
