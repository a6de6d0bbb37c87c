package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// hereOrCold are the batches that the log has itself; each other one must lie below covered, and is told to be in the
// cold tier. start is the lowest offset that is here.
func hereOrCold(t testing.TB, l *Log, covered uint64) (start uint64, here []batch.Batch) {
	t.Helper()
	r := l.Reader(l.Start())
	defer r.Close()
	start = l.Committed()
	for {
		v, err := r.Next(1)
		if errors.Is(err, ErrEnd) {
			return start, here
		}
		if err == nil {
			start = min(start, v.Base)
			here = append(here, bytes.Clone(v.Data))
			v.Release()
			continue
		}
		c, ok := errors.AsType[*InCold](err)
		if !ok || c.From != r.Offset() || c.To <= c.From || c.To > covered {
			t.Fatalf("at %d: %v; covered up to %d", r.Offset(), err, covered)
		}
		r.Seek(c.To)
	}
}

// reopened is the tier of a disk whose process has ended, with the same log.
func (r *rig) reopened(fsys *disk.Memory, cold []Offsets) Found {
	r.t.Helper()
	r.fsys = fsys
	r.tier = openTier(r.t, fsys, func(c *Config) { c.Now = r.clock.now; c.SegmentBytes = 8 << 10 })
	var found Found
	r.log, found = openLog(r.t, r.tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Cold: cold})
	return found
}

// What the catalog covers is given up in whole files, from the log's start on, which stays; a reader is told where
// the rest lies, one that holds a view keeps it, and no restart takes it for damage or forgets a producer.
func TestReleaseGivesUpWhatIsCovered(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	old := sender{producer: 9, session: 9}
	if _, _, err := r.log.OpenSession(9, 9, 0); err != nil {
		t.Fatal(err)
	}
	first := old.batch(t, 1, 100)
	if p, err := r.log.Append(bytes.Clone(first)); err != nil || p.Wait() != nil {
		t.Fatal(err)
	}
	all := r.fill(200)
	end := r.log.Committed()
	files, before := r.log.Bytes()
	r.log.giveUp(func() bool { return true })
	reader := r.log.Reader(0)
	defer reader.Close()
	view, err := reader.Next(1)
	if err != nil {
		t.Fatal(err)
	}
	covered := all[len(all)/2].End()
	r.log.Covered([]Offsets{{From: 0, To: covered}})
	freed, err := r.log.Release(end)
	if err != nil {
		t.Fatal(err)
	}
	left, after := r.log.Bytes()
	if left >= files || left < 2 || before-after != freed {
		t.Fatalf("%d of %d files left, %d bytes freed of %d, %d left", left, files, freed, before, after)
	}
	if b, err := batch.Check(view.Data, limits); err != nil || !bytes.Equal(b, all[0]) {
		t.Fatalf("the view has changed: %v", err)
	}
	view.Release()
	check := func(when string) {
		t.Helper()
		start, here := hereOrCold(t, r.log, covered)
		if r.log.Start() != 0 || r.log.Committed() != end || len(here) == 0 {
			t.Fatalf("%s: the log from %d to %d, %d batches here", when, r.log.Start(), r.log.Committed(), len(here))
		}
		if start == 0 && when != "power" { // which undoes the removal of files
			t.Fatalf("%s: all is here", when)
		}
		for i, b := range here[len(here)-1:] {
			if !bytes.Equal(b, all[len(all)-1+i]) {
				t.Fatalf("%s: the last batch is another", when)
			}
		}
		if err := r.log.Verify(func(d Damage) { t.Errorf("%s: %v", when, &d) }); err != nil {
			t.Fatal(err)
		}
	}
	check("released")
	if _, err := reader.Next(1); second(view, err) == nil && reader.Offset() > covered {
		t.Fatal("the reader has stepped over what was given up")
	}
	for _, how := range []string{"clean", "kill", "power"} {
		fsys := r.fsys
		switch how {
		case "clean":
			r.close()
		case "kill":
			fsys = fsys.Kill()
		case "power":
			fsys = fsys.PowerLoss()
		}
		found := r.reopened(fsys, []Offsets{{From: 0, To: covered}})
		if found.Class == Damaged || found.End != end {
			t.Fatalf("%s: %+v, want the end %d", how, found, end)
		}
		check(how)
	}
	if err := r.log.Begin(2, end, 1<<40); err != nil {
		t.Fatal(err)
	}
	if p, err := r.log.Append(bytes.Clone(first)); err != nil || !p.Duplicate || p.Base != all[0].Base() {
		t.Fatalf("a batch that was given up here is sent again: %+v, %v", p, err)
	}
	r.close()
}

// When all but the newest files is given up, a kill makes nobody forget a producer whose messages were all in it (R17).
func TestReleaseKeepsTheProducers(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	r.mustPut(1, 100)
	first := sender{producer: r.send.producer, session: r.send.session}
	again := first.batch(t, 1, 100)
	r.fill(150)
	end := r.log.Committed()
	covered := []Offsets{{From: 0, To: end}}
	r.log.Covered(covered)
	freed, err := r.log.Release(end)
	if files, _ := r.log.Bytes(); err != nil || freed == 0 || files != 2 {
		t.Fatalf("%d bytes freed, %d files left, %v", freed, files, err)
	}
	if found := r.reopened(r.fsys.Kill(), covered); found.End != end {
		t.Fatalf("%+v", found)
	}
	if err := r.log.Begin(2, end, 1<<40); err != nil {
		t.Fatal(err)
	}
	if p, err := r.log.Append(again); err != nil || !p.Duplicate || p.Base != 0 {
		t.Fatalf("sent again: %+v, %v", p, err)
	}
	r.close()
}

// Without the catalog's word the same files are missing: the tests above can fail.
func TestReleasedWithoutACatalogIsDamage(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	r.fill(150)
	r.log.Covered([]Offsets{{From: 0, To: r.log.Committed()}})
	if freed, err := r.log.Release(r.log.Committed()); err != nil || freed == 0 {
		t.Fatal(freed, err)
	}
	r.close()
	if found := r.reopened(r.fsys, nil); found.Class != Damaged {
		t.Fatalf("%+v", found)
	}
	r.close()
}

// Nothing is given up that the catalog does not cover to its last message (R13), that lies above the bound, that no
// epoch gives its value, and neither the newest file nor the newest that knows the producers.
func TestReleaseKeepsTheRest(t *testing.T) {
	for name, test := range map[string]struct {
		covered func(bounds []uint64) []Offsets
		below   func(bounds []uint64) uint64
		extents func(bounds []uint64) []Extent
		gone    func(files int) []int // which files, nil: none
	}{
		"nothing is covered":    {},
		"not to the last":       {covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: b[1] - 1}} }},
		"not from the first":    {covered: func(b []uint64) []Offsets { return []Offsets{{From: 1, To: b[1]}} }},
		"a hole in the catalog": {covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: b[1] - 2}, {From: b[1] - 1, To: b[1]}} }},
		"above the bound": {
			covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: 1 << 40}} },
			below:   func(b []uint64) uint64 { return b[1] - 1 },
		},
		"of another epoch": {
			covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: b[1]}} },
			extents: func(b []uint64) []Extent {
				return []Extent{{Epoch: 7, Start: 0, End: b[1]}, {Epoch: 1, Start: b[1], End: openEnd}}
			},
		},
		"partly of nobody": {
			covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: b[1]}} },
			extents: func(b []uint64) []Extent {
				return []Extent{{Epoch: 1, Start: 0, End: b[1] - 1}, {Epoch: 1, Start: b[1], End: openEnd}}
			},
		},
		"one file": {
			covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: b[1]}} },
			gone:    func(int) []int { return []int{0} },
		},
		"one in the middle": {
			covered: func(b []uint64) []Offsets { return []Offsets{{From: b[1], To: b[2]}} },
			gone:    func(int) []int { return []int{1} },
		},
		"everything": {
			covered: func(b []uint64) []Offsets { return []Offsets{{From: 0, To: 1 << 40}} },
			gone: func(n int) (all []int) {
				for i := range n - 2 {
					all = append(all, i)
				}
				return all
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
			defer r.close()
			r.fill(150)
			var bounds []uint64
			for _, f := range r.log.files.list {
				bounds = append(bounds, f.Base)
			}
			below := r.log.Committed()
			if test.below != nil {
				below = test.below(bounds)
			}
			if test.extents != nil {
				r.log.door.open = false // as a log that others write to
				r.log.SetExtents(test.extents(bounds))
			}
			if test.covered != nil {
				r.log.Covered(test.covered(bounds))
			}
			if _, err := r.log.Release(below); err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(bounds)
			if test.gone != nil {
				for n, i := range test.gone(len(bounds)) {
					want = slices.Delete(want, i-n, i-n+1)
				}
			}
			var got, onDisk []uint64
			for _, f := range r.log.files.list {
				got = append(got, f.Base)
			}
			entries, err := r.fsys.ReadDir(r.log.dir())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if base, _, ok := segment.ParseName(e.Name); ok {
					onDisk = append(onDisk, base)
				}
			}
			if !slices.Equal(got, want) || !slices.Equal(onDisk, want) {
				t.Fatalf("of %d left %d, on disk %d, want %d", bounds, got, onDisk, want)
			}
		})
	}
}

// Where the cold tier has what is damaged here, a reader goes there, recovery finds no damage, and the log ends no
// lower than the catalog; verification still names the bad byte.
func TestDamageThatIsCovered(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	all := r.fill(100)
	end := r.log.Committed()
	r.log.giveUp(func() bool { return true })
	name := path.Join(r.log.dir(), segment.FormatName(0, 1))
	flipByte(t, r.fsys, name, 3000)
	covered := []Offsets{{From: 0, To: end}}
	read := func() error {
		reader := r.log.Reader(0)
		defer reader.Close()
		for {
			v, err := reader.Next(64)
			if err != nil {
				return err
			}
			v.Release()
		}
	}
	if _, ok := errors.AsType[*Damage](read()); !ok {
		t.Fatal("the damage is not seen")
	}
	r.log.Covered(covered)
	c, ok := errors.AsType[*InCold](read())
	if !ok || c.From == 0 || c.To <= c.From || c.To > end {
		t.Fatalf("got %v", c)
	}
	found := 0
	if err := r.log.Verify(func(Damage) { found++ }); err != nil || found != 1 {
		t.Fatalf("verification names %d, %v", found, err)
	}
	fsys := r.fsys.Kill()
	last := path.Join(r.log.dir(), segment.FormatName(r.log.files.list[len(r.log.files.list)-1].Base, 1))
	if err := fsys.Remove(last); err != nil { // with the newest file lost
		t.Fatal(err)
	}
	if err := fsys.Remove("/data/journal"); err != nil && !errors.Is(err, syscall.ENOENT) {
		t.Fatal(err)
	}
	f := r.reopened(fsys, covered)
	if f.Class == Damaged || f.End != end || len(all) == 0 {
		t.Fatalf("%+v, want the end %d", f, end)
	}
	r.close()
}

// Whichever step of a release fails, and whatever a power loss makes of it then: each message is here or in the
// cold tier, and what was kept is whole.
func TestReleaseSurvivesEachStep(t *testing.T) {
	for step := 1; ; step++ {
		r := newRig(t, func(c *Config) {
			c.SegmentBytes = 8 << 10
			c.JournalBytes, c.Files = 1<<20, 64 // so that nothing of a file is synced by itself
		})
		all := r.fill(150)
		end := r.log.Committed()
		b := r.log.files.list[1].Base
		keep := r.log.files.list[3].Base
		covered := []Offsets{{From: 0, To: b}, {From: keep, To: end}} // files 1 and 2 stay, and what lies behind them goes
		r.log.Covered(covered)
		var steps atomic.Int64 // a checkpoint may run beside it
		r.fsys.Fail(func(op, name string) error {
			if strings.HasSuffix(name, ".seg") || strings.HasSuffix(name, "journal") {
				if int(steps.Add(1)) == step {
					return fmt.Errorf("%s %s: %w", op, name, syscall.EIO)
				}
			}
			return nil
		})
		_, err := r.log.Release(end)
		r.fsys.Fail(nil)
		n := int(steps.Load())
		if left := len(r.log.files.list); err == nil && left > 6 {
			t.Fatalf("step %d: %d files are left, and it is no error", step, left)
		}
		fsys := r.fsys.Kill()
		if step%4 != 0 {
			fsys = fsys.PowerLoss()
		}
		found := r.reopened(fsys, covered)
		if found.Class == Damaged || found.End != end {
			t.Fatalf("step %d: %+v, want the end %d", step, found, end)
		}
		for _, x := range all {
			reader := r.log.Reader(x.Base())
			v, err := reader.Next(1)
			c, cold := errors.AsType[*InCold](err)
			switch {
			case err == nil:
				if !bytes.HasPrefix(v.Data, x) {
					got := batch.Batch(v.Data)
					t.Fatalf("step %d: at %d another batch, of offsets %d to %d, epoch %d, %d bytes, not %d bytes: %x, %x", step, x.Base(), got.Base(), got.End(), got.Epoch(), got.Len(), x.Len(), got[:72], x[:72])
				}
				v.Release()
			case !cold || c.From != x.Base() || x.Base() >= b && x.Base() < keep:
				t.Fatalf("step %d: at %d: %v; covered %v", step, x.Base(), err, covered)
			}
			reader.Close()
		}
		r.close()
		if n < step {
			if step < 4 {
				t.Fatalf("a release takes %d steps only", n)
			}
			return
		}
	}
}
