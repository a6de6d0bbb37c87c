package state

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

type goldenCommand struct {
	name    string
	command Command
}

// goldenCommands holds one of every kind, every field set.
func goldenCommands() []goldenCommand {
	o := Owner{storeID(1), 7}
	set := TopicSettings{
		Partitions: 2, Reliable: true, Durability: LevelWarm, RetentionTime: 3600e9, RetentionBytes: 1 << 30,
		Limits: Limits{Producers: 1, Subscriptions: 2, Consumers: 3, MessageBytes: 4, PublishRate: 5, DispatchRate: 6},
	}
	opt := SubscriptionOptions{
		MaxUnacked: 1000, MaxRedelivery: 5, AckTimeout: 30e9, BackoffBase: 1e9, BackoffCap: 60e9, Poison: PoisonDeadLetter,
		DeadLetter: "/default/dead", KeyFilters: []string{"a*", "b"}, GapWaitSeconds: 60,
	}
	e := uint64(3)<<48 | 9
	return []goldenCommand{
		{"init-cluster", &InitCluster{[16]byte{1, 2}, "danube"}},
		{"register-store", &RegisterStore{storeID(1), "n1", [16]byte{9}, "boot", Addresses{"a:1", "b:2", "c:3"}}},
		{"set-store", &SetStore{o, StoreDraining, true}},
		{"create-namespace", &CreateNamespace{"ns", Limits{Producers: 300}}},
		{"set-namespace", &SetNamespace{"ns", Limits{Consumers: 70000}}},
		{"delete-namespace", &DeleteNamespace{"ns"}},
		{"create-topic", &CreateTopic{topicID(1), "/default/a", set, []Owner{o, o}, 1700000000000}},
		{"set-topic", &SetTopic{topicID(1), set}},
		{"delete-topic", &DeleteTopic{topicID(1), 1700000000000}},
		{"purge-topic", &PurgeTopic{topicID(1), storeID(1)}},
		{"open-partitions", &OpenPartitions{o, []PartitionOpen{{topicID(1), 1, e, 1 << 33, TailLost}, {Topic: topicID(2)}}}},
		{"update-partitions", &UpdatePartitions{[]PartitionUpdate{{topicID(1), 1, e, 500, 400, 300, true, 450, 0, false}}}},
		{"mark-ranges", &MarkRanges{[]RangeMark{{topicID(1), 1, e, 10, 20, RangeOrphaned, true}}}},
		{"create-subscription", &CreateSubscription{topicID(1), "s", KeyShared, opt, []uint64{0, 1 << 40}}},
		{"set-subscription", &SetSubscription{5, opt}},
		{"delete-subscription", &DeleteSubscription{5}},
		{"reset-subscription", &ResetSubscription{5, []CursorReset{{1, 2, 7}, {2, 1, 8}}}},
		{"move-cursors", &MoveCursors{[]CursorDelta{{
			5, 1, e, 2, 1000, Offsets{{Start: 1001, End: 1003}, {Start: 1 << 30, End: 1<<30 + 1}}, OffsetNumbers{{Offset: 1004, Number: 2}, {Offset: 1006, Number: 3}}, OffsetNumbers{{Offset: 1004, Number: 1700000000000}},
		}}}},
		{"lose-store", &LoseStore{o}},
		{"remove-store", &RemoveStore{storeID(1), true}},
		{"grant-partitions", &GrantPartitions{[]PartitionGrant{{topicID(1), 1, e, o}}}},
		{"move-partitions", &MovePartitions{[]PartitionMove{{topicID(1), 1, e, o}}}},
		{"abort-moves", &AbortMoves{[]MoveAbort{{topicID(1), 1, e, 99}}}},
		{"hand-over", &HandOver{o, []PartitionHandOver{{topicID(1), 1, e, 99, 1 << 33, Owner{storeID(2), 8}}}}},
		{"copy-ranges", &CopyRanges{[]RangeCopy{{topicID(1), 1, e, 10, 20, storeID(2), []StoreID{storeID(1), storeID(3)}}}}},
		{"restore-range", &RestoreRange{topicID(1), 1, e, 10, 20, 30, []StoreID{storeID(1), storeID(2)}, Offsets{{Start: 12, End: 14}}, true}},
		{"new-history", &NewHistory{4}},
		{"tick", &Tick{}},
		// A field of later: with it the bytes are others, without it they are as ever.
		{"update-partitions-at", &UpdatePartitions{[]PartitionUpdate{{Topic: topicID(1), Epoch: e, LogStart: 300, At: 1700000000000}}}},
		{"update-partitions-acked", &UpdatePartitions{[]PartitionUpdate{{Topic: topicID(1), Epoch: e, LogStart: 300, At: 1700000000000, Acked: true}}}},
		{"set-topic-acked", &SetTopic{topicID(1), TopicSettings{Partitions: 1, Reliable: true, Durability: LevelLocal, RetentionAcked: true}}},
	}
}

// goldenColdCommands holds one of every kind that is about the cold tier, every field set.
func goldenColdCommands() []goldenCommand {
	o := Owner{storeID(1), 7}
	e := uint64(3)<<48 | 9
	own := catalog.Object{Kind: catalog.Own, Epoch: e, Incarnation: 7, Unique: 0xfeed}
	cut := catalog.Object{Kind: catalog.Cut, Store: storeID(1), Incarnation: 7, Number: 12, Unique: 0xbeef}
	segments := []catalog.Segment{
		{Start: 10, End: 20, Object: own, Bytes: 1000, CRC: 0x12345678, FirstTime: 1700000000000, LastTime: 1700000000900},
		{Start: 20, End: 25, Object: cut, Position: 4096, Bytes: 500, CRC: 0x9abcdef0, FirstTime: 1700000001000, LastTime: 1700000001900},
	}
	page, content := catalog.NewPage(topicID(1), 1, segments[:1], catalog.Object{Kind: catalog.PageObject, Incarnation: 7, Unique: 0xcafe})
	name := catalog.NewName(topicID(1), 1, own, 10, 20)
	at := int64(1700000000000)
	return []goldenCommand{
		{"commit-segments", &CommitSegments{o, []SegmentCommit{
			{topicID(1), 1, e, []EpochStart{{e - 1, 10}, {e, 15}}, segments[0]}, {topicID(1), 1, e, []EpochStart{{e, 20}}, segments[1]},
		}}},
		{"grant-exports", &GrantExports{[]ExportGrant{{topicID(1), 1, e, 10, 20, o}}}},
		{"swap-segments", &SwapSegments{o, at, []SegmentSwap{{topicID(1), 1, e, []catalog.Input{{Start: 20, Object: cut}}, segments[:1]}}}},
		{"page-catalog", &PageCatalog{o, topicID(1), 1, e, page}},
		{"unpage-catalog", &UnpageCatalog{o, topicID(1), 1, e, 10, page.Object, content, at}},
		{"condemn-topic", &CondemnTopic{topicID(1), at, []uint32{0, 300}}},
		{"condemn-page", &CondemnPage{catalog.NewName(topicID(1), 1, page.Object, 10, 20), content}},
		{"condemn-objects", &CondemnObjects{o, at, []catalog.Name{name, {Object: cut}}, [][]byte{content}}},
		{"forget-objects", &ForgetObjects{[]catalog.Name{name, {Object: cut}}}},
		{"end-audit", &EndAudit{3}},
	}
}

// TestCommandBytesAreFrozen: a log written by an earlier release must mean the same for ever.
func TestCommandBytesAreFrozen(t *testing.T) {
	const file = "testdata/commands.golden"
	var got strings.Builder
	kinds := map[uint8]bool{}
	for _, c := range slices.Concat(goldenCommands(), goldenColdCommands()) {
		b, err := Encode(c.command)
		if err != nil {
			t.Fatal(err)
		}
		kinds[b[1]] = true
		got.WriteString(c.name + " " + hex.EncodeToString(b) + "\n")
		back, err := Decode(b)
		if err != nil || !reflect.DeepEqual(back, c.command) {
			t.Errorf("%s came back as %+v, %v", c.name, back, err)
		}
	}
	for kind := uint8(1); newCommand(kind) != nil; kind++ {
		if !kinds[kind] {
			t.Errorf("kind %d (%T) has no golden bytes", kind, newCommand(kind))
		}
	}
	compareGolden(t, file, got.String())
}

// TestSnapshotBytesAreFrozen: without a cold tier they are those of the first version, which older releases read.
func TestSnapshotBytesAreFrozen(t *testing.T) {
	for file, s := range map[string]*State{"snapshot": populated(t), "snapshot-cold": cold(t)} {
		var b bytes.Buffer
		if _, err := s.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		compareGolden(t, "testdata/"+file+".golden", hex.Dump(b.Bytes()))
	}
}

func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("bytes changed: a new version is needed, and the old one must still be read\n%s", got)
	}
}

func TestUnreadableCommandsStopTheStateMachine(t *testing.T) {
	good, err := Encode(&DeleteNamespace{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Clone(good)
	newer[0] = commandVersion + 1
	newer = fixCRC(newer)
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"a kind of a newer release":         {seal(200, []byte{0x80}), ErrNewerCommand},
		"a version of a newer release":      {newer, ErrNewerCommand},
		"one bit flipped":                   {flipped, ErrDamaged},
		"empty":                             {nil, ErrDamaged},
		"zeroes":                            {make([]byte, 64), ErrDamaged},
		"a length that is not there":        {seal(kindOf(&MoveCursors{}), []byte{0x81, 0xa1, 'p', 0xdd, 0x1f, 0xff, 0xff, 0xff}), ErrDamaged},
		"bytes after the body":              {seal(kindOf(&DeleteNamespace{}), []byte{0x80, 0x80}), ErrDamaged},
		"larger than any command may be":    {seal(kindOf(&DeleteNamespace{}), append([]byte{0xc6, 0, 0x10, 0, 0}, make([]byte, 1<<20)...)), ErrDamaged},
		"a map where a string should stand": {seal(kindOf(&DeleteNamespace{}), []byte{0x81, 0xa1, 'n', 0x80}), ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			s := New()
			hash := s.Hash()
			if r := s.ApplyBytes(1, c.bytes); !errors.Is(r.Err, c.want) {
				t.Fatalf("answered %v, want %v", r.Err, c.want)
			}
			// Nothing is applied any more, good or not.
			if r := s.ApplyBytes(2, mustEncode(t, &CreateNamespace{Name: "n"})); !errors.Is(r.Err, c.want) {
				t.Fatalf("then answered %v", r.Err)
			}
			if r := s.Apply(3, &CreateNamespace{Name: "n"}); !errors.Is(r.Err, c.want) || !errors.Is(s.Stopped(), c.want) {
				t.Fatalf("then answered %v", r.Err)
			}
			if s.Hash() != hash || s.Index() != 0 {
				t.Fatal("the state changed")
			}
		})
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	body := []byte{0x82, 0xa1, 'n', 0xa2, 'n', 's', 0xa3, 'n', 'e', 'w', 0x92, 1, 2}
	c, err := Decode(seal(kindOf(&DeleteNamespace{}), body))
	if err != nil || c.(*DeleteNamespace).Name != "ns" {
		t.Fatalf("%+v, %v", c, err)
	}
}

func TestBadSnapshotsAreRefused(t *testing.T) {
	var b bytes.Buffer
	if _, err := cold(t).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	for n := range len(good) {
		if _, err := Restore(bytes.NewReader(good[:n])); !errors.Is(err, ErrDamaged) {
			t.Fatalf("cut at %d of %d: %v", n, len(good), err)
		}
	}
	if _, err := Restore(bytes.NewReader(append(bytes.Clone(good), 0))); !errors.Is(err, ErrDamaged) {
		t.Fatalf("with a byte over: %v", err)
	}
	newer := bytes.Clone(good)
	newer[len(snapshotMagic)]++
	if _, err := Restore(bytes.NewReader(newer)); !errors.Is(err, ErrNewerCommand) {
		t.Fatalf("of a newer version: %v", err)
	}
	roundTrip(t, populated(t))
	roundTrip(t, cold(t))
}

func fixCRC(b []byte) []byte { return append(b[:2:2], sealTail(b)...) }

func sealTail(b []byte) []byte {
	c := commandCRC(b)
	return append([]byte{byte(c), byte(c >> 8), byte(c >> 16), byte(c >> 24)}, b[commandHeader:]...)
}

func mustEncode(t testing.TB, c Command) []byte {
	t.Helper()
	b, err := Encode(c)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
