package state

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
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
	do(&MoveCursors{Entries: []CursorDelta{{Subscription: 1, Epoch: 2, Prefix: 10, Acked: Offsets{{20, 30}, {40, 41}}, Counts: OffsetNumbers{{35, 3}}, Due: OffsetNumbers{{35, 1700000000000}}}}})
	do(&ResetSubscription{Subscription: 1, Entries: []CursorReset{{Partition: 1, Generation: 1, Start: 7}}})
	do(&CreateTopic{ID: topicID(2), Name: "/default/b", Settings: TopicSettings{Partitions: 1}})
	do(&DeleteTopic{ID: topicID(2), At: 5})
	return s
}

func FuzzApply(f *testing.F) {
	for _, c := range goldenCommands() {
		b, err := Encode(c.command)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[1], b[commandHeader:])
	}
	f.Add(uint8(kindMoveCursors), []byte{0x81, 0xa1, 'p', 0xdd, 0x1f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		s := populated(t)
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
	if _, err := populated(f).WriteTo(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
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

func FuzzOffsets(f *testing.F) {
	f.Add(Offsets{{1, 2}, {3, 4}, {5, 6}, {100, 2000}}.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOffsets(b)
		if err != nil {
			return
		}
		again, err := decodeOffsets(o.encode(nil))
		if err != nil || len(again) != len(o) {
			t.Fatalf("%v became %v: %v", o, again, err)
		}
	})
}
