package dispatch

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func (w *world) drawRange(t *rapid.T) Range {
	a := rapid.Uint64Range(0, uint64(len(w.msgs))-1).Draw(t, "start")
	b := a + rapid.SampledFrom([]uint64{1, 1, 3, 20}).Draw(t, "length")
	return Range{a, min(b, uint64(len(w.msgs)))}
}

// drawSettle picks a consumer and ranges, mostly near the prefix or scattered.
func (w *world) drawSettle(t *rapid.T) Settle {
	a := Settle{Generation: w.gen, Consumer: rapid.SampledFrom(w.ids).Draw(t, "by")}
	if rapid.Bool().Draw(t, "scattered") {
		first := rapid.Uint64Range(0, 2).Draw(t, "first")
		step := rapid.Uint64Range(2, 4).Draw(t, "every")
		for i := w.prefix() + first; i < uint64(len(w.msgs)); i += step {
			a.Ranges = append(a.Ranges, Range{i, i + 1})
		}
		return a
	}
	for range rapid.IntRange(1, 3).Draw(t, "ranges") {
		a.Ranges = append(a.Ranges, w.drawRange(t))
	}
	return a
}

func (w *world) joinable(t *rapid.T) {
	if len(w.ids) >= 4 {
		return
	}
	w.nextID++
	c := Consumer{ID: w.nextID, Name: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "name"),
		NoReceipts: rapid.Bool().Draw(t, "lazy")}
	old, err := w.s.Join(c, w.now)
	if err != nil {
		if w.cfg.Policy != Exclusive || len(w.ids) == 0 {
			t.Fatal(err)
		}
		return
	}
	if old != 0 {
		w.leave(old, false)
	}
	w.ids = append(w.ids, c.ID)
	w.lazy[c.ID], w.credit[c.ID] = c.NoReceipts, 0
	if w.cfg.Policy == Exclusive && len(w.ids) != 1 {
		t.Fatal("two consumers on an exclusive subscription")
	}
}

func (w *world) ack(t *rapid.T) {
	if len(w.ids) == 0 {
		return
	}
	a := w.drawSettle(t)
	got, err := w.s.Ack(a)
	want := w.settle(a.Ranges, func(m *fate) bool {
		ok := (m.kind == held || m.kind == waiting) && m.consumer == a.Consumer
		if ok {
			*m = fate{kind: acked}
		}
		return ok
	})
	if err != nil || got != want {
		t.Fatalf("ack %+v: %+v %v, want %+v", a, got, err, want)
	}
}

func (w *world) ackUpTo(t *rapid.T) {
	if len(w.ids) == 0 {
		return
	}
	id, to := w.ids[0], w.drawRange(t).Start
	got, err := w.s.AckUpTo(id, w.gen, to)
	if w.cfg.Policy != Exclusive {
		if err == nil {
			t.Fatal("cumulative ack on a shared subscription is accepted")
		}
		return
	}
	want := w.settle([]Range{{0, to + 1}}, func(m *fate) bool {
		ok := (m.kind == held || m.kind == waiting) && m.consumer == id
		if ok {
			*m = fate{kind: acked}
		}
		return ok
	})
	if err != nil || got.Done != want.Done {
		t.Fatalf("ack up to %d: %+v %v, want %+v", to, got, err, want)
	}
}

func (w *world) nack(t *rapid.T) {
	if len(w.ids) == 0 {
		return
	}
	a := w.drawSettle(t)
	delay := rapid.SampledFrom([]int64{-1, 0, 50, 5000}).Draw(t, "delay")
	got, err := w.s.Nack(a, time.Duration(delay), w.now)
	want := w.settle(a.Ranges, func(m *fate) bool {
		ok := m.kind == held && m.consumer == a.Consumer
		if ok {
			d := delay
			if d < 0 {
				d = w.backoff(m.count)
			}
			*m = w.failed(fate{kind: waiting, consumer: m.consumer, count: m.count, at: w.now + d, late: m.late})
		}
		return ok
	})
	if err != nil || got != want {
		t.Fatalf("nack %+v: %+v %v, want %+v", a, got, err, want)
	}
}

func (w *world) received(t *rapid.T) {
	if len(w.ids) == 0 {
		return
	}
	a := w.drawSettle(t)
	got, err := w.s.Received(a, w.now)
	want := w.settle(a.Ranges, func(m *fate) bool {
		ok := m.kind == held && m.consumer == a.Consumer
		if ok && !m.received {
			m.received, m.at = true, w.deadlineOf(w.now)
		}
		return ok
	})
	if err != nil || got != want {
		t.Fatalf("received %+v: %+v %v, want %+v", a, got, err, want)
	}
}

func (w *world) take(t *rapid.T) {
	var d Delta
	limit := rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "limit")
	if !w.s.TakeDelta(&d, limit) {
		return
	}
	if w.flying != nil {
		t.Fatal("two deltas are out")
	}
	if limit > 0 && len(d.Acked)+len(d.Redeliveries) > limit {
		t.Fatalf("delta has more than %d entries", limit)
	}
	for _, r := range append([]Range{{0, d.Prefix}}, d.Acked...) {
		for i := r.Start; i < r.End; i++ {
			if w.msgs[i].kind != acked {
				t.Fatalf("delta %+v acknowledges %d, which is %+v", d, i, w.msgs[i])
			}
		}
	}
	w.flying = &d
}

func (w *world) commit(t *rapid.T) {
	if w.flying == nil {
		return
	}
	d := w.flying
	w.flying = nil
	switch rapid.SampledFrom([]string{"stored", "stored", "lost", "unknown"}).Draw(t, "outcome") {
	case "stored":
		if d.Generation >= w.stored.generation {
			w.stored.apply(t, d)
		}
		w.s.DeltaCommitted()
	case "unknown":
		if d.Generation >= w.stored.generation {
			w.stored.apply(t, d)
		}
		w.s.DeltaFailed()
	case "lost":
		w.s.DeltaFailed()
	}
}

// flush commits everything and compares the stored cursor with the model.
func (w *world) flush(t *rapid.T) {
	w.commit(t)
	for {
		var d Delta
		if !w.s.TakeDelta(&d, 5) {
			break
		}
		w.stored.apply(t, &d)
		w.s.DeltaCommitted()
	}
	for i, m := range w.msgs {
		want := durableFate{acked: m.kind == acked}
		if !want.acked && m.count > 0 && m.kind != fresh && (m.kind != held || m.count > 1) {
			want.next = uint32(m.count) + 1
			if m.kind == held && !m.received {
				want.next--
				want.due = w.stored.msgs[i].due // long past
			}
			if m.kind == waiting || m.kind == hole {
				want.due = m.at
			}
		}
		got := w.stored.msgs[i]
		if got.acked {
			got = durableFate{acked: true}
		}
		if got != want {
			t.Fatalf("stored cursor at %d: %+v, want %+v (%+v)", i, got, want, m)
		}
	}
}

func (w *world) reset(t *rapid.T) {
	to := w.drawRange(t).Start
	if err := w.s.Reset(to); err != nil {
		t.Fatal(err)
	}
	old := w.gen
	w.gen, w.high = w.gen+1, to
	clear(w.top)
	for i := range w.msgs {
		w.msgs[i] = fate{kind: fresh}
		if uint64(i) < to {
			w.msgs[i].kind = acked
		}
	}
	for _, h := range w.holes {
		if h.End > to {
			w.hole(Range{max(h.Start, to), h.End})
		}
	}
	for _, id := range w.ids {
		if _, err := w.s.Ack(Settle{Consumer: id, Generation: old, Ranges: []Range{{0, 5}}}); err == nil {
			t.Fatal("an ack from before the reset is accepted")
		}
	}
}

func (w *world) bury(t *rapid.T) {
	for _, p := range w.s.Poisoned(nil) {
		n := w.s.Bury(p.Range)
		if n != p.End-p.Start {
			t.Fatalf("bury %+v: %d", p, n)
		}
		for i := p.Start; i < p.End; i++ {
			if m := &w.msgs[i]; m.kind != poisoned || uint32(m.count) != p.Deliveries {
				t.Fatalf("poisoned %+v: message %d is %+v", p, i, *m)
			}
			w.msgs[i] = fate{kind: acked}
		}
	}
	if n := w.total(poisoned); n != 0 {
		t.Fatalf("%d poisoned messages were not listed", n)
	}
}

// drain ends every world well: whatever happened, each message that is there
// is delivered and acknowledged in the end.
func (w *world) drain(t *rapid.T) {
	for _, h := range w.holes {
		w.fill(h)
	}
	w.holes = nil
	for len(w.ids) > 0 {
		id := w.ids[0]
		if err := w.s.Leave(id, true, w.now); err != nil {
			t.Fatal(err)
		}
		w.leave(id, true)
	}
	w.bury(t)
	w.joinable(t)
	id := w.ids[0]
	for range 4 * len(w.msgs) {
		if w.prefix() == uint64(len(w.msgs)) {
			return
		}
		if err := w.s.Grant(id, 50); err != nil {
			t.Fatal(err)
		}
		w.credit[id] += 50
		w.step(t)
		a := Settle{Consumer: id, Generation: w.gen, Ranges: []Range{{0, uint64(len(w.msgs))}}}
		if _, err := w.s.Ack(a); err != nil {
			t.Fatal(err)
		}
		w.settle(a.Ranges, func(m *fate) bool {
			if m.kind == held {
				*m = fate{kind: acked}
			}
			return true
		})
		if st := w.s.Next(w.now); st.Reason != Ready || st.From >= uint64(len(w.msgs)) {
			if st.Until <= w.now {
				t.Fatalf("told to wait until %d at %d", st.Until, w.now)
			}
			w.now = st.Until
		}
	}
	t.Fatalf("never drained: %+v", w.s.Explain(w.now))
}

func TestAgainstModel(t *testing.T) {
	for range 2 {
		rapid.Check(t, actInWorld)
	}
}

func actInWorld(t *rapid.T) {
	w := newWorld(t)
	w.joinable(t)
	t.Repeat(map[string]func(*rapid.T){
		"":     w.check,
		"join": w.joinable,
		"grant": func(t *rapid.T) {
			if len(w.ids) > 0 {
				id := rapid.SampledFrom(w.ids).Draw(t, "to")
				n := rapid.Uint32Range(1, 200).Draw(t, "credit")
				if err := w.s.Grant(id, n); err != nil {
					t.Fatal(err)
				}
				w.credit[id] += uint64(n)
			}
		},
		"leave": func(t *rapid.T) {
			if len(w.ids) > 0 {
				id, clean := rapid.SampledFrom(w.ids).Draw(t, "who"), rapid.Bool().Draw(t, "clean")
				if err := w.s.Leave(id, clean, w.now); err != nil {
					t.Fatal(err)
				}
				w.leave(id, clean)
			}
		},
		"pause": func(t *rapid.T) {
			if len(w.ids) > 0 {
				id := rapid.SampledFrom(w.ids).Draw(t, "whom")
				w.paused[id] = rapid.Bool().Draw(t, "paused")
				w.s.Pause(id, w.paused[id])
			}
		},
		"step":     w.step,
		"step2":    w.step,
		"step3":    w.step,
		"ack":      w.ack,
		"ack2":     w.ack,
		"upTo":     w.ackUpTo,
		"nack":     w.nack,
		"received": w.received,
		"time":     func(t *rapid.T) { w.now += rapid.Int64Range(1, 700).Draw(t, "ns") },
		"take":     w.take,
		"commit":   w.commit,
		"flush":    w.flush,
		"restart":  w.open,
		"bury":     w.bury,
		"reset": func(t *rapid.T) {
			if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
				w.reset(t)
			}
		},
		"gap": func(t *rapid.T) {
			r := w.drawRange(t)
			w.s.Gap(r)
			w.settle([]Range{r}, func(m *fate) bool { *m = fate{kind: acked}; return true })
		},
		"hole": func(t *rapid.T) {
			r := w.drawRange(t)
			w.holes = append(w.holes, r)
			w.hole(r)
		},
		"fill": func(t *rapid.T) {
			if len(w.holes) > 0 {
				w.fill(w.holes[0])
				w.holes = w.holes[1:]
			}
		},
	})
	w.check(t)
	w.drain(t)
}

func (f fate) String() string {
	return fmt.Sprintf("{%d by %d count %d at %d}", f.kind, f.consumer, f.count, f.at)
}
