package recovery

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

var home = Place{Store: [16]byte{1}, ID: hotdir.ID{Topic: [16]byte{2}, Partition: 3}, Name: "file", Base: 100, Epoch: 7}

// file is a segment file of four batches of one message, each of which says that
// all in front of it was synced, and where they begin.
func file(t *testing.T, sealed bool) (raw []byte, at []int) {
	t.Helper()
	h := segment.Header{Store: home.Store, TopicID: home.ID.Topic, Partition: home.ID.Partition, Epoch: 7, FirstEpoch: 7, Base: 100}
	raw, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	summary := segment.NewSummary(raw, 100)
	table := &segment.Producers{}
	for i := range uint64(4) {
		var w batch.Builder
		w.Add(&batch.Message{Payload: []byte("a message of some length")})
		x, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 5, Session: 1, Sequence: i})
		if err != nil {
			t.Fatal(err)
		}
		b := batch.Batch(x)
		b.Stamp(batch.Stamp{Base: 100 + i, Epoch: 7, AppendTime: int64(1000 + i), Synced: 100 + i})
		at = append(at, len(raw))
		raw = append(raw, b...)
		summary.Add(b)
		table.Add(b)
	}
	at = append(at, len(raw))
	if sealed {
		raw = summary.Footer().Append(raw, table)
	}
	return raw, at
}

func TestScanOfAWholeFile(t *testing.T) {
	for _, sealed := range []bool{false, true} {
		raw, at := file(t, sealed)
		var seen []uint64
		f, err := home.Scan(bytes.NewReader(raw), int64(len(raw)), func(b batch.Batch) { seen = append(seen, b.Base()) })
		if err != nil || !f.Header || f.Sealed != sealed || f.Torn != nil || f.Damaged != nil {
			t.Fatalf("sealed %v: %+v, %v", sealed, f, err)
		}
		if !slices.Equal(seen, []uint64{100, 101, 102, 103}) || f.End != 104 || f.Size != int64(at[4]) || f.Time != 1003 || f.Synced != 103 {
			t.Errorf("sealed %v: saw %v, found %+v", sealed, seen, f)
		}
		if sealed && f.Table.Len() != 1 || f.Footer.Messages != 4 || f.Footer.End != 104 {
			t.Errorf("sealed %v: footer %+v", sealed, f.Footer)
		}
	}
}

// TestScanTellsDamageFromATornEnd: what is bad is damage when something behind it says that it was synced (R10).
func TestScanTellsDamageFromATornEnd(t *testing.T) {
	for name, test := range map[string]struct {
		bad     int // the batch of which a bit is changed
		cut     int // bytes of the last batch that are missing
		damaged []Damage
		end     uint64
		torn    bool
	}{
		"in the middle":         {bad: 1, damaged: []Damage{{From: 101, To: 102}}, end: 104},
		"the last but one":      {bad: 2, damaged: []Damage{{From: 102, To: 103}}, end: 104},
		"the last":              {bad: 3, end: 103, torn: true},
		"the last is cut short": {bad: -1, cut: 9, end: 103, torn: true},
		"the first, last cut":   {bad: 0, cut: 9, damaged: []Damage{{From: 100, To: 101}}, end: 103, torn: true},
	} {
		t.Run(name, func(t *testing.T) {
			raw, at := file(t, false)
			if test.bad >= 0 {
				raw[at[test.bad]+batch.HeaderSize+2] ^= 8
			}
			raw = raw[:len(raw)-test.cut]
			f, err := home.Scan(bytes.NewReader(raw), int64(len(raw)), nil)
			if err != nil {
				t.Fatal(err)
			}
			if f.End != test.end || (f.Torn != nil) != test.torn || len(f.Damaged) != len(test.damaged) {
				t.Fatalf("found %+v", f)
			}
			for i, d := range f.Damaged {
				if d.From != test.damaged[i].From || d.To != test.damaged[i].To || d.File != "file" || d.Err == nil {
					t.Errorf("damage %+v, want %+v", d, test.damaged[i])
				}
			}
		})
	}
}

// TestPlaceRefusesWhatLiesThere: a file of another store or partition is foreign (R9), and a renamed one is named as such.
func TestPlaceRefusesWhatLiesThere(t *testing.T) {
	raw, _ := file(t, false)
	for name, test := range map[string]struct {
		change  func(*Place)
		foreign bool
		wrong   bool
	}{
		"its own place":     {change: func(*Place) {}},
		"another store":     {change: func(p *Place) { p.Store[0]++ }, foreign: true, wrong: true},
		"another topic":     {change: func(p *Place) { p.ID.Topic[0]++ }, foreign: true, wrong: true},
		"another partition": {change: func(p *Place) { p.ID.Partition++ }, foreign: true, wrong: true},
		"another base":      {change: func(p *Place) { p.Base++ }, wrong: true},
		"another epoch":     {change: func(p *Place) { p.Epoch++ }, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := home
			test.change(&p)
			_, _, err := p.Header(bytes.NewReader(raw))
			f, foreign := errors.AsType[*ForeignError](err)
			if (err != nil) != test.wrong || foreign != test.foreign || foreign && f.Store != home.Store {
				t.Errorf("the header: %v", err)
			}
			if _, err := p.Scan(bytes.NewReader(raw), int64(len(raw)), nil); (err != nil) != test.wrong {
				t.Errorf("the scan: %v", err)
			}
		})
	}
}
