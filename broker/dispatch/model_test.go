package dispatch

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// fresh is the model's kind for an offset that nobody was given.
const fresh = kinds

// fate is one message of the model.
type fate struct {
	kind     kind
	consumer ConsumerID
	count    int
	at       int64
	received bool
	late     bool
}

// durableFate is what the metadata knows of one message.
type durableFate struct {
	acked bool
	next  uint32
	due   int64
}

// durable is a cursor kept message by message, changed only by deltas.
type durable struct {
	generation uint64
	msgs       []durableFate
}

func (d *durable) apply(t rapid.TB, x *Delta) {
	if x.Reset && x.Generation != d.generation {
		*d = durable{x.Generation, make([]durableFate, len(d.msgs))}
	}
	if x.Generation != d.generation {
		t.Fatalf("delta of generation %d reaches a cursor of %d without Reset", x.Generation, d.generation)
	}
	for i := range min(x.Prefix, uint64(len(d.msgs))) {
		d.msgs[i].acked = true
	}
	for _, r := range x.Acked {
		for i := r.Start; i < r.End; i++ {
			d.msgs[i].acked = true
		}
	}
	for _, r := range x.Redeliveries {
		for i := r.Start; i < r.End; i++ {
			d.msgs[i].next, d.msgs[i].due = r.Next, r.Due
		}
	}
}

// cursor is the durable state as New takes it, one range per message.
func (d *durable) cursor() Cursor {
	c := Cursor{Generation: d.generation}
	for c.Prefix < uint64(len(d.msgs)) && d.msgs[c.Prefix].acked {
		c.Prefix++
	}
	for i := c.Prefix; i < uint64(len(d.msgs)); i++ {
		switch m := d.msgs[i]; {
		case m.acked:
			c.Acked = append(c.Acked, Range{i, i + 1})
		case m.next > 0:
			c.Redeliveries = append(c.Redeliveries, Redelivery{Range{i, i + 1}, m.next, m.due})
		}
	}
	return c
}

// world runs the subscription beside a model that keeps one record per
// message and does everything the slow way.
type world struct {
	cfg    Config
	s      *Subscription
	msgs   []fate
	gen    uint64
	high   uint64
	now    int64
	nextID ConsumerID
	ids    []ConsumerID
	credit map[ConsumerID]uint64
	lazy   map[ConsumerID]bool // sends no receipts
	holes  []Range
	stored durable
	flying *Delta
}

func newWorld(t *rapid.T) *world {
	n := rapid.SampledFrom([]int{12, 60, 900}).Draw(t, "messages")
	w := &world{
		cfg: Config{
			Policy:          rapid.SampledFrom([]Policy{Exclusive, Shared}).Draw(t, "policy"),
			MaxUnacked:      rapid.SampledFrom([]int{1, 5, n}).Draw(t, "window"),
			AckTimeout:      640 * time.Nanosecond,
			BackoffBase:     100,
			BackoffMax:      400,
			MaxRedeliveries: rapid.SampledFrom([]int{-1, 1, 3}).Draw(t, "redeliveries"),
			Poison:          rapid.SampledFrom([]Poison{Block, DeadLetter}).Draw(t, "poison"),
			RangeLimit:      rapid.SampledFrom([]int{2, 100_000}).Draw(t, "ranges"),
		},
		msgs:   make([]fate, n),
		now:    1,
		credit: map[ConsumerID]uint64{},
		lazy:   map[ConsumerID]bool{},
		stored: durable{msgs: make([]durableFate, n)},
	}
	w.open(t)
	return w
}

func (w *world) open(t *rapid.T) {
	c := w.stored.cursor()
	s, err := New(w.cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	w.cfg, w.s, w.gen, w.flying, w.ids = s.cfg, s, c.Generation, nil, nil
	clear(w.credit)
	w.high = c.Prefix
	for i := range w.msgs {
		d := w.stored.msgs[i]
		switch {
		case d.acked:
			w.msgs[i] = fate{kind: acked}
			w.high = max(w.high, uint64(i)+1)
		case d.next > 0:
			w.msgs[i] = w.failed(fate{kind: waiting, count: int(d.next) - 1, at: d.due})
		default:
			w.msgs[i] = fate{kind: fresh}
		}
	}
	for _, h := range w.holes {
		w.hole(h)
	}
}

func (w *world) failed(f fate) fate {
	if w.cfg.Poison == DeadLetter && f.count > w.cfg.MaxRedeliveries {
		return fate{kind: poisoned, count: f.count, late: f.late}
	}
	return f
}

func (w *world) backoff(count int) int64 {
	d := int64(w.cfg.BackoffBase) << (count - 1)
	return min(d, int64(w.cfg.BackoffMax))
}

func (w *world) prefix() uint64 {
	for i, m := range w.msgs {
		if m.kind != acked {
			return uint64(i)
		}
	}
	return uint64(len(w.msgs))
}

func (w *world) total(k kind) (n uint64) {
	for _, m := range w.msgs {
		if m.kind == k {
			n++
		}
	}
	return n
}

func (w *world) ackedRanges() (n int) {
	for i := w.prefix(); i < uint64(len(w.msgs)); i++ {
		if w.msgs[i].kind == acked && w.msgs[i-1].kind != acked {
			n++
		}
	}
	return n
}

func (w *world) deadlineOf(now int64) int64 {
	at := now + 640 + 9
	return at - at%10
}

func (w *world) tick() {
	for i := range w.msgs {
		m := &w.msgs[i]
		if m.kind == held && m.received && m.at <= w.now {
			*m = w.failed(fate{kind: waiting, consumer: m.consumer, count: m.count, at: w.now + w.backoff(m.count), late: m.late})
		}
	}
}

// expect is the step that the model would take.
func (w *world) expect() (reason Reason, redelivery bool, from uint64) {
	w.tick()
	var credit uint64
	for _, id := range w.ids {
		credit += w.credit[id]
	}
	limit := uint64(w.cfg.MaxUnacked)
	switch {
	case len(w.ids) == 0:
		return NoConsumer, false, 0
	case credit == 0:
		return NoCredit, false, 0
	case w.total(held) >= limit:
		return Window, false, 0
	}
	for i, m := range w.msgs {
		if m.kind == waiting && m.at <= w.now {
			return Ready, true, uint64(i)
		}
	}
	if w.total(held)+w.total(waiting)+w.total(poisoned) >= limit {
		return Window, false, 0
	}
	from = uint64(len(w.msgs))
	for i, m := range w.msgs {
		if m.kind == fresh {
			from = uint64(i)
			break
		}
	}
	unacked := w.total(held) + w.total(waiting) + w.total(poisoned)
	if w.ackedRanges() >= w.cfg.RangeLimit && from >= w.high && unacked > 0 {
		return Ranges, false, 0
	}
	return Ready, false, from
}

// step asks for the next step, checks it and offers a batch around it.
func (w *world) step(t *rapid.T) {
	reason, again, from := w.expect()
	st := w.s.Next(w.now)
	if st.Reason != reason || reason == Ready && (st.From != from || st.Redelivery != again) {
		t.Fatalf("next is %+v, want %v redelivery=%v from=%d", st, reason, again, from)
	}
	if reason != Ready || from >= uint64(len(w.msgs)) {
		return
	}
	if st.Max == 0 || st.To <= st.From {
		t.Fatalf("step with nothing in it: %+v", st)
	}
	base := from - min(from, rapid.Uint64Range(0, 3).Draw(t, "before"))
	count := min(from-base+rapid.Uint64Range(1, 40).Draw(t, "count"), uint64(len(w.msgs))-base)
	ds := w.s.Offer(st, Batch{Base: base, Count: uint32(count)}, w.now, nil)
	if len(ds) == 0 || ds[0].Start != from {
		t.Fatalf("offer of [%d,%d) for %+v gives %v", base, base+count, st, ds)
	}
	for _, d := range ds {
		if d.Start < base || d.End > base+count {
			t.Fatalf("delivery %+v is outside of the batch", d)
		}
		w.deliver(t, d, again)
	}
}

func (w *world) deliver(t *rapid.T, d Delivery, again bool) {
	if w.credit[d.Consumer] < d.End-d.Start {
		t.Fatalf("delivery %+v is beyond the credit %d", d, w.credit[d.Consumer])
	}
	w.credit[d.Consumer] -= d.End - d.Start
	for i := d.Start; i < d.End; i++ {
		m := &w.msgs[i]
		due := m.kind == waiting && m.at <= w.now
		if again && !due || !again && m.kind != fresh {
			t.Fatalf("delivery %+v: message %d is %+v", d, i, *m)
		}
		if !due {
			m.count = 0
		}
		if d.Attempt != uint32(m.count)+1 || d.Late != m.late || d.Generation != w.gen {
			t.Fatalf("delivery %+v: message %d is %+v", d, i, *m)
		}
		*m = fate{kind: held, consumer: d.Consumer, count: m.count + 1, late: m.late}
		if w.lazy[d.Consumer] {
			m.received, m.at = true, w.deadlineOf(w.now)
		}
		w.high = max(w.high, i+1)
	}
	if w.total(held) > uint64(w.cfg.MaxUnacked) {
		t.Fatalf("%d messages in flight, window %d", w.total(held), w.cfg.MaxUnacked)
	}
}

func (w *world) leave(id ConsumerID, clean bool) {
	for i := range w.msgs {
		m := &w.msgs[i]
		if m.kind != held || m.consumer != id {
			continue
		}
		f := fate{kind: waiting, count: m.count, late: m.late}
		switch {
		case m.received:
			if !clean && m.count > w.cfg.MaxRedeliveries {
				f.at = w.now + int64(w.cfg.BackoffMax)
			}
		case clean || m.count > 1:
			f.count--
		case w.cfg.MaxRedeliveries == 0:
			f.count = 0
		}
		if f.count == 0 && !f.late {
			f = fate{kind: fresh}
		}
		*m = w.failed(f)
	}
	for i, x := range w.ids {
		if x == id {
			w.ids = append(w.ids[:i:i], w.ids[i+1:]...)
		}
	}
}

func (w *world) hole(r Range) {
	w.s.Hole(r)
	for i := r.Start; i < r.End; i++ {
		switch m := &w.msgs[i]; m.kind {
		case waiting:
			*m = fate{kind: hole, count: m.count, at: m.at, late: m.late}
		case fresh:
			*m = fate{kind: hole}
		}
	}
}

func (w *world) fill(r Range) {
	w.s.Fill(r)
	for i := r.Start; i < r.End; i++ {
		m := &w.msgs[i]
		switch {
		case m.kind == hole && m.count > 0:
			*m = fate{kind: waiting, count: m.count, at: m.at, late: m.late}
		case m.kind == hole || m.kind == fresh:
			*m = fate{kind: fresh}
			if i < w.high {
				*m = fate{kind: waiting, late: true}
			}
		}
	}
}

// settle does the same to the model as a call did to the subscription.
func (w *world) settle(rs []Range, do func(m *fate) bool) (res Settled) {
	for _, r := range rs {
		for i := r.Start; i < r.End; i++ {
			switch m := &w.msgs[i]; {
			case m.kind == acked:
				res.Again++
			case do(m):
				res.Done++
			default:
				res.Stale++
			}
		}
	}
	return res
}

// check compares what can be seen of both.
func (w *world) check(t *rapid.T) {
	checkRuns(t, w.s)
	prefix := w.prefix()
	if w.s.prefix != prefix {
		t.Fatalf("prefix %d, want %d", w.s.prefix, prefix)
	}
	e := w.s.Explain(w.now)
	w.tick()
	if e.InFlight != w.total(held) || e.Waiting != w.total(waiting) || e.Holes != w.total(hole) ||
		e.Poisoned != w.total(poisoned) || e.Ranges != w.ackedRanges() {
		t.Fatalf("explanation %+v does not fit %+v", e, w.msgs)
	}
	end := rapid.Uint64Range(0, uint64(len(w.msgs))).Draw(t, "end")
	var lag uint64
	for _, m := range w.msgs[:end] {
		if m.kind != acked && m.kind != hole {
			lag++
		}
	}
	if got := w.s.Lag(end); got != lag {
		t.Fatalf("lag at %d is %d, want %d", end, got, lag)
	}
}

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
	rapid.Check(t, func(t *rapid.T) {
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
	})
}

func (f fate) String() string {
	return fmt.Sprintf("{%d by %d count %d at %d}", f.kind, f.consumer, f.count, f.at)
}
