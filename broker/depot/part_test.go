package depot

import (
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/fetch"
	"github.com/danubemq/danube/storage/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// own is a segment with an object of its own.
func own(start, end uint64, first, last int64) catalog.Segment {
	return catalog.Segment{
		Start: start, End: end, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 3, Unique: start + 1},
		Bytes: 1000, CRC: uint32(start), FirstTime: first, LastTime: last,
	}
}

// listed is a partition whose log begins at 15: two segments, and a page in front of them.
func listed() *state.Partition {
	var all *catalog.Catalog
	old := []catalog.Segment{own(0, 10, 100, 190), own(10, 20, 200, 290)}
	for _, s := range append(slices.Clone(old), own(20, 30, 300, 390), own(40, 50, 500, 590)) {
		all = all.Add(s)
	}
	m := &state.Partition{
		Topic: state.TopicID{7}, Number: 2, Epoch: 3, LogStart: 15, Ceiling: 1000,
		Ranges: []state.Range{
			{Start: 15, End: 30, Status: state.RangeSealed, Epochs: []state.EpochStart{{Epoch: 1, Start: 15}, {Epoch: 2, Start: 25}}},
			{Start: 40, Status: state.RangeOpen, Epochs: []state.EpochStart{{Epoch: 3, Start: 40}}},
		},
	}
	page, _ := catalog.NewPage(m.Topic, m.Number, old, catalog.Object{Kind: catalog.PageObject, Incarnation: 3, Unique: 9})
	m.Catalog = all.Fold(page)
	return m
}

// A reader finds the piece that holds an offset or a time, each with the epochs that
// the ranges give, and hears what the start of the log and holes are.
func TestPiecesAreThoseOfTheCatalog(t *testing.T) {
	m := listed()
	for offset, want := range map[uint64]struct {
		start, end uint64
		page       bool
		epochs     []segment.EpochStart
	}{
		15: {0, 20, true, []segment.EpochStart{{Epoch: 1, Start: 0}}},
		20: {20, 30, false, []segment.EpochStart{{Epoch: 1, Start: 20}, {Epoch: 2, Start: 25}}},
		29: {20, 30, false, []segment.EpochStart{{Epoch: 1, Start: 20}, {Epoch: 2, Start: 25}}},
		40: {40, 50, false, []segment.EpochStart{{Epoch: 3, Start: 40}}},
	} {
		p, err := pieceAt(m, offset)
		if err != nil || p.Start != want.start || p.End != want.end || p.Page != want.page || !slices.Equal(p.Epochs, want.epochs) || p.Key == "" {
			t.Errorf("offset %d: %+v, %v", offset, p, err)
		}
	}
	for offset, want := range map[uint64]error{30: fetch.ErrUncovered, 39: fetch.ErrUncovered, 50: fetch.ErrUncovered} {
		if _, err := pieceAt(m, offset); !errors.Is(err, want) {
			t.Errorf("offset %d: %v, want %v", offset, err, want)
		}
	}
	_, err := pieceAt(m, 14)
	if trimmed, is := errors.AsType[*storage.Trimmed](err); !is || trimmed.LogStart != 15 {
		t.Errorf("below the start of the log: %v", err)
	}
	for ms, start := range map[int64]uint64{0: 0, 290: 0, 291: 20, 391: 40, 590: 40} {
		if p, err := pieceAtTime(m, ms); err != nil || p.Start != start {
			t.Errorf("at %d ms: the piece at %d, %v; want that at %d", ms, p.Start, err, start)
		}
	}
	if _, err := pieceAtTime(m, 591); !errors.Is(err, fetch.ErrUncovered) {
		t.Errorf("behind all: %v", err)
	}
	if _, err := pieceAt(&state.Partition{}, 0); !errors.Is(err, fetch.ErrUncovered) {
		t.Errorf("an empty catalog: %v", err)
	}
}

// The segment behind an offset is found also where a page lists it; a page that is not
// what the catalog says is believed in nothing.
func TestSegmentsOfPagesAreFound(t *testing.T) {
	m := listed()
	store, err := cold.Open(t.Context(), cold.Config{URL: "mem://"})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	d := &Depot{cfg: Config{Store: store}}
	_, content := catalog.NewPage(m.Topic, m.Number, []catalog.Segment{own(0, 10, 100, 190), own(10, 20, 200, 290)}, catalog.Object{})
	g := m.Catalog.Pages()[0]
	key := keyOf(m, g.Object, g.Start, g.End)
	if _, err := d.segmentAt(t.Context(), m, 17); !errors.Is(err, cold.NotFound) {
		t.Errorf("the page is not there: %v", err)
	}
	if err := store.Replace(t.Context(), key, content); err != nil {
		t.Fatal(err)
	}
	for offset, start := range map[uint64]uint64{17: 10, 9: 0, 25: 20} {
		if s, err := d.segmentAt(t.Context(), m, offset); err != nil || s.Start != start {
			t.Errorf("offset %d lies in the segment at %d, %v; want that at %d", offset, s.Start, err, start)
		}
	}
	content[len(content)/2] ^= 1
	if err := store.Replace(t.Context(), key, content); err != nil {
		t.Fatal(err)
	}
	if _, err := d.segmentAt(t.Context(), m, 17); !errors.Is(err, catalog.ErrDamaged) {
		t.Errorf("a page with a flipped bit: %v", err)
	}
	if _, err := d.segmentAt(t.Context(), m, 35); err == nil {
		t.Error("an offset that nothing covers is found")
	}
}
