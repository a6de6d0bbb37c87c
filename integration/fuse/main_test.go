package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// mounted is a file system of a test, which talks to it as another program does.
type mounted struct {
	t     testing.TB
	dir   string
	in    *io.PipeWriter
	lines *bufio.Scanner
}

func mountHere(t testing.TB) *mounted {
	t.Helper()
	if f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0); err != nil {
		text := "no /dev/fuse: apt-get install fuse3"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	} else {
		f.Close()
	}
	dir := t.TempDir()
	backing, point := filepath.Join(dir, "backing"), filepath.Join(dir, "mnt")
	for _, d := range []string{backing, point} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	done := make(chan error, 1)
	go func() { // returns when the input is closed
		err := run(backing, point, inRead, outWrite)
		outWrite.CloseWithError(err)
		done <- err
	}()
	m := &mounted{t: t, dir: point, in: inWrite, lines: bufio.NewScanner(outRead)}
	if m.lines.Scan(); m.lines.Text() != "mounted" {
		t.Fatalf("said %q: %v", m.lines.Text(), m.lines.Err())
	}
	t.Cleanup(func() {
		inWrite.Close()
		if err := <-done; err != nil {
			t.Errorf("end: %v", err)
		}
	})
	return m
}

func (m *mounted) say(command string) string {
	m.t.Helper()
	fmt.Fprintln(m.in, command)
	m.lines.Scan()
	if !strings.HasPrefix(m.lines.Text(), "ok") {
		m.t.Fatalf("%s: %s", command, m.lines.Text())
	}
	return m.lines.Text()
}

func (m *mounted) path(name string) string { return filepath.Join(m.dir, name) }

func (m *mounted) check(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// write makes or extends a file, and syncs it when asked.
func (m *mounted) write(name, text string, sync bool) {
	m.t.Helper()
	f, err := os.OpenFile(m.path(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	m.check(err)
	defer f.Close()
	_, err = f.WriteString(text)
	m.check(err)
	if sync {
		m.check(f.Sync())
	}
}

func (m *mounted) sync(name string) {
	m.t.Helper()
	f, err := os.Open(m.path(name))
	m.check(err)
	defer f.Close()
	m.check(f.Sync())
}

// tree is everything below the mount point: content by path, directories with a slash.
func (m *mounted) tree() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	m.check(filepath.WalkDir(m.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == m.dir {
			return err
		}
		rel, _ := filepath.Rel(m.dir, path)
		if d.IsDir() {
			all[rel+"/"] = ""
			return nil
		}
		text, err := os.ReadFile(path)
		all[rel] = string(text)
		return err
	}))
	return all
}

func TestLossOfPowerKeepsExactlyWhatWasSynced(t *testing.T) {
	tests := map[string]struct {
		act  func(m *mounted)
		want map[string]string
	}{
		"nothing synced":        {func(m *mounted) { m.write("a", "x", false) }, nil},
		"data but not the name": {func(m *mounted) { m.write("a", "x", true) }, nil},
		"the name but not the data": {func(m *mounted) {
			m.write("a", "x", false)
			m.sync(".")
		}, map[string]string{"a": ""}},
		"a tail after the sync": {func(m *mounted) {
			m.write("a", "kept", true)
			m.sync(".")
			m.write("a", "lost", false)
		}, map[string]string{"a": "kept"}},
		"an overwritten part": {func(m *mounted) {
			m.write("a", "0123456789", true)
			m.sync(".")
			f, err := os.OpenFile(m.path("a"), os.O_WRONLY, 0)
			m.check(err)
			defer f.Close()
			_, err = f.WriteAt([]byte("xx"), 4)
			m.check(err)
			_, err = f.WriteAt([]byte("yyy"), 3)
			m.check(err)
		}, map[string]string{"a": "0123456789"}},
		"a truncation": {func(m *mounted) {
			m.write("a", "0123456789", true)
			m.sync(".")
			m.check(os.Truncate(m.path("a"), 3))
			m.write("a", "z", false)
		}, map[string]string{"a": "0123456789"}},
		"a truncation on opening": {func(m *mounted) {
			m.write("a", "0123456789", true)
			m.sync(".")
			m.check(os.WriteFile(m.path("a"), []byte("new"), 0o644))
		}, map[string]string{"a": "0123456789"}},
		"a synced truncation": {func(m *mounted) {
			m.write("a", "0123456789", true)
			m.sync(".")
			m.check(os.Truncate(m.path("a"), 3))
			m.sync("a")
		}, map[string]string{"a": "012"}},
		"a removal": {func(m *mounted) {
			m.write("a", "x", true)
			m.sync(".")
			m.check(os.Remove(m.path("a")))
		}, map[string]string{"a": "x"}},
		"a synced removal": {func(m *mounted) {
			m.write("a", "x", true)
			m.sync(".")
			m.check(os.Remove(m.path("a")))
			m.sync(".")
		}, nil},
		"a name used again": {func(m *mounted) {
			m.write("a", "old", true)
			m.sync(".")
			m.check(os.Remove(m.path("a")))
			m.write("a", "new", true)
		}, map[string]string{"a": "old"}},
		"a rename over an old file": {func(m *mounted) {
			m.write("a", "old", true)
			m.sync(".")
			m.write("tmp", "new", true)
			m.check(os.Rename(m.path("tmp"), m.path("a")))
		}, map[string]string{"a": "old"}},
		"a synced rename": {func(m *mounted) {
			m.write("a", "old", true)
			m.sync(".")
			m.write("tmp", "new", true)
			m.check(os.Rename(m.path("tmp"), m.path("a")))
			m.sync(".")
		}, map[string]string{"a": "new"}},
		"a synced rename of unsynced data": {func(m *mounted) {
			m.write("tmp", "new", false)
			m.check(os.Rename(m.path("tmp"), m.path("a")))
			m.sync(".")
		}, map[string]string{"a": ""}},
		"a folder whose name is not synced": {func(m *mounted) {
			m.check(os.Mkdir(m.path("d"), 0o755))
			m.write("d/a", "x", true)
			m.sync("d")
		}, nil},
		"a folder and its file": {func(m *mounted) {
			m.check(os.Mkdir(m.path("d"), 0o755))
			m.write("d/a", "x", true)
			m.sync("d")
			m.sync(".")
		}, map[string]string{"d/": "", "d/a": "x"}},
		"a removed folder": {func(m *mounted) {
			m.check(os.Mkdir(m.path("d"), 0o755))
			m.sync(".")
			m.check(os.Remove(m.path("d")))
		}, map[string]string{"d/": ""}},
		"a synced removal of a folder and what was removed from it": {func(m *mounted) {
			m.check(os.Mkdir(m.path("d"), 0o755))
			m.write("d/a", "x", true)
			m.sync("d")
			m.sync(".")
			m.check(os.Remove(m.path("d/a")))
			m.check(os.Remove(m.path("d")))
			m.sync(".")
		}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := mountHere(t)
			test.act(m)
			m.say("lose")
			if got := m.tree(); !maps.Equal(got, test.want) {
				t.Fatalf("left %q, want %q", got, test.want)
			}
		})
	}
}

// TestRandomWritesComeBackToTheSyncedState compares with a model of what each file durably is.
func TestRandomWritesComeBackToTheSyncedState(t *testing.T) {
	m := mountHere(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "b", "c"}
	durable := map[string]string{}
	for _, n := range names {
		m.write(n, "", true)
		durable[n] = ""
	}
	m.sync(".")
	for round := range 30 {
		for range 40 {
			name := names[rnd.IntN(len(names))]
			f, err := os.OpenFile(m.path(name), os.O_RDWR, 0)
			m.check(err)
			switch rnd.IntN(4) {
			case 0:
				m.check(f.Truncate(rnd.Int64N(20000)))
			case 1:
				m.check(f.Sync())
				text, err := os.ReadFile(m.path(name))
				m.check(err)
				durable[name] = string(text)
			default:
				_, err := f.WriteAt(bytes.Repeat([]byte{byte('a' + rnd.IntN(26))}, 1+rnd.IntN(6000)), rnd.Int64N(20000))
				m.check(err)
			}
			m.check(f.Close())
		}
		m.say("lose")
		if got := m.tree(); !maps.Equal(got, durable) {
			t.Fatalf("round %d: a file is not what was synced last", round)
		}
	}
}

// TestSomePagesSurvive: with a seed, synced pages are whole, unsynced ones come in every state, and one seed gives one
// outcome.
func TestSomePagesSurvive(t *testing.T) {
	const pages = 64
	outcome := func(seed int) string {
		m := mountHere(t)
		m.write("a", strings.Repeat("s", page), true)
		m.sync(".")
		m.write("a", strings.Repeat("u", pages*page), false)
		m.say(fmt.Sprintf("lose %d", seed))
		return m.tree()["a"]
	}
	got := outcome(7)
	if got != outcome(7) {
		t.Fatal("one seed gave two outcomes")
	}
	if got == outcome(8) {
		t.Fatal("two seeds gave one outcome")
	}
	if !strings.HasPrefix(got, strings.Repeat("s", page)) {
		t.Fatal("a synced page is gone")
	}
	var kept, lost, torn int
	for at := page; at+page <= len(got); at += page {
		switch u := strings.Count(got[at:at+page], "u"); {
		case u == page:
			kept++
		case u == 0:
			lost++
		default:
			torn++
			if u%sector != 0 {
				t.Fatalf("a page is torn inside a sector: %d bytes", u)
			}
		}
	}
	if kept == 0 || lost == 0 || torn == 0 {
		t.Fatalf("kept %d, lost %d, torn %d of %d pages", kept, lost, torn, pages)
	}
}

func TestFaultsBiteAndHeal(t *testing.T) {
	m := mountHere(t)
	m.write("wal", "", true)
	f, err := os.OpenFile(m.path("wal"), os.O_WRONLY|os.O_APPEND, 0)
	m.check(err)
	defer f.Close()
	write := func() error { _, err := f.Write([]byte("0123456789")); return err }
	m.say("fail sync EIO 1")
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("first sync: %v", err)
	}
	m.check(f.Sync())
	m.say("fail write ENOSPC -1 other")
	m.check(write())
	m.say("fail write ENOSPC")
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write without space: %v", err)
	}
	m.say("fail sync EIO 2 /nowhere")
	if got := m.say("heal"); got != "ok left=2" {
		t.Errorf("heal with two failures that nobody met: %s", got)
	}
	if got := m.say("heal"); got != "ok left=0" {
		t.Errorf("heal with nothing to heal: %s", got)
	}
	m.check(write())
	m.say("space 15")
	m.check(write())
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write beyond the space: %v", err)
	}
	m.check(os.Truncate(m.path("wal"), 20)) // gives ten bytes back
	m.check(write())
	var st syscall.Statfs_t
	if m.check(syscall.Statfs(m.dir, &st)); st.Bavail != 0 {
		t.Errorf("%d blocks free, want none", st.Bavail)
	}
	m.say("space -1")
	m.check(write())
	if got := m.say("stats"); !strings.Contains(got, "syncs=") || slices.Contains(strings.Fields(got), "syncs=0") {
		t.Errorf("counted %q", got)
	}
}

// TestPowerIsLostUnderARunningProgram: what is open is dead at once, and the next world has none of its late writes.
func TestPowerIsLostUnderARunningProgram(t *testing.T) {
	m := mountHere(t)
	m.write("a", "kept", true)
	m.sync(".")
	f, err := os.OpenFile(m.path("a"), os.O_WRONLY|os.O_APPEND, 0)
	m.check(err)
	defer f.Close()
	m.say("lose")
	if _, err := f.Write([]byte("late")); err == nil {
		t.Error("an old handle still writes")
	}
	if got := m.tree()["a"]; got != "kept" {
		t.Errorf("the file holds %q", got)
	}
}
