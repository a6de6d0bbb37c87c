package storage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

func TestSettlePiecesGivesEachOffsetToOneEpoch(t *testing.T) {
	for name, c := range map[string]struct{ pieces, want []Piece }{
		"none":                          {nil, nil},
		"files of one epoch":            {[]Piece{{1, 10, 20}, {1, 0, 10}}, []Piece{{1, 0, 20}}},
		"a file is missing":             {[]Piece{{1, 0, 10}, {1, 15, 20}}, []Piece{{1, 0, 10}, {1, 15, 20}}},
		"epochs follow":                 {[]Piece{{2, 10, 12}, {1, 0, 10}}, []Piece{{1, 0, 10}, {2, 10, 12}}},
		"the higher epoch wins":         {[]Piece{{1, 0, 30}, {2, 20, 25}}, []Piece{{1, 0, 20}, {2, 20, 25}}},
		"and wholly":                    {[]Piece{{1, 0, 10}, {1, 20, 30}, {2, 5, 8}}, []Piece{{1, 0, 5}, {2, 5, 8}}},
		"over more than one":            {[]Piece{{1, 0, 30}, {2, 10, 20}, {3, 5, 6}}, []Piece{{1, 0, 5}, {3, 5, 6}}},
		"a newest epoch that is empty":  {[]Piece{{1, 0, 10}, {2, 10, 10}}, []Piece{{1, 0, 10}, {2, 10, 10}}},
		"an empty file behind messages": {[]Piece{{1, 0, 10}, {1, 10, 10}}, []Piece{{1, 0, 10}}},
	} {
		if got := settlePieces(slices.Clone(c.pieces)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestSurveyAndSettleAfterAnyEnd: what three epochs left is found with its exact bounds, however the last one ended.
func TestSurveyAndSettleAfterAnyEnd(t *testing.T) {
	for name, end := range map[string]func(*disk.Memory) *disk.Memory{"kill": (*disk.Memory).Kill, "power loss": (*disk.Memory).PowerLoss} {
		t.Run(name, func(t *testing.T) {
			m := disk.NewMemory(5)
			l := life{fsys: m}
			for seq := uint64(0); seq < 600; seq += 200 {
				l.start(t)
				l.store.SetCluster([16]byte{7}, 0)
				produce(t, l.log, seq, 200)
				if seq < 400 {
					closeStore(t, l.store)
				}
			}
			m = end(m)
			l.store.Close() // fails: its disk is gone
			before, err := Survey(m, "/data")
			if err != nil {
				t.Fatal(err)
			}
			if has, err := HasJournal(m, "/data"); err != nil || !has {
				t.Errorf("has a journal: %v, %v", has, err)
			}
			s := openStore(t, m)
			e, err := Survey(m, "/data")
			if err == nil {
				err = s.Settle(t.Context(), &e)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []Piece{{1, 0, 200}, {2, 200, 400}, {3, 400, 600}}
			if len(e.Partitions) != 1 || !slices.Equal(e.Partitions[0].Pieces, want) || e.Partitions[0].Topic != "/default/t" || e.Partitions[0].ID != partition {
				t.Fatalf("found %+v", e.Partitions)
			}
			if e.Store != s.ID() || e.Cluster != [16]byte{7} || len(e.Problems) > 0 || e.Partitions[0].End() != 600 {
				t.Errorf("evidence %+v", e)
			}
			for _, p := range before.Partitions {
				if !slices.Equal(p.Pieces[:2], want[:2]) || p.End() > 600 {
					t.Errorf("before the journal was written back: %+v", p.Pieces)
				}
			}
			// Settled, all of it is read again, under a new open epoch far above.
			closeStore(t, s)
			s = openStore(t, m)
			defer closeStore(t, s)
			ranges := append(sealed(e.Partitions[0].Pieces), Range{Start: 1 << 33, Open: true, Epochs: []EpochStart{{1<<48 | 1, 1 << 33}}})
			log, found, err := s.Log(t.Context(), Facts{ID: partition, Topic: "/default/t", Ranges: ranges, Floor: 1 << 33})
			if err != nil || found.Class == Damaged || found.End != 1<<33 {
				t.Fatalf("opened %+v, %v", found, err)
			}
			if offsets, _ := consume(t, log, 0); len(offsets) != 600 {
				t.Errorf("%d messages are read again", len(offsets))
			}
		})
	}
}

// sealed are the pieces as ranges that nobody appends to.
func sealed(pieces []Piece) []Range {
	list := openRanges(pieces)
	list[len(list)-1].Open, list[len(list)-1].Status, list[len(list)-1].End = false, RangeSealed, pieces[len(pieces)-1].End
	return list
}

// TestSurveyNamesWhatItLeavesOut: a file of another store, one that is none.
func TestSurveyNamesWhatItLeavesOut(t *testing.T) {
	m := disk.NewMemory(6)
	l := life{fsys: m}
	l.start(t)
	produce(t, l.log, 0, 100)
	closeStore(t, l.store)
	var files []string
	if err := walkSegments(m, "/data", func(name string) error { files = append(files, name); return nil }); err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	folder := files[0][:strings.LastIndexByte(files[0], '/')]
	bad := folder + "/" + segment.FormatName(9000, 9)
	if err := disk.WriteFileAtomic(m, bad, []byte("no segment")); err != nil {
		t.Fatal(err)
	}
	e, err := Survey(m, "/data")
	if err != nil || len(e.Problems) != 1 || e.Problems[0].File != bad || e.Partitions[0].End() != 100 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := writeIdentity(m, "/data", [16]byte{9}); err != nil {
		t.Fatal(err)
	}
	e, err = Survey(m, "/data")
	if err != nil || len(e.Partitions) != 0 || !strings.Contains(e.Problems[0].Err.Error(), "file of store") {
		t.Errorf("of another store: %+v, %v", e, err)
	}
	if err := m.Remove("/data/store"); err != nil {
		t.Fatal(err)
	}
	if _, lost := errors.AsType[*IdentityError](errOf(Survey(m, "/data"))); !lost {
		t.Error("a directory without its id was surveyed")
	}
}

func errOf(_ Evidence, err error) error { return err }
