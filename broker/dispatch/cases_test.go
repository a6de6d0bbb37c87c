package dispatch

import (
	"slices"
	"testing"
	"time"
)

// rig drives a subscription as a shell would, over a log of n messages.
type rig struct {
	t   testing.TB
	s   *Subscription
	n   uint64
	now int64
}

func newRig(t testing.TB, cfg Config, c Cursor, n uint64) *rig {
	t.Helper()
	s, err := New(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, s: s, n: n, now: int64(time.Hour)}
}

func (r *rig) join(id ConsumerID, credit uint32) {
	r.t.Helper()
	if _, err := r.s.Join(Consumer{ID: id}, r.now); err != nil {
		r.t.Fatal(err)
	}
	if err := r.s.Grant(id, credit); err != nil {
		r.t.Fatal(err)
	}
}

// read delivers all that can be delivered now, in batches of up to 1,000.
func (r *rig) read() (ds []Delivery) {
	r.t.Helper()
	for {
		st := r.s.Next(r.now)
		if st.Reason != Ready || st.From >= r.n {
			return ds
		}
		before := len(ds)
		ds = r.s.Offer(st, Batch{Base: st.From, Count: uint32(min(1000, r.n-st.From))}, r.now, ds)
		if len(ds) == before {
			r.t.Fatalf("%+v led to no delivery", st)
		}
	}
}

func (r *rig) ack(id ConsumerID, rs ...Range) Settled {
	r.t.Helper()
	res, err := r.s.Ack(Settle{Consumer: id, Generation: r.s.Generation(), Ranges: rs})
	if err != nil {
		r.t.Fatal(err)
	}
	return res
}

func (r *rig) received(id ConsumerID, rs ...Range) {
	r.t.Helper()
	res, err := r.s.Received(Settle{Consumer: id, Generation: r.s.Generation(), Ranges: rs}, r.now)
	if err != nil || res.Stale > 0 {
		r.t.Fatal(res, err)
	}
}

// commit stores everything in c, at most limit entries at a time.
func (r *rig) commit(c *Cursor, limit int) {
	r.t.Helper()
	var d Delta
	for r.s.TakeDelta(&d, limit) {
		c.Generation, c.Prefix = d.Generation, d.Prefix
		c.Acked = append(c.Acked, d.Acked...)
		c.Redeliveries = append(slices.Clone(d.Redeliveries), c.Redeliveries...) // New lets the first count
		r.s.DeltaCommitted()
	}
}

func offsets(ds []Delivery) (all []uint64) {
	for _, d := range ds {
		for i := d.Start; i < d.End; i++ {
			all = append(all, i)
		}
	}
	return all
}

// A60: acknowledge every even offset of 20,000 and restart: the odd ones come
// back, all of them, and nothing else.
func TestA60OnlyOddOffsetsComeBack(t *testing.T) {
	cfg := Config{Policy: Shared, MaxUnacked: 20_000}
	r := newRig(t, cfg, Cursor{}, 20_000)
	r.join(1, 20_000)
	if got := len(offsets(r.read())); got != 20_000 {
		t.Fatalf("%d messages were delivered", got)
	}
	for i := uint64(0); i < 20_000; i += 2 {
		if res := r.ack(1, Range{i, i + 1}); res.Done != 1 {
			t.Fatalf("ack of %d: %+v", i, res)
		}
	}
	var stored Cursor
	r.commit(&stored, 3000)
	if len(stored.Acked) != 9_999 || stored.Prefix != 1 {
		t.Fatalf("prefix %d and %d ranges are stored", stored.Prefix, len(stored.Acked))
	}

	r = newRig(t, cfg, stored, 20_000)
	r.join(2, 50_000)
	got := offsets(r.read())
	if len(got) != 10_000 {
		t.Fatalf("%d messages came back", len(got))
	}
	for i, off := range got {
		if off != uint64(2*i+1) {
			t.Fatalf("message %d of the second run is %d", i, off)
		}
	}
	if e := r.s.Explain(r.now); e.InFlight != 10_000 || r.s.Lag(20_000) != 10_000 {
		t.Fatalf("in flight %d, lag %d", e.InFlight, r.s.Lag(20_000))
	}
}

// What is refused comes again, and is not taken for acknowledged (R18).
func TestRefusedComesAgain(t *testing.T) {
	r := newRig(t, Config{Policy: Shared}, Cursor{}, 10)
	r.join(1, 100)
	r.read()
	res, err := r.s.Nack(Settle{Consumer: 1, Generation: r.s.Generation(), Ranges: []Range{{3, 5}}}, time.Millisecond, r.now)
	if err != nil || res.Done != 2 {
		t.Fatal(res, err)
	}
	if lag := r.s.Lag(10); lag != 10 {
		t.Errorf("lag %d", lag)
	}
	r.now += int64(time.Second)
	r.s.Tick(r.now)
	if got := offsets(r.read()); !slices.Equal(got, []uint64{3, 4}) {
		t.Errorf("came again: %v", got)
	}
}

// A60: the cap warns at 80 % and then pauses delivery; it forgets nothing.
func TestA60LimitWarnsThenPauses(t *testing.T) {
	cfg := Config{Policy: Shared, MaxUnacked: 300_000}
	r := newRig(t, cfg, Cursor{}, 250_000)
	r.join(1, 210_000)
	r.read()
	for i := uint64(1); i < 200_000; i += 2 {
		r.ack(1, Range{i, i + 1})
		if e := r.s.Explain; i == 2*79_998+1 || i == 2*79_999+1 {
			if high := e(r.now).RangesHigh; high != (i == 2*79_999+1) {
				t.Fatalf("warning is %v at %d ranges", high, e(r.now).Ranges)
			}
		}
	}
	if err := r.s.Grant(1, 50_000); err != nil {
		t.Fatal(err)
	}
	if st := r.s.Next(r.now); st.Reason != Ranges {
		t.Fatalf("at the limit of ranges: %+v", st)
	}
	var stored Cursor
	r.commit(&stored, 0)
	if len(stored.Acked) != 100_000 {
		t.Fatalf("%d ranges are stored", len(stored.Acked))
	}
	if r.ack(1, Range{0, 1}); r.s.Next(r.now).Reason != Ready {
		t.Fatal("a gap closed and delivery does not go on")
	}

	// The successor is over the limit from the start and yet gets everything.
	r = newRig(t, cfg, stored, 250_000)
	r.join(2, 500_000)
	var left uint64
	for r.s.Lag(250_000) > 0 {
		ds := r.read()
		if len(ds) == 0 {
			t.Fatalf("stalled: %+v", r.s.Explain(r.now))
		}
		for _, d := range ds {
			left += r.ack(2, d.Range).Done
		}
	}
	if left != 150_000 {
		t.Fatalf("%d messages came back, want 150,000", left)
	}
}

// A61: the delivery count outlives consumers and brokers, so that a message
// which kills every consumer is given up after its third delivery; what was
// only prefetched behind it is not.
func TestA61CrashLoopReachesTheLimit(t *testing.T) {
	cfg := Config{MaxRedeliveries: 2, Poison: DeadLetter}
	var stored Cursor
	for life := 1; life <= 3; life++ {
		r := newRig(t, cfg, stored, 100)
		if p := r.s.Poisoned(nil); len(p) != 0 {
			t.Fatalf("poisoned before delivery %d: %+v", life, p)
		}
		r.join(ConsumerID(life), 100)
		if ds := r.read(); ds[0].Start != 0 || ds[0].Attempt != uint32(life) {
			t.Fatalf("delivery %d is %+v", life, ds[0])
		}
		r.received(ConsumerID(life), Range{0, 1})
		if err := r.s.Leave(ConsumerID(life), false, r.now); err != nil {
			t.Fatal(err)
		}
		stored = r.s.Cursor()
	}
	r := newRig(t, cfg, stored, 100)
	want := []Poisoned{{Range{0, 1}, 3, DeadLetter}}
	if p := r.s.Poisoned(nil); !slices.Equal(p, want) {
		t.Fatalf("poisoned: %+v, want %+v", p, want)
	}
	r.join(9, 100)
	if got := offsets(r.read()); len(got) != 99 || got[0] != 1 {
		t.Fatalf("after it come %v", got)
	}
}

// A61, second half: a message that waits in the client's queue for three times
// the ack timeout before the application asks has not timed out.
func TestA61PrefetchDoesNotTimeOut(t *testing.T) {
	r := newRig(t, Config{MaxRedeliveries: 1, Poison: DeadLetter}, Cursor{}, 100)
	r.join(1, 100)
	r.read()
	for range 3 {
		r.now += int64(31 * time.Second)
		r.s.Tick(r.now)
	}
	if e := r.s.Explain(r.now); e.InFlight != 100 || e.Waiting+e.Poisoned != 0 {
		t.Fatalf("prefetched messages timed out: %+v", e)
	}
	r.received(1, Range{0, 1})
	r.now += int64(31 * time.Second)
	if e := r.s.Explain(r.now); e.InFlight != 99 || e.Waiting != 1 {
		t.Fatalf("a received message did not time out: %+v", e)
	}
}

// A63: max in flight 5; deliver 5, ack 3, move the partition, let one of the
// rest expire: delivery goes on and never exceeds 5.
func TestA63WindowAfterMove(t *testing.T) {
	cfg := Config{Policy: Shared, MaxUnacked: 5}
	r := newRig(t, cfg, Cursor{}, 1000)
	r.join(1, 1000)
	if got := offsets(r.read()); len(got) != 5 {
		t.Fatalf("%d messages in a window of 5", len(got))
	}
	r.ack(1, Range{0, 2}, Range{3, 4})
	r.received(1, Range{2, 3})
	var stored Cursor
	r.commit(&stored, 0)

	r = newRig(t, cfg, stored, 1000)
	r.join(7, 1000)
	if got := offsets(r.read()); !slices.Equal(got, []uint64{2, 4, 5, 6, 7}) {
		t.Fatalf("the successor delivers %v", got)
	}
	r.received(7, Range{2, 3})
	r.now += int64(32 * time.Second)
	r.s.Tick(r.now)
	if e := r.s.Explain(r.now); e.InFlight != 4 || e.Waiting != 1 {
		t.Fatalf("one of five expired: %+v", e)
	}
	r.ack(7, Range{4, 8})
	for r.s.Lag(1000) > 0 {
		r.now += int64(time.Second)
		ds := r.read()
		if e := r.s.Explain(r.now); e.InFlight > 5 || len(ds) == 0 {
			t.Fatalf("stuck or beyond the window: %+v", e)
		}
		for _, d := range ds {
			r.ack(7, d.Range)
		}
	}
}

// A65: C1's ack comes after C2 has got the message: it is stale, and the
// message is still C2's. After a reset no earlier delivery can be settled.
func TestA65LateAckIsStale(t *testing.T) {
	r := newRig(t, Config{Policy: Shared, AckTimeout: time.Second}, Cursor{}, 1)
	r.join(1, 1)
	r.read()
	r.received(1, Range{0, 1})
	r.join(2, 10)
	r.now += int64(1100 * time.Millisecond)
	r.s.Tick(r.now)
	r.now += int64(time.Second)
	if ds := r.read(); len(ds) != 1 || ds[0].Consumer != 2 || ds[0].Attempt != 2 {
		t.Fatalf("redelivery: %+v", ds)
	}
	late := Range{0, 1}
	if res := r.ack(1, late); res != (Settled{Stale: 1}) {
		t.Fatalf("late ack: %+v", res)
	}
	if res, err := r.s.Nack(Settle{Consumer: 1, Ranges: []Range{late}}, 0, r.now); err != nil || res != (Settled{Stale: 1}) {
		t.Fatalf("late nack: %+v %v", res, err)
	}
	if r.s.Lag(1) != 1 {
		t.Fatal("the late ack settled it")
	}
	if res := r.ack(2, late); res != (Settled{Done: 1}) {
		t.Fatalf("ack of the holder: %+v", res)
	}
	if res := r.ack(2, late); res != (Settled{Again: 1}) {
		t.Fatalf("the same again: %+v", res)
	}
	if err := r.s.Reset(0); err != nil {
		t.Fatal(err)
	}
	r.read()
	if _, err := r.s.Ack(Settle{Consumer: 2, Ranges: []Range{late}}); err == nil || r.s.Lag(1) != 1 {
		t.Fatalf("an ack from before the reset: %v, lag %d", err, r.s.Lag(1))
	}
}

// The road of a message, at any size of window, costs no memory.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	r := newRig(t, Config{Policy: Shared}, Cursor{}, 1<<62)
	r.join(1, 1<<30)
	r.join(2, 1<<30)
	var ds []Delivery
	var d Delta
	rs := make([]Range, 1)
	round := func() {
		r.now += 1e6
		for range 20 {
			st := r.s.Next(r.now)
			ds = r.s.Offer(st, Batch{Base: st.From, Count: 50}, r.now, ds[:0])
			for _, x := range ds {
				rs[0] = x.Range
				a := Settle{Consumer: x.Consumer, Ranges: rs}
				if _, err := r.s.Received(a, r.now); err != nil {
					t.Fatal(err)
				}
				for off := x.Start; off < x.End; off += 2 {
					rs[0] = Range{off, off + 1}
					if _, err := r.s.Ack(a); err != nil {
						t.Fatal(err)
					}
				}
				rs[0] = x.Range
				if _, err := r.s.Nack(a, 0, r.now); err != nil {
					t.Fatal(err)
				}
			}
		}
		for {
			st := r.s.Next(r.now)
			if !st.Redelivery {
				break
			}
			ds = r.s.Offer(st, Batch{Base: st.From, Count: 50}, r.now, ds[:0])
			for _, x := range ds {
				rs[0] = x.Range
				if res, err := r.s.Ack(Settle{Consumer: x.Consumer, Ranges: rs}); err != nil || res.Done == 0 {
					t.Fatal(res, err)
				}
			}
		}
		if !r.s.TakeDelta(&d, 0) {
			t.Fatal("nothing changed")
		}
		r.s.DeltaCommitted()
	}
	for range 10 {
		round()
	}
	if r.s.prefix < 1000 || r.s.prefix != r.s.firstFresh() {
		t.Fatalf("a round does not end with everything acknowledged, but at %d: %+v", r.s.prefix, r.s.Explain(r.now))
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
}

// A consumer that acknowledges in order costs one run, whatever the offsets.
func TestInOrderIsOneRun(t *testing.T) {
	r := newRig(t, Config{MaxUnacked: 1000}, Cursor{}, 100_000)
	r.join(1, 100_000)
	for r.s.Lag(100_000) > 0 {
		ds := r.read()
		for _, d := range ds {
			for off := d.Start; off < d.End; off++ {
				r.ack(1, Range{off, off + 1})
				if len(r.s.runs.nodes) > 1 || len(r.s.runs.nodes) == 1 && len(r.s.runs.nodes[0].runs) > 1 {
					t.Fatalf("more than a run at %d", off)
				}
			}
		}
	}
}

// A step that was planned before a reset delivers nothing after it.
func TestOfferAfterResetIsVoid(t *testing.T) {
	r := newRig(t, Config{}, Cursor{}, 100)
	r.join(1, 100)
	st := r.s.Next(r.now)
	if err := r.s.Reset(50); err != nil {
		t.Fatal(err)
	}
	if ds := r.s.Offer(st, Batch{Base: 0, Count: 100}, r.now, nil); len(ds) != 0 {
		t.Fatalf("delivered %+v", ds)
	}
}

// A first delivery that is out is no part of the cursor, received or not.
func TestFirstDeliveryIsNotStored(t *testing.T) {
	r := newRig(t, Config{}, Cursor{}, 10)
	r.join(1, 10)
	r.read()
	r.received(1, Range{0, 3})
	if c := r.s.Cursor(); len(c.Redeliveries) != 0 {
		t.Fatalf("cursor: %+v", c)
	}
}

// A successor with a smaller window redelivers within it.
func TestWindowBoundsRedeliveries(t *testing.T) {
	r := newRig(t, Config{Policy: Shared, MaxUnacked: 3}, Cursor{Redeliveries: []Redelivery{{Range{0, 10}, 2, 0}}}, 100)
	r.join(1, 100)
	if got := offsets(r.read()); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Fatalf("delivered %v", got)
	}
	if st := r.s.Next(r.now); st.Reason != Window {
		t.Fatalf("next is %+v", st)
	}
}

func TestBackoff(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want []time.Duration // after delivery 1, 2, ...
	}{
		"exponential, capped": {Config{BackoffMax: 5 * time.Second}, []time.Duration{1e9, 2e9, 4e9, 5e9, 5e9}},
		"fixed":               {Config{BackoffBase: 3 * time.Second, FixedBackoff: true}, []time.Duration{3e9, 3e9, 3e9}},
	} {
		cfg, err := c.cfg.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			if got := cfg.backoff(uint16(i + 1)); got != want {
				t.Errorf("%s: after delivery %d: %v, want %v", name, i+1, got, want)
			}
		}
	}
}

// What fills a hole is marked while the one that passed the hole is there. After
// a restart nobody remembers it, and it comes in its place: what a consumer that
// joins is given for the first time grows, or is marked (R15, R18).
func TestFilledHoleAfterARestart(t *testing.T) {
	cfg := Config{Policy: Exclusive}
	hole := Range{10, 20}
	r := newRig(t, cfg, Cursor{}, 40)
	r.s.Hole(hole)
	r.join(1, 100)
	if got := len(offsets(r.read())); got != 30 {
		t.Fatalf("%d messages were delivered past the hole", got)
	}
	r.ack(1, Range{0, 10}, Range{20, 30})
	var stored Cursor
	r.commit(&stored, 0)
	for name, back := range map[string]struct {
		again bool // it is a hole still when the subscription is made anew
		want  []Delivery
	}{
		"filled before": {false, []Delivery{{Range: Range{10, 20}}, {Range: Range{30, 40}}}},
		"filled behind": {true, []Delivery{{Range: Range{30, 40}}, {Range: Range{10, 20}, Late: true}}},
	} {
		r := newRig(t, cfg, stored, 40)
		if back.again {
			r.s.Hole(hole)
		}
		r.join(2, 100)
		got := r.read()
		if back.again {
			r.s.Fill(hole)
			got = append(got, r.read()...)
		}
		for i := range back.want {
			back.want[i].Consumer, back.want[i].Attempt = 2, 1
		}
		if !slices.Equal(got, back.want) {
			t.Errorf("%s: delivered %+v, want %+v", name, got, back.want)
		}
	}
}
