package state

import (
	"bytes"
	"errors"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

func exampleRemains() Remains {
	return Remains{
		Cluster:    Cluster{ID: [16]byte{1}, Name: "danube", History: 2},
		Run:        RegisterStore{Store: StoreID{2}, Broker: "n1", Nonce: [16]byte{3}},
		Namespaces: []Namespace{{Name: "default"}, {Name: "shop", Limits: Limits{Producers: 7}}},
		Topics: []RemainsTopic{{
			ID: TopicID{4}, Name: "/shop/orders", Created: 5, Settings: TopicSettings{Partitions: 4, Reliable: true, Durability: LevelObject, RetentionBytes: 99},
			Partitions: []RemainsPartition{
				{
					Number: 0, LogStart: 100, Superseded: Offsets{{Start: 90, End: 110}}, Pieces: []RemainsPiece{
						{Epoch: 1, Start: 100, End: 180}, {Epoch: 1, Start: 180, End: 200, Stored: true}, {Epoch: 3, Start: 200, End: 250}, {Epoch: 3, Start: 250, End: 260, Lost: true},
						{Epoch: 3, Start: 260, End: 300, Stored: true}, {Epoch: 2<<48 | 1, Start: 300, End: 1 << 33, Lost: true}, {Epoch: 2<<48 | 1, Start: 1 << 33, End: 1<<33 + 10, Stored: true},
					},
					Segments: []catalog.Segment{rebuiltSegment(90, 180), rebuiltSegment(200, 230), rebuiltSegment(230, 250), rebuiltSegment(270, 280)},
				},
				{Number: 2, Epoch: 9},
				{Number: 3, Seen: 50 + HistoryGap, Pieces: []RemainsPiece{{Epoch: 1, Start: 0, End: 10, Stored: true}, {Epoch: 1<<48 | 1, Start: 10 + HistoryGap, End: 20 + HistoryGap, Stored: true}}},
			},
		}},
		Subscriptions: []Subscription{{
			ID: 5, Topic: TopicID{4}, Name: "s", Type: Shared, Options: SubscriptionOptions{MaxUnacked: 3}, Start: []uint64{100, 0, 0, 0},
			Cursors: []Cursor{{Generation: 2, Prefix: 245, Acked: Offsets{{Start: 247, End: 250}}, Counts: OffsetNumbers{{Offset: 246, Number: 3}}}, {}, {}, {Prefix: 10}},
		}},
	}
}

// rebuiltSegment is a segment with an object of its own.
func rebuiltSegment(start, end uint64) catalog.Segment {
	return catalog.Segment{Start: start, End: end, Bytes: 10, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: start}}
}

// TestRebuildKeepsEveryOffsetAndGivesNoneAgain: what was found is SEALED, what is missing between is LOST, the new epoch is
// of the next history and lies far above.
func TestRebuildKeepsEveryOffsetAndGivesNoneAgain(t *testing.T) {
	s, err := Rebuild(exampleRemains())
	if err != nil {
		t.Fatal(err)
	}
	if err := checkInvariants(s.Freeze()); err != nil {
		t.Fatal(err)
	}
	if c := s.Cluster(); c.ID != [16]byte{1} || c.History != 3 {
		t.Errorf("cluster %+v", c)
	}
	topic := s.Topic("/shop/orders")
	if topic == nil || topic.Settings != exampleRemains().Topics[0].Settings || topic.CreatedAt != 5 || s.Namespace("shop").Limits.Producers != 7 {
		t.Fatalf("topic %+v", topic)
	}
	p := s.Partition(topic.ID, 0)
	for n, want := range map[uint64]struct {
		status RangeStatus
		epoch  uint64
	}{100: {RangeSealed, 1}, 249: {RangeSealed, 3}, 250: {RangeLost, 3}, 299: {RangeSealed, 3}, 300: {RangeLost, 2<<48 | 1}, 1<<33 + 9: {RangeSealed, 2<<48 | 1}} {
		if r := p.Range(n); r == nil || r.Status != want.status || r.Epoch(n) != want.epoch {
			t.Errorf("offset %d: %+v, want %+v", n, r, want)
		}
	}
	if p.LogStart != 100 || p.Epoch != 3<<48|1 || p.OpenRange().Start != 1<<33+10+HistoryGap || p.Range(1<<33+10) != nil {
		t.Errorf("partition %+v", p)
	}
	owner := p.Owner
	if owner.Store != (StoreID{2}) || owner.Incarnation < 3<<32 {
		t.Errorf("owner %v could be a run of an earlier history", owner)
	}
	if q := s.Partition(topic.ID, 1); q.Epoch != 0 || q.State != Closed {
		t.Errorf("a partition of which nothing is known: %+v", q)
	}
	if q := s.Partition(topic.ID, 2); q.OpenRange() == nil || q.OpenRange().Start != HistoryGap || q.Level != LevelObject {
		t.Errorf("a partition without messages: %+v", q)
	}
	if q := s.Partition(topic.ID, 3); q.Range(10) != nil || q.Range(9+HistoryGap) != nil || q.Range(10+HistoryGap) == nil || q.OpenRange().Start != 50+2*HistoryGap {
		t.Errorf("the gap of an earlier rebuild: %+v", q)
	}
	if p.Catalog.Len() != 4 || p.ColdEnd() != 180 || len(p.Range(150).Stores) != 0 || len(p.Range(190).Stores) != 1 || len(p.Superseded) != 1 || p.Superseded[0] != (OffsetRange{Start: 100, End: 110}) {
		t.Errorf("the cold tier of %+v", p)
	}
	if from, to, ok := p.NextExport(); !ok || from != 180 || to != 200 {
		t.Errorf("goes on to export at [%d, %d), %t", from, to, ok)
	}
	sub := s.Subscription(topic.ID, "s")
	if sub.ID != 5 || sub.Type != Shared || sub.Options.MaxUnacked != 3 {
		t.Errorf("subscription %+v", sub)
	}
	for n, want := range map[uint64]bool{244: true, 245: false, 246: false, 248: true, 251: true, 260: false, 299: false, 300: true, 1 << 33: false, 1<<33 + 10: true, p.OpenRange().Start: false} {
		if c := &sub.Cursors[0]; c.Acknowledged(n) != want || c.Generation != 2 {
			t.Errorf("offset %d acknowledged=%t in %+v", n, c.Acknowledged(n), c)
		}
	}
	if c := sub.Cursors[3]; c.Prefix != 10+HistoryGap {
		t.Errorf("the cursor at a gap is %+v", c)
	}
	// The store goes on as after any restart.
	run := s.Apply(s.Index()+1, &RegisterStore{Store: StoreID{2}, Broker: "n1", Nonce: [16]byte{4}})
	res := s.Apply(s.Index()+1, &OpenPartitions{Owner: Owner{StoreID{2}, run.Incarnation}, Entries: []PartitionOpen{{Topic: topic.ID, Epoch: p.Epoch, End: p.OpenRange().Start}}})
	if err := errors.Join(run.Err, res.Entry(0)); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if _, err := s.Freeze().WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if again, err := Restore(&b); err != nil || again.Hash() != s.Hash() {
		t.Errorf("not the same after a snapshot: %v", err)
	}
}

func TestRebuildRefusesWhatNoClusterHas(t *testing.T) {
	for name, spoil := range map[string]func(*Remains){
		"offsets twice":             func(r *Remains) { r.Topics[0].Partitions[0].Pieces[1].Start = 150 },
		"below the start":           func(r *Remains) { r.Topics[0].Partitions[0].LogStart = 101 },
		"epochs fall":               func(r *Remains) { r.Topics[0].Partitions[0].Pieces[2].Epoch = 4 },
		"epoch zero":                func(r *Remains) { r.Topics[0].Partitions[0].Pieces[0].Epoch = 0 },
		"too far":                   func(r *Remains) { r.Topics[0].Partitions[0].Pieces[6].End = 1 << 62 },
		"seen too far":              func(r *Remains) { r.Topics[0].Partitions[1].Seen = 1 << 62 },
		"a name":                    func(r *Remains) { r.Topics[0].Name = "/a b/c" },
		"no cluster":                func(r *Remains) { r.Cluster.ID = [16]byte{} },
		"partition 65536":           func(r *Remains) { r.Topics[0].Partitions[1].Number = 1 << 16 },
		"no history left":           func(r *Remains) { r.Cluster.History = 1<<16 - 1 },
		"held by nobody":            func(r *Remains) { r.Topics[0].Partitions[0].Segments[2].End = 249 },
		"segments overlap":          func(r *Remains) { r.Topics[0].Partitions[0].Segments[2].Start = 229 },
		"a segment of what is lost": func(r *Remains) { r.Topics[0].Partitions[0].Segments[2].End = 255 },
		"a segment of a gap":        func(r *Remains) { r.Topics[0].Partitions[0].Segments[3].End = 310 },
		"a segment of nothing":      func(r *Remains) { r.Topics[0].Partitions[0].Segments[2].Bytes = 0 },
		"acknowledged too far":      func(r *Remains) { r.Subscriptions[0].Cursors[0].Prefix = 1 << 60 },
		"a cursor too few":          func(r *Remains) { r.Subscriptions[0].Cursors = r.Subscriptions[0].Cursors[:3] },
		"a start too few":           func(r *Remains) { r.Subscriptions[0].Start = r.Subscriptions[0].Start[:3] },
		"a subscription twice":      func(r *Remains) { r.Subscriptions = append(r.Subscriptions, r.Subscriptions[0]) },
		"of a topic there is not":   func(r *Remains) { r.Subscriptions[0].Topic = TopicID{5} },
		"a subscription to come":    func(r *Remains) { r.Subscriptions[0].ID = 3 << 32 },
		"a namespace":               func(r *Remains) { r.Namespaces[0].Name = "a b" },
	} {
		r := exampleRemains()
		spoil(&r)
		if _, err := Rebuild(r); err == nil {
			t.Errorf("%s: rebuilt", name)
		}
	}
}

func TestUniqueNamesLeavesTheNameToTheNewest(t *testing.T) {
	topics := []RemainsTopic{{ID: TopicID{1}, Name: "/a/b", Created: 1}, {ID: TopicID{2}, Name: "/a/b", Created: 3}, {ID: TopicID{3}, Name: "/a/b", Created: 2}, {ID: TopicID{4}, Name: "/a/c"}}
	renamed := UniqueNames(topics)
	names := map[string]TopicID{}
	for _, topic := range topics {
		names[topic.Name] = topic.ID
	}
	if len(names) != 4 || names["/a/b"] != (TopicID{2}) || names["/a/b-01000000"] != (TopicID{1}) || len(renamed) != 2 || renamed[TopicID{3}] != "/a/b" {
		t.Errorf("%v, renamed %v", names, renamed)
	}
}
