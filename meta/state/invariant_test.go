package state

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkInvariants returns the first promise of the package comment that v breaks.
func checkInvariants(v *View) error {
	for _, t := range v.topics.All() {
		for p := range v.Partitions(t.ID) {
			if t.Deleted() {
				continue // its ranges go store by store
			}
			if err := errors.Join(checkPartition(p), checkHolders(v, p)); err != nil {
				return fmt.Errorf("partition %s: %w", formatPartition(p), err)
			}
		}
	}
	if err := errors.Join(checkPlaced(v), checkDecisions(v), checkCold(v)); err != nil {
		return err
	}
	for _, s := range v.subs.All() {
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
	if n := len(p.Superseded); !p.Superseded.Valid() || n > 0 && (p.Superseded[0].Start < p.LogStart || p.Superseded[n-1].End > p.Ceiling) {
		return fmt.Errorf("superseded offsets out of order")
	}
	end, epoch := p.LogStart, uint64(0)
	for i, r := range p.Ranges {
		open := r.Status == RangeOpen
		if r.Start < end || !open && r.End <= r.Start || len(r.Epochs) == 0 || r.Epochs[0].Start != r.Start {
			return fmt.Errorf("range %d does not fit", i)
		}
		if open && i < len(p.Ranges)-1 || r.Tail && r.Status != RangeOrphaned || r.Accepted && r.Status != RangeOrphaned && r.Status != RangeLost {
			return fmt.Errorf("range %d is %s, tail=%t, accepted=%t", i, r.Status, r.Tail, r.Accepted)
		}
		if r.Doubt != 0 && (open || r.Status == RangeLost || r.Doubt < r.End) {
			return fmt.Errorf("range %d is %s and in doubt from %d on", i, r.Status, r.Doubt)
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
		case r.Status == RangeOpen && n != 1, r.Status == RangeOrphaned && n == 0 && (!r.Tail || v.Cluster().History == 0):
			return fmt.Errorf("range %d has %d stores", i, n)
		case r.Status == RangeSealed && !slices.ContainsFunc(r.Stores, present) && !p.Catalog.Covers(r.Start, r.End):
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
	for _, p := range v.partitions.All() {
		home := p.Owner.Store
		if p.State == Sealing {
			home = p.Target.Store
		}
		if t := v.TopicByID(p.Topic); t != nil && !t.Deleted() && home != (StoreID{}) {
			count[home]++
		}
	}
	for id, n := range v.placed.All() {
		if total++; n != count[id] {
			return fmt.Errorf("store %s is said to have %d partitions and has %d", id, n, count[id])
		}
	}
	if total != len(count) {
		return fmt.Errorf("%d stores have partitions, %d are said to", len(count), total)
	}
	return nil
}

// checkDecisions says whether there is one last decision about each partition.
func checkDecisions(v *View) error {
	for d := range v.decisions.All() {
		p := v.Partition(d.about.topic, d.about.number)
		if p == nil || p.decided != d.index || d.index > v.decided {
			return fmt.Errorf("a decision at %d of %d about partition %d that has none", d.index, v.decided, d.about.number)
		}
	}
	if n, parts := v.decisions.Len(), v.partitions.Len(); n != parts {
		return fmt.Errorf("%d decisions about %d partitions", n, parts)
	}
	return nil
}

// checkSince compares what Since yields with what differs.
func checkSince(before, after *View) error {
	changed, ok := after.Since(before)
	if !ok {
		for s := range after.Stores() {
			if before.Store(s.ID) != s {
				return nil
			}
		}
		if before.Cluster() != after.Cluster() {
			return nil
		}
		return fmt.Errorf("nothing was decided about a store and there is more to look at than partitions")
	}
	yields := map[partitionKey]bool{}
	for p := range changed {
		key := partitionKey{p.Topic, p.Number}
		if yields[key] || p != after.Partition(p.Topic, p.Number) {
			return fmt.Errorf("yields what is not there, or twice: %s", formatPartition(p))
		}
		yields[key] = true
	}
	for key, p := range after.partitions.All() {
		old := before.Partition(p.Topic, p.Number)
		differs := old == nil || old.differs(p) || before.TopicByID(p.Topic).Deleted() != after.TopicByID(p.Topic).Deleted()
		if deleted := after.TopicByID(p.Topic).Deleted(); differs != yields[key] && !deleted {
			return fmt.Errorf("yields=%t: %s", yields[key], formatPartition(p))
		} else if deleted && old != nil && !before.TopicByID(p.Topic).Deleted() && !yields[key] {
			return fmt.Errorf("a topic was deleted and it does not yield %s", formatPartition(p))
		}
	}
	return nil
}

func checkCursor(c *Cursor, p *Partition) error {
	if c.Prefix > p.Ceiling || !c.Acked.Valid() || !c.Counts.Valid() || !c.Due.Valid() {
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
	for _, p := range before.partitions.All() {
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
		if len(p.Superseded.From(q.LogStart)) > 0 && !slices.Equal(q.Superseded.Union(p.Superseded.From(q.LogStart)), q.Superseded) {
			return fmt.Errorf("forgot superseded offsets:\n%s%s", formatPartition(p), formatPartition(q))
		}
		if before.Decided() == after.Decided() && p.differs(q) {
			return fmt.Errorf("a decision that Decided does not tell:\n%s%s", formatPartition(p), formatPartition(q))
		}
		// One offset, one value: the epoch of an offset never changes once its range is closed (I3, R19).
		for i := range p.Ranges {
			r := &p.Ranges[i]
			step := max(7, (r.End-r.Start)/1000) // what a new history leaves behind is 2^32 long
			for n := max(r.Start, q.LogStart); n < r.End; n += step {
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
	for _, s := range before.subs.All() {
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
	if err := errors.Join(checkStep(before, &m.s.View, c), checkSince(before, &m.s.View), checkColdStep(before, &m.s.View, c)); err != nil {
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
	seeds := lives(40)
	for seed := range seeds {
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
		if n := accepted[fmt.Sprintf("%T", c)]; n < int(seeds/8) {
			t.Errorf("%T was accepted %d times", c, n)
		}
	}
	t.Log(accepted)
}

// lives is how many lives of a partition a test draws: n, and twenty times as many under DANUBE_FULL.
func lives(n uint64) uint64 {
	if os.Getenv("DANUBE_FULL") != "" {
		return 20 * n
	}
	return n
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
