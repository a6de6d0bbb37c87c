package hotdir

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/storage/disk"
)

func newDir(t *testing.T) Dir {
	t.Helper()
	d := Dir{FS: disk.NewMemory(1), Path: "/data"}
	if err := disk.MkdirAll(d.FS, d.Topics()); err != nil {
		t.Fatal(err)
	}
	return d
}

func id(n byte) ID { return ID{Topic: [16]byte{n, 1}, Partition: uint32(n)} }

func TestPartitionsAreFoundByTheirNames(t *testing.T) {
	d := newDir(t)
	want := []ID{id(1), id(2), {Topic: id(2).Topic, Partition: 7}}
	for _, x := range want {
		if err := disk.MkdirAll(d.FS, d.Partition(x)); err != nil {
			t.Fatal(err)
		}
	}
	for _, stranger := range []string{"/notes", "/0201", "/" + strings.Repeat("02", 16), "/" + strings.Repeat("02", 16) + "/x"} {
		if err := disk.MkdirAll(d.FS, d.Topics()+stranger); err != nil {
			t.Fatal(err)
		}
	}
	got, err := d.Partitions()
	slices.SortFunc(got, func(a, b ID) int { return strings.Compare(a.String(), b.String()) })
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("found %v, %v, want %v", got, err, want)
	}
}

// A data directory that was deleted is not made again by whoever still runs in it.
func TestDeletedDirectoryIsNotMadeAgain(t *testing.T) {
	d := newDir(t)
	if err := d.MakeDurable(id(1)); err != nil {
		t.Fatal(err)
	}
	if err := d.MakeDurable(id(1)); err != nil {
		t.Fatalf("made twice: %v", err)
	}
	for _, gone := range []string{d.Partition(id(1)), path.Dir(d.Partition(id(1)))} {
		if err := disk.RemoveAll(d.FS, gone); err != nil {
			t.Fatal(err)
		}
		if err := d.MakeDurable(id(1)); err != nil {
			t.Fatalf("below that of all topics: %v", err)
		}
	}
	if err := disk.RemoveAll(d.FS, d.Path); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"make": d.Make(id(1)), "make durable": d.MakeDurable(id(1)), "run": d.WriteRun(Run{Number: 1}), "marker": d.WriteMarker(1, nil)} {
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := d.FS.Stat(d.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there again: %v", err)
	}
}

func TestRunIsReadAsWritten(t *testing.T) {
	d := newDir(t)
	if _, err := d.ReadRun(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read what was never written: %v", err)
	}
	for _, want := range []Run{{Number: 1}, {Number: 2, Always: true, BootID: "b"}, {Number: 3, BootID: strings.Repeat("x", 300)}} {
		if err := d.WriteRun(want); err != nil {
			t.Fatal(err)
		}
		want.BootID = want.BootID[:min(len(want.BootID), 255)]
		if got, err := d.ReadRun(); err != nil || got != want {
			t.Errorf("read %+v, %v, want %+v", got, err, want)
		}
	}
	refusesEveryFlip(t, d, d.RunFile(), func() error { _, err := d.ReadRun(); return err })
}

func TestMarkerCountsForItsRunOnly(t *testing.T) {
	d := newDir(t)
	if _, err := d.ReadMarker(5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read what was never written: %v", err)
	}
	want := map[ID]End{id(1): {Base: 3, Epoch: 2, Size: 500, End: 9}, id(2): {}}
	if err := d.WriteMarker(5, want); err != nil {
		t.Fatal(err)
	}
	if got, err := d.ReadMarker(5); err != nil || !maps.Equal(got, want) {
		t.Errorf("read %v, %v", got, err)
	}
	for _, other := range []uint64{4, 6} {
		if got, err := d.ReadMarker(other); err == nil || got != nil {
			t.Errorf("the marker of run 5 counts for run %d: %v", other, got)
		}
	}
	refusesEveryFlip(t, d, d.Marker(), func() error { _, err := d.ReadMarker(5); return err })
	for range 2 {
		if err := d.DropMarker(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.ReadMarker(5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read what was dropped: %v", err)
	}
}

// refusesEveryFlip changes one bit of each byte of a file, and cuts it at each: read has to see it.
func refusesEveryFlip(t *testing.T, d Dir, name string, read func() error) {
	t.Helper()
	whole, err := disk.ReadFile(d.FS, name)
	if err != nil {
		t.Fatal(err)
	}
	for at := range whole {
		b := slices.Clone(whole)
		b[at] ^= 0x10
		for _, bad := range [][]byte{b, whole[:at]} {
			if err := disk.WriteFileAtomic(d.FS, name, bad); err != nil {
				t.Fatal(err)
			}
			if read() == nil {
				t.Fatalf("%s of %d bytes was believed, wrong at %d", name, len(bad), at)
			}
		}
	}
}
