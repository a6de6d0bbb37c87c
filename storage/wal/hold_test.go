package wal

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
)

// stored is a batch as it was sent, and the offsets it got.
type stored struct {
	sent      batch.Batch
	base, end uint64
}

// store appends batches and waits for none of them to be acknowledged, but until they are durable.
func (r *rig) store(batches int) (all []stored) {
	r.t.Helper()
	from := sender{producer: 500, session: uint32(r.log.Next())}
	if _, _, err := r.log.OpenSession(from.producer, from.session, 0); err != nil {
		r.t.Fatal(err)
	}
	for n := range batches {
		b := from.batch(r.t, 1+n%4, 60+n%300)
		p, err := r.log.Append(bytes.Clone(b))
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, stored{b, p.Base, p.end})
	}
	eventually(r.t, func() bool { return r.log.Settled() == all[batches-1].end })
	return all
}

// next reads one batch and returns its end, 0 at the end of what is shown.
func next(t testing.TB, r *Reader) uint64 {
	t.Helper()
	v, err := r.Next(1 << 20)
	if errors.Is(err, ErrEnd) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	return v.End
}

// Where acknowledgements wait for the cold tier nothing above what it has is
// acknowledged or read, from memory or from files; it is settled and can be cut.
func TestHeldLogShowsWhatTheColdTierHas(t *testing.T) {
	for _, files := range []bool{false, true} {
		r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
		r.log.Hold(true, 0)
		all := r.store(60)
		end := all[len(all)-1].end
		if files {
			r.log.giveUp(func() bool { return true })
		}
		p, err := r.log.Append(bytes.Clone(all[3].sent)) // sent again
		if err != nil || !p.Duplicate {
			t.Fatal(p, err)
		}
		reader := r.log.Reader(0)
		if got := next(t, reader); got != 0 || r.log.Committed() != 0 {
			t.Fatalf("shown up to %d, read up to %d", r.log.Committed(), got)
		}
		if done, _ := p.Done(); done {
			t.Fatal("what is sent again is acknowledged before it was once")
		}
		s, err := r.log.Cut(t.Context(), 0, end, 1<<20)
		if err != nil || s.End == 0 {
			t.Fatalf("cut: %v", err)
		}
		b, err := r.log.Backlog(0)
		if err != nil || b.End != end {
			t.Fatalf("backlog %+v, %v; want the end %d", b, err, end)
		}
		woken := make(chan struct{}, 1)
		stop := r.log.Watch(woken)
		for _, upto := range []uint64{all[0].end, all[9].end, all[40].end, end} {
			r.log.Hold(true, upto)
			select {
			case <-woken:
			case <-time.After(10 * time.Second):
				t.Fatal("nobody is woken")
			}
			var got uint64
			for n := next(t, reader); n != 0; n = next(t, reader) {
				got = n
			}
			if got != upto || r.log.Committed() != upto {
				t.Fatalf("the cold tier has all below %d; shown is %d, read up to %d", upto, r.log.Committed(), got)
			}
			if done, err := p.Done(); done != (upto > all[3].base) || err != nil {
				t.Fatalf("below %d: done %v, %v", upto, done, err)
			}
		}
		stop()
		reader.Close()
		r.log.Hold(true, 5)
		if r.log.Committed() != end {
			t.Error("what was shown is hidden again")
		}
		r.close()
	}
}

// A level that is raised counts from then on: what was acknowledged stays so. One that
// is lowered lets go of what waits.
func TestHoldFromNowOn(t *testing.T) {
	r := newRig(t, nil)
	defer r.close()
	before := r.fill(10)
	r.log.Hold(true, 0)
	mid := r.log.Committed()
	if mid != before[len(before)-1].End() {
		t.Fatalf("shown up to %d", mid)
	}
	after := r.store(10)
	end := after[len(after)-1].end
	if r.log.Committed() != mid {
		t.Fatalf("shown up to %d, held at %d", r.log.Committed(), mid)
	}
	r.log.Hold(false, 0)
	if r.log.Committed() != end {
		t.Fatalf("let go, shown up to %d", r.log.Committed())
	}
}
