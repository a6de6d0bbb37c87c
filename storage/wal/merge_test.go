package wal

import (
	"errors"
	"testing"

	"github.com/danubemq/danube/storage/disk"
)

// orphaned is a log of epoch 1 whose owner was lost and came back: its pages, its
// producers, and the sender as it was when the owner went.
func orphaned(t *testing.T) (list [][]byte, sessions []byte, send sender) {
	t.Helper()
	r := newRig(t, nil)
	r.mustPut(8, 300)
	send = r.send
	found := r.reopen(Extent{Epoch: 1, Start: 0, End: openEnd})
	if found.End != 8 {
		t.Fatalf("came back: %+v", found)
	}
	list = pages(t, r.log, 0)
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	sessions, err := r.log.Sessions()
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	return list, sessions, send
}

// openBeside opens the store that takes a tail back, at about the time of its messages.
func openBeside(t *testing.T, fsys disk.FS) *Tier {
	t.Helper()
	c := clock{ms: 1_700_000_000_500}
	return openTier(t, fsys, func(cfg *Config) { cfg.Store, cfg.Now = [16]byte{2}, c.now })
}

// A tail that came back is read in its place and its batches are known, also
// after a kill of the store that took it back (R15).
func TestReturnedTailIsKnown(t *testing.T) {
	list, sessions, send := orphaned(t)
	for _, before := range []int{0, 3} { // batches that the next epoch had stored by then
		fsys := disk.NewMemory(3)
		tier := openBeside(t, fsys)
		l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Start: 0})
		if err := l.Begin(2, 1000, 1<<40); err != nil {
			t.Fatal(err)
		}
		again := send
		again.next -= 2 // the last two were not acknowledged
		if _, _, err := l.OpenSession(again.producer, again.session, again.next); err != nil {
			t.Fatal(err)
		}
		other := sender{producer: 99, session: 1}
		if _, _, err := l.OpenSession(99, 1, 0); err != nil {
			t.Fatal(err)
		}
		for range before {
			p, err := l.Append(other.batch(t, 1, 100))
			if err != nil || p.Wait() != nil {
				t.Fatalf("append: %v", err)
			}
		}
		c := openCopy(t, tier)
		fetch(t, c, list)
		if err := l.MergeSessions(sessions); err == nil {
			t.Fatal("merged while the door is open")
		}
		if _, err := l.Pause(); err != nil {
			t.Fatal(err)
		}
		extents := []Extent{{Epoch: 1, Start: 0, End: 8}, {Epoch: 2, Start: 1000, End: openEnd}}
		l.SetExtents(extents)
		for range 2 {
			if err := l.MergeSessions(sessions); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Resume(); err != nil {
			t.Fatal(err)
		}
		check := func(l *Log) {
			t.Helper()
			sent := again
			for i := range 2 {
				if p, err := l.Append(sent.batch(t, 1, 300)); err != nil || !p.Duplicate || p.Base != uint64(6+i) {
					t.Fatalf("sent again: %+v, %v", p, err)
				}
			}
			sent = other
			sent.next = 0
			for i := range before {
				if p, err := l.Append(sent.batch(t, 1, 100)); err != nil || !p.Duplicate || p.Base != uint64(1000+i) {
					t.Fatalf("the other's sent again: %+v, %v", p, err)
				}
			}
		}
		check(l)
		fresh := send
		p, err := l.Append(fresh.batch(t, 1, 300))
		if err != nil || p.Wait() != nil || p.Duplicate || p.Base != uint64(1000+before) {
			t.Fatalf("the next: %+v, %v", p, err)
		}
		reader := l.Reader(0)
		v, err := reader.Next(1 << 20)
		if err != nil || v.Base != 0 || v.End > 8 {
			t.Fatalf("what came back reads as %+v, %v", v, err)
		}
		v.Release()
		reader.Close()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		fsys = fsys.Kill()
		tier.Close()
		tier = openBeside(t, fsys)
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: extents, Floor: uint64(1000 + before)})
		if found.End != uint64(1001+before) || found.Class == Damaged {
			t.Fatalf("after the kill: %+v", found)
		}
		if err := l.Begin(3, found.End, 1<<40); err != nil {
			t.Fatal(err)
		}
		check(l)
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Of a sequence that was stored again the place in the later epoch counts.
func TestMergeKeepsWhatIsHere(t *testing.T) {
	list, sessions, send := orphaned(t)
	tier := openBeside(t, disk.NewMemory(3))
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
	if err := l.Begin(2, 1000, 1<<40); err != nil {
		t.Fatal(err)
	}
	again := send
	again.next -= 3
	first := again
	if _, _, err := l.OpenSession(again.producer, again.session, again.next); err != nil {
		t.Fatal(err)
	}
	if p, err := l.Append(again.batch(t, 1, 300)); err != nil || p.Wait() != nil || p.Base != 1000 {
		t.Fatalf("stored again: %+v, %v", p, err)
	}
	c := openCopy(t, tier)
	fetch(t, c, list)
	if _, err := l.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.MergeSessions(sessions), l.Resume(), c.Close()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []uint64{1000, 6, 7} {
		if p, err := l.Append(first.batch(t, 1, 300)); err != nil || !p.Duplicate || p.Base != want {
			t.Fatalf("sent again: %+v, %v, want offset %d", p, err, want)
		}
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}
