package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
			if err := errors.Join(checkPartition(p), checkHolders(v, p)); err != nil {
				return fmt.Errorf("partition %s: %w", formatPartition(p), err)
			}
		}
	}
	if err := checkPlaced(v); err != nil {
		return err
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
	if (p.State == Sealing) != !p.Target.IsZero() || (p.State == Sealing) != (p.Move != 0) {
		return fmt.Errorf("target or move of a partition that is %s", p.State)
	}
	if n := len(p.Superseded); !p.Superseded.valid() || n > 0 && (p.Superseded[0].Start < p.LogStart || p.Superseded[n-1].End > p.Ceiling) {
		return fmt.Errorf("superseded offsets out of order")
	}
	end, epoch := p.LogStart, uint64(0)
	for i, r := range p.Ranges {
		open := r.Status == RangeOpen
		if r.Start < end || !open && r.End <= r.Start || len(r.Epochs) == 0 || r.Epochs[0].Start != r.Start {
			return fmt.Errorf("range %d does not fit", i)
		}
		if open && i < len(p.Ranges)-1 || r.Tail && r.Status != RangeOrphaned || r.Accepted && r.Status != RangeOrphaned {
			return fmt.Errorf("range %d is %s, tail=%t, accepted=%t", i, r.Status, r.Tail, r.Accepted)
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
	open := p.OpenRange()
	switch {
	case p.State == Closed && open != nil, p.State == Opening && open != nil && epoch >= p.Epoch:
		return fmt.Errorf("an open range while %s", p.State)
	case (p.State == Open || p.State == Sealing) && p.Level != LevelNone && (open == nil || epoch != p.Epoch || open.Stores[0] != p.Owner.Store):
		return fmt.Errorf("no open range of the epoch and its owner")
	}
	return nil
}

// checkHolders says whether somebody holds what is readable, and whether nobody is named who is gone.
func checkHolders(v *View, p *Partition) error {
	present := func(id StoreID) bool { st := v.Store(id); return st.Status != StoreLost && st.Status != StoreRemoved }
	for i, r := range p.Ranges {
		n := len(r.Stores)
		switch {
		case r.Status == RangeOpen && n != 1, r.Status == RangeOrphaned && n == 0:
			return fmt.Errorf("range %d has %d stores", i, n)
		case r.Status == RangeSealed && !slices.ContainsFunc(r.Stores, present):
			return fmt.Errorf("range %d is sealed and no store has it", i)
		case !slices.IsSortedFunc(r.Stores, compareIDs) || len(slices.Compact(slices.Clone(r.Stores))) != n:
			return fmt.Errorf("stores of range %d out of order", i)
		}
		for _, id := range r.Stores {
			if v.Store(id).Status == StoreRemoved {
				return fmt.Errorf("range %d names a store that was removed", i)
			}
		}
	}
	if st := v.Store(p.Owner.Store); st != nil && st.Status == StoreRemoved {
		return fmt.Errorf("the owner's store was removed")
	}
	return nil
}

// checkPlaced counts anew.
func checkPlaced(v *View) error {
	count, total := map[StoreID]int{}, 0
	for _, p := range v.partitions.all() {
		home := p.Owner.Store
		if p.State == Sealing {
			home = p.Target.Store
		}
		if t := v.TopicByID(p.Topic); t != nil && !t.Deleted() && home != (StoreID{}) {
			count[home]++
		}
	}
	for id, n := range v.placed.all() {
		if total++; n != count[id] {
			return fmt.Errorf("store %s is said to have %d partitions and has %d", id, n, count[id])
		}
	}
	if total != len(count) {
		return fmt.Errorf("%d stores have partitions, %d are said to", len(count), total)
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
func checkStep(before, after *View, c Command) error {
	for _, p := range before.partitions.all() {
		q := after.Partition(p.Topic, p.Number)
		if q == nil || after.TopicByID(p.Topic).Deleted() {
			continue // its ranges go store by store
		}
		if q.Epoch < p.Epoch || q.LogStart < p.LogStart || q.Ceiling < p.Ceiling || q.Epoch == p.Epoch && q.State != Open && q.Floor < p.Floor {
			return fmt.Errorf("went back:\n%s%s", formatPartition(p), formatPartition(q))
		}
		if err := checkOpened(p, q, c); err != nil {
			return fmt.Errorf("%w:\n%s%s", err, formatPartition(p), formatPartition(q))
		}
		if len(p.Superseded.from(q.LogStart)) > 0 && !slices.Equal(q.Superseded.Union(p.Superseded.from(q.LogStart)), q.Superseded) {
			return fmt.Errorf("forgot superseded offsets:\n%s%s", formatPartition(p), formatPartition(q))
		}
		if before.Decided() == after.Decided() && p.differs(q) {
			return fmt.Errorf("a decision that Decided does not tell:\n%s%s", formatPartition(p), formatPartition(q))
		}
		// One offset, one value: the epoch of an offset never changes once its range is closed (I3, R19).
		for i := range p.Ranges {
			r := &p.Ranges[i]
			for n := max(r.Start, q.LogStart); n < r.End; n += 7 {
				now := q.Range(n)
				back, _ := c.(*RestoreRange)
				if now == nil && r.Tail && back != nil {
					continue // never written
				}
				if now == nil || now.Epoch(n) != r.Epoch(n) || r.Status == RangeLost && now.Status != RangeLost && (back == nil || !back.Adopt) {
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
			if p := after.Partition(s.Topic, uint32(i)); d.Generation == c.Generation+1 {
				if begun := p.cursorAt(t.Start[i]); d.Prefix == begun.Prefix && slices.Equal(d.Acked, begun.Acked) && len(d.Counts)+len(d.Due) == 0 {
					continue // a reset, which is of this partition alone
				}
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

// checkOpened says whether a new epoch may begin where it does (R3): below the ceiling only if the offsets there are
// known to be free, because the epoch before was sealed at its exact end or its own store went on.
func checkOpened(p, q *Partition, c Command) error {
	open, was := q.OpenRange(), p.OpenRange()
	if open == nil || q.State == Opening || was != nil && open.Epochs[0].Epoch == was.Epochs[0].Epoch {
		return nil
	}
	_, handed := c.(*HandOver)
	switch {
	case open.Start >= p.Ceiling:
	case handed || was == nil:
		if open.Start < p.Floor {
			return fmt.Errorf("opened below what was acknowledged")
		}
	case !slices.Contains(was.Stores, q.Owner.Store):
		return fmt.Errorf("another store opened below the ceiling")
	}
	return nil
}

// machine is a state under test.
type machine struct {
	t     fataler
	s     *State
	index uint64
}

func newMachine(t fataler) *machine {
	m := &machine{t: t, s: New()}
	m.apply(&InitCluster{ID: [16]byte{1}, Name: "c"})
	for i := range uint64(3) {
		m.apply(&RegisterStore{Store: storeID(i + 1), Broker: "b", Nonce: [16]byte{9}})
	}
	return m
}

func (m *machine) apply(c Command) Result {
	b, err := Encode(c)
	if err != nil {
		m.t.Fatal(err)
	}
	m.index++
	return m.s.ApplyBytes(m.index, b)
}

// step applies a command, twice, and checks all that must hold. It reports whether the command was accepted.
func (m *machine) step(c Command) bool {
	before := m.s.Freeze()
	hash := before.Hash()
	first := m.apply(c)
	if err := checkInvariants(&m.s.View); err != nil {
		m.t.Fatalf("%#v: %v", c, err)
	}
	if err := checkStep(before, &m.s.View, c); err != nil {
		m.t.Fatalf("%#v: %v", c, err)
	}
	once := m.s.Hash()
	if _, refused := first.Err.(*Error); refused && once != hash {
		m.t.Fatalf("%#v was refused (%v) and changed the state", c, first.Err)
	}
	second := m.apply(c)
	if m.s.Hash() != once || first.Err == nil && second.Err != nil || first.Entry(0) == nil && second.Entry(0) != nil {
		m.t.Fatalf("%#v: twice is not once: %v, then %v %v", c, first, second.Err, second.Entry(0))
	}
	if before.Hash() != hash {
		m.t.Fatalf("%#v changed a view", c)
	}
	return first.Err == nil && first.Entry(0) == nil
}

// TestRandomCommandsKeepTheInvariants applies random sequences, each command twice, over snapshots and restarts.
func TestRandomCommandsKeepTheInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newMachine(rt)
		g := &generator{draw: func(label string, lo, hi uint64) uint64 { return rapid.Uint64Range(lo, hi).Draw(rt, label) }}
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			g.s = m.s
			m.step(g.command())
			if rapid.IntRange(0, 9).Draw(rt, "restart") == 0 {
				m.s = roundTrip(rt, m.s)
			}
		}
	})
}

// TestRandomOwnersKeepTheInvariants drives one partition through losses, grants, moves, copies and returns. Most commands
// fit what is there, so that long histories come about; the kinds that were never accepted fail the test.
func TestRandomOwnersKeepTheInvariants(t *testing.T) {
	accepted := map[string]int{}
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := newMachine(seeded{t, seed})
		m.apply(&CreateTopic{ID: topicID(1), Name: "/default/a", Owners: []Owner{{storeID(1), 1}}, Settings: TopicSettings{Partitions: 1, Reliable: true, Durability: LevelLocal}})
		m.apply(&CreateSubscription{Topic: topicID(1), Name: "s", Start: []uint64{0}})
		g := &generator{draw: func(_ string, lo, hi uint64) uint64 { return lo + rng.Uint64N(hi-lo+1) }}
		for range 60 {
			g.s = m.s
			if c := g.likely(); m.step(c) {
				accepted[fmt.Sprintf("%T", c)]++
			}
			if rng.IntN(20) == 0 {
				m.s = roundTrip(m.t, m.s)
			}
		}
	}
	for _, c := range []Command{
		&LoseStore{}, &RemoveStore{}, &GrantPartitions{}, &OpenPartitions{}, &MovePartitions{}, &AbortMoves{}, &HandOver{},
		&CopyRanges{}, &RestoreRange{}, &MarkRanges{}, &UpdatePartitions{}, &MoveCursors{},
	} {
		if n := accepted[fmt.Sprintf("%T", c)]; n < 20 {
			t.Errorf("%T was accepted %d times", c, n)
		}
	}
	t.Log(accepted)
}

// seeded says which seed failed.
type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Fatal(a ...any) { s.T.Fatalf("seed %d: %s", s.seed, fmt.Sprint(a...)) }
func (s seeded) Fatalf(format string, a ...any) {
	s.T.Fatalf("seed %d: %s", s.seed, fmt.Sprintf(format, a...))
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
	draw func(label string, lo, hi uint64) uint64
	s    *State
}

func (g *generator) n(label string, lo, hi uint64) uint64 {
	if hi < lo {
		hi = lo
	}
	return g.draw(label, lo, hi)
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
	epoch := p.Epoch - min(p.Epoch, g.n("old", 0, 20)/20)
	if g.n("what", 0, 2) > 0 {
		return g.ownerCommand(p, epoch)
	}
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

func (g *generator) ownerCommand(p *Partition, epoch uint64) Command {
	topic, part := p.Topic, p.Number
	switch g.n("which", 0, 16) {
	case 0, 1:
		return &LoseStore{Owner: g.owner()}
	case 2:
		return &RemoveStore{Store: storeID(g.n("store", 1, 3)), Lose: g.n("lose", 0, 1) == 1}
	case 3, 4:
		return &GrantPartitions{Entries: []PartitionGrant{{topic, part, epoch, g.owner()}}}
	case 5, 6:
		return &MovePartitions{Entries: []PartitionMove{{topic, part, epoch, g.owner()}}}
	case 7:
		return &AbortMoves{Entries: []MoveAbort{{topic, part, epoch, p.Move * g.n("named", 0, 1)}}}
	case 8, 9, 10:
		to := p.Target
		if g.n("other", 0, 9) == 0 {
			to = g.owner()
		}
		return &HandOver{Owner: p.Owner, Entries: []PartitionHandOver{{topic, part, epoch, p.Move - min(p.Move, g.n("stale", 0, 9)/9), g.n("end", p.Floor, p.Floor+20), to}}}
	case 11, 12:
		r := g.span(p)
		c := RangeCopy{Topic: topic, Partition: part, Epoch: epoch, From: r.Start, To: r.End, Add: storeID(g.n("add", 0, 3))}
		for i := range g.n("drops", 0, 2) {
			c.Drop = append(c.Drop, storeID(g.n("drop", 1, 2)+i))
		}
		return &CopyRanges{Entries: []RangeCopy{c}}
	case 13, 14, 15:
		r := g.span(p)
		c := &RestoreRange{Topic: topic, Partition: part, Epoch: epoch, From: r.Start, To: r.End, End: g.n("end", r.Start, r.End), Adopt: g.n("adopt", 0, 5) == 0}
		if g.n("whole", 0, 1) == 0 {
			c.End = c.To
		}
		for i := range g.n("holders", 0, 2) {
			c.Stores = append(c.Stores, storeID(g.n("holder", 1, 2)+i))
		}
		if c.End > c.From && g.n("superseded", 0, 1) == 0 {
			from := g.n("first", c.From, c.End-1)
			c.Superseded = Offsets{{from, g.n("last", from+1, c.End)}}
		}
		return c
	}
	if g.n("history", 0, 20) == 0 {
		return &NewHistory{History: g.s.Cluster().History + 1}
	}
	return &OpenPartitions{Owner: p.Owner, Entries: []PartitionOpen{{topic, part, epoch, g.end(p), Tail(g.n("tail", 0, 3))}}}
}

// likely draws a command about partition 0 of topic 1 that its state calls for, and now and then any other.
func (g *generator) likely() Command {
	topic := topicID(1)
	p := g.s.Partition(topic, 0)
	if g.n("any", 0, 3) == 0 {
		return g.ownerCommand(p, p.Epoch)
	}
	for id := uint64(1); id <= 3; id++ {
		if st := g.s.Store(storeID(id)); st.Status == StoreLost && g.n("return", 0, 3) == 0 {
			return &RegisterStore{Store: st.ID, Broker: "b", Nonce: [16]byte{byte(st.Incarnation), 7}}
		}
	}
	owner, to := p.Owner, g.owner()
	switch {
	case g.s.fence(owner) != nil && p.State != Open || !g.s.present(owner.Store):
		return &GrantPartitions{Entries: []PartitionGrant{{topic, 0, p.Epoch, to}}}
	case p.State == Closed || p.State == Opening || g.s.fence(owner) != nil:
		owner.Incarnation = g.s.Store(owner.Store).Incarnation
		o := PartitionOpen{Topic: topic, Epoch: p.Epoch, End: g.end(p), Tail: Tail(g.n("tail", 0, 3))}
		if open := p.OpenRange(); open == nil {
			o.Tail = TailProven
		} else if open.Stores[0] != owner.Store {
			o.End, o.Tail = open.Start, TailOrphaned
		}
		return &OpenPartitions{Owner: owner, Entries: []PartitionOpen{o}}
	case p.State == Sealing && g.n("hand over", 0, 2) > 0:
		return &HandOver{Owner: owner, Entries: []PartitionHandOver{{topic, 0, p.Epoch, p.Move, g.n("end", p.Floor, p.Floor+20), p.Target}}}
	case p.State == Open && g.n("move", 0, 2) == 0:
		return &MovePartitions{Entries: []PartitionMove{{topic, 0, p.Epoch, to}}}
	}
	switch g.n("life", 0, 5) {
	case 0, 1:
		floor := g.n("floor", p.Floor, min(p.Ceiling, p.Floor+30))
		u := PartitionUpdate{Topic: topic, Epoch: p.Epoch, Floor: floor, Ceiling: p.Ceiling + g.n("more", 0, 50)}
		u.Seal, u.End = g.n("seal", 0, 6) == 0, floor
		if g.n("trim", 0, 5) == 0 {
			u.LogStart = g.n("start", p.LogStart, floor)
		}
		return &UpdatePartitions{Entries: []PartitionUpdate{u}}
	case 2:
		return g.cursorCommand(topic, 0, p)
	case 3:
		if c := g.comeBack(p); c != nil {
			return c
		}
		r := g.span(p)
		return &MarkRanges{Entries: []RangeMark{{Topic: topic, Epoch: p.Epoch, From: r.Start, To: r.End, Status: RangeStatus(g.n("status", 1, 3))}}}
	}
	return g.ownerCommand(p, p.Epoch)
}

// comeBack takes back an orphaned range with what its present stores have of it, nil if there is none.
func (g *generator) comeBack(p *Partition) Command {
	for _, r := range p.Ranges {
		if r.Status != RangeOrphaned || !slices.ContainsFunc(r.Stores, g.s.present) {
			continue
		}
		c := &RestoreRange{Topic: p.Topic, Epoch: p.Epoch, From: r.Start, End: r.End, To: r.End}
		for _, id := range r.Stores {
			if g.s.present(id) {
				c.Stores = append(c.Stores, id)
			}
		}
		if r.Tail {
			c.End = g.n("end", r.Start, r.End)
		}
		if c.From < c.End && g.n("superseded", 0, 1) == 0 {
			from := g.n("first", c.From, c.End-1)
			c.Superseded = Offsets{{from, g.n("last", from+1, c.End)}}
		}
		return c
	}
	return nil
}

// end draws where the open range of p may end.
func (g *generator) end(p *Partition) uint64 {
	open := p.OpenRange()
	switch {
	case open == nil:
		return p.Floor
	case g.n("nothing", 0, 1) == 0:
		return open.Start
	}
	return g.n("end", p.Floor, p.Ceiling)
}

// span draws offsets, mostly those of one range.
func (g *generator) span(p *Partition) OffsetRange {
	if len(p.Ranges) > 0 && g.n("one", 0, 3) > 0 {
		if r := p.Ranges[g.n("range", 0, uint64(len(p.Ranges)-1))]; r.Status != RangeOpen {
			o := OffsetRange{r.Start, r.End}
			if g.n("part", 0, 2) == 0 {
				o.Start = g.n("from", r.Start, r.End-1)
			}
			return o
		}
	}
	from := g.n("from", p.LogStart, p.Ceiling)
	return OffsetRange{from, g.n("to", from, p.Ceiling)}
}

func (g *generator) cursorCommand(topic TopicID, part uint32, p *Partition) Command {
	var sub *Subscription
	for s := range g.s.Subscriptions(topic) {
		if sub = s; g.n("this", 0, 1) == 0 {
			break
		}
	}
	if sub == nil {
		start := make([]uint64, g.s.TopicByID(topic).Settings.Partitions)
		start[0] = p.LogStart
		return &CreateSubscription{Topic: topic, Name: "s0", Start: start}
	}
	switch g.n("what", 0, 20) {
	case 0:
		return &DeleteSubscription{Subscription: sub.ID}
	case 1:
		c := &ResetSubscription{Subscription: sub.ID}
		for range g.n("resets", 1, 3) {
			n := uint32(g.n("of", 0, 2))
			c.Entries = append(c.Entries, CursorReset{Partition: n, Start: g.n("start", 0, 2000), Generation: sub.Cursors[n%uint32(len(sub.Cursors))].Generation + g.n("next", 0, 1)})
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
