package wal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/sessions"
	"github.com/danubemq/danube/storage/space"
)

// bench is a tier with one open log and a sender, over a disk that can fail.
type rig struct {
	t     testing.TB
	fsys  *disk.Memory
	clock clock
	tier  *Tier
	log   *Log
	send  sender
}

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, fsys: disk.NewMemory(1), clock: clock{ms: 1_700_000_000_000}, send: sender{producer: 5, session: 1}}
	r.tier = openTier(t, r.fsys, func(c *Config) {
		c.Now = r.clock.now
		if change != nil {
			change(c)
		}
	})
	r.log, _ = openLog(t, r.tier, Opening{ID: topic(1), Topic: "/default/t"})
	if err := r.log.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.log.OpenSession(5, 1, 0); err != nil {
		t.Fatal(err)
	}
	return r
}

// put appends one message of the given size and waits.
func (r *rig) put(size int) error {
	b := r.send.batch(r.t, 1, size)
	p, err := r.log.Append(b)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		r.send.next-- // it is sent again under the same sequence
	}
	return err
}

func (r *rig) mustPut(n, size int) {
	r.t.Helper()
	for range n {
		if err := r.put(size); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *rig) close() {
	r.t.Helper()
	if err := r.tier.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// wantErr fails unless err is want.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// TestFailedSyncIsFinal is A14: one sync fails once, and nothing is acknowledged
// on that store ever after; what was acknowledged before is there.
func TestFailedSyncIsFinal(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(4, 100)
	r.fsys.FailSync(1)
	wantErr(t, r.put(100), ErrPoisoned)
	wantErr(t, r.put(100), ErrPoisoned)
	select {
	case <-r.tier.Failed():
	default:
		t.Fatal("Failed is not closed")
	}
	wantErr(t, r.tier.Err(), syscall.EIO)
	if got := readAll(t, r.log, 0); len(got) != 4 {
		t.Fatalf("read %d messages after the failure, want 4", len(got))
	}
	wantErr(t, r.tier.Close(), ErrPoisoned)
	tier := openTier(t, r.fsys.PowerLoss(), nil)
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: 4})
	if found.Class == Damaged || found.End < 4 || found.End > 5 {
		t.Fatalf("after power loss: %+v", found)
	}
	if got := readAll(t, l, 0); len(got) != int(found.End) {
		t.Fatalf("read %d messages, want %d", len(got), found.End)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEverySyncCanFail lets each sync of a short life fail in turn.
func TestEverySyncCanFail(t *testing.T) {
	for nth := 1; ; nth++ {
		r := newRig(t, func(c *Config) { c.SegmentBytes = 2 << 10; c.JournalBytes = 64 << 10 })
		r.fsys.FailSync(nth)
		acked := 0
		for i := range 30 {
			if r.put(100+i*200) == nil {
				if r.tier.Err() != nil {
					acked++ // raced with a failure beside the loop: it was synced before
					break
				}
				acked++
			}
		}
		failed := r.tier.Close() != nil
		tier := openTier(t, r.fsys.PowerLoss(), nil)
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
		if got := len(readAll(t, l, 0)); got < acked || found.Class == Damaged {
			t.Fatalf("sync %d failed: %d acknowledged, %d read, %+v", nth, acked, got, found)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
		if !failed {
			if nth < 20 {
				t.Fatalf("only %d syncs in that life", nth)
			}
			return
		}
	}
}

// TestWriteErrorIsFinal: EIO of a write says nothing about what is on the disk.
func TestWriteErrorIsFinal(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(2, 100)
	r.fsys.Fail(func(op, name string) error {
		if op == "write" && strings.HasSuffix(name, ".seg") {
			return syscall.EIO
		}
		return nil
	})
	wantErr(t, r.put(100), ErrPoisoned)
	r.fsys.Fail(nil)
	wantErr(t, r.put(100), ErrPoisoned)
	wantErr(t, r.tier.Close(), ErrPoisoned)
}

// TestNoSpaceIsSurvived is A76 in small: each write of a life finds no space
// once, before any sync; the batch is cut and answered, its sequence forgotten,
// and the next attempt stores it.
func TestNoSpaceIsSurvived(t *testing.T) {
	for nth := 1; ; nth++ {
		r := newRig(t, func(c *Config) { c.SegmentBytes = 2 << 10; c.JournalBytes = 64 << 10 })
		count, hit := 0, ""
		var mu sync.Mutex
		r.fsys.Fail(func(op, name string) error {
			makes := op == "write" || op == "mkdir"
			if op == "open" { // one that is there needs no space
				_, err := r.fsys.Stat(name)
				makes = isNotExist(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if makes && hit == "" {
				if count++; count == nth {
					hit = name
					return syscall.ENOSPC
				}
			}
			return nil
		})
		for i := range 20 {
			size := 100 + i*100
			for try := 0; ; try++ {
				err := r.put(size)
				if err == nil {
					break
				}
				wantErr(t, err, ErrFull)
				if try == 3 {
					t.Fatalf("write %d (%s): still full", nth, hit)
				}
				r.clock.ms += 200
			}
		}
		if got := readAll(t, r.log, 0); len(got) != 20 {
			t.Fatalf("write %d (%s): read %d messages, want 20", nth, hit, len(got))
		}
		r.fsys.Fail(nil)
		r.close()
		tier := openTier(t, r.fsys.PowerLoss(), nil)
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: 20})
		if got := readAll(t, l, 0); len(got) != 20 || found.Class == Damaged {
			t.Fatalf("write %d (%s): read %d messages after a restart, %+v", nth, hit, len(got), found)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
		if hit == "" {
			if nth < 25 {
				t.Fatalf("only %d writes in that life", nth)
			}
			return
		}
	}
}

// TestFullDisk is A76: a small volume fills up; reads go on; space comes back
// and messages are taken without a restart; a restart works while it is full.
func TestFullDisk(t *testing.T) {
	r := newRig(t, func(c *Config) { c.JournalBytes = 0; c.SegmentBytes = 64 << 10 })
	r.fsys.Limit(2 << 20)
	r.tier.space = space.New(r.fsys, r.tier.config.Dir, r.tier.config.Now, r.tier.config.Log)
	stored := 0
	var err error
	for ; stored < 10_000; stored++ {
		r.clock.ms++
		if err = r.put(1000); err != nil {
			break
		}
	}
	wantErr(t, err, ErrFull)
	wantErr(t, r.tier.Full(), ErrFull)
	if s, err := r.fsys.Free("/data"); err != nil || s.Free == 0 {
		t.Fatalf("nothing was kept in reserve: %+v, %v", s, err)
	}
	if got := len(readAll(t, r.log, 0)); got != stored {
		t.Fatalf("read %d messages, want %d", got, stored)
	}
	wantErr(t, r.put(1000), ErrFull)
	if err := r.log.Trim(uint64(stored) - 100); err != nil {
		t.Fatal(err)
	}
	r.clock.ms += 200
	if r.tier.Full() != nil {
		t.Fatal("space is back, and until somebody sends it is said that there is none")
	}
	r.mustPut(50, 1000)
	if r.tier.Full() != nil {
		t.Fatal("space is back and the door still closed")
	}
	stored += 50
	s, err := r.fsys.Free("/data")
	if err != nil {
		t.Fatal(err)
	}
	used := s.Total - s.Free
	m := r.fsys.Kill()
	r.tier.Close()
	m.Limit(int64(used)) // not a byte is free
	tier := openTier(t, m, nil)
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Start: uint64(stored) - 150})
	if got := len(readAll(t, l, uint64(stored)-150)); got != 150 || found.Class == Damaged {
		t.Fatalf("started on a full disk: read %d messages, want 150; %+v", got, found)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFullDiskOfOneSegment: everything lies in the one file that is written to. A truncation of all of it gives the space
// back; one inside it closes the file, so that the next can.
func TestFullDiskOfOneSegment(t *testing.T) {
	for name, first := range map[string]uint64{"at once": 0, "in two steps": 100} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.JournalBytes = 0; c.SegmentBytes = 64 << 20 })
			r.fsys.Limit(2 << 20)
			r.tier.space = space.New(r.fsys, r.tier.config.Dir, r.tier.config.Now, r.tier.config.Log)
			stored := uint64(0)
			for err := error(nil); err == nil; stored++ {
				r.clock.ms++
				if err = r.put(1000); err != nil {
					wantErr(t, err, ErrFull)
					break
				}
			}
			if first > 0 {
				if err := r.log.Trim(first); err != nil {
					t.Fatal(err)
				}
				if got := len(readAll(t, r.log, first)); got != int(stored-first) {
					t.Fatalf("read %d messages, want %d", got, stored-first)
				}
				r.clock.ms += 200
				wantErr(t, r.put(1000), ErrFull)
			}
			if err := r.log.Trim(stored); err != nil {
				t.Fatal(err)
			}
			r.clock.ms += 200
			r.mustPut(500, 1000)
			if got := len(readAll(t, r.log, stored)); got != 500 {
				t.Errorf("read %d messages, want 500", got)
			}
			m := r.fsys.Kill()
			r.tier.Close()
			tier := openTier(t, m, nil)
			l, found := openLog(t, tier, Opening{
				ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Start: stored, Floor: stored + 500,
			})
			if got := len(readAll(t, l, stored)); got != 500 || found.Class == Damaged {
				t.Errorf("after a restart: read %d messages, %+v", got, found)
			}
			if err := tier.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestTrimmedToTheEnd: a log of which nothing is kept goes on where it ended, with and without a restart.
func TestTrimmedToTheEnd(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(20, 100)
	if err := r.log.Trim(20); err != nil {
		t.Fatal(err)
	}
	if n := len(r.log.files.list); n != 0 {
		t.Errorf("%d files are left of a log that holds nothing", n)
	}
	m := r.fsys.Kill()
	r.tier.Close()
	tier := openTier(t, m, nil)
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Start: 20, Floor: 20})
	if l.Next() != 20 || found.Class == Damaged {
		t.Errorf("goes on at %d, %+v", l.Next(), found)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAppendBlocksWhileTheDiskIsSlow is A71: memory on its way to the disk is
// bounded, and nothing fails.
func TestAppendBlocksWhileTheDiskIsSlow(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MemoryBytes = 1 << 20 })
	r.mustPut(1, 10)
	gate := make(chan struct{})
	r.fsys.Fail(func(op, _ string) error {
		if op == "sync" {
			<-gate
		}
		return nil
	})
	done := make(chan int)
	go func() {
		n := 0
		for range 400 {
			if _, err := r.log.Append(r.send.batch(t, 1, 4000)); err == nil {
				n++
			}
		}
		done <- n
	}()
	eventually(t, func() bool { return r.tier.pending.Load() > r.tier.config.MemoryBytes/4 })
	select {
	case n := <-done:
		t.Fatalf("%d appends went through a disk that stands still", n)
	default:
	}
	if got, most := r.tier.pending.Load(), r.tier.config.MemoryBytes/4+8<<10; got > most {
		t.Fatalf("%d bytes on their way, at most %d", got, most)
	}
	close(gate)
	if n := <-done; n != 400 {
		t.Fatalf("%d of 400 appends", n)
	}
	r.close()
}

// eventually polls until ok is true.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("did not happen in 10 s")
		}
	}
}

// TestSequences walks through R17: duplicates, overlaps, gaps, sessions.
func TestSequences(t *testing.T) {
	r := newRig(t, nil)
	wantSeq := func(err error, known bool, expected uint64) {
		t.Helper()
		e, ok := errors.AsType[*sessions.SequenceError](err)
		if !ok || e.Known != known || e.Expected != expected {
			t.Fatalf("got %v, want sequence error, known %v, expected %d", err, known, expected)
		}
	}
	a, b, c := r.send.batch(t, 3, 20), r.send.batch(t, 2, 20), r.send.batch(t, 1, 20)
	_, err := r.log.Append(c)
	wantSeq(err, true, 0)
	first, err := r.log.Append(a)
	if err != nil || first.Base != 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	again, err := r.log.Append(a)
	if err != nil || !again.Duplicate || again.Base != 0 || again.AppendTime != first.AppendTime || again.Wait() != nil {
		t.Fatalf("duplicate: %+v, %v", again, err)
	}
	if r.log.Committed() != 3 {
		t.Fatal("the duplicate did not wait for the batch itself")
	}
	_, err = r.log.Append(c)
	wantSeq(err, true, 3)
	second, err := r.log.Append(b)
	if err != nil || second.Base != 3 || second.Wait() != nil {
		t.Fatalf("%+v, %v", second, err)
	}
	other := sender{producer: 5, session: 1, next: 2}
	_, err = r.log.Append(other.batch(t, 3, 20)) // 2 to 4: lies across two
	wantErr(t, err, sessions.ErrOverlap)
	other.next = 3
	_, err = r.log.Append(other.batch(t, 2, 21)) // 3 to 4 with other bytes
	wantErr(t, err, sessions.ErrOverlap)
	stranger := sender{producer: 6, session: 1}
	_, err = r.log.Append(stranger.batch(t, 1, 20))
	wantSeq(err, false, 0)
	last, known, err := r.log.OpenSession(5, 1, 3)
	if err != nil || !known || last != 4 {
		t.Fatalf("open again: %d, %v, %v", last, known, err)
	}
	if last, known, err = r.log.OpenSession(6, 1, 40); err != nil || known || last != 0 {
		t.Fatalf("open new: %d, %v, %v", last, known, err)
	}
	stranger.next = 40
	if p, err := r.log.Append(stranger.batch(t, 1, 20)); err != nil || p.Base != 5 || p.Wait() != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	r.close()
	tier := openTier(t, r.fsys, nil)
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
	if err := l.Begin(2, found.End, 100); err != nil {
		t.Fatal(err)
	}
	for _, x := range []batch.Batch{a, b} {
		p, err := l.Append(x)
		if err != nil || !p.Duplicate || p.Wait() != nil {
			t.Fatalf("after a restart: %+v, %v", p, err)
		}
	}
	if p, err := l.Append(c); err != nil || p.Duplicate || p.Base != 6 || p.Wait() != nil {
		t.Fatalf("after a restart: %+v, %v", p, err)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSequenceIsForgottenWithItsMessage is A64: the write of a batch fails, and
// every retry stores it once, never answers that it was stored before.
func TestSequenceIsForgottenWithItsMessage(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(1, 50)
	fail := true
	r.fsys.Fail(func(op, name string) error {
		if fail && op == "write" && strings.HasSuffix(name, ".seg") {
			return syscall.ENOSPC
		}
		return nil
	})
	x := r.send.batch(t, 4, 50)
	p, err := r.log.Append(x)
	if err != nil {
		t.Fatal(err)
	}
	wantErr(t, p.Wait(), ErrFull)
	wantErr(t, p.Wait(), ErrFull)
	fail = false
	r.clock.ms += 200
	q, err := r.log.Append(x)
	if err != nil || q.Duplicate || q.Base != 1 || q.Wait() != nil {
		t.Fatalf("retry: %+v, %v", q, err)
	}
	wantErr(t, p.Wait(), ErrFull) // the first attempt was cut off, whatever stands there now
	if done, err := p.Done(); !done || !errors.Is(err, ErrFull) {
		t.Fatalf("the first attempt: done %v, %v", done, err)
	}
	if d, err := r.log.Append(x); err != nil || !d.Duplicate || d.Base != 1 {
		t.Fatalf("second retry: %+v, %v", d, err)
	}
	r.close()
}

// TestCeilingAndEpoch holds R3 and the door.
func TestCeilingAndEpoch(t *testing.T) {
	r := newRig(t, nil)
	l, _ := openLog(t, r.tier, Opening{ID: topic(2)})
	_, _, err := l.OpenSession(5, 1, 0)
	wantErr(t, err, ErrNotOpen)
	if err := l.Begin(1, 10, 13); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.OpenSession(5, 1, 0); err != nil {
		t.Fatal(err)
	}
	s := sender{producer: 5, session: 1}
	if p, err := l.Append(s.batch(t, 3, 5)); err != nil || p.Base != 10 || p.Wait() != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	x := s.batch(t, 1, 5)
	_, err = l.Append(x)
	wantErr(t, err, ErrCeiling)
	l.SetCeiling(14)
	l.SetCeiling(2) // no rule lowers it
	if p, err := l.Append(x); err != nil || p.Base != 13 || p.Wait() != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, bad := range [][3]uint64{{1, 14, 20}, {2, 13, 20}, {2, 14, 13}} {
		if l.Begin(bad[0], bad[1], bad[2]) == nil {
			t.Fatalf("began epoch %v", bad)
		}
	}
	if err := l.Begin(2, 20, 30); err != nil {
		t.Fatal(err)
	}
	if p, err := l.Append(s.batch(t, 1, 5)); err != nil || p.Base != 20 || p.Wait() != nil {
		t.Fatalf("%+v, %v", p, err)
	}
	rd := l.Reader(10)
	defer rd.Close()
	var got []string
	for {
		v, err := rd.Next(1 << 20)
		if errors.Is(err, ErrEnd) {
			break
		}
		if g, ok := errors.AsType[*Gap](err); ok {
			got = append(got, fmt.Sprint("gap to ", g.To))
			rd.Seek(g.To)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(v.Base, "-", v.End))
		v.Release()
	}
	if want := "[10-14 gap to 20 20-21]"; fmt.Sprint(got) != want {
		t.Fatalf("read %v, want %s", got, want)
	}
	r.close()
}
