package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// outcomes runs a scenario with many seeds, loses power, and counts what look
// says of the rest.
func outcomes(t *testing.T, scenario func(m *Memory), look func(m *Memory) string) map[string]int {
	t.Helper()
	seen := make(map[string]int)
	for seed := range uint64(300) {
		m := NewMemory(seed)
		scenario(m)
		seen[look(m.PowerLoss())]++
	}
	return seen
}

// wantExactly fails unless all of want were seen, and nothing else.
func wantExactly(t *testing.T, seen map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if seen[w] == 0 {
			t.Errorf("never ended as %q", w)
		}
		delete(seen, w)
	}
	for other, n := range seen {
		t.Errorf("ended %d times as %q", n, other)
	}
}

// lookFile describes a file by a letter for each sector.
func lookFile(t *testing.T, name string) func(m *Memory) string {
	return func(m *Memory) string {
		data, err := ReadFile(m, name)
		if errors.Is(err, fs.ErrNotExist) {
			return "none"
		}
		must(t, err)
		var out strings.Builder
		for sector := range slices.Chunk(data, sectorSize) {
			if i := slices.IndexFunc(sector, func(b byte) bool { return b != sector[0] }); i >= 0 {
				fmt.Fprintf(&out, "?")
			} else if sector[0] == 0 {
				out.WriteByte('0')
			} else {
				out.WriteByte(sector[0])
			}
		}
		return out.String()
	}
}

// synced makes the durable file f with text.
func synced(t *testing.T, m *Memory, name string, text []byte) File {
	t.Helper()
	f, err := m.Open(name, Create)
	must(t, err)
	must(t, f.WriteVec([][]byte{text}, 0))
	must(t, f.Datasync())
	must(t, m.SyncDir("/"))
	return f
}

func sectors(letters string) []byte {
	var out []byte
	for _, l := range letters {
		out = append(out, bytes.Repeat([]byte{byte(l)}, sectorSize)...)
	}
	return out
}

func TestPowerLossKeepsWhatWasSynced(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("aaaaaaaaaa"))
		_, err := f.WriteAt(sectors("b"), 0)
		must(t, err)
		must(t, f.Datasync())
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "baaaaaaaaa")
}

func TestPowerLossKeepsDropsOrTearsAPage(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("aa"))
		_, err := f.WriteAt(sectors("bb"), 0)
		must(t, err)
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "aa", "bb", "ab", "ba")
}

func TestPowerLossDecidesForEachPage(t *testing.T) {
	page := func(letter string) string { return strings.Repeat(letter, pageSize/sectorSize) }
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors(page("a")+page("a")))
		_, err := f.WriteAt(sectors(page("b")+page("b")), 0)
		must(t, err)
	}, lookFile(t, "/f"))
	for _, want := range []string{page("a") + page("b"), page("b") + page("a"), page("a") + page("a"), page("b") + page("b")} {
		if seen[want] == 0 {
			t.Errorf("never ended as %q", want)
		}
	}
}

func TestPowerLossMayLeaveAnEarlierWrite(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("a"))
		for _, text := range []string{"b", "c"} {
			_, err := f.WriteAt(sectors(text), 0)
			must(t, err)
		}
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "a", "b", "c")
}

func TestPowerLossOfAnExtension(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("a"))
		_, err := f.WriteAt(sectors("bb"), sectorSize)
		must(t, err)
	}, func(m *Memory) string {
		data, err := ReadFile(m, "/f")
		must(t, err)
		switch {
		case !bytes.Equal(data[:sectorSize], sectors("a")):
			return "lost what was synced"
		case len(data) == sectorSize:
			return "old size"
		case len(data) < 3*sectorSize:
			return "between"
		}
		return lookFile(t, "/f")(m)
	})
	// Extended, with the page kept, dropped (zeros) or torn.
	wantExactly(t, seen, "old size", "between", "abb", "a00", "ab0", "a0b")
}

func TestPowerLossOfATruncation(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("aaa"))
		must(t, f.Truncate(sectorSize))
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "a", "aaa")

	seen = outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("aaa"))
		must(t, f.Truncate(sectorSize))
		must(t, f.Datasync())
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "a")
}

func TestPowerLossUndoesATruncationOfUnsyncedPages(t *testing.T) {
	// A tail that was written but not synced, cut after a restart: it may come
	// back when the cut was not synced either.
	full := strings.Repeat("a", pageSize/sectorSize)
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors(full))
		_, err := f.WriteAt(sectors("b"), pageSize)
		must(t, err)
		must(t, f.Truncate(pageSize))
	}, func(m *Memory) string {
		data, err := ReadFile(m, "/f")
		must(t, err)
		if n := len(data) - pageSize; n > 0 && n < sectorSize {
			return "between"
		}
		return lookFile(t, "/f")(m)
	})
	wantExactly(t, seen, full, "between", full+"b", full+"0")
}

func TestTruncatedAndWrittenAgain(t *testing.T) {
	// After the cut is durable nothing of what it cut can be read again.
	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("aaa"))
		must(t, f.Truncate(0))
		must(t, f.Datasync())
		_, err := f.WriteAt(sectors("b"), 2*sectorSize)
		must(t, err)
	}, func(m *Memory) string {
		data, err := ReadFile(m, "/f")
		must(t, err)
		if bytes.Contains(data, []byte("a")) {
			return "the cut came back"
		}
		return "fine"
	})
	wantExactly(t, seen, "fine")
}

func TestPowerLossOfANewFile(t *testing.T) {
	exists := func(m *Memory) string { return fmt.Sprint(names(t, m, "/")) }
	create := func(m *Memory) File {
		f, err := m.Open("/f", Exclusive)
		must(t, err)
		return f
	}
	seen := outcomes(t, func(m *Memory) { create(m) }, exists)
	wantExactly(t, seen, "[]", "[f]")
	// The data of a file do not carry its name.
	seen = outcomes(t, func(m *Memory) { must(t, create(m).Datasync()) }, exists)
	wantExactly(t, seen, "[]", "[f]")
	seen = outcomes(t, func(m *Memory) { create(m); must(t, m.SyncDir("/")) }, exists)
	wantExactly(t, seen, "[f]")
	// Nor does the name its data.
	seen = outcomes(t, func(m *Memory) {
		_, err := create(m).WriteAt(sectors("a"), 0)
		must(t, err)
		must(t, m.SyncDir("/"))
	}, func(m *Memory) string { return fmt.Sprint(strings.Contains(lookFile(t, "/f")(m), "a")) })
	wantExactly(t, seen, "true", "false")
}

func TestPowerLossOfARemoval(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		synced(t, m, "/f", sectors("a"))
		must(t, m.Remove("/f"))
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "a", "none")
	seen = outcomes(t, func(m *Memory) {
		synced(t, m, "/f", sectors("a"))
		must(t, m.Remove("/f"))
		must(t, m.SyncDir("/"))
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "none")
}

func TestPowerLossOfARename(t *testing.T) {
	both := func(m *Memory) string { return lookFile(t, "/f")(m) + " " + lookFile(t, "/t")(m) }
	rename := func(m *Memory) {
		synced(t, m, "/f", sectors("o"))
		synced(t, m, "/t", sectors("n"))
		must(t, m.Rename("/t", "/f"))
	}
	wantExactly(t, outcomes(t, rename, both), "o n", "n none")
	wantExactly(t, outcomes(t, func(m *Memory) { rename(m); must(t, m.SyncDir("/")) }, both), "n none")
}

func TestPowerLossOfARenameBetweenDirectories(t *testing.T) {
	prepare := func(m *Memory) {
		must(t, MkdirAll(m, "/a"))
		must(t, MkdirAll(m, "/b"))
		f, err := m.Open("/a/f", Create)
		must(t, err)
		_, err = f.WriteAt(sectors("x"), 0)
		must(t, err)
		must(t, f.Datasync())
		must(t, m.SyncDir("/a"))
		must(t, m.Rename("/a/f", "/b/g"))
	}
	look := func(m *Memory) string { return lookFile(t, "/a/f")(m) + " " + lookFile(t, "/b/g")(m) }
	wantExactly(t, outcomes(t, prepare, look), "x none", "none x")
	wantExactly(t, outcomes(t, func(m *Memory) { prepare(m); must(t, m.SyncDir("/b")) }, look), "x x", "none x")
	wantExactly(t, outcomes(t, func(m *Memory) { prepare(m); must(t, m.SyncDir("/a")) }, look), "none x")
}

func TestPowerLossOfADirectory(t *testing.T) {
	// A synced file in a directory that nobody synced is lost with it.
	seen := outcomes(t, func(m *Memory) {
		must(t, m.Mkdir("/d"))
		f, err := m.Open("/d/f", Create)
		must(t, err)
		must(t, f.Datasync())
		must(t, m.SyncDir("/d"))
	}, func(m *Memory) string {
		if len(names(t, m, "/")) == 0 {
			return "none"
		}
		return fmt.Sprint(names(t, m, "/d"))
	})
	wantExactly(t, seen, "none", "[f]")
	seen = outcomes(t, func(m *Memory) { must(t, MkdirAll(m, "/a/b/c")) }, func(m *Memory) string {
		return fmt.Sprint(names(t, m, "/a/b"))
	})
	wantExactly(t, seen, "[c]")
}

func TestWriteFileAtomicSurvivesPowerLoss(t *testing.T) {
	for seed := range uint64(200) {
		// Power is lost at each step of the second write in turn.
		for step := 1; ; step++ {
			m := NewMemory(seed)
			must(t, WriteFileAtomic(m, "/f", sectors("o")))
			count := 0
			var after *Memory
			m.Fail(func(string, string) error {
				if count++; count == step {
					after = m.PowerLoss()
				}
				return nil
			})
			err := WriteFileAtomic(m, "/f", sectors("n"))
			if after == nil {
				must(t, err)
				after = m.PowerLoss()
			} else {
				wantIs(t, err, ErrCrashed)
			}
			got := lookFile(t, "/f")(after)
			if got != "n" && (err == nil || got != "o") {
				t.Fatalf("seed %d, step %d: the file holds %q after %v", seed, step, got, err)
			}
			if err == nil {
				break
			}
		}
	}
}

func TestKillKeepsWhatWasWritten(t *testing.T) {
	m := NewMemory(3)
	f, err := m.Open("/f", Create)
	must(t, err)
	_, err = f.WriteAt(sectors("a"), 0)
	must(t, err)
	_, err = m.Lock("/lock")
	must(t, err)
	next := m.Kill()
	_, err = f.WriteAt(sectors("b"), 0)
	wantIs(t, err, ErrCrashed)
	_, err = m.Open("/f", 0)
	wantIs(t, err, ErrCrashed)
	must(t, f.Close())
	if got := lookFile(t, "/f")(next); got != "a" {
		t.Fatalf("after the kill %q", got)
	}
	if next.Stats().Open != 0 {
		t.Fatalf("%d files open after the kill", next.Stats().Open)
	}
	_, err = next.Lock("/lock")
	must(t, err)
	_, err = m.PowerLoss().Open("/f", 0)
	wantIs(t, err, ErrCrashed)

	seen := outcomes(t, func(m *Memory) {
		f := synced(t, m, "/f", sectors("a"))
		_, err := f.WriteAt(sectors("b"), 0)
		must(t, err)
		*m = Memory{w: m.Kill().w}
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "a", "b")
}

func TestFailedSyncIsFinal(t *testing.T) {
	scenario := func(m *Memory) {
		f := synced(t, m, "/f", sectors("a"))
		_, err := f.WriteAt(sectors("b"), 0)
		must(t, err)
		m.FailSync(1)
		wantIs(t, f.Datasync(), syscall.EIO)
		wantIs(t, f.Datasync(), syscall.EIO)
		// Another handle is told that all is well, and it is not.
		other, err := m.Open("/f", Write)
		must(t, err)
		must(t, other.Datasync())
	}
	wantExactly(t, outcomes(t, scenario, lookFile(t, "/f")), "a", "b")
	wantExactly(t, outcomes(t, func(m *Memory) {
		scenario(m)
		f, err := m.Open("/f", Write)
		must(t, err)
		_, err = f.WriteAt(sectors("c"), 0) // written again, the page is dirty again
		must(t, err)
		must(t, f.Datasync())
	}, lookFile(t, "/f")), "c")
}

func TestFailedDirectorySync(t *testing.T) {
	seen := outcomes(t, func(m *Memory) {
		_, err := m.Open("/f", Create)
		must(t, err)
		m.FailSync(1)
		wantIs(t, m.SyncDir("/"), syscall.EIO)
		must(t, m.SyncDir("/"))
	}, lookFile(t, "/f"))
	wantExactly(t, seen, "none", "")
}

func TestSpaceEnds(t *testing.T) {
	m := NewMemory(1)
	m.Limit(1000)
	f, err := m.Open("/f", Create)
	must(t, err)
	must(t, f.WriteVec([][]byte{make([]byte, 900)}, 0))
	n, err := f.WriteAt(make([]byte, 300), 900)
	wantIs(t, err, syscall.ENOSPC)
	if size, _ := f.Size(); n != 100 || size != 1000 {
		t.Fatalf("%d bytes written, size %d", n, size)
	}
	_, err = f.WriteAt(make([]byte, 900), 0) // what is there can be written over
	must(t, err)
	wantIs(t, f.WriteVec([][]byte{{1}, {2}}, 1000), syscall.ENOSPC)
	wantIs(t, f.Truncate(1001), syscall.ENOSPC)
	space, err := m.Free("/")
	must(t, err)
	if space != (Space{Free: 0, Total: 1000}) {
		t.Fatalf("free space %+v", space)
	}
	must(t, f.Truncate(400))
	_, err = f.WriteAt(make([]byte, 100), 400)
	must(t, err)
	must(t, m.Remove("/f"))
	if space, _ := m.Free("/"); space.Free != 500 {
		t.Fatalf("%d bytes free while the removed file is open", space.Free)
	}
	must(t, f.Close())
	if space, _ := m.Free("/"); space.Free != 1000 {
		t.Fatalf("%d bytes free after the removed file was closed", space.Free)
	}
	put(t, m, "/g", strings.Repeat("x", 800))
	put(t, m, "/h", strings.Repeat("x", 200))
	must(t, m.Rename("/h", "/g"))
	next := m.Kill()
	next.Limit(1000)
	if space, _ := next.Free("/"); space.Free != 800 {
		t.Fatalf("%d bytes free after a crash", space.Free)
	}
}

func TestHookFailsEveryOperation(t *testing.T) {
	boom := errors.New("boom")
	m := NewMemory(1)
	f := synced(t, m, "/f", sectors("a"))
	must(t, m.Mkdir("/d"))
	var asked []string
	m.Fail(func(op, name string) error {
		asked = append(asked, op+" "+name)
		return boom
	})
	_, openErr := m.Open("/g", Create)
	_, readErr := f.ReadAt(make([]byte, 1), 0)
	_, writeErr := f.WriteAt(make([]byte, 1), 0)
	_, sizeErr := f.Size()
	_, listErr := m.ReadDir("/")
	_, statErr := m.Stat("/f")
	_, lockErr := m.Lock("/lock")
	_, freeErr := m.Free("/")
	errs := []error{
		openErr, readErr, writeErr, f.WriteVec([][]byte{{1}, {2}}, 0), f.WriteVec(nil, 0), f.Truncate(0), sizeErr, f.Datasync(),
		m.Mkdir("/e"), listErr, statErr, m.Rename("/f", "/g"), m.Remove("/f"), m.SyncDir("/"), lockErr, freeErr,
	}
	for i, err := range errs {
		if !errors.Is(err, boom) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	want := []string{
		"open /g", "read /f", "write /f", "size /f", "readdir /", "stat /f", "lock /lock", "free /", "write /f", "write /f", "truncate /f",
		"sync /f", "mkdir /e", "rename /f", "remove /f", "syncdir /",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("the hook was asked %q, want %q", asked, want)
	}
	m.Fail(nil)
	if got := names(t, m, "/"); !slices.Equal(got, []string{"d", "f"}) {
		t.Errorf("failed operations left %v", got)
	}
}

func TestFailedWriteLeavesAPrefix(t *testing.T) {
	lengths := make(map[int64]bool)
	for seed := range uint64(100) {
		m := NewMemory(seed)
		f := synced(t, m, "/f", nil)
		m.Fail(func(op, _ string) error {
			if op == "write" {
				return syscall.EIO
			}
			return nil
		})
		wantIs(t, f.WriteVec([][]byte{[]byte("ab"), []byte("cd")}, 0), syscall.EIO)
		size, err := f.Size()
		must(t, err)
		if got := make([]byte, size); !errors.Is(func() error { _, err := f.ReadAt(append(got, 0), 0); return err }(), io.EOF) {
			t.Fatal("no end of file")
		}
		if got := content(t, m, "/f"); got != "abcd"[:size] {
			t.Fatalf("left %q", got)
		}
		lengths[size] = true
	}
	if len(lengths) < 4 {
		t.Fatalf("failed writes left only the lengths %v", lengths)
	}
}

func TestSameSeedSameBytes(t *testing.T) {
	run := func(seed uint64) string {
		m := NewMemory(seed)
		for i := range 20 {
			f, err := m.Open(fmt.Sprintf("/f%d", i), Create)
			must(t, err)
			for j := range 20 {
				_, err := f.WriteAt(sectors(string(rune('a'+j))), int64(j)*700)
				must(t, err)
			}
		}
		m = m.PowerLoss()
		var out strings.Builder
		for _, name := range names(t, m, "/") {
			fmt.Fprintf(&out, "%s %q\n", name, content(t, m, "/"+name))
		}
		return out.String()
	}
	first, again, other := run(5), run(5), run(6)
	if first != again {
		t.Fatal("the same seed ended differently")
	}
	if first == other {
		t.Fatal("another seed ended the same")
	}
}

func TestStatsCount(t *testing.T) {
	m := NewMemory(1)
	f := synced(t, m, "/f", sectors("a"))
	must(t, f.WriteVec([][]byte{{1}, {2}, {3}}, 0))
	_, err := f.WriteAt([]byte{1}, 0)
	must(t, err)
	want := Stats{Writes: 3, Bytes: sectorSize + 4, Syncs: 1, DirSyncs: 1, Open: 1}
	if got := m.Stats(); got != want {
		t.Fatalf("counted %+v, want %+v", got, want)
	}
	must(t, f.Close())
	if got := m.Stats().Open; got != 0 {
		t.Fatalf("%d files open", got)
	}
}

func TestLockedErrorNamesTheHolder(t *testing.T) {
	m := NewMemory(1)
	_, err := m.Lock("/lock")
	must(t, err)
	_, err = m.Lock("/lock")
	if want := fmt.Sprintf("/lock is locked by process %d", os.Getpid()); err == nil || err.Error() != want {
		t.Fatalf("got %v, want %s", err, want)
	}
}

// BenchmarkCrashRun is one run of a test that loses power: some appends, a
// crash, a look at what is left.
func BenchmarkCrashRun(b *testing.B) {
	record := make([]byte, 300)
	for seed := uint64(0); b.Loop(); seed++ {
		m := NewMemory(seed)
		f, err := m.Open("/f", Create)
		must(b, err)
		for i := range 20 {
			_, err := f.WriteAt(record, int64(i*len(record)))
			must(b, err)
			if i%4 == 0 {
				must(b, f.Datasync())
			}
		}
		must(b, m.SyncDir("/"))
		_, err = ReadFile(m.PowerLoss(), "/f")
		must(b, err)
	}
}
