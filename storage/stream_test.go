package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/fetch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// shelf is the catalog of a partition and the objects it names.
type shelf struct {
	t     testing.TB
	store *cold.Store
	tier  *fetch.Tier
	part  *fetch.Partition

	mu      sync.Mutex
	version uint64
	pieces  []fetch.Piece
	start   uint64 // of the log
	highest uint64 // offset that was asked for
	made    int
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	x := &shelf{t: t}
	var err error
	if x.store, err = cold.Open(t.Context(), cold.Config{URL: "mem://"}); err != nil {
		t.Fatal(err)
	}
	if x.tier, err = fetch.Open(fetch.Config{Store: x.store, Bytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	x.part = x.tier.Partition(partition, x)
	t.Cleanup(func() {
		if err := errors.Join(x.tier.Close(), x.store.Close()); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *shelf) At(offset uint64) (fetch.Piece, uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.highest = max(x.highest, offset)
	if offset < x.start {
		return fetch.Piece{}, x.version, &Trimmed{LogStart: x.start}
	}
	for _, p := range x.pieces {
		if p.Start <= offset && offset < p.End {
			return p, x.version, nil
		}
	}
	return fetch.Piece{}, x.version, fetch.ErrUncovered
}

func (x *shelf) AtTime(ms int64) (fetch.Piece, uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, p := range x.pieces {
		if p.LastTime >= ms {
			return p, x.version, nil
		}
	}
	return fetch.Piece{}, x.version, fetch.ErrUncovered
}

// change makes a new version of the catalog.
func (x *shelf) change(do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do()
	x.version++
}

// end is the end of what the catalog covers.
func (x *shelf) end() uint64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.pieces) == 0 {
		return x.start
	}
	return x.pieces[len(x.pieces)-1].End
}

// seal makes an object of batches, and its piece.
func (x *shelf) seal(batches []batch.Batch) fetch.Piece {
	x.t.Helper()
	x.made++
	last := batches[len(batches)-1]
	h := segment.Header{TopicID: partition.Topic, FirstEpoch: batches[0].Epoch(), Epoch: last.Epoch(), Base: batches[0].Base()}
	data, err := h.Append(nil)
	if err != nil {
		x.t.Fatal(err)
	}
	sum := segment.NewSummary(data, h.Base)
	for _, b := range batches {
		data = append(data, b...)
		sum.Add(b)
	}
	f := sum.Footer()
	data = f.Append(data, nil)
	key := fmt.Sprint("object-", x.made)
	if _, err := x.store.Put(x.t.Context(), key, cold.Bytes(data)); err != nil {
		x.t.Fatal(err)
	}
	return fetch.Piece{
		Key: key, Bytes: int64(len(data)), Start: f.First, End: f.End, Epochs: sum.Epochs(), FirstTime: f.FirstTime, LastTime: f.LastTime,
	}
}

// export makes an object of the batches of the log in [from, to) and lists it.
func (x *shelf) export(l *Log, from, to uint64) {
	x.t.Helper()
	p := x.seal(batchesOf(x.t, l.Stream(from, x.part), to))
	x.change(func() { x.pieces = append(x.pieces, p) })
}

// batchesOf reads copies of the batches up to an offset, and passes gaps.
func batchesOf(t testing.TB, s *Stream, to uint64) (list []batch.Batch) {
	t.Helper()
	defer s.Close()
	for s.Offset() < to {
		v, err := s.Next(t.Context(), 1)
		if g, ok := errors.AsType[*Gap](err); ok && g.Status == RangeSealed {
			s.Seek(g.To)
			continue
		}
		if err != nil {
			t.Fatalf("offset %d: %v", s.Offset(), err)
		}
		list = append(list, slices.Clone(batch.Batch(v.Data)))
		v.Release()
	}
	return list
}

// sameBatches fails unless both lists are the same bytes.
func sameBatches(t testing.TB, got, want []batch.Batch) {
	t.Helper()
	if !slices.EqualFunc(got, want, func(a, b batch.Batch) bool { return slices.Equal(a, b) }) {
		t.Fatalf("%d batches from %d on, want %d from %d on", len(got), got[0].Base(), len(want), want[0].Base())
	}
}

// begun is a store with a log of n messages in small files.
func begun(t testing.TB, fsys disk.FS, n uint64) (*Store, *Log) {
	t.Helper()
	s := openStore(t, fsys)
	l, _, err := s.Log(t.Context(), Facts{ID: partition})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	l.SetRanges([]Range{{Open: true, Epochs: []EpochStart{{1, 0}}}})
	produce(t, l, 0, n)
	return s, l
}

// A32: the files a stream reads are given up under it: it goes on from the objects, and
// back to the files where they begin, with no gap and no overlap.
func TestStreamGoesOnWhereFilesAreFreed(t *testing.T) {
	s, l := begun(t, disk.NewMemory(1), 900)
	defer closeStore(t, s)
	x := newShelf(t)
	all := batchesOf(t, l.Stream(0, nil), 900)
	stream := l.Stream(0, x.part)
	defer stream.Close()
	var got []batch.Batch
	read := func(to uint64) {
		for stream.Offset() < to {
			v, err := stream.Next(t.Context(), 1)
			if err != nil {
				t.Fatalf("offset %d: %v", stream.Offset(), err)
			}
			got = append(got, slices.Clone(batch.Batch(v.Data)))
			v.Release()
		}
	}
	read(100)
	for from := uint64(0); from < 750; from += 75 {
		x.export(l, from, from+75)
	}
	if err := l.Trim(600); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reader(100).Next(1); err == nil {
		t.Fatal("the files are there still")
	}
	x.highest = 0
	read(600)
	if x.highest >= 600 {
		t.Errorf("looked for offset %d in the cold tier, where the log has it", x.highest)
	}
	read(900)
	sameBatches(t, got, all)
	if _, err := stream.Next(t.Context(), 1); !errors.Is(err, ErrEnd) {
		t.Error(err)
	}
	if stream.inCold || x.tier.Used() > 1<<20 {
		t.Error("holds on to what it does not read any more")
	}
}

// What was released here because the catalog covers it is read from there, and what
// the log has behind it from the log.
func TestStreamReadsWhatWasReleased(t *testing.T) {
	fsys := disk.NewMemory(1)
	s, l := begun(t, fsys, 900)
	x := newShelf(t)
	all := batchesOf(t, l.Stream(0, nil), 900)
	x.export(l, 0, 500)
	cold := []Offsets{{From: 0, To: 500}}
	l.Covered(cold)
	if freed, err := l.Release(900); err != nil || freed == 0 {
		t.Fatalf("%d bytes freed: %v", freed, err)
	}
	closeStore(t, s) // with what it has in memory

	s = openStore(t, fsys)
	defer closeStore(t, s)
	ranges := []Range{{Start: 0, End: 900, Status: RangeSealed, Epochs: []EpochStart{{1, 0}}}}
	l, found, err := s.Log(t.Context(), Facts{ID: partition, Ranges: ranges, Cold: cold})
	if err != nil || found.Class == Damaged {
		t.Fatal(found, err)
	}
	if _, ok := errors.AsType[*InCold](second(l.Reader(0).Next(1))); !ok {
		t.Fatal("the files are there still")
	}
	sameBatches(t, batchesOf(t, l.Stream(0, x.part), 900), all)
	bare := l.Stream(0, nil)
	defer bare.Close()
	if _, ok := errors.AsType[*InCold](second(bare.Next(t.Context(), 1))); !ok {
		t.Error("without a cold tier the stream does not say where the messages are")
	}
}

func second[T any](_ T, err error) error { return err }

// A36: what other stores hold is read from the cold tier, and only what that does not
// cover is elsewhere.
func TestStreamReadsWhatOtherStoresHold(t *testing.T) {
	s, l := begun(t, disk.NewMemory(1), 300)
	all := batchesOf(t, l.Stream(0, nil), 300)
	x := newShelf(t)
	x.export(l, 0, 200)
	closeStore(t, s)

	s = openStore(t, disk.NewMemory(1)) // another store, which takes the partition over
	defer closeStore(t, s)
	ranges := []Range{{Start: 0, End: 300, Status: RangeSealed, Epochs: []EpochStart{{1, 0}}, Away: true}}
	l, _, err := s.Log(t.Context(), Facts{ID: partition, Ranges: ranges})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(2, 1000, 1<<40); err != nil {
		t.Fatal(err)
	}
	l.SetRanges(append(ranges, Range{Start: 1000, Open: true, Epochs: []EpochStart{{2, 1000}}}))
	produce(t, l, 0, 50)
	sameBatches(t, batchesOf(t, l.Stream(0, x.part), 200), all[:200])
	stream := l.Stream(200, x.part)
	defer stream.Close()
	_, err = stream.Next(t.Context(), 1)
	if e, ok := errors.AsType[*Elsewhere](err); !ok || e.From != 200 || e.To != 300 {
		t.Fatal(err)
	}
	hurt := slices.Clone(all[:10])
	hurt[9] = slices.Clone(hurt[9])
	hurt[9][len(hurt[9])-1] ^= 1
	x.change(func() { x.pieces = []fetch.Piece{x.seal(hurt)} })
	stream.Seek(9)
	_, err = stream.Next(t.Context(), 1)
	_, away := errors.AsType[*Elsewhere](err)
	if _, damaged := errors.AsType[*Damage](err); !away || !damaged {
		t.Fatalf("damaged in the cold tier, and in other stores: %v", err)
	}
	stream.Seek(300)
	_, err = stream.Next(t.Context(), 1)
	if g, ok := errors.AsType[*Gap](err); !ok || g.To != 1000 || g.Status != RangeSealed {
		t.Fatal(err)
	}
	stream.Seek(1000)
	if v, err := stream.Next(t.Context(), 1); err != nil || v.Base != 1000 {
		t.Fatal(v.Base, err)
	} else {
		v.Release()
	}
}

// What this store has given up is passed over by nobody: what the cold tier does not
// cover is named for what it is, and the start of the log is the catalog's word.
func TestStreamNeverJumpsToTheLocalStart(t *testing.T) {
	s, l := begun(t, disk.NewMemory(1), 400)
	defer closeStore(t, s)
	x := newShelf(t)
	x.export(l, 0, 100)
	x.export(l, 250, 300)
	if err := l.Trim(300); err != nil {
		t.Fatal(err)
	}
	ranges := []Range{
		{Start: 0, End: 100, Epochs: []EpochStart{{1, 0}}},
		{Start: 100, End: 150, Status: RangeOrphaned, Epochs: []EpochStart{{1, 100}}},
		{Start: 150, End: 180, Status: RangeLost, Epochs: []EpochStart{{1, 150}}},
		{Start: 200, Open: true, Epochs: []EpochStart{{1, 200}}},
	}
	l.SetRanges(ranges)
	stream := l.Stream(0, x.part)
	defer stream.Close()
	for _, want := range []error{
		&Gap{From: 100, To: 150, Status: RangeOrphaned}, &Gap{From: 150, To: 180, Status: RangeLost},
		&Gap{From: 180, To: 200, Status: RangeSealed}, &Elsewhere{From: 200, To: 300},
	} {
		var err error
		for err == nil {
			var v View
			if v, err = stream.Next(t.Context(), 1); err == nil {
				v.Release()
			}
		}
		if err.Error() != want.Error() {
			t.Fatalf("got %v, want %v", err, want)
		}
		switch e := want.(type) {
		case *Gap:
			stream.Seek(e.To)
		case *Elsewhere:
			stream.Seek(250)
		}
	}
	if n := len(batchesOf(t, stream, 400)); n != 150 {
		t.Errorf("%d messages from 250 on", n)
	}
	x.change(func() { x.start = 270 })
	again := l.Stream(0, x.part)
	defer again.Close()
	_, err := again.Next(t.Context(), 1)
	if e, ok := errors.AsType[*Trimmed](err); !ok || e.LogStart != 270 {
		t.Error(err)
	}
}

// What is damaged here is read from the cold tier; what is damaged in both is
// damaged, with the bounds that both have.
func TestStreamReadsAroundDamage(t *testing.T) {
	fsys := disk.NewMemory(1)
	s, l := begun(t, fsys, 300)
	all := batchesOf(t, l.Stream(0, nil), 300)
	x := newShelf(t)
	x.export(l, 0, 200)
	closeStore(t, s)
	name := "/data/wal/01020300000000000000000000000000/0/" + segment.FormatName(0, 1)
	f, err := fsys.Open(name, disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff, 0xff, 0xff}, 700); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, fsys)
	defer closeStore(t, s)
	l, _, err = s.Log(t.Context(), Facts{ID: partition, Ranges: []Range{{End: 300, Epochs: []EpochStart{{1, 0}}}}})
	if err != nil {
		t.Fatal(err)
	}
	_, obstacles := consume(t, l, 0)
	if len(obstacles) != 1 {
		t.Fatalf("the file is not damaged: %v", obstacles)
	}
	sameBatches(t, batchesOf(t, l.Stream(0, x.part), 300), all)

	here, _ := errors.AsType[*Damage](obstacles[0])
	x.change(func() { x.pieces = nil })
	stream := l.Stream(here.From, x.part)
	defer stream.Close()
	if _, err := stream.Next(t.Context(), 1); err == nil || err.Error() != here.Error() {
		t.Errorf("not covered: %v", err)
	}
	x.change(func() { p := x.seal(all[:200]); p.Key = "nowhere"; x.pieces = []fetch.Piece{p} })
	_, err = stream.Next(t.Context(), 1)
	if _, ok := errors.AsType[*fetch.Missing](err); !ok {
		t.Errorf("covered by an object that is not there: %v", err)
	}

	hurt := slices.Clone(all[:200])
	i := slices.IndexFunc(hurt, func(b batch.Batch) bool { return b.End() > here.From })
	hurt[i] = slices.Clone(hurt[i])
	hurt[i][len(hurt[i])-1] ^= 1
	x.change(func() { x.pieces = []fetch.Piece{x.seal(hurt)} })
	_, err = stream.Next(t.Context(), 1)
	if d, ok := errors.AsType[*Damage](err); !ok || d.From != here.From || d.To != min(here.To, hurt[i].End()) || d.File != here.File {
		t.Errorf("damaged in both: %v", err)
	}
}

// TestStreamModel appends, exports, merges, collects, frees files and moves the start of
// the log at random while streams read: each sees every message once and in order.
func TestStreamModel(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { streamModel(t, rand.New(rand.NewPCG(seed, 5))) })
	}
}

func streamModel(t *testing.T, rnd *rand.Rand) {
	s, l := begun(t, disk.NewMemory(1), 50)
	defer closeStore(t, s)
	x := newShelf(t)
	next, freed := uint64(50), uint64(0)
	streams := make([]*Stream, 4)
	for i := range streams {
		streams[i] = l.Stream(0, x.part)
		defer streams[i].Close()
	}
	for range 300 {
		switch end := x.end(); rnd.IntN(7) {
		case 0, 1:
			n := 1 + rnd.Uint64N(60)
			produce(t, l, next, n)
			next += n
		case 2:
			if to := min(next, end+1+rnd.Uint64N(80)); to > end {
				x.export(l, end, to)
			}
		case 3:
			freed = max(freed, end-min(end, rnd.Uint64N(100)))
			if err := l.Trim(freed); err != nil {
				t.Fatal(err)
			}
		case 4:
			x.merge(rnd, l)
		case 5:
			if rnd.IntN(10) == 0 && end > 0 {
				x.change(func() {
					x.start = max(x.start, end/2)
					x.pieces = slices.DeleteFunc(x.pieces, func(p fetch.Piece) bool { return p.End <= x.start })
				})
			}
		case 6:
			streams[rnd.IntN(len(streams))].advance(t, next, 1+rnd.Uint64N(100))
		}
	}
	for _, s := range streams {
		s.advance(t, next, next)
		if s.Offset() != next {
			t.Errorf("ends at %d of %d", s.Offset(), next)
		}
	}
}

// merge makes one object of some neighbours and removes theirs.
func (x *shelf) merge(rnd *rand.Rand, l *Log) {
	x.t.Helper()
	if len(x.pieces) < 3 {
		return
	}
	i := rnd.IntN(len(x.pieces) - 2)
	old := slices.Clone(x.pieces[i : i+3])
	if old[0].Start < x.start {
		return
	}
	p := x.seal(batchesOf(x.t, l.Stream(old[0].Start, x.part), old[2].End))
	x.change(func() { x.pieces = slices.Replace(x.pieces, i, i+3, p) })
	for _, o := range old {
		if err := x.store.Delete(x.t.Context(), o.Key); err != nil {
			x.t.Fatal(err)
		}
	}
}

// advance reads so many messages, and holds each against its offset.
func (s *Stream) advance(t testing.TB, end, n uint64) {
	t.Helper()
	for to := min(s.Offset()+n, end); s.Offset() < to; {
		at := s.Offset()
		v, err := s.Next(t.Context(), 200)
		if e, ok := errors.AsType[*Trimmed](err); ok && e.LogStart > at {
			s.Seek(e.LogStart)
			continue
		}
		if err != nil {
			t.Fatalf("offset %d: %v", at, err)
		}
		if v.Base != at {
			t.Fatalf("offset %d: a view of %d to %d", at, v.Base, v.End)
		}
		for rest := v.Data; len(rest) > 0; {
			b, err := batch.Check(rest, batch.Limits{})
			if err != nil || b.Sequence() != at || b.Base() != at {
				t.Fatalf("offset %d holds message %d of offset %d: %v", at, b.Sequence(), b.Base(), err)
			}
			at, rest = b.End(), rest[len(b):]
		}
		v.Release()
	}
}

// The offset of a time is the lowest that any tier knows.
func TestOffsetOverTiers(t *testing.T) {
	s, l := begun(t, disk.NewMemory(1), 300)
	defer closeStore(t, s)
	x := newShelf(t)
	all := batchesOf(t, l.Stream(0, nil), 300)
	want := map[int64]uint64{}
	for _, b := range slices.Backward(all) {
		want[b.AppendTime()] = b.Base()
	}
	x.export(l, 0, 200)
	if err := l.Trim(150); err != nil {
		t.Fatal(err)
	}
	for ms, offset := range want {
		if got, err := l.OffsetOver(t.Context(), x.part, ms); got != offset || err != nil {
			t.Errorf("time %d: %d, want %d, %v", ms, got, offset, err)
		}
	}
	if got, err := l.OffsetOver(t.Context(), nil, 0); got != 150 || err != nil {
		t.Errorf("without a cold tier: %d, %v", got, err)
	}
}
