package state

import (
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

// stocked returns a state with n topics of one partition whose catalogs have some segments each, and the command that
// commits the next piece, of one cut, for the first of them.
func stocked(t testing.TB, n, segments, entries int) (*State, func(round int) *CommitSegments) {
	t.Helper()
	s, o := many(t, n)
	index := uint64(10)
	do := func(c Command) {
		index++
		if r := s.Apply(index, c); r.Err != nil || r.Entries != nil {
			t.Fatalf("%T: %v %v", c, r.Err, r.Entries)
		}
	}
	commit := func(round, entries int, kind catalog.Kind) *CommitSegments {
		c := &CommitSegments{Owner: o}
		for i := range entries {
			seg := testSegment(uint64(round), uint64(round+1), uint64(round), o, kind)
			seg.FirstTime, seg.LastTime, seg.Bytes = 1700000000000+int64(round)*250, 1700000000200+int64(round)*250, 4000+int64(i)
			if kind == catalog.Cut {
				seg.Position = int64(4000 * i)
			} else {
				seg.Object.Unique = uint64(round+1) * 0x9e3779b97f4a7c15
			}
			c.Entries = append(c.Entries, SegmentCommit{TopicID{byte(i), byte(i >> 8), 1}, 0, 1, []EpochStart{{1, uint64(round)}}, seg})
		}
		return c
	}
	update := &UpdatePartitions{}
	for i := range n {
		update.Entries = append(update.Entries, PartitionUpdate{Topic: TopicID{byte(i), byte(i >> 8), 1}, Epoch: 1, Ceiling: 1 << 40})
	}
	do(update)
	for round := range segments {
		do(commit(round, n, catalog.Own))
	}
	return s, func(round int) *CommitSegments { return commit(segments+round, entries, catalog.Cut) }
}

// TestCatalogsStaySmall: a hundred segments a topic, as many as pages and merging leave of all but a few.
func TestCatalogsStaySmall(t *testing.T) {
	const topics, segments = 1000, 100
	used := func(segments int) int {
		before := heap()
		s, _ := stocked(t, topics, segments, 0)
		after := heap()
		runtime.KeepAlive(s)
		return int(after) - int(before)
	}
	bare, full := used(0), used(segments)
	per := (full - bare) / topics / segments
	t.Logf("%d bytes of heap a topic, %d with %d segments: %d a segment", bare/topics, full/topics, segments, per)
	if per < 10 || per > 48 {
		t.Errorf("%d bytes a segment; the target is 48", per)
	}
}

// TestACutOfAThousandPartitionsIsOneCommand: four a second of them must fit into the log and into one entry.
func TestACutOfAThousandPartitionsIsOneCommand(t *testing.T) {
	s, next := stocked(t, 1000, 3, 1000)
	c := next(0)
	b := mustEncode(t, c)
	if per := len(b) / len(c.Entries); per > 150 || len(Split(c)) != 1 {
		t.Fatalf("%d bytes an entry, %d parts", per, len(Split(c)))
	}
	if r := s.ApplyBytes(100, b); r.Err != nil || r.Entries != nil {
		t.Fatalf("%v %v", r.Err, r.Entries)
	}
	if n := s.objects.Pieces(c.Entries[0].Segment.Object); n != 1000 {
		t.Fatalf("the cut is named %d times", n)
	}
	roundTrip(t, s)
}

// TestBatchedColdCommandsAreCut: entry by entry, with all that stands beside them.
func TestBatchedColdCommandsAreCut(t *testing.T) {
	const n = 20_000
	o := Owner{storeID(1), 3}
	pages := [][]byte{{1, 2, 3}}
	partitions := make([]uint32, 8*n)
	for i := range partitions {
		partitions[i] = 1 << 20
	}
	entries := func(c Command) (count int, beside Command) {
		switch c := c.(type) {
		case *CommitSegments:
			return len(c.Entries), &CommitSegments{Owner: c.Owner}
		case *GrantExports:
			return len(c.Entries), &GrantExports{}
		case *SwapSegments:
			return len(c.Entries), &SwapSegments{Owner: c.Owner, At: c.At}
		case *CondemnTopic:
			return len(c.Partitions), &CondemnTopic{ID: c.ID, At: c.At}
		case *CondemnObjects:
			return len(c.Names), &CondemnObjects{Owner: c.Owner, At: c.At, Pages: c.Pages}
		case *ForgetObjects:
			return len(c.Names), &ForgetObjects{}
		}
		return 0, nil
	}
	for _, whole := range []Command{
		&CommitSegments{Owner: o, Entries: make([]SegmentCommit, n)},
		&GrantExports{Entries: make([]ExportGrant, n)},
		&SwapSegments{Owner: o, At: 5, Entries: make([]SegmentSwap, n)},
		&CondemnTopic{ID: topicID(1), At: 5, Partitions: partitions},
		&CondemnObjects{Owner: o, At: 5, Names: make([]catalog.Name, n), Pages: pages},
		&ForgetObjects{Names: make([]catalog.Name, n)},
	} {
		want, beside := entries(whole)
		got, parts := 0, Split(whole)
		for _, p := range parts {
			mustEncode(t, p.Command)
			count, rest := entries(p.Command)
			if p.First != got || !reflect.DeepEqual(rest, beside) {
				t.Fatalf("%T: a piece begins at %d, want %d, with %+v beside it", whole, p.First, got, rest)
			}
			got += count
		}
		if got != want || len(parts) < 2 {
			t.Errorf("%T: %d entries of %d in %d pieces", whole, got, want, len(parts))
		}
	}
}

// TestCatalogsAreReadWhileTheyGrow: a view is read by others while the state goes on, and stays as it was.
func TestCatalogsAreReadWhileTheyGrow(t *testing.T) {
	s, next := stocked(t, 50, 70, 50)
	var wg sync.WaitGroup
	for round := range 40 {
		v, hash := s.Freeze(), s.Hash()
		wg.Go(func() {
			if v.Hash() != hash {
				t.Error("a view has changed")
			}
		})
		if r := s.Apply(uint64(1000+round), next(round)); r.Err != nil || r.Entries != nil {
			t.Fatal(r.Err, r.Entries)
		}
	}
	wg.Wait()
}

// BenchmarkCommit applies the commits of one cut of a broker with a thousand busy partitions among ten thousand topics. A
// view is taken between, as after each command of the log. Time and bytes must not depend on the length of the catalogs.
func BenchmarkCommit(b *testing.B) {
	for _, segments := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("behind %d", segments), func(b *testing.B) {
			topics := 10_000
			if segments > 100 {
				topics = 1000
			}
			s, next := stocked(b, topics, segments, 1000)
			b.ReportAllocs()
			round, index := 0, uint64(1000)
			for b.Loop() {
				b.StopTimer()
				enc := mustEncode(b, next(round))
				b.StartTimer()
				if r := s.ApplyBytes(index, enc); r.Err != nil || r.Entries != nil {
					b.Fatal(r.Err, r.Entries)
				}
				s.Freeze()
				round++
				index++
			}
		})
	}
}

// BenchmarkRetention passes one segment of each of a thousand partitions.
func BenchmarkRetention(b *testing.B) {
	const topics = 1000
	for b.Loop() {
		b.StopTimer()
		s, _ := stocked(b, topics, 20, 0)
		c := &UpdatePartitions{}
		for i := range topics {
			c.Entries = append(c.Entries, PartitionUpdate{Topic: TopicID{byte(i), byte(i >> 8), 1}, Epoch: 1, Floor: 10, LogStart: 1, At: 5})
		}
		b.StartTimer()
		if r := s.Apply(100, c); r.Entries != nil || s.objects.Len() != topics {
			b.Fatal(r.Entries, s.objects.Len())
		}
	}
}
