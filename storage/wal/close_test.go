package wal

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// reopen closes the rig's log and opens it again under the next epoch.
func (r *rig) reopen(extents ...Extent) Found {
	r.t.Helper()
	end := r.log.Next()
	if err := r.log.Close(); err != nil {
		r.t.Fatal(err)
	}
	l, found := openLog(r.t, r.tier, Opening{ID: topic(1), Topic: "/default/t", Extents: extents, Floor: end})
	r.log = l
	return found
}

func TestLogIsOpenedAgainInOneProcess(t *testing.T) {
	for _, how := range []string{"none", "clean", "kill", "power"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, nil)
			r.mustPut(5, 3000)
			first := r.send
			found := r.reopen(Extent{Epoch: 1, Start: 0, End: openEnd})
			if found.End != 5 || found.Class != Clean || !found.Proven || len(found.Damaged) > 0 {
				t.Fatalf("opened again: %+v", found)
			}
			if f := r.log.files.list[len(r.log.files.list)-1]; !f.sealed {
				t.Fatal("the last file is not sealed")
			}
			if err := r.log.Begin(2, 5, 1<<40); err != nil {
				t.Fatal(err)
			}
			first.next--
			if p, err := r.log.Append(first.batch(t, 1, 3000)); err != nil || !p.Duplicate || p.Base != 4 {
				t.Fatalf("sent again: %+v, %v", p, err)
			}
			r.mustPut(3, 100)
			extents := []Extent{{Epoch: 1, Start: 0, End: 5}, {Epoch: 2, Start: 5, End: openEnd}}
			fsys := r.fsys
			switch how {
			case "clean":
				r.close()
			case "kill":
				fsys = fsys.Kill()
			case "power":
				fsys = fsys.PowerLoss()
			}
			if how != "none" {
				r.tier.Close()
				r.tier = openTier(t, fsys, nil)
				r.log, found = openLog(t, r.tier, Opening{ID: topic(1), Extents: extents, Floor: 8})
				if found.End != 8 || found.Class == Damaged || !found.Proven {
					t.Fatalf("after %s: %+v", how, found)
				}
			}
			if got := readAll(t, r.log, 0); len(got) != 8 {
				t.Fatalf("read %d messages, want 8", len(got))
			}
			r.close()
		})
	}
}

func TestClosedLogStillAnswers(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(3, 10)
	old := r.log
	reader := old.Reader(0)
	for range 2 {
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if old.Next() != 3 || old.Committed() != 3 || old.Synced() != 3 {
		t.Fatalf("ends %d, %d, %d, want 3", old.Next(), old.Committed(), old.Synced())
	}
	_, err := reader.Next(1)
	wantErr(t, err, ErrClosed)
	_, err = old.Append(r.send.batch(t, 1, 10))
	wantErr(t, err, ErrClosed)
	if err := old.Begin(9, 3, 10); !errors.Is(err, ErrClosed) {
		t.Fatalf("begin: %v", err)
	}
	if _, err := old.Sessions(); err != nil {
		t.Fatal(err)
	}
	r.close()
}

// TestUnprovenEndStaysUnproven: what was not proven when the log was opened is
// not proven by closing it, only by an epoch begun above it.
func TestUnprovenEndStaysUnproven(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(2, 10)
	fsys := r.fsys.PowerLoss()
	r.tier.Close()
	f, err := fsys.Open("/data/wal/run", disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("xx"), 10); err != nil { // it no longer tells of the run before
		t.Fatal(err)
	}
	f.Close()
	r.tier = openTier(t, fsys, nil)
	extents := []Extent{{Epoch: 1, Start: 0, End: openEnd}}
	l, found := openLog(t, r.tier, Opening{ID: topic(1), Extents: extents})
	if found.Proven {
		t.Fatal("the end is proven without a proof")
	}
	r.log = l
	if found = r.reopen(extents...); found.Proven {
		t.Fatal("closing has proven the end")
	}
	if err := r.log.Begin(2, 100, 1000); err != nil {
		t.Fatal(err)
	}
	if found = r.reopen(Extent{Epoch: 1, Start: 0, End: 2}, Extent{Epoch: 2, Start: 100, End: openEnd}); !found.Proven || found.End != 100 {
		t.Fatalf("an epoch of this run: %+v", found)
	}
	r.close()
}

// TestOwnedElsewhereInBetween: the middle of the log is another store's.
func TestOwnedElsewhereInBetween(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(4, 100)
	found := r.reopen(Extent{Epoch: 1, Start: 0, End: 4}, Extent{Epoch: 2, Start: 4, End: 10, Away: true}, Extent{Epoch: 3, Start: 10, End: openEnd, Away: true})
	if found.End != 10 || found.Class != Clean {
		t.Fatalf("history of a log owned elsewhere: %+v", found)
	}
	reader := r.log.Reader(3)
	defer reader.Close()
	if v, err := reader.Next(1); err != nil || v.End != 4 {
		t.Fatalf("read own history: %+v, %v", v, err)
	} else {
		v.Release()
	}
	_, err := reader.Next(1)
	if e, ok := errors.AsType[*Elsewhere](err); !ok || e.From != 4 || e.To != 10 {
		t.Fatalf("read what is elsewhere: %v", err)
	}
	r.log.SetExtents([]Extent{{Epoch: 1, Start: 0, End: 4}, {Epoch: 2, Start: 4, End: 10}})
	_, err = reader.Next(1)
	if d, ok := errors.AsType[*Damage](err); !ok || d.From != 4 || d.To != 10 {
		t.Fatalf("read what should be here: %v", err)
	}
	found = r.reopen(Extent{Epoch: 1, Start: 0, End: 4}, Extent{Epoch: 2, Start: 4, End: 10, Away: true}, Extent{Epoch: 3, Start: 10, End: 12, Away: true})
	if found.End != 12 || found.Class != Clean {
		t.Fatalf("owned again: %+v", found)
	}
	if err := r.log.Begin(4, 12, 1<<40); err != nil {
		t.Fatal(err)
	}
	r.mustPut(2, 100)
	if err := r.log.Verify(func(d Damage) { t.Errorf("damage: %v", &d) }); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, r.log, 12); len(got) != 2 {
		t.Fatalf("read %d messages, want 2", len(got))
	}
	r.close()
}

// TestCloseBesideTraffic closes and opens one log while others, and late
// appenders of its own, keep the commit loop busy.
func TestCloseBesideTraffic(t *testing.T) {
	r := newRig(t, nil)
	const rounds = 30
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for n := 2; n < 5; n++ {
		l, _ := openLog(t, r.tier, Opening{ID: topic(n)})
		if err := l.Begin(1, 0, 1<<40); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.OpenSession(5, 1, 0); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			s := sender{producer: 5, session: 1}
			for {
				select {
				case <-stop:
					return
				default:
				}
				p, err := l.Append(s.batch(t, 1, 900))
				if err == nil {
					err = p.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	want, extents := uint64(0), []Extent{{Epoch: 1, Start: 0, End: openEnd}}
	for epoch := uint64(2); epoch < 2+rounds; epoch++ {
		old := r.log
		acked := make(chan uint64, 1)
		go func() { // returns when the door shuts
			end := uint64(0)
			s := sender{producer: 100 + epoch, session: 1}
			_, _, err := old.OpenSession(s.producer, 1, 0)
			for err == nil {
				var p Pending
				if p, err = old.Append(s.batch(t, 1, 700)); err == nil {
					if err = p.Wait(); err == nil {
						end = p.Base + 1
					}
				}
			}
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			acked <- end
		}()
		found := r.reopen(extents...)
		if end := max(want, <-acked); found.End < end || found.Class != Clean || !found.Proven {
			t.Fatalf("epoch %d: %+v, acknowledged up to %d", epoch, found, end)
		}
		want = found.End
		if n := len(extents); extents[n-1].Start == want {
			extents = extents[:n-1]
		} else {
			extents[n-1].End = want
		}
		extents = append(extents, Extent{Epoch: epoch, Start: want, End: openEnd})
		if err := r.log.Begin(epoch, want, 1<<40); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	if got := readAll(t, r.log, 0); len(got) != int(want) {
		t.Fatalf("read %d messages, want %d", len(got), want)
	}
	r.close()
}

// TestCloseWaitsForTheMark: the commit loop still writes its mark behind the last
// batch when that is acknowledged; it must not fall onto the footer.
func TestCloseWaitsForTheMark(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(1, 100)
	closed := make(chan struct{})
	writes := 0
	r.fsys.Fail(func(op, name string) error {
		if op != "write" || !strings.HasSuffix(name, ".seg") {
			return nil
		}
		if writes++; writes != 2 { // the batch, then its mark
			return nil
		}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for waiting := false; !waiting; {
			select {
			case <-closed:
				return nil
			case <-tick.C:
			}
			r.tier.mu.Lock()
			waiting = r.tier.commits.leaving > 0
			r.tier.mu.Unlock()
		}
		return nil
	})
	r.mustPut(1, 100)
	old := r.log
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	close(closed)
	r.tier.mu.Lock()
	r.tier.commits.leaving++
	for r.tier.commits.running { // until the mark is written, where it was let go
		r.tier.wake.Wait()
	}
	r.tier.commits.leaving--
	r.tier.mu.Unlock()
	l, found := openLog(t, r.tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: 2})
	if found.End != 2 || found.Class != Clean || !l.files.list[0].sealed {
		t.Fatalf("%+v, sealed: %v", found, l.files.list[0].sealed)
	}
	r.close()
}

func TestLogAndTierCloseSideBySide(t *testing.T) {
	for range 20 {
		r := newRig(t, nil)
		r.mustPut(2, 100)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.log.Close(); err != nil {
				t.Error(err)
			}
		})
		r.close()
		wg.Wait()
		tier := openTier(t, r.fsys, nil)
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: 2})
		if found.End != 2 || !found.Proven || found.Class != Clean {
			t.Fatalf("%+v", found)
		}
		if n := len(readAll(t, l, 0)); n != 2 {
			t.Fatalf("read %d messages", n)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseSealsDurably: after Close no journal is needed, and the footer holds
// the producers.
func TestCloseSealsDurably(t *testing.T) {
	for _, interval := range []bool{false, true} {
		t.Run(fmt.Sprint(interval), func(t *testing.T) {
			r := newRig(t, func(c *Config) {
				if interval {
					c.SyncInterval = 1 << 40
				}
			})
			r.mustPut(3, 100)
			if err := r.log.Close(); err != nil {
				t.Fatal(err)
			}
			fsys := r.fsys.PowerLoss()
			r.tier.Close()
			fsys.Remove("/data/journal")
			name := r.tier.dir(topic(1)) + "/" + segment.FormatName(0, 1)
			f, err := fsys.Open(name, 0)
			if err != nil {
				t.Fatal(err)
			}
			size, err := f.Size()
			if err != nil {
				t.Fatal(err)
			}
			footer, err := segment.ReadFooter(f, size)
			if err != nil || footer.End != 3 {
				t.Fatalf("footer %+v, %v", footer, err)
			}
			table, err := footer.Producers()
			if err != nil || table.Find(5, 1) == nil || table.Find(5, 1).Last != 2 {
				t.Fatalf("producers in the footer: %v, %v", table, err)
			}
			f.Close()
		})
	}
}

func TestPauseGivesTheExactEnd(t *testing.T) {
	for _, interval := range []bool{false, true} {
		r := newRig(t, func(c *Config) {
			if interval {
				c.SyncInterval = 1 << 40
			}
		})
		if _, err := r.log.Sessions(); err == nil {
			t.Fatal("sessions of an open log")
		}
		for range 10 {
			if _, err := r.log.Append(r.send.batch(t, 2, 500)); err != nil {
				t.Fatal(err)
			}
		}
		end, err := r.log.Pause()
		if err != nil || end != 20 || r.log.Committed() != 20 || r.log.Synced() != 20 {
			t.Fatalf("pause: %d, %v; committed %d, synced %d", end, err, r.log.Committed(), r.log.Synced())
		}
		wantErr(t, r.put(10), ErrPaused)
		_, _, err = r.log.OpenSession(77, 1, 0)
		wantErr(t, err, ErrPaused)
		if got := readAll(t, r.log, 0); len(got) != 20 {
			t.Fatalf("read %d messages while paused", len(got))
		}
		if err := r.log.Resume(); err != nil {
			t.Fatal(err)
		}
		r.mustPut(1, 10)
		if r.log.Next() != 21 {
			t.Fatalf("next %d after the pause", r.log.Next())
		}
		r.close()
		wantErr(t, r.log.Resume(), ErrClosed)
	}
}

// A partition is deleted while its log is being closed: the deletion waits, lest the Close come to a file that is gone,
// which would fail the whole tier.
func TestDeletedWhileItCloses(t *testing.T) {
	fsys := disk.NewMemory(1)
	tier := openTier(t, fsys, nil)
	l, s := withSession(t, tier, 0)
	p, err := l.Append(s.batch(t, 1, 10))
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	reached, deleted := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	fsys.Fail(func(string, string) error {
		if !first.CompareAndSwap(false, true) {
			return nil
		}
		close(reached)
		select { // one that does not wait takes no time
		case <-deleted:
			t.Error("the deletion did not wait for the Close")
		case <-time.After(200 * time.Millisecond):
		}
		return nil
	})
	var closing sync.WaitGroup
	closing.Go(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	<-reached
	if err := tier.Delete(topic(0)); err != nil {
		t.Errorf("delete: %v", err)
	}
	close(deleted)
	closing.Wait()
	if err := tier.Err(); err != nil {
		t.Fatal(err)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// A partition is deleted while its log is closed and while the commit loop has it in hand, in whatever order: no file
// that is gone is come to.
func TestDeletedInAnyOrder(t *testing.T) {
	tier := openTier(t, disk.NewMemory(1), nil)
	for i := range 300 {
		l, s := withSession(t, tier, i)
		if _, err := l.Append(s.batch(t, 1, 10)); err != nil {
			t.Fatal(err)
		}
		var closing sync.WaitGroup
		closing.Go(func() {
			if err := l.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		if err := tier.Delete(topic(i)); err != nil {
			t.Errorf("delete: %v", err)
		}
		closing.Wait()
		if err := tier.Err(); err != nil {
			t.Fatalf("after %d partitions: %v", i+1, err)
		}
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// withSession opens topic i with a producer that has sent nothing.
func withSession(t *testing.T, tier *Tier, i int) (*Log, sender) {
	t.Helper()
	l, _ := openLog(t, tier, Opening{ID: topic(i)})
	if err := l.Begin(1, 0, 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.OpenSession(5, 1, 0); err != nil {
		t.Fatal(err)
	}
	return l, sender{producer: 5, session: 1}
}
