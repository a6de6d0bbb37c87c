package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"strings"
	"syscall"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

func overwrite(t testing.TB, fsys disk.FS, name string, data []byte) {
	t.Helper()
	f, err := fsys.Open(name, disk.Create)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestIdentityIsNeverMadeUp: a store id that is missing or damaged beside data
// is an error that names the file and the id in the segments, and nothing is
// touched; adopting writes that id again.
func TestIdentityIsNeverMadeUp(t *testing.T) {
	tests := map[string]func(t *testing.T, m *disk.Memory){
		"missing": func(t *testing.T, m *disk.Memory) {
			if err := m.Remove("/data/store"); err != nil {
				t.Fatal(err)
			}
		},
		"empty":              func(t *testing.T, m *disk.Memory) { overwrite(t, m, "/data/store", nil) },
		"three random bytes": func(t *testing.T, m *disk.Memory) { overwrite(t, m, "/data/store", []byte{9, 1, 77}) },
		"a bit flipped": func(t *testing.T, m *disk.Memory) {
			b, err := disk.ReadFile(m, "/data/store")
			if err != nil {
				t.Fatal(err)
			}
			b[15] ^= 1
			overwrite(t, m, "/data/store", b)
		},
	}
	for name, damage := range tests {
		t.Run(name, func(t *testing.T) {
			m := disk.NewMemory(1)
			l := life{fsys: m}
			l.start(t)
			produce(t, l.log, 0, 50)
			id := l.store.ID()
			closeStore(t, l.store)
			damage(t, m)
			for range 2 {
				_, err := Open(t.Context(), Config{FS: m, Dir: "/data"})
				e, ok := errors.AsType[*IdentityError](err)
				if !ok || e.Found != id || e.File != "/data/store" {
					t.Fatalf("opened: %v", err)
				}
			}
			if got, err := Adopt(m, "/data"); err != nil || got != id {
				t.Fatalf("adopt: %x, %v", got, err)
			}
			l.start(t)
			if offsets, obstacles := consume(t, l.log, 0); len(offsets) != 50 || len(obstacles) > 0 {
				t.Fatalf("read %d messages, %v", len(offsets), obstacles)
			}
			closeStore(t, l.store)
		})
	}
}

func TestIdentityOfANewDirectory(t *testing.T) {
	m := disk.NewMemory(1)
	if _, err := Adopt(m, "/data"); err == nil {
		t.Fatal("adopted an identity from nothing")
	}
	s := openStore(t, m)
	id := s.ID()
	if id == [16]byte{} {
		t.Fatal("no id")
	}
	_, err := Open(t.Context(), Config{FS: m, Dir: "/data"})
	if _, ok := errors.AsType[*disk.LockedError](err); !ok {
		t.Fatalf("opened twice: %v", err)
	}
	closeStore(t, s)
	closeStore(t, s)
	s = openStore(t, m.PowerLoss())
	if s.ID() != id {
		t.Fatalf("id %x became %x", id, s.ID())
	}
	closeStore(t, s)
}

// TestForeignSegmentIsNotServed: a file that another store wrote is left alone
// and reported, whatever its name says (R9).
func TestForeignSegmentIsNotServed(t *testing.T) {
	other := life{fsys: disk.NewMemory(2)}
	other.start(t)
	produce(t, other.log, 0, 20)
	closeStore(t, other.store)
	l := life{fsys: disk.NewMemory(1)}
	l.start(t)
	produce(t, l.log, 0, 20)
	closeStore(t, l.store)
	dir := path.Join("/data/wal", "01020300000000000000000000000000", "0")
	name := path.Join(dir, segment.FormatName(0, 1))
	foreign, err := disk.ReadFile(other.fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, l.fsys, name, foreign)
	l.start(t)
	if l.opened.Class != Damaged {
		t.Fatalf("opened: %+v", l.opened)
	}
	offsets, _ := consume(t, l.log, 0)
	if len(offsets) > 0 {
		t.Fatalf("read %d messages of another store", len(offsets))
	}
	closeStore(t, l.store)
	if got, err := disk.ReadFile(l.fsys, name); err != nil || string(got) != string(foreign) {
		t.Fatalf("the foreign file was touched: %v", err)
	}
}

// TestGapsAreNamed: offsets no epoch gave are stepped over; those of a lost or
// orphaned range say so, also when the files still have them (R15, R19).
func TestGapsAreNamed(t *testing.T) {
	m := disk.NewMemory(1)
	l := life{fsys: m}
	l.start(t)
	produce(t, l.log, 0, 30)
	closeStore(t, l.store)
	store := openStore(t, m)
	log, found, err := store.Log(t.Context(), Facts{
		ID: partition, LogStart: 5,
		Ranges: []Range{
			{Start: 0, End: 10, Status: RangeSealed, Epochs: []EpochStart{{1, 0}}},
			{Start: 10, End: 20, Status: RangeLost, Epochs: []EpochStart{{1, 10}}},
			{Start: 20, End: 25, Status: RangeOrphaned, Epochs: []EpochStart{{1, 20}}},
			{Start: 40, Open: true, Epochs: []EpochStart{{2, 40}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Class == Damaged {
		t.Fatalf("found %+v", found)
	}
	if err := log.Begin(2, 40, 100); err != nil {
		t.Fatal(err)
	}
	produce(t, log, 30, 3)
	offsets, obstacles := consume(t, log, 0)
	if len(offsets) != 8 || offsets[0] != 5 || offsets[5] != 40 {
		t.Fatalf("read %v", offsets)
	}
	want := []Gap{{10, 20, RangeLost}, {20, 25, RangeOrphaned}, {25, 40, RangeSealed}}
	if _, ok := errors.AsType[*Trimmed](obstacles[0]); !ok || len(obstacles) != 4 {
		t.Fatalf("met %v", obstacles)
	}
	for i, err := range obstacles[1:] {
		if g, ok := errors.AsType[*Gap](err); !ok || *g != want[i] {
			t.Errorf("met %v, want %+v", err, want[i])
		}
	}
	closeStore(t, store)
}

// TestNewerFormatIsRefusedUntouched: what a newer binary wrote is refused before
// a byte of the directory is changed.
func TestNewerFormatIsRefusedUntouched(t *testing.T) {
	newer := func(t *testing.T, m *disk.Memory, name string, at, from, to, crc int) {
		t.Helper()
		b, err := disk.ReadFile(m, name)
		if err != nil {
			t.Fatal(err)
		}
		b[at] = 9
		binary.LittleEndian.PutUint32(b[crc:], batch.Checksum(b[from:to]))
		overwrite(t, m, name, b)
	}
	tests := map[string]func(t *testing.T, m *disk.Memory){
		"segment": func(t *testing.T, m *disk.Memory) {
			var last string
			if err := walkSegments(m, "/data", func(name string) error { last = name; return nil }); err != nil {
				t.Fatal(err)
			}
			b, err := disk.ReadFile(m, last)
			if err != nil {
				t.Fatal(err)
			}
			size := int(binary.LittleEndian.Uint16(b[10:]))
			newer(t, m, last, 8, 0, size-4, size-4)
		},
		"journal": func(t *testing.T, m *disk.Memory) { newer(t, m, "/data/journal", 8, 8, 40, 4) },
	}
	for name, change := range tests {
		for _, clean := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " clean ", clean), func(t *testing.T) {
				m := disk.NewMemory(1)
				l := life{fsys: m}
				l.start(t)
				produce(t, l.log, 0, 50)
				if clean {
					closeStore(t, l.store)
				} else {
					m = m.Kill()
					l.store.Close()
				}
				change(t, m)
				before := contents(t, m, "/data")
				_, err := Open(t.Context(), Config{FS: m, Dir: "/data"})
				if _, ok := errors.AsType[*segment.VersionError](err); !ok {
					t.Fatalf("opened: %v", err)
				}
				if after := contents(t, m, "/data"); !maps.Equal(before, after) {
					t.Fatal("the directory was changed")
				}
			})
		}
	}
}

// TestUnreadablePartitionStopsNoStart: looking for newer formats is no place to
// judge damage.
func TestUnreadablePartitionStopsNoStart(t *testing.T) {
	for _, op := range []string{"open", "readdir", "read"} {
		m := disk.NewMemory(1)
		l := life{fsys: m}
		l.start(t)
		produce(t, l.log, 0, 50)
		closeStore(t, l.store)
		failed := false
		m.Fail(func(what, name string) error {
			if what == op && strings.Contains(name, "/wal/") && !failed {
				failed = true
				return syscall.EIO
			}
			return nil
		})
		s, err := Open(t.Context(), Config{FS: m, Dir: "/data"})
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		if !failed {
			t.Fatalf("%s: nothing failed", op)
		}
		m.Fail(nil)
		closeStore(t, s)
	}
}

// contents are the files below a directory, the lock aside.
func contents(t *testing.T, fsys disk.FS, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	list, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		name := path.Join(dir, e.Name)
		switch {
		case e.Dir:
			maps.Copy(all, contents(t, fsys, name))
		case e.Name != "lock":
			b, err := disk.ReadFile(fsys, name)
			if err != nil {
				t.Fatal(err)
			}
			all[name] = string(b)
		}
	}
	return all
}

// TestJournalOverwrittenAfterACleanStopIsNamed: nothing in it is needed, and
// still somebody should know.
func TestJournalOverwrittenAfterACleanStopIsNamed(t *testing.T) {
	m := disk.NewMemory(1)
	l := life{fsys: m}
	l.start(t)
	produce(t, l.log, 0, 50)
	closeStore(t, l.store)
	if err := CheckJournal(m, "/data"); err != nil {
		t.Fatalf("a journal at rest: %v", err)
	}
	overwrite(t, m, "/data/journal", []byte("something else"))
	if err := CheckJournal(m, "/data"); err == nil {
		t.Fatal("an overwritten journal passes")
	}
	var out bytes.Buffer
	s, err := Open(t.Context(), Config{FS: m, Dir: "/data", Log: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if !strings.Contains(out.String(), "/data/journal") {
		t.Fatalf("not named:\n%s", out.String())
	}
}
