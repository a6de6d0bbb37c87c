package dispatch

import (
	"fmt"
	"math"
)

// maxCount is where delivery counts stop rising.
const maxCount = math.MaxUint16

// Range is the offsets from Start to End, End excluded.
type Range struct{ Start, End uint64 }

// Redelivery is what outlives a restart of messages that are not
// acknowledged and were delivered before.
type Redelivery struct {
	Range
	Next uint32 // number that their next delivery carries; above one
	Due  int64  // Unix ns before which they are not delivered; 0: at once
}

// Cursor is the whole durable state of a subscription on a partition. Where a
// Redelivery lies below the prefix or in an acknowledged range, the
// acknowledgement counts; whoever stores cursors may drop such entries.
type Cursor struct {
	Generation   uint64 // rises with every Reset
	Prefix       uint64 // every offset below is acknowledged or a gap
	Acked        []Range
	Redeliveries []Redelivery
}

// Delta is what changed in the cursor since the last committed delta. It is
// applied as a union: the prefix moves, Acked is added, a Redelivery replaces
// what was known of its offsets. Applying one twice does no harm.
type Delta struct {
	Generation   uint64
	Reset        bool // forget the cursor of older generations first
	Prefix       uint64
	Acked        []Range
	Redeliveries []Redelivery
	More         bool // the limit cut it: acknowledgements may still be missing
}

// load puts a cursor read from the metadata into the empty subscription.
func (s *Subscription) load(c *Cursor) error {
	s.generation = c.Generation
	s.prefix, s.stored, s.fresh, s.high = c.Prefix, c.Prefix, c.Prefix, c.Prefix
	for _, r := range c.Acked {
		if r.Start >= r.End {
			return fmt.Errorf("load cursor: acknowledged range [%d,%d) is empty", r.Start, r.End)
		}
		s.paint(r, run{kind: acked}, func(*run) bool { return false })
		s.high = max(s.high, r.End)
	}
	for _, r := range c.Redeliveries {
		if r.Start >= r.End {
			return fmt.Errorf("load cursor: redelivery of [%d,%d) is empty", r.Start, r.End)
		}
		if r.Next < 2 {
			return fmt.Errorf("load cursor: redelivery of [%d,%d) has number %d", r.Start, r.End, r.Next)
		}
		count := uint16(min(r.Next-1, maxCount))
		to := run{kind: waiting, at: r.Due, count: count}
		if s.spent(count) {
			to = run{kind: poisoned, count: count}
		}
		s.paint(r.Range, to, func(*run) bool { return false })
	}
	s.fold()
	return nil
}

// Cursor returns the whole cursor as it stands, for inspection and tests;
// what is to be stored comes from TakeDelta.
func (s *Subscription) Cursor() Cursor {
	c := Cursor{Generation: s.generation, Prefix: s.prefix}
	for i := range s.runs.nodes {
		for j := range s.runs.nodes[i].runs {
			appendDurable(&s.runs.nodes[i].runs[j], &c.Acked, &c.Redeliveries)
		}
	}
	return c
}

// appendDurable adds what of r belongs into a cursor. A first delivery that
// is still out does not: after a crash of the broker it is simply given out
// again, as the first; it counts once it has ended without an ack. A later
// one counts once it is received. So the stored number only ever grows.
func appendDurable(r *run, acks *[]Range, again *[]Redelivery) {
	if r.kind == acked {
		*acks = append(*acks, Range{r.start, r.end})
		return
	}
	d := Redelivery{Range: Range{r.start, r.end}, Next: uint32(r.count) + 1}
	switch r.kind {
	case held:
		if r.flags&received == 0 {
			d.Next--
		}
	case waiting, hole:
		d.Due = r.at
	}
	if d.Next > 1 && (r.kind != held || r.count > 1) {
		*again = append(*again, d)
	}
}

// TakeDelta fills d with what is to be committed and reports whether there is
// anything. It reuses the slices of d, which the caller owns. Every call that
// returned before TakeDelta is in it unless More is set; limit bounds the
// number of ranges and redeliveries (0: no bound). One delta is out at a
// time: until DeltaCommitted or DeltaFailed it reports false.
func (s *Subscription) TakeDelta(d *Delta, limit int) bool {
	if s.out.taken {
		return false
	}
	*d = Delta{Generation: s.generation, Reset: s.reset, Prefix: s.prefix,
		Acked: d.Acked[:0], Redeliveries: d.Redeliveries[:0]}
	for i := range s.runs.nodes {
		if n := &s.runs.nodes[i]; n.flags&dirty != 0 && !d.take(n, limit) {
			d.More = true
			break
		}
	}
	if !d.Reset && d.Prefix == s.stored && len(d.Acked)+len(d.Redeliveries) == 0 {
		return false
	}
	s.out = outstanding{taken: true, generation: s.generation, prefix: s.prefix}
	return true
}

// take moves the dirt of n into d and reports whether all of it fitted.
func (d *Delta) take(n *node, limit int) bool {
	for i := range n.runs {
		r := &n.runs[i]
		if r.flags&dirty == 0 {
			continue
		}
		if limit > 0 && len(d.Acked)+len(d.Redeliveries) >= limit {
			n.flags |= sent
			return false
		}
		appendDurable(r, &d.Acked, &d.Redeliveries)
		r.flags = r.flags&^dirty | sent
	}
	n.flags = sent
	return true
}

// DeltaCommitted says that the delta last taken is stored for good.
func (s *Subscription) DeltaCommitted() { s.settleDelta(0) }

// DeltaFailed says that the delta last taken is not stored, or that nobody
// knows (R5): the next one holds it again.
func (s *Subscription) DeltaFailed() { s.settleDelta(dirty) }

func (s *Subscription) settleDelta(becomes mark) {
	out := s.out
	s.out = outstanding{}
	if !out.taken || out.generation != s.generation {
		return // a reset has overtaken it
	}
	if becomes == 0 {
		s.stored, s.reset = out.prefix, false
	}
	for i := range s.runs.nodes {
		n := &s.runs.nodes[i]
		if n.flags&sent == 0 {
			continue
		}
		n.flags &^= sent
		for j := range n.runs {
			if r := &n.runs[j]; r.flags&sent != 0 {
				r.flags = r.flags&^sent | becomes
			}
			n.flags |= n.runs[j].flags & dirty
		}
	}
}
