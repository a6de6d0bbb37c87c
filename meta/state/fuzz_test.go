package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

// seal puts a head that fits in front of a body, so that the fuzzer does not have to guess checksums.
func seal(kind uint8, body []byte) []byte {
	b := append(make([]byte, commandHeader), body...)
	b[0], b[1] = commandVersion, kind
	binary.LittleEndian.PutUint32(b[2:], commandCRC(b))
	return b
}

// populated returns a state in which most commands find what they name.
func populated(t testing.TB) *State {
	t.Helper()
	s := New()
	var index uint64
	do := func(c Command) {
		index++
		if r := s.Apply(index, c); r.Err != nil || r.Entry(0) != nil {
			t.Fatalf("%T: %v %v", c, r.Err, r.Entry(0))
		}
	}
	do(&InitCluster{ID: [16]byte{1}, Name: "c"})
	do(&RegisterStore{Store: storeID(1), Broker: "n1", Nonce: [16]byte{1}, Boot: "boot", Addresses: Addresses{Client: "127.0.0.1:6650"}})
	do(&CreateNamespace{Name: "ns", Limits: Limits{Producers: 3}})
	o := Owner{storeID(1), 1}
	do(&CreateTopic{ID: topicID(1), Name: "/ns/a", At: 1700000000000, Owners: []Owner{o, o}, Settings: TopicSettings{Partitions: 2, Reliable: true, Durability: LevelLocal, RetentionTime: 3600e9, RetentionBytes: 1 << 30}})
	do(&UpdatePartitions{Entries: []PartitionUpdate{{Topic: topicID(1), Epoch: 1, Floor: 300, Ceiling: 2000}}})
	do(&RegisterStore{Store: storeID(1), Broker: "n1", Nonce: [16]byte{2}})
	o.Incarnation = 2
	do(&OpenPartitions{Owner: o, Entries: []PartitionOpen{{Topic: topicID(1), Epoch: 1, End: 500}}})
	do(&MarkRanges{Entries: []RangeMark{{Topic: topicID(1), Epoch: 2, From: 100, To: 120, Status: RangeOrphaned, Accepted: true}}})
	do(&CreateSubscription{Topic: topicID(1), Name: "s", Type: Shared, Start: []uint64{0, 0}, Options: SubscriptionOptions{MaxUnacked: 10, KeyFilters: []string{"a*"}, Poison: PoisonDeadLetter, DeadLetter: "/ns/dead"}})
	do(&MoveCursors{Entries: []CursorDelta{{Subscription: 1, Epoch: 2, Prefix: 10, Acked: Offsets{{Start: 20, End: 30}, {Start: 40, End: 41}}, Counts: OffsetNumbers{{Offset: 35, Number: 3}}, Due: OffsetNumbers{{Offset: 35, Number: 1700000000000}}}}})
	do(&ResetSubscription{Subscription: 1, Entries: []CursorReset{{Partition: 1, Generation: 1, Start: 7}}})
	do(&CreateTopic{ID: topicID(2), Name: "/default/b", Settings: TopicSettings{Partitions: 1}})
	do(&DeleteTopic{ID: topicID(2), At: 5})
	return s
}

// cold returns a state in which most commands about the cold tier find what they name: catalog, page, cut and garbage.
func cold(t testing.TB) *State {
	t.Helper()
	s := populated(t)
	index := uint64(50)
	do := func(c Command) {
		index++
		if r := s.Apply(index, c); r.Err != nil || r.Entry(0) != nil {
			t.Fatalf("%T: %v %v", c, r.Err, r.Entry(0))
		}
	}
	o := Owner{storeID(1), 2}
	commit := func(partition uint32, start, end, n uint64, kind catalog.Kind) catalog.Segment {
		p := s.Partition(topicID(1), partition)
		seg := testSegment(start, end, n, o, kind)
		do(&CommitSegments{Owner: o, Entries: []SegmentCommit{{topicID(1), partition, p.Epoch, p.Epochs(start, end), seg}}})
		return seg
	}
	var list []catalog.Segment
	for i := range uint64(4) {
		list = append(list, commit(0, 25*i, 25*i+25, i, catalog.Own))
	}
	page, _ := catalog.NewPage(topicID(1), 0, list[:3], catalog.Object{Kind: catalog.PageObject, Incarnation: 2, Unique: 70})
	do(&PageCatalog{Owner: o, Topic: topicID(1), Epoch: 2, Page: page})
	do(&GrantExports{Entries: []ExportGrant{{topicID(1), 0, 2, 100, 120, o}}})
	commit(0, 100, 110, 5, catalog.Own)
	commit(0, 120, 300, 6, catalog.Cut)
	last := commit(0, 300, 500, 7, catalog.Cut)
	do(&SwapSegments{Owner: o, At: 1700000000000, Entries: []SegmentSwap{{
		Topic: topicID(1), Epoch: 2, Inputs: []catalog.Input{{Start: 300, Object: last.Object}}, Outputs: []catalog.Segment{testSegment(300, 500, 7, o, catalog.Own)},
	}}})
	do(&UpdatePartitions{Entries: []PartitionUpdate{{Topic: topicID(1), Epoch: 2, LogStart: 30, At: 1700000000001}}})
	return s
}

// testSegment is one that o has made; n draws what is drawn.
func testSegment(start, end, n uint64, o Owner, kind catalog.Kind) catalog.Segment {
	s := catalog.Segment{
		Start: start, End: end, Bytes: int64(end-start) * 100, CRC: uint32(start), FirstTime: int64(start), LastTime: int64(end),
		Object: catalog.Object{Kind: kind, Incarnation: o.Incarnation, Unique: n},
	}
	if kind == catalog.Cut {
		s.Object.Store, s.Object.Number, s.Position = o.Store, n, 100
	} else {
		s.Object.Epoch = 1
	}
	return s
}

func FuzzApply(f *testing.F) {
	for _, c := range slices.Concat(goldenCommands(), goldenColdCommands()) {
		b, err := Encode(c.command)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[1], b[commandHeader:])
	}
	f.Add(kindOf(&MoveCursors{}), []byte{0x81, 0xa1, 'p', 0xdd, 0x1f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		s := cold(t)
		r := s.ApplyBytes(100, seal(kind, body))
		if s.Stopped() != nil && !errors.Is(r.Err, ErrDamaged) && !errors.Is(r.Err, ErrNewerCommand) {
			t.Fatalf("stopped by %v", r.Err)
		}
		if err := checkInvariants(&s.View); err != nil {
			t.Fatal(err)
		}
		roundTrip(t, s)
	})
}

func FuzzRestore(f *testing.F) {
	var b bytes.Buffer
	for _, s := range []*State{populated(f), cold(f)} {
		b.Reset()
		if _, err := s.WriteTo(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(b.Bytes()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(bytes.NewReader(b))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNewerCommand) {
				t.Fatalf("unnamed error %v", err)
			}
			return
		}
		s.Hash()
	})
}
