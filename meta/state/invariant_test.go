package state

import (
	"bytes"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// checkInvariants returns the first promise of the package comment that v breaks.
func checkInvariants(v *View) error {
	for _, t := range v.topics.all() {
		for p := range v.Partitions(t.ID) {
			if t.Deleted() {
				continue // its ranges go store by store
			}
			if err := checkPartition(p); err != nil {
				return fmt.Errorf("partition %s: %w", formatPartition(p), err)
			}
		}
	}
	for _, s := range v.subs.all() {
		if v.Subscription(s.Topic, s.Name) != s {
			return fmt.Errorf("subscription %d is not the one of its name", s.ID)
		}
		for i := range s.Cursors {
			c, p := &s.Cursors[i], v.Partition(s.Topic, uint32(i))
			if err := checkCursor(c, p); err != nil {
				return fmt.Errorf("%s%s: %w", formatPartition(p), formatSubscription(s), err)
			}
		}
	}
	return nil
}

func checkPartition(p *Partition) error {
	if p.LogStart > p.Floor || p.Floor > p.Ceiling {
		return fmt.Errorf("log start, floor, ceiling out of order")
	}
	end, epoch := p.LogStart, uint64(0)
	for i, r := range p.Ranges {
		open := r.Status == RangeOpen
		if r.Start < end || !open && r.End <= r.Start || len(r.Epochs) == 0 || r.Epochs[0].Start != r.Start || len(r.Stores) == 0 {
			return fmt.Errorf("range %d does not fit", i)
		}
		if open != (i == len(p.Ranges)-1 && p.State != Closed && p.Level != LevelNone) {
			return fmt.Errorf("range %d is open=%t", i, open)
		}
		at := r.Start
		for j, e := range r.Epochs {
			if e.Epoch < epoch || j > 0 && (e.Start <= at || e.Epoch == epoch) || !open && e.Start >= r.End {
				return fmt.Errorf("epochs of range %d do not grow", i)
			}
			epoch, at = e.Epoch, e.Start
		}
		end = r.End
	}
	if p.State != Closed && p.Level != LevelNone && (len(p.Ranges) == 0 || epoch != p.Epoch) {
		return fmt.Errorf("no open range of the epoch")
	}
	return nil
}

func checkCursor(c *Cursor, p *Partition) error {
	if c.Prefix > p.Ceiling || !c.Acked.valid() || !c.Counts.valid() || !c.Due.valid() {
		return fmt.Errorf("cursor is out of order")
	}
	if n := len(c.Acked); n > 0 && (c.Acked[0].Start <= c.Prefix || c.Acked[n-1].End > p.Ceiling) {
		return fmt.Errorf("acknowledged ranges do not lie between prefix and ceiling")
	}
	for _, l := range []OffsetNumbers{c.Counts, c.Due} {
		for _, e := range l {
			if e.Number == 0 || c.Acknowledged(e.Offset) {
				return fmt.Errorf("number of an acknowledged offset %d", e.Offset)
			}
		}
	}
	return nil
}

// checkStep returns what must not happen from one state to the next.
func checkStep(before, after *View) error {
	for _, p := range before.partitions.all() {
		q := after.Partition(p.Topic, p.Number)
		if q == nil || after.TopicByID(p.Topic).Deleted() {
			continue // its ranges go store by store
		}
		if q.Epoch < p.Epoch || q.LogStart < p.LogStart || q.Epoch == p.Epoch && (q.Ceiling < p.Ceiling || q.Floor < p.Floor) {
			return fmt.Errorf("went back:\n%s%s", formatPartition(p), formatPartition(q))
		}
		// One offset, one value: the epoch of an offset never changes once its range is closed (I3, R19).
		for i := range p.Ranges {
			r := &p.Ranges[i]
			for n := max(r.Start, q.LogStart); n < r.End; n += 7 {
				if now := q.Range(n); now == nil || now.Epoch(n) != r.Epoch(n) || r.Status == RangeLost && now.Status != RangeLost {
					return fmt.Errorf("offset %d changed:\n%s%s", n, formatPartition(p), formatPartition(q))
				}
			}
		}
	}
	for _, s := range before.subs.all() {
		t := after.SubscriptionByID(s.ID)
		if t == nil {
			continue
		}
		for i := range s.Cursors {
			c, d := &s.Cursors[i], &t.Cursors[i]
			if d.Generation == c.Generation+1 && d.Prefix == t.Start[i] && len(d.Acked)+len(d.Counts)+len(d.Due) == 0 {
				continue // a reset, which is of this partition alone
			}
			if d.Generation != c.Generation {
				return fmt.Errorf("generation jumped: %s%s", formatSubscription(s), formatSubscription(t))
			}
			if d.Prefix < c.Prefix {
				return fmt.Errorf("prefix went back: %s%s", formatSubscription(s), formatSubscription(t))
			}
			for _, r := range c.Acked {
				if !d.Acknowledged(r.Start) || !d.Acknowledged(r.End-1) {
					return fmt.Errorf("forgot an ack: %s%s", formatSubscription(s), formatSubscription(t))
				}
			}
		}
	}
	return nil
}

// TestRandomCommandsKeepTheInvariants applies random sequences, each command twice, over snapshots and restarts.
func TestRandomCommandsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s, index := New(), uint64(0)
		apply := func(c Command) Result {
			b, err := Encode(c)
			if err != nil {
				rt.Fatal(err)
			}
			index++
			return s.ApplyBytes(index, b)
		}
		apply(&InitCluster{ID: [16]byte{1}, Name: "c"})
		for i := range uint64(3) {
			apply(&RegisterStore{Store: storeID(i), Broker: "b", Nonce: [16]byte{9}})
			apply(&RegisterStore{Store: storeID(i + 1), Broker: "b", Nonce: [16]byte{9}})
		}
		g := &generator{t: rt, s: s}
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			g.s = s
			before := s.Freeze()
			hash := before.Hash()
			c := g.command()
			first := apply(c)
			if err := checkInvariants(&s.View); err != nil {
				rt.Fatalf("%#v: %v", c, err)
			}
			if err := checkStep(before, &s.View); err != nil {
				rt.Fatalf("%#v: %v", c, err)
			}
			once := s.Hash()
			if _, refused := first.Err.(*Error); refused && once != hash {
				rt.Fatalf("%#v was refused (%v) and changed the state", c, first.Err)
			}
			second := apply(c)
			if s.Hash() != once || first.Err == nil && second.Err != nil || first.Entry(0) == nil && second.Entry(0) != nil {
				rt.Fatalf("%#v: twice is not once: %v, then %v %v", c, first, second.Err, second.Entry(0))
			}
			if before.Hash() != hash {
				rt.Fatalf("%#v changed a view", c)
			}
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				s = roundTrip(rt, s)
			}
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
	Fatal(...any)
}

func roundTrip(t fataler, s *State) *State {
	t.Helper()
	var b bytes.Buffer
	if _, err := s.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	n, err := Restore(&b)
	if err != nil {
		t.Fatal(err)
	}
	if n.Hash() != s.Hash() || n.Index() != s.Index() {
		t.Fatalf("a restored state differs")
	}
	return n
}

// generator draws commands that mostly fit the state it sees.
type generator struct {
	t *rapid.T
	s *State
}

func (g *generator) n(label string, lo, hi uint64) uint64 {
	if hi < lo {
		hi = lo
	}
	return rapid.Uint64Range(lo, hi).Draw(g.t, label)
}

func (g *generator) owner() Owner {
	o := Owner{Store: storeID(g.n("store", 1, 3))}
	if st := g.s.Store(o.Store); st != nil {
		o.Incarnation = st.Incarnation - g.n("stale", 0, 10)/10
	}
	return o
}

func (g *generator) command() Command {
	topic, part := topicID(g.n("topic", 1, 3)), uint32(g.n("partition", 0, 1))
	p := g.s.Partition(topic, part)
	if p == nil {
		set := TopicSettings{Partitions: 2, Reliable: true, Durability: Level(g.n("level", 1, 3))}
		c := &CreateTopic{ID: topic, Name: fmt.Sprintf("/default/t%d", topic[15]), Settings: set}
		if g.n("owned", 0, 1) == 1 {
			c.Owners = []Owner{g.owner(), g.owner()}
		}
		return c
	}
	epoch := p.Epoch - g.n("old", 0, 20)/20
	switch g.n("kind", 0, 13) {
	case 0:
		return &RegisterStore{Store: storeID(g.n("store", 1, 3)), Broker: "b", Nonce: [16]byte{byte(g.n("nonce", 0, 255))}}
	case 1, 2:
		end := g.n("end", p.Floor, p.Ceiling)
		if p.State == Closed {
			end = p.Floor
		}
		return &OpenPartitions{Owner: g.owner(), Entries: []PartitionOpen{
			{Topic: topic, Partition: part, Epoch: epoch, End: end - g.n("below", 0, 5)/5, Tail: Tail(g.n("tail", 0, 4))},
		}}
	case 3, 4:
		u := PartitionUpdate{Topic: topic, Partition: part, Epoch: epoch, Ceiling: p.Ceiling + g.n("more", 0, 50)}
		u.Floor = g.n("floor", 0, u.Ceiling)
		u.LogStart = g.n("start", 0, max(u.Floor, p.Floor))
		if g.n("seal", 0, 9) == 0 {
			u.Seal, u.End = true, g.n("end", max(u.Floor, p.Floor), u.Ceiling)
		}
		return &UpdatePartitions{Entries: []PartitionUpdate{u}}
	case 5, 6:
		from := g.n("from", p.LogStart, p.Ceiling)
		m := RangeMark{Topic: topic, Partition: part, Epoch: epoch, From: from, To: g.n("to", from, p.Ceiling), Status: RangeStatus(g.n("status", 0, 3))}
		m.Accepted = m.Status == RangeOrphaned && g.n("accept", 0, 1) == 1
		return &MarkRanges{Entries: []RangeMark{m}}
	case 7:
		if g.n("delete", 0, 9) == 0 {
			return &DeleteTopic{ID: topic}
		}
		return &PurgeTopic{ID: topic, Store: storeID(g.n("store", 1, 3))}
	case 8:
		return &SetTopic{ID: topic, Settings: TopicSettings{Partitions: 2, Reliable: true, Durability: Level(g.n("level", 1, 3))}}
	case 9:
		start := []uint64{g.n("start", 0, 2000), g.n("start", 0, 2000)}
		return &CreateSubscription{Topic: topic, Name: fmt.Sprintf("s%d", g.n("name", 0, 2)), Start: start}
	}
	return g.cursorCommand(topic, part, p)
}

func (g *generator) cursorCommand(topic TopicID, part uint32, p *Partition) Command {
	var sub *Subscription
	for s := range g.s.Subscriptions(topic) {
		if sub = s; g.n("this", 0, 1) == 0 {
			break
		}
	}
	if sub == nil {
		return &CreateSubscription{Topic: topic, Name: "s0", Start: []uint64{p.LogStart, 0}}
	}
	switch g.n("what", 0, 20) {
	case 0:
		return &DeleteSubscription{Subscription: sub.ID}
	case 1:
		c := &ResetSubscription{Subscription: sub.ID}
		for range g.n("resets", 1, 3) {
			n := uint32(g.n("of", 0, 2))
			c.Entries = append(c.Entries, CursorReset{Partition: n, Start: g.n("start", 0, 2000), Generation: sub.Cursors[n%2].Generation + g.n("next", 0, 1)})
		}
		return c
	}
	d := CursorDelta{Subscription: sub.ID, Partition: part, Epoch: p.Epoch, Generation: sub.Cursors[part].Generation, Prefix: g.n("prefix", 0, p.Ceiling/4)}
	at := g.n("at", 0, p.Ceiling)
	for range g.n("acks", 0, 6) {
		start := at + g.n("gap", 1, 20)
		at = start + g.n("length", 1, 20)
		d.Acked = append(d.Acked, OffsetRange{start, at})
	}
	at = d.Prefix
	for range g.n("counts", 0, 4) {
		at += g.n("gap", 1, 20)
		d.Counts = append(d.Counts, OffsetNumber{at, g.n("count", 1, 5)})
		d.Due = append(d.Due, OffsetNumber{at, g.n("due", 0, 100)})
	}
	return &MoveCursors{Entries: []CursorDelta{d}}
}
