//go:build figures

package wal

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/storage/disk"
)

// slack is what the bounds below are multiplied by on a slow or shared machine.
func slack(t testing.TB) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("FIGURES_SLACK"))
	if err != nil || n < 1 {
		return 1
	}
	return time.Duration(n)
}

func within(t testing.TB, what string, began time.Time, most time.Duration) {
	t.Helper()
	took := time.Since(began)
	t.Logf("%s: %v, at most %v", what, took.Round(time.Millisecond), most)
	if took > most*slack(t) {
		t.Errorf("%s took %v, at most %v", what, took, most)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestFigureTenThousandPartitions makes ten thousand partitions with ten
// messages each, kills, starts, and stops.
func TestFigureTenThousandPartitions(t *testing.T) {
	const partitions, messages, workers = 10_000, 10, 64
	dir := t.TempDir()
	id := func(n int) ID { return ID{Topic: [16]byte{byte(n), byte(n >> 8), 9}} }
	each := func(do func(n int)) {
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				for n := w; n < partitions; n += workers {
					do(n)
				}
			})
		}
		wg.Wait()
	}
	before := heap()
	tier, err := Open(t.Context(), Config{FS: disk.OS(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	each(func(n int) {
		l, _, err := tier.Log(t.Context(), Opening{ID: id(n), Topic: "/default/figure"})
		if err == nil {
			err = l.Begin(1, 0, 1<<30)
		}
		if err == nil {
			_, _, err = l.OpenSession(1, 1, 0)
		}
		s := sender{producer: 1, session: 1}
		for range messages {
			if err != nil {
				break
			}
			var p Pending
			if p, err = l.Append(s.batch(t, 1, 100)); err == nil {
				err = p.Wait()
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	within(t, "create and fill", began, 20*time.Second)
	eventually(t, func() bool { return tier.Stats().Memory == 0 })
	grown := (heap() - before) / partitions
	t.Logf("at rest: %d bytes a partition, %d files open", grown, tier.Stats().OpenFiles)
	if grown > 10<<10 {
		t.Errorf("%d bytes a partition at rest", grown)
	}
	if n := tier.Stats().OpenFiles; n > tier.config.Files {
		t.Errorf("%d files open, the budget is %d", n, tier.config.Files)
	}
	// The tier is left as a kill leaves it, and another one opens the directory.
	restart := func(what string) *Tier {
		began := time.Now()
		tier, err := Open(t.Context(), Config{FS: disk.OS(), Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		within(t, "journal after "+what, began, 5*time.Second)
		each(func(n int) {
			_, found, err := tier.Log(t.Context(), Opening{ID: id(n), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: messages})
			if err != nil || found.End != messages || found.Class == Damaged {
				t.Errorf("partition %d: %+v, %v", n, found, err)
			}
		})
		within(t, "recovery after "+what, began, 8*time.Second)
		return tier
	}
	tier.rest.timer.Stop()
	tier = restart("a kill")
	began = time.Now()
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
	within(t, "stop", began, 5*time.Second)
	if err := restart("a clean stop").Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFigureStartDoesNotGrowWithTheLog opens a log of 2 GiB after a kill.
func TestFigureStartDoesNotGrowWithTheLog(t *testing.T) {
	dir := t.TempDir()
	tier, err := Open(t.Context(), Config{FS: disk.OS(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := tier.Log(t.Context(), Opening{ID: topic(1)})
	if err == nil {
		err = l.Begin(1, 0, 1<<40)
	}
	if err == nil {
		_, _, err = l.OpenSession(1, 1, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := sender{producer: 1, session: 1}
	x := s.batch(t, 256, 4000)
	var last Pending
	began := time.Now()
	for seq := uint64(0); seq < 2<<30/uint64(len(x)); seq++ {
		resequence(x, seq*256)
		if last, err = l.Append(x); err != nil {
			t.Fatal(err)
		}
	}
	if err := last.Wait(); err != nil {
		t.Fatal(err)
	}
	within(t, "write 2 GiB", began, 4*time.Second)
	tier.rest.timer.Stop()
	began = time.Now()
	again, err := Open(t.Context(), Config{FS: disk.OS(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, found, err := again.Log(t.Context(), Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
	if err != nil || found.End != l.Committed() {
		t.Fatalf("%+v, %v", found, err)
	}
	within(t, "start over 2 GiB", began, time.Second)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}
