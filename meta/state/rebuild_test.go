package state

import (
	"bytes"
	"errors"
	"testing"
)

func exampleRemains() Remains {
	return Remains{
		Cluster: Cluster{ID: [16]byte{1}, Name: "danube", History: 2},
		Run:     RegisterStore{Store: StoreID{2}, Broker: "n1", Nonce: [16]byte{3}},
		Topics: []RemainsTopic{{ID: TopicID{4}, Name: "/shop/orders", Created: 5, Partitions: []RemainsPartition{
			{Number: 0, Pieces: []RemainsPiece{{1, 100, 200}, {3, 200, 250}, {3, 260, 300}, {2<<48 | 1, 1 << 33, 1<<33 + 10}}},
			{Number: 2},
			{Number: 3, Pieces: []RemainsPiece{{1, 0, 10}, {1<<48 | 1, 10 + HistoryGap, 20 + HistoryGap}}},
		}}},
	}
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
	if topic == nil || topic.Settings.Partitions != 4 || !topic.Settings.Reliable || topic.ID != (TopicID{4}) {
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
	if q := s.Partition(topic.ID, 2); q.OpenRange() == nil || q.OpenRange().Start != HistoryGap {
		t.Errorf("a partition without messages: %+v", q)
	}
	if q := s.Partition(topic.ID, 3); q.Range(10) != nil || q.Range(9+HistoryGap) != nil || q.Range(10+HistoryGap) == nil {
		t.Errorf("the gap of an earlier rebuild: %+v", q)
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
		"offsets twice":   func(r *Remains) { r.Topics[0].Partitions[0].Pieces[1].Start = 150 },
		"epochs fall":     func(r *Remains) { r.Topics[0].Partitions[0].Pieces[1].Epoch = 4 },
		"epoch zero":      func(r *Remains) { r.Topics[0].Partitions[0].Pieces[0].Epoch = 0 },
		"too far":         func(r *Remains) { r.Topics[0].Partitions[0].Pieces[3].End = 1 << 62 },
		"a name":          func(r *Remains) { r.Topics[0].Name = "/a b/c" },
		"no cluster":      func(r *Remains) { r.Cluster.ID = [16]byte{} },
		"partition 65536": func(r *Remains) { r.Topics[0].Partitions[1].Number = 1 << 16 },
		"no history left": func(r *Remains) { r.Cluster.History = 1<<16 - 1 },
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
