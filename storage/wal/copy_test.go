package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/journal"
	"github.com/danubemq/danube/storage/segment"
)

// pages are the bytes of a log from an offset on, as readers of it get them.
func pages(t testing.TB, l *Log, from uint64) (list [][]byte) {
	t.Helper()
	r := l.Reader(from)
	defer r.Close()
	for {
		v, err := r.Next(6 << 10)
		if errors.Is(err, ErrEnd) {
			return list
		}
		if err != nil {
			t.Fatalf("read at %d: %v", r.Offset(), err)
		}
		list = append(list, bytes.Clone(v.Data))
		v.Release()
	}
}

// handedOver is a store whose partition went through two epochs and was closed. It
// returns its pages, what it handed over, and its extents.
func handedOver(t testing.TB) (list [][]byte, sessions []byte, extents []Extent, send sender) {
	t.Helper()
	r := newRig(t, func(c *Config) { c.Store = [16]byte{1} })
	r.mustPut(20, 2500)
	extents = []Extent{{Epoch: 1, Start: 0, End: openEnd}}
	r.reopen(extents...)
	extents = []Extent{{Epoch: 1, Start: 0, End: 20}, {Epoch: 2, Start: 20, End: openEnd}}
	if err := r.log.Begin(2, 20, 1<<40); err != nil {
		t.Fatal(err)
	}
	r.mustPut(20, 2500)
	list = pages(t, r.log, 0)
	end, err := r.log.Pause()
	if err != nil {
		t.Fatal(err)
	}
	if sessions, err = r.log.Sessions(); err != nil {
		t.Fatal(err)
	}
	extents[1].End = end
	r.close()
	return list, sessions, extents, r.send
}

func openTarget(t testing.TB, fsys disk.FS) *Tier {
	return openTier(t, fsys, func(c *Config) { c.Store = [16]byte{2} })
}

func openCopy(t testing.TB, tier *Tier) *Copy {
	t.Helper()
	c, err := tier.Copy(t.Context(), topic(1), "/default/t")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fetch appends the pages in [from, to) and commits.
func fetch(t testing.TB, c *Copy, list [][]byte) {
	t.Helper()
	for _, p := range list {
		if err := c.Append(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
}

func wantSpans(t testing.TB, got []Span, want ...Span) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("holds %v, want %v", got, want)
	}
}

// TestCopyBelowALiveLog: history arrives while the partition is written to, and
// readers find it as soon as it is committed.
func TestCopyBelowALiveLog(t *testing.T) {
	list, sessions, extents, _ := handedOver(t)
	for i := range extents {
		extents[i].Away = true
	}
	tier := openTarget(t, disk.NewMemory(3))
	l, _ := openLog(t, tier, Opening{ID: topic(1), Extents: extents})
	if err := l.ImportSessions(sessions); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(3, 40, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.OpenSession(9, 1, 0); err != nil {
		t.Fatal(err)
	}
	s := sender{producer: 9, session: 1}
	put := func() {
		t.Helper()
		if p, err := l.Append(s.batch(t, 1, 900)); err != nil || p.Wait() != nil {
			t.Fatal(err)
		}
	}
	elsewhere := func(from uint64, want Elsewhere) {
		t.Helper()
		r := l.Reader(from)
		defer r.Close()
		_, err := r.Next(1)
		if e, ok := errors.AsType[*Elsewhere](err); !ok || *e != want {
			t.Fatalf("read at %d: %v, want %v", from, err, want)
		}
	}
	put()
	elsewhere(5, Elsewhere{From: 5, To: 20})
	c := openCopy(t, tier)
	own := pages(t, l, 40)[0]
	if err := c.Append(own); err == nil {
		t.Fatal("copied what this store writes itself")
	}
	half := len(list) / 2
	at := batch.Batch(list[half]).Base()
	fetch(t, c, list[half:])
	elsewhere(0, Elsewhere{From: 0, To: min(at, 20)})
	put()
	if got := bytes.Join(pages(t, l, at), nil); !bytes.HasPrefix(got, bytes.Join(list[half:], nil)) {
		t.Fatal("the newer half reads otherwise")
	}
	fetch(t, c, list) // the newer half is passed over
	wantSpans(t, c.Have(), Span{Epoch: 1, Start: 0, End: 20}, Span{Epoch: 2, Start: 20, End: 40})
	if n := len(pages(t, l, 40)); n == 0 {
		t.Fatal("the live log does not read its own messages")
	}
	if got := bytes.Join(pages(t, l, 0), nil); !bytes.HasPrefix(got, bytes.Join(list, nil)) {
		t.Fatal("what was copied reads otherwise")
	}
	if err := errors.Join(c.Close(), l.Trim(30), tier.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestTableOfATakenBackMoveHidesNothing: a target that was handed the producers of a move keeps them in a file without
// messages. The move is taken back, the epoch goes on elsewhere, and what is copied of it lies around that file: all of it
// is read, before and after the next start, and given up only with its last message.
func TestTableOfATakenBackMoveHidesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		segmentBytes int64
		killed       bool // the target, since the table came
	}{
		"around it": {1 << 20, false}, "around it after a kill": {1 << 20, true},
		"to its place": {60 << 10, false}, "to its place after a kill": {60 << 10, true},
	} {
		t.Run(name, func(t *testing.T) { tableOfATakenBackMove(t, c.segmentBytes, c.killed, false) })
	}
	t.Run("around it, and not looked at since", func(t *testing.T) { tableOfATakenBackMove(t, 1<<20, false, true) })
}

// tableOfATakenBackMove is one such life. forgotten: the log is trimmed before anybody has asked how its files end, as those
// are whose number is large.
func tableOfATakenBackMove(t *testing.T, segmentBytes int64, killed, forgotten bool) {
	list, sessions, extents, _ := handedOver(t)
	for i := range extents {
		extents[i].Away = true
	}
	fsys := disk.NewMemory(3)
	target := func() *Tier {
		return openTier(t, fsys, func(c *Config) { c.Store, c.SegmentBytes = [16]byte{2}, segmentBytes })
	}
	tier := target()
	l, _ := openLog(t, tier, Opening{ID: topic(1), Extents: slices.Clone(extents)})
	if err := l.ImportSessions(sessions); err != nil {
		t.Fatal(err)
	}
	if killed {
		fsys = fsys.Kill()
		if err := tier.Close(); err == nil {
			t.Fatal("a tier was closed after a kill")
		}
		tier = target()
		l, _ = openLog(t, tier, Opening{ID: topic(1), Extents: slices.Clone(extents)})
	}
	// Epoch 2 went on at its owner to offset 60.
	for at := uint64(40); at < 60; at += 20 {
		b := (&sender{producer: 5, session: 1, next: at}).batch(t, 20, 2500)
		b.Stamp(batch.Stamp{Base: at, Epoch: 2, AppendTime: 1_700_000_000_000})
		list = append(list, b)
	}
	c := openCopy(t, tier)
	fetch(t, c, list)
	extents[1].End = 60
	if err := l.Extend(extents, 60); err != nil {
		t.Fatal(err)
	}
	want := bytes.Join(list, nil)
	for _, from := range []uint64{0, 40, 50} { // a reader that comes from before goes on in its file
		if got := bytes.Join(pages(t, l, from), nil); len(got) == 0 || !bytes.HasSuffix(want, got) {
			t.Fatalf("of what was copied beside the log %d bytes are read from %d", len(got), from)
		}
	}
	if err := errors.Join(c.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range extents {
		extents[i].Away = false
	}
	for _, again := range []bool{false, true} {
		if again {
			tier = target()
		}
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: slices.Clone(extents), Floor: 60})
		if found.Class != Clean || found.End != 60 {
			t.Fatalf("opened again %v: %+v", again, found)
		}
		for _, from := range []uint64{0, 39, 40, 50, 59} {
			got := bytes.Join(pages(t, l, from), nil)
			if len(got) == 0 || !bytes.HasSuffix(want, got) {
				t.Fatalf("opened again %v: from offset %d %d bytes are read, of %d", again, from, len(got), len(want))
			}
		}
		if again {
			if err := l.Begin(3, 60, 1<<40); err != nil {
				t.Fatal(err)
			}
			l.mu.Lock()
			for _, f := range l.files.list {
				f.known, f.table = f.known && !forgotten, f.table && !forgotten
			}
			l.mu.Unlock()
			if err := l.Trim(45); err != nil {
				t.Fatal(err)
			}
			if got := bytes.Join(pages(t, l, 45), nil); len(got) == 0 || !bytes.HasSuffix(want, got) {
				t.Fatalf("from the start of the log %d bytes are read", len(got))
			}
		}
		if err := errors.Join(l.Close(), tier.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyInterrupted kills the target, or takes its power, again and again: it
// goes on where it stopped, what it said it holds it holds, and all is equal in
// the end.
func TestCopyInterrupted(t *testing.T) {
	list, _, extents, _ := handedOver(t)
	all := bytes.Join(list, nil)
	for seed := range uint64(runs(t, 60, 1000)) {
		rng := rand.New(rand.NewPCG(seed, 3))
		fsys := disk.NewMemory(seed)
		var held []Span
		for boot := 0; ; boot++ {
			left, next := 1+rng.IntN(60), (*disk.Memory)(nil)
			if boot > 20 {
				left = 1 << 30
			}
			tier := openTarget(t, fsys)
			power := rng.IntN(2) == 0
			m := fsys
			m.Fail(func(op, _ string) error {
				if left--; left == 0 && next == nil {
					next = fail(m, power)
				}
				return nil
			})
			done := copyAll(t, tier, list, rng, &held)
			m.Fail(nil)
			if next != nil {
				done, fsys = false, next
			}
			if err := tier.Close(); err != nil && next == nil {
				t.Fatal(err)
			}
			if done {
				break
			}
		}
		tier := openTarget(t, fsys)
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: extents, Floor: 40})
		if found.End != 40 || found.Class != Clean {
			t.Fatalf("seed %d: %+v", seed, found)
		}
		if got := bytes.Join(pages(t, l, 0), nil); !bytes.Equal(got, all) {
			t.Fatalf("seed %d: what was copied reads otherwise", seed)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// copyAll copies what is missing and reports whether it came to the end. held is
// what the store has said it holds, which it must hold for ever.
func copyAll(t *testing.T, tier *Tier, list [][]byte, rng *rand.Rand, held *[]Span) bool {
	c, err := tier.Copy(t.Context(), topic(1), "/default/t")
	if err != nil {
		return false
	}
	have := c.Have()
	for _, h := range *held {
		if !slices.ContainsFunc(have, func(s Span) bool { return s.Epoch == h.Epoch && s.Start <= h.Start && h.End <= s.End }) {
			t.Fatalf("held %v, now %v", h, have)
		}
	}
	for _, p := range list {
		if c.Append(p) != nil || rng.IntN(4) == 0 && c.Commit() != nil {
			return false
		}
		*held = c.Have()
	}
	if c.Commit() != nil {
		return false
	}
	*held = c.Have()
	return c.Close() == nil
}

// TestCopyFindsNoSpace: it is said, nothing is lost by it, and the copy goes on.
func TestCopyFindsNoSpace(t *testing.T) {
	list, _, _, _ := handedOver(t)
	fsys := disk.NewMemory(3)
	now := clock{ms: 1}
	tier := openTier(t, fsys, func(c *Config) { c.Store, c.Now = [16]byte{2}, now.now })
	c := openCopy(t, tier)
	full := true
	fsys.Fail(func(op, name string) error {
		if op == "write" && full {
			return syscall.ENOSPC
		}
		return nil
	})
	wantErr(t, c.Append(list[0]), ErrFull)
	full, now.ms = false, now.ms+1000
	fetch(t, c, list[:2])
	full = true
	if err := errors.Join(c.Append(list[2]), c.Commit()); !errors.Is(err, ErrFull) {
		t.Fatalf("no space: %v", err)
	}
	full, now.ms = false, now.ms+1000
	fetch(t, c, list)
	wantSpans(t, c.Have(), Span{Epoch: 1, Start: 0, End: 20}, Span{Epoch: 2, Start: 20, End: 40})
	if err := errors.Join(tier.Err(), c.Close(), tier.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCopySyncFailureIsFinal is R20 for copies.
func TestCopySyncFailureIsFinal(t *testing.T) {
	list, _, _, _ := handedOver(t)
	fsys := disk.NewMemory(3)
	tier := openTarget(t, fsys)
	c := openCopy(t, tier)
	if err := c.Append(list[0]); err != nil {
		t.Fatal(err)
	}
	fsys.FailSync(1)
	if err := c.Commit(); err == nil {
		t.Fatal("committed over a failed sync")
	}
	wantErr(t, tier.Err(), ErrPoisoned)
	wantErr(t, c.Append(list[1]), ErrPoisoned)
	wantErr(t, c.Commit(), ErrPoisoned)
	wantSpans(t, c.Have())
	wantErr(t, errors.Join(c.Close(), tier.Close()), ErrPoisoned)
}

func TestCopyRefuses(t *testing.T) {
	list, _, _, _ := handedOver(t)
	tests := map[string]func() []byte{
		"a flipped bit": func() []byte { b := bytes.Clone(list[0]); b[len(b)/2] ^= 1; return b },
		"half a batch":  func() []byte { return list[0][:len(list[0])-1] },
		"an overlap": func() []byte {
			s := sender{producer: 1, session: 1}
			b := s.batch(t, 3, 100)
			b.Stamp(batch.Stamp{Base: batch.Batch(list[1]).Base() - 1, Epoch: 1})
			return b
		},
	}
	for name, bad := range tests {
		t.Run(name, func(t *testing.T) {
			tier := openTarget(t, disk.NewMemory(3))
			c := openCopy(t, tier)
			if name == "an overlap" {
				fetch(t, c, list[:1])
			}
			before := c.Have()
			if err := c.Append(bad()); err == nil {
				t.Fatal("taken")
			}
			if err := c.Append(list[3]); err != nil {
				t.Fatalf("after a refusal: %v", err)
			}
			if err := c.Commit(); err != nil {
				t.Fatal(err)
			}
			for _, s := range c.Have()[:len(before)] {
				if s.Epoch != 1 || s.Start != 0 {
					t.Fatalf("holds %v", c.Have())
				}
			}
			if _, err := tier.Copy(t.Context(), topic(1), ""); err == nil {
				t.Fatal("two copies of one partition")
			}
			if err := errors.Join(c.Close(), tier.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// forgetGone takes out of a journal every frame that says that files were given
// up, and tells whether there was one, and whether frames are left.
func forgetGone(t *testing.T, fsys *disk.Memory) (forgot, left bool) {
	t.Helper()
	f, err := fsys.Open("/data/journal", disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw, err := disk.ReadFile(fsys, "/data/journal")
	if err != nil {
		t.Fatal(err)
	}
	for at := journal.Block; at < len(raw); at += journal.Block {
		switch {
		case string(raw[at:at+4]) != "DJF1":
		case raw[at+journal.FrameHead+20] == 1: // the kind of its first entry
			forgot = true
			if _, err := f.WriteAt(make([]byte, journal.Block), int64(at)); err != nil {
				t.Fatal(err)
			}
		default:
			left = true
		}
	}
	return forgot, left
}

// TestOldJournalDoesNotTouchACopy: a partition is deleted and copied again, cut
// otherwise, under the same names; the journal still knows the old files, and the
// word that they were given up is lost with the power.
func TestOldJournalDoesNotTouchACopy(t *testing.T) {
	list, _, extents, _ := handedOver(t)
	for seed := range uint64(4) {
		fsys := disk.NewMemory(seed)
		tier := openTarget(t, fsys)
		l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/a/much/longer/name/of/the/topic"})
		if err := l.Begin(1, 0, 1<<40); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.OpenSession(5, 1, 0); err != nil {
			t.Fatal(err)
		}
		s := sender{producer: 5, session: 1}
		for range 6 {
			if p, err := l.Append(s.batch(t, 1, 1200)); err != nil || p.Wait() != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(l.Close(), tier.Delete(topic(1))); err != nil {
			t.Fatal(err)
		}
		c := openCopy(t, tier)
		fetch(t, c, list)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		// The word that the old files are gone is lost.
		if forgot, left := forgetGone(t, fsys); !forgot || !left {
			t.Fatal("the journal knows nothing of the old files")
		}
		fsys = fsys.Kill()
		tier.Close()
		tier = openTarget(t, fsys)
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: extents, Floor: 40})
		if found.Class != Clean || found.End != 40 {
			t.Fatalf("seed %d: %+v", seed, found)
		}
		if got := bytes.Join(pages(t, l, 0), nil); !bytes.Equal(got, bytes.Join(list, nil)) {
			t.Fatalf("seed %d: the copy reads otherwise", seed)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopiedFilesAreWholeSegments holds what a copy writes against all that a
// segment must be.
func TestCopiedFilesAreWholeSegments(t *testing.T) {
	list, sessions, extents, _ := handedOver(t)
	fsys := disk.NewMemory(3)
	tier := openTarget(t, fsys)
	c := openCopy(t, tier)
	fetch(t, c, list)
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: extents})
	if err := l.ImportSessions(sessions); err != nil {
		t.Fatal(err)
	}
	files, err := fsys.ReadDir(tier.dir(topic(1)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range files {
		f, err := fsys.Open(tier.dir(topic(1))+"/"+e.Name, 0)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := segment.Verify(f, e.Size)
		if err != nil || len(rep.Problems) > 0 || rep.Footer == nil || !rep.Header.Copied || rep.Header.Store != [16]byte{2} {
			t.Errorf("%s: %v, %+v", e.Name, err, rep)
		}
		f.Close()
	}
	if len(files) < 5 {
		t.Fatal(fmt.Sprint("too few files: ", files))
	}
	if err := errors.Join(c.Close(), tier.Close()); err != nil {
		t.Fatal(err)
	}
}

// What a broker whose data directory was deleted still takes over from others
// does not make the directory again.
func TestCopyIntoADeletedDirectoryFails(t *testing.T) {
	list, sessions, extents, _ := handedOver(t)
	for i := range extents {
		extents[i].Away = true
	}
	for name, take := range map[string]func(*Tier, *Log) error{
		"a copy": func(tier *Tier, _ *Log) error {
			c := openCopy(t, tier)
			return errors.Join(c.Append(list[0]), c.Commit(), c.Close())
		},
		"a table":      func(_ *Tier, l *Log) error { return l.ImportSessions(sessions) },
		"a late table": func(_ *Tier, l *Log) error { return l.StageSessions(sessions, 2, 40) },
	} {
		fsys := disk.NewMemory(3)
		tier := openTarget(t, fsys)
		l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: extents})
		if err := disk.RemoveAll(fsys, "/data"); err != nil {
			t.Fatal(err)
		}
		if err := take(tier, l); err == nil {
			t.Errorf("%s was taken over", name)
		}
		tier.Close()
		if _, err := fsys.Stat("/data"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after %s the directory is there again: %v", name, err)
		}
	}
}
