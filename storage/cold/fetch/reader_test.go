package fetch

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/danubemq/danube/protocol/batch"
)

// Whatever the sizes of batches and views are, a reader yields each byte once and in order.
func TestReadsAllFromAnywhere(t *testing.T) {
	for name, test := range map[string]struct{ segments, batches, size int }{
		"small segments":  {20, 3, 500},
		"one block":       {3, 100, 2000},
		"several blocks":  {3, 40, 40_000},
		"block after all": {2, 13, 300_000},
		"large batches":   {2, 4, 1_500_000},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.fill(test.segments, test.batches, test.size)
			for _, most := range []int{1, 100_000, 1 << 20} {
				for _, from := range []uint64{0, 1, w.next / 3, w.next / 2, w.next - 1} {
					r := w.part.Reader(from)
					w.readTo(r, w.next, most)
					_, err := r.Next(t.Context(), most)
					wantErr(t, err, ErrUncovered)
					r.Close()
				}
			}
		})
	}
}

// A sequential reader asks for no footer; one that begins in the middle of a large
// segment asks for it once, for all readers.
func TestRequestsOfAStart(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(2, 60, 100_000)
	r := w.part.Reader(0)
	defer r.Close()
	w.nextFrom(r)
	if got := w.bucket.asked(); len(got) != 1 || got[0].off != 0 || got[0].n != blockSize {
		t.Errorf("from the front: %v", got)
	}
	size := int64(len(w.bucket.objects["segment-1"]))
	for i, want := range []int{2, 1} {
		r := w.part.Reader(w.truth[100+10*i].Base() + 1)
		w.nextFrom(r)
		r.Close()
		got := w.bucket.asked()
		if len(got) != want {
			t.Errorf("start %d in the middle: %v", i, got)
		}
		if i == 0 && got[0].off+got[0].n != size {
			t.Errorf("the footer was looked for at %v", got[0])
		}
	}
}

// Marks take no offset and are never shown; nor is what lies outside of the piece.
func TestPassesOverWhatHoldsNoMessage(t *testing.T) {
	w := newWorld(t, Config{})
	early := w.batch(3, 100)
	start := w.next
	list := []batch.Batch{early}
	for range 5 {
		list = append(list, w.batch(2, 90_000), batch.AppendMark(nil, w.epoch, w.next, timeOf(w.next)))
	}
	end := w.next
	list = append(list, w.batch(2, 100))
	p := w.export("marked", list...)
	w.catalog.change(func() {
		w.catalog.pieces[0].Start, w.catalog.pieces[0].End = start, end
	})
	w.truth = w.truth[1 : len(w.truth)-1]
	r := w.part.Reader(start)
	defer r.Close()
	w.readTo(r, end, 1<<20)
	_, err := r.Next(t.Context(), 1)
	wantErr(t, err, ErrUncovered)
	if p.Start >= start || p.End <= end {
		t.Error("the object holds no more than the piece")
	}
}

// Cuts are small and hold other partitions' segments too: each piece is read where it
// lies, and not one after the other.
func TestReadsCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		const cuts = 200
		for i := range cuts {
			list := []batch.Batch{w.batch(3, 2000), w.batch(1, 9000)}
			data, p := w.sealed(fmt.Sprint("cut-", i), list...)
			w.truth = append(w.truth, list...)
			before := bytes.Repeat([]byte("other partitions' "), i%50)
			p.Position = int64(len(before))
			w.bucket.objects[p.Key] = append(append(before, data...), "more of them"...)
			w.catalog.pieces = append(w.catalog.pieces, p)
		}
		w.bucket.before = func(context.Context, request) error { <-time.After(20 * time.Millisecond); return nil }
		began := time.Now()
		r := w.part.Reader(0)
		defer r.Close()
		w.readTo(r, w.next, 1<<20)
		if took := time.Since(began); took > cuts*20*time.Millisecond/8 {
			t.Errorf("%d cuts took %v", cuts, took)
		}
		if n, size := sum(w.bucket.asked()); n != cuts || size > cuts*13_000 {
			t.Errorf("%d requests for %d bytes", n, size)
		}
		if got, err := w.part.OffsetAt(t.Context(), timeOf(402)); got != 403 || err != nil {
			t.Error(got, err)
		}
	})
}

// What a reader was told that nobody will want of it is not read ahead.
func TestUntilBoundsReadAhead(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(50, 4, 50_000)
	r := w.part.Reader(0)
	defer r.Close()
	r.Until(w.catalog.pieces[20].Start)
	w.readTo(r, w.catalog.pieces[20].Start, 1<<20)
	for _, q := range w.bucket.asked() {
		n := 0
		if _, err := fmt.Sscanf(q.key, "segment-%d", &n); err != nil || n >= 20 {
			t.Errorf("asked for %v", q)
		}
	}
	w.readTo(r, w.next, 1<<20)
}

func TestMetricsAreClean(t *testing.T) {
	reg := prometheus.NewRegistry()
	w := newWorld(t, Config{Metrics: reg})
	if _, err := Open(Config{Store: w.store, Metrics: reg}); err == nil {
		t.Error("registered twice")
	}
	w.fill(1, 3, 1000)
	r := w.part.Reader(0)
	defer r.Close()
	w.readTo(r, w.next, 1)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "danube_cold_read_bytes_total" && m.GetLabel()[0].GetValue() == "store" && m.GetCounter().GetValue() == float64(w.catalog.pieces[0].Bytes) {
				return
			}
		}
	}
	t.Errorf("the bytes were not counted: %v", families)
}
