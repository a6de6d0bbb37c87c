package state

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
)

// many returns a state with n topics of one partition, each with one subscription, and the owner of them all.
func many(t testing.TB, n int) (*State, Owner) {
	t.Helper()
	s := New()
	s.Apply(1, &RegisterStore{Store: storeID(1), Broker: "n1", Nonce: [16]byte{1}})
	o := Owner{storeID(1), 1}
	for i := range n {
		id := TopicID{byte(i), byte(i >> 8), 1}
		name := fmt.Sprintf("/default/some-topic-name-%05d", i)
		r := s.ApplyBytes(2, mustEncode(t, &CreateTopic{ID: id, Name: name, Owners: []Owner{o}, Settings: TopicSettings{Partitions: 1, Reliable: true, Durability: LevelLocal}}))
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		r = s.ApplyBytes(3, mustEncode(t, &CreateSubscription{Topic: id, Name: "subscription", Type: Shared, Start: []uint64{0}}))
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return s, o
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestTenThousandTopicsAndSubscriptionsStaySmall(t *testing.T) {
	const topics = 10_000
	before := heap()
	s, _ := many(t, topics)
	used := (heap() - before) / topics
	t.Logf("%d bytes of heap a topic with one partition and one subscription", used)
	if used > 2048 {
		t.Errorf("%d bytes a topic; the target is 2 KiB", used)
	}
	runtime.KeepAlive(s)
}

// TestCursorBytesPerSecondAreBounded states what cursors cost the Raft log: of one command every 500 ms, at most 32
// bytes for each subscription that moved and 3 bytes for each scattered ack. Ten thousand moving subscriptions, one of
// them with a hundred thousand scattered acks above its prefix, take less than 1 MiB a second for good.
func TestCursorBytesPerSecondAreBounded(t *testing.T) {
	const (
		subs, scattered      = 10_000, 100_000
		interval             = 500 * time.Millisecond
		perSub, perScattered = 32, 3
	)
	s, o := many(t, subs)
	for i := range subs {
		id := TopicID{byte(i), byte(i >> 8), 1}
		if r := s.Apply(4, &UpdatePartitions{Entries: []PartitionUpdate{{Topic: id, Epoch: 1, Ceiling: 1 << 40}}}); r.Entry(0) != nil {
			t.Fatal(r.Entry(0))
		}
	}
	_ = o
	index := uint64(5)
	send := func(c *MoveCursors) (size int) {
		for _, p := range Split(c) {
			b := mustEncode(t, p.Command)
			size += len(b)
			r := s.ApplyBytes(index, b)
			index++
			if r.Err != nil || r.Entries != nil {
				t.Fatalf("refused: %v %v", r.Err, r.Entries)
			}
		}
		return size
	}
	// Acks from 1,000 up to a thousand apart, with gaps that do not repeat: no bitmap helps.
	acks := func(round int) (o Offsets) {
		at := uint64(1<<30) + uint64(round)
		for i := range scattered {
			at += 500 + uint64(i*7919%1000)
			o = append(o, OffsetRange{Start: at, End: at + 1})
		}
		return o
	}
	tick := func(round int, burst Offsets) int {
		c := &MoveCursors{}
		for i := range subs {
			d := CursorDelta{Subscription: uint64(i + 1), Epoch: 1, Prefix: uint64(round+1)<<20 + uint64(i)}
			if i == 0 {
				d.Prefix, d.Acked = 0, burst
			}
			c.Entries = append(c.Entries, d)
		}
		return send(c)
	}
	first := tick(0, acks(0))
	steady := 0
	const rounds = 2
	for round := 1; round <= rounds; round++ {
		// Each interval the scattered subscription acknowledges a thousand more.
		steady += tick(round, acks(round)[:1000])
	}
	steady /= rounds
	t.Logf("interval with all scattered acks: %d bytes; then %d bytes an interval, %.2f MiB a second",
		first, steady, float64(steady)*float64(time.Second)/float64(interval)/(1<<20))
	if most := subs*perSub + scattered*perScattered; first > most {
		t.Errorf("%d bytes at once, at most %d", first, most)
	}
	if most := subs*perSub + 1000*perScattered; steady > most {
		t.Errorf("%d bytes an interval, at most %d", steady, most)
	}
	if got := len(s.SubscriptionByID(1).Cursors[0].Acked); got < scattered {
		t.Errorf("%d ranges are kept of %d", got, scattered)
	}
	roundTrip(t, s)
}

func TestAThousandRestartsLeaveOneRange(t *testing.T) {
	s := New()
	s.Apply(1, &RegisterStore{Store: storeID(1), Broker: "n1", Nonce: [16]byte{1}})
	s.Apply(2, &CreateTopic{ID: topicID(1), Name: "/default/a", Owners: []Owner{{storeID(1), 1}}, Settings: TopicSettings{Partitions: 1, Reliable: true, Durability: LevelLocal}})
	const restarts = 1000
	for i := range restarts {
		r := s.Apply(3, &RegisterStore{Store: storeID(1), Broker: "n1", Nonce: [16]byte{2, byte(i), byte(i >> 8)}})
		// Every second run writes something.
		open := PartitionOpen{Topic: topicID(1), Epoch: uint64(i + 1), End: uint64((i + 1) / 2)}
		if r := s.Apply(4, &OpenPartitions{Owner: Owner{storeID(1), r.Incarnation}, Entries: []PartitionOpen{open}}); r.Entry(0) != nil {
			t.Fatalf("restart %d: %v", i, r.Entry(0))
		}
	}
	p := s.Partition(topicID(1), 0)
	if len(p.Ranges) != 2 || len(p.Ranges[0].Epochs) != restarts/2 || p.Epoch != restarts+1 {
		t.Fatalf("%d ranges, %d epochs in the first", len(p.Ranges), len(p.Ranges[0].Epochs))
	}
	// The value of every offset still has its epoch (R19).
	for n := range uint64(restarts / 2) {
		if e := p.Range(n).Epoch(n); e != 2*n+2 {
			t.Fatalf("offset %d belongs to epoch %d", n, e)
		}
	}
	roundTrip(t, s)
}

// TestAThousandMovesLeaveFewRanges: each target copies what it lacks and the old owner then leaves.
func TestAThousandMovesLeaveFewRanges(t *testing.T) {
	s := New()
	owners := make([]Owner, 3)
	for i := range owners {
		r := s.Apply(1, &RegisterStore{Store: storeID(uint64(i + 1)), Broker: "n", Nonce: [16]byte{1}})
		owners[i] = Owner{storeID(uint64(i + 1)), r.Incarnation}
	}
	s.Apply(2, &CreateTopic{ID: topicID(1), Name: "/default/a", Owners: owners[:1], Settings: TopicSettings{Partitions: 1, Reliable: true, Durability: LevelLocal}})
	index, most := uint64(3), 0
	do := func(c Command) {
		if r := s.Apply(index, c); r.Err != nil || r.Entry(0) != nil {
			t.Fatalf("%#v: %v %v", c, r.Err, r.Entry(0))
		}
		index++
		most = max(most, len(s.Partition(topicID(1), 0).Ranges))
	}
	const moves = 1000
	for i := range moves {
		p := s.Partition(topicID(1), 0)
		from, to := owners[i%3], owners[(i+1)%3]
		do(&MovePartitions{Entries: []PartitionMove{{topicID(1), 0, p.Epoch, to}}})
		move, end := s.Partition(topicID(1), 0).Move, p.Floor+3
		do(&HandOver{Owner: from, Entries: []PartitionHandOver{{topicID(1), 0, p.Epoch, move, end, to}}})
		// The copy of one move ends only when the next has begun.
		if i%2 == 1 {
			do(&CopyRanges{Entries: []RangeCopy{{topicID(1), 0, p.Epoch + 1, 0, end, to.Store, []StoreID{from.Store, owners[(i+2)%3].Store}}}})
		}
	}
	p := s.Partition(topicID(1), 0)
	if most >= 10 || p.Epoch != moves+1 || p.Floor != 3*moves {
		t.Fatalf("up to %d ranges, epoch %d, floor %d", most, p.Epoch, p.Floor)
	}
	for n := range uint64(3 * moves) {
		if e := p.Range(n).Epoch(n); e != n/3+1 {
			t.Fatalf("offset %d belongs to epoch %d", n, e)
		}
	}
	roundTrip(t, s)
}

// TestALossOfTenThousandPartitionsIsOneCommand: the leader's decision must not hold up the log.
func TestALossOfTenThousandPartitionsIsOneCommand(t *testing.T) {
	const topics = 10_000
	s, o := many(t, topics)
	s.Apply(4, &RegisterStore{Store: storeID(2), Broker: "n2", Nonce: [16]byte{1}})
	before := s.Freeze()
	s.Apply(5, &LoseStore{Owner: o})
	grant := &GrantPartitions{}
	for p := range s.Held(o.Store) {
		grant.Entries = append(grant.Entries, PartitionGrant{p.Topic, p.Number, p.Epoch, Owner{storeID(2), 2}})
	}
	parts := Split(grant)
	for i, part := range parts {
		if r := s.ApplyBytes(uint64(6+i), mustEncode(t, part.Command)); r.Err != nil || r.Entries != nil {
			t.Fatalf("%v %v", r.Err, r.Entries)
		}
	}
	if len(grant.Entries) != topics || s.Placed(storeID(2)) != topics || s.Placed(o.Store) != 0 || before.Placed(o.Store) != topics {
		t.Fatalf("%d granted, %d placed", len(grant.Entries), s.Placed(storeID(2)))
	}
	if before.Decided() == s.Decided() {
		t.Fatalf("decided at %d and then %d", before.Decided(), s.Decided())
	}
}

// TestADecisionIsOneChange: a decision costs those who follow what it is about, however many partitions there are.
func TestADecisionIsOneChange(t *testing.T) {
	const topics = 3_000
	s, o := many(t, topics)
	since := func(before *View) (changed []*Partition, ok bool) {
		seq, ok := s.Since(before)
		if ok {
			changed = slices.Collect(seq)
		}
		return changed, ok
	}
	older := roundTrip(t, s)
	before := s.Freeze()
	id := TopicID{7, 7, 1}
	s.Apply(10, &UpdatePartitions{Entries: []PartitionUpdate{{Topic: id, Epoch: 1, Ceiling: 1 << 20}}})
	if changed, ok := since(before); !ok || len(changed) != 0 {
		t.Errorf("a ceiling: %d changes, %t", len(changed), ok)
	}
	s.Apply(11, &UpdatePartitions{Entries: []PartitionUpdate{{Topic: id, Epoch: 1, Seal: true}}})
	if changed, ok := since(before); !ok || len(changed) != 1 || changed[0] != s.Partition(id, 0) {
		t.Errorf("a seal: %d changes, %t", len(changed), ok)
	}
	s.Apply(12, &DeleteTopic{ID: TopicID{8, 8, 1}})
	if changed, ok := since(before); !ok || len(changed) != 2 || changed[1].Topic != (TopicID{8, 8, 1}) {
		t.Errorf("and a topic deleted: %d changes, %t", len(changed), ok)
	}
	if changed, ok := since(s.Freeze()); !ok || len(changed) != 0 {
		t.Errorf("nothing: %d changes, %t", len(changed), ok)
	}
	if _, ok := since(nil); ok {
		t.Error("no view before: not all is to be looked at")
	}
	// What a snapshot skips is not known, whatever its index and what was decided after it.
	before, s = s.Freeze(), older
	s.Apply(13, &DeleteTopic{ID: TopicID{9, 7, 1}})
	if _, ok := since(before); ok || s.Decided() <= before.Decided() {
		t.Error("a snapshot restored: not all is to be looked at")
	}
	before = s.Freeze()
	s.Apply(14, &SetStore{Owner: o, Status: StoreDraining})
	if _, ok := since(before); ok {
		t.Error("a store drains: not all is to be looked at")
	}
}

func TestSplitLosesNothing(t *testing.T) {
	var d CursorDelta
	d.Subscription, d.Prefix = 1, 5
	at := uint64(1 << 40)
	for i := range 400_000 {
		at += 100_000 + uint64(i*7919%100_000)
		d.Acked = append(d.Acked, OffsetRange{Start: at, End: at + 1})
	}
	whole := &MoveCursors{Entries: []CursorDelta{{Subscription: 9, Prefix: 1}, d, {Subscription: 8, Prefix: 2}}}
	if _, err := Encode(whole); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("encoded all at once: %v", err)
	}
	var acked Offsets
	seen := map[uint64]uint64{}
	for _, p := range Split(whole) {
		mustEncode(t, p.Command)
		for i, e := range p.Command.(*MoveCursors).Entries {
			if whole.Entries[p.First+i].Subscription != e.Subscription {
				t.Fatalf("entry %d of the whole is not subscription %d", p.First+i, e.Subscription)
			}
			seen[e.Subscription] = max(seen[e.Subscription], e.Prefix)
			acked = acked.Union(e.Acked)
		}
	}
	if len(acked) != len(d.Acked) || seen[9] != 1 || seen[1] != 5 || seen[8] != 2 {
		t.Fatalf("%d acks and prefixes %v remain", len(acked), seen)
	}
	open := &OpenPartitions{Owner: Owner{storeID(1), 3}, Entries: make([]PartitionOpen, 30_000)}
	n := 0
	for _, p := range Split(open) {
		c := p.Command.(*OpenPartitions)
		mustEncode(t, c)
		if p.First != n || c.Owner != open.Owner {
			t.Fatalf("a piece begins at %d, want %d", p.First, n)
		}
		n += len(c.Entries)
	}
	if n != len(open.Entries) {
		t.Fatalf("%d entries of %d", n, len(open.Entries))
	}
}

func TestEveryBatchedCommandIsCut(t *testing.T) {
	const n = 30_000
	owner := Owner{storeID(1), 3}
	for _, whole := range []Command{
		&UpdatePartitions{Entries: make([]PartitionUpdate, n)},
		&MarkRanges{Entries: make([]RangeMark, n)},
		&GrantPartitions{Entries: make([]PartitionGrant, n)},
		&MovePartitions{Entries: make([]PartitionMove, n)},
		&AbortMoves{Entries: make([]MoveAbort, n)},
		&HandOver{Owner: owner, Entries: make([]PartitionHandOver, n)},
		&CopyRanges{Entries: make([]RangeCopy, n)},
	} {
		entries := 0
		parts := Split(whole)
		for _, p := range parts {
			mustEncode(t, p.Command)
			v := reflect.ValueOf(p.Command).Elem()
			if p.First != entries || v.NumField() > 1 && v.FieldByName("Owner").Interface() != owner {
				t.Fatalf("%T: a piece begins at %d, want %d", whole, p.First, entries)
			}
			entries += v.FieldByName("Entries").Len()
		}
		if entries != n || len(parts) < 2 {
			t.Errorf("%T: %d entries of %d in %d pieces", whole, entries, n, len(parts))
		}
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	s, _ := many(t, 1000)
	v := s.Freeze()
	id := TopicID{200, 1, 1}
	name := v.TopicByID(id).Name
	found := 0
	n := testing.AllocsPerRun(100, func() {
		if v.Topic(name) != nil && v.Partition(id, 0) != nil && v.Subscription(id, "subscription") != nil && v.Store(storeID(1)) != nil && v.Partition(id, 0).Range(5) != nil {
			found++
		}
	})
	if n != 0 || found == 0 {
		t.Fatalf("%v allocations, %d found", n, found)
	}
}

func TestIterationIsInOrderAndStopsWhereAsked(t *testing.T) {
	s, _ := many(t, 300)
	s.Apply(9, &CreateNamespace{Name: "a"})
	s.Apply(9, &CreateTopic{ID: topicID(7), Name: "/a/x", Settings: TopicSettings{Partitions: 1}})
	last, n := "", 0
	for topic := range s.Topics("/default/") {
		if topic.Name <= last {
			t.Fatalf("%s after %s", topic.Name, last)
		}
		last = topic.Name
		n++
	}
	if n != 300 || s.TopicCount() != 301 {
		t.Fatalf("%d topics of %d", n, s.TopicCount())
	}
	for topic := range s.Topics("") {
		if topic.Name != "/a/x" {
			t.Fatalf("first is %s", topic.Name)
		}
		break
	}
	n = 0
	for range s.Owned(storeID(1)) {
		n++
	}
	if n != 300 {
		t.Fatalf("%d partitions are owned", n)
	}
}

func TestNewHistoryNumbersNewEpochs(t *testing.T) {
	s, _ := many(t, 1)
	s.cluster.History = 3
	r := s.Apply(9, &RegisterStore{Store: storeID(1), Broker: "n1", Nonce: [16]byte{5}})
	id := TopicID{0, 0, 1}
	s.Apply(10, &OpenPartitions{Owner: Owner{storeID(1), r.Incarnation}, Entries: []PartitionOpen{{Topic: id, Epoch: 1}}})
	if e := s.Partition(id, 0).Epoch; e != 3<<48|1 {
		t.Fatalf("epoch %#x", e)
	}
}

func BenchmarkApplyCursors(b *testing.B) {
	s, _ := many(b, 10_000)
	c := &MoveCursors{}
	for i := range 10_000 {
		c.Entries = append(c.Entries, CursorDelta{Subscription: uint64(i + 1), Epoch: 1, Prefix: 100})
	}
	enc := mustEncode(b, c)
	b.ReportMetric(float64(len(enc))/10_000, "bytes/entry")
	for b.Loop() {
		if r := s.ApplyBytes(5, enc); r.Err != nil {
			b.Fatal(r.Err)
		}
		s.Freeze()
	}
}

func BenchmarkHeld(b *testing.B) {
	s, _ := many(b, 10_000)
	for b.Loop() {
		n := 0
		for range s.Held(storeID(1)) {
			n++
		}
		if n != 10_000 {
			b.Fatal(n)
		}
	}
}

func BenchmarkSnapshot(b *testing.B) {
	s, _ := many(b, 10_000)
	for b.Loop() {
		var buf bytes.Buffer
		if _, err := s.WriteTo(&buf); err != nil {
			b.Fatal(err)
		}
		if _, err := Restore(&buf); err != nil {
			b.Fatal(err)
		}
	}
}
