package wal

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// withLoss is the log of a broker that was killed, in one file, of which change
// makes another: it gets where each of its batches begins, and where the last
// one ends. The journal, which has it all, is gone; the cold tier has what it is said to have.
func withLoss(t *testing.T, cold []Offsets, change func(data []byte, starts []int) []byte) (r *rig, all []batch.Batch, found Found) {
	t.Helper()
	r = newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 })
	r.mustPut(60, 100)
	name := path.Join(r.log.dir(), segment.FormatName(0, 1))
	fsys := r.fsys.Kill()
	data, err := disk.ReadFile(fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	_, at, err := segment.ParseHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	var starts []int
	for rest := batch.Batch(bytes.Clone(data[at:])); len(rest) > 0 && !rest.Control(); { // a mark ends the file
		n := rest.Len()
		starts = append(starts, at)
		all, rest = append(all, rest[:n]), rest[n:]
		at += n
	}
	starts = append(starts, at)
	im := &image{t: t, fsys: fsys}
	im.write(name, change(data, starts))
	im.dropJournal()
	r.tier = openTier(t, fsys, nil)
	r.log, found = openLog(t, r.tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Cold: cold})
	t.Cleanup(r.close)
	return r, all, found
}

// Where the front of a file is lost, a reader is told so, or where to go, and never given what stands behind it.
func TestReaderNeverStepsOverALostFront(t *testing.T) {
	for name, cold := range map[string][]Offsets{"nowhere else": nil, "in the cold tier": {{From: 0, To: 50}}} {
		t.Run(name, func(t *testing.T) {
			r, all, found := withLoss(t, cold, func(data []byte, starts []int) []byte {
				clear(data[starts[0]:starts[5]])
				return data
			})
			front, end := all[5].Base(), all[len(all)-1].End()
			if found.End != end || (found.Class == Damaged) != (cold == nil) {
				t.Fatalf("%+v", found)
			}
			r.isLost(Offsets{From: 0, To: front}, cold != nil, all[5])
		})
	}
}

// A file that lacks batches in its middle, without a trace, is not read as if it had them.
func TestReaderNeverStepsOverALostMiddle(t *testing.T) {
	r, all, _ := withLoss(t, nil, func(data []byte, starts []int) []byte {
		return slices.Delete(data, starts[20], starts[30])
	})
	r.isLost(Offsets{From: all[20].Base(), To: all[30].Base()}, false, all[30])
}

// isLost reads the log: all below what is lost, nothing of that, unless it is to be had from the cold tier, and then the
// batch next.
func (r *rig) isLost(lost Offsets, cold bool, next batch.Batch) {
	r.t.Helper()
	reader := r.log.Reader(0)
	defer reader.Close()
	for reader.Offset() < lost.From {
		at := reader.Offset()
		v, err := reader.Next(1 << 20)
		if err != nil || v.Base != at || v.End > lost.From {
			r.t.Fatalf("offsets %d to %d, %v; %v are lost", v.Base, v.End, err, lost)
		}
		v.Release()
	}
	v, err := reader.Next(1)
	var told Offsets
	if d, ok := errors.AsType[*Damage](err); ok && !cold {
		told = Offsets{From: d.From, To: d.To}
	}
	if c, ok := errors.AsType[*InCold](err); ok && cold {
		told = Offsets(*c)
	}
	if told != lost {
		r.t.Fatalf("offsets %d to %d, %v; %v are lost", v.Base, v.End, err, lost)
	}
	reader.Seek(lost.To)
	if v, err = reader.Next(1); err != nil || !bytes.Equal(v.Data, next) {
		r.t.Fatalf("behind it: %v", err)
	}
	v.Release()
}

// A file without a footer is none that was sealed, also when an earlier start
// has kept beside it what the footer would say: the clean marker does not name it.
func TestAHintIsNoFooter(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 })
	r.mustPut(200, 1000) // large enough for a hint beside it
	end := r.log.Committed()
	for _, known := range []string{"scanned", "known by its hint"} {
		r.fsys = r.fsys.Kill()
		r.tier = openTier(t, r.fsys, func(c *Config) { c.Now = r.clock.now; c.SegmentBytes = 1 << 20 })
		var found Found
		r.log, found = openLog(t, r.tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: end}, {Epoch: 2, Start: end, End: openEnd}}})
		if f := r.log.files.list[0]; found.End != end || !f.known || f.sealed {
			t.Errorf("the file is %s: sealed %v, %+v", known, f.sealed, found)
		}
	}
	home, number := r.tier.home(), r.tier.run.number
	r.close()
	ends, err := home.ReadMarker(number)
	if e, ok := ends[r.log.id]; ok || err != nil {
		t.Errorf("the marker has %+v, %v", e, err)
	}
}
