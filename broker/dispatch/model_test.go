package dispatch

import (
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
			if r.Next < d.msgs[i].next {
				t.Fatalf("the number of delivery of %d falls from %d to %d", i, d.msgs[i].next, r.Next)
			}
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
	paused map[ConsumerID]bool
	lazy   map[ConsumerID]bool   // sends no receipts
	top    map[ConsumerID]uint64 // above all it was given for the first time, late ones aside
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
			BackoffMax:      300,
			MaxRedeliveries: rapid.SampledFrom([]int{-1, 1, 3}).Draw(t, "redeliveries"),
			Poison:          rapid.SampledFrom([]Poison{Block, DeadLetter}).Draw(t, "poison"),
			RangeLimit:      rapid.SampledFrom([]int{2, 100_000}).Draw(t, "ranges"),
		},
		msgs:   make([]fate, n),
		now:    1,
		credit: map[ConsumerID]uint64{},
		paused: map[ConsumerID]bool{},
		lazy:   map[ConsumerID]bool{},
		top:    map[ConsumerID]uint64{},
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
	clear(w.top)
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
	var credit, usable uint64
	for _, id := range w.ids {
		credit += w.credit[id]
		if !w.paused[id] {
			usable += w.credit[id]
		}
	}
	limit := uint64(w.cfg.MaxUnacked)
	switch {
	case len(w.ids) == 0:
		return NoConsumer, false, 0
	case credit == 0:
		return NoCredit, false, 0
	case usable == 0:
		return Full, false, 0
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
	if w.credit[d.Consumer] < d.End-d.Start || w.paused[d.Consumer] {
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
		if d.Attempt == 1 && !d.Late {
			if i < w.top[d.Consumer] {
				t.Fatalf("delivery %+v: the consumer was given %d before, and nothing marks this", d, w.top[d.Consumer]-1)
			}
			w.top[d.Consumer] = i + 1
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
			f.late = w.passed(id, uint64(i))
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

// passed says whether another consumer than id was given something above an offset for the first time.
func (w *world) passed(id ConsumerID, offset uint64) bool {
	for _, x := range w.ids {
		if x != id && w.top[x] > offset {
			return true
		}
	}
	return false
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
