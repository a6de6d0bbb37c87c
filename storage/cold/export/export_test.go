package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/plan"
)

// Whole files go at once, the rest when it is old enough, and what is exported is what was sent.
func TestExportsFilesAndWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 0, nil)
		defer w.close()
		w.must(0, 40, 1000)
		w.must(1, 3, 100)
		wait(3 * time.Second)
		if end := w.end(0); end < 20 || end >= 40 {
			t.Errorf("of the whole files up to %d is exported", end)
		}
		if w.end(1) != 0 {
			t.Error("what is young was exported")
		}
		wait(time.Minute)
		w.checkAll()
		if n := len(w.bucket.keys()); n != len(w.meta.list(named(0)))+1 {
			t.Errorf("%d objects", n)
		}
		for _, key := range w.bucket.keys() {
			s, err := keys.ParseSegment(key)
			if err != nil || s.Incarnation != 1 || s.Epoch != 1 {
				t.Errorf("%s: %+v, %v", key, s, err)
			}
		}
		if s := w.export.Stats(); s.Waiting != 0 || s.Bytes != 0 || s.Age != 0 || s.Degraded != "" || s.Partitions != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// What all partitions of level object have is one object with an index, every 250 ms while there is something.
func TestOneObjectForACut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20, 20, nil)
		defer w.close()
		for round := range 4 {
			for n := range w.parts {
				w.must(n, 1, 100*round)
			}
			wait(300 * time.Millisecond)
		}
		w.checkAll()
		if n := len(w.bucket.keys()); n != 4 {
			t.Fatalf("%d objects for four cuts: %v", n, w.bucket.keys())
		}
		for i, key := range w.bucket.keys() {
			name, err := keys.ParseCut(key)
			if err != nil || name.Number != uint64(i+1) || name.Store != [16]byte{7} || name.Incarnation != 1 {
				t.Fatalf("%s: %+v, %v", key, name, err)
			}
			data := w.bucket.uploads[key][0]
			index, err := bundle.Read(bytes.NewReader(data), int64(len(data)))
			if err != nil || len(index.Pieces) != 20 || index.Cluster != [16]byte{9} || index.Number != name.Number {
				t.Fatalf("%+v, %v", index, err)
			}
			known := map[uint32]bool{}
			for _, p := range index.Pieces {
				known[p.CRC] = true
				s := w.meta.list(ID{Topic: p.Topic, Partition: p.Partition})[i]
				if s.Start != p.Start || s.End != p.End || s.Position != p.Position || s.Bytes != p.Bytes || s.CRC != p.CRC || s.Object.Key() != key {
					t.Fatalf("the index has %+v, the catalog %+v", p, s)
				}
			}
			if len(known) != len(index.Pieces) {
				t.Fatalf("%d segments are known by %d CRCs", len(index.Pieces), len(known))
			}
		}
	})
}

// Of an upload whose outcome nobody knows the same bytes go again under the same key (R5, A28): whether it has come
// through or not, and if it appears later.
func TestUnknownPutGoesOnUnderItsKey(t *testing.T) {
	for name, arrives := range map[string]bool{"lost": false, "came through": true} {
		for _, object := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s/%d", name, object), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, 3, object, nil)
					defer w.close()
					w.bucket.script(func(_ context.Context, key string, data []byte) error {
						w.bucket.mu.Lock()
						n := len(w.bucket.uploads[key])
						w.bucket.mu.Unlock()
						if n > 6 {
							return nil
						}
						if arrives && n == 6 {
							if err := w.bucket.keep(key, data); err != nil {
								return err
							}
						}
						return errLost
					})
					for n := range w.parts {
						w.must(n, 2, 100)
					}
					wait(61 * time.Second)
					for n := range w.parts {
						w.must(n, 1, 100) // comes meanwhile, and goes into no object that was tried before
					}
					wait(3 * time.Minute)
					w.bucket.script(nil)
					for n := range w.parts {
						if err := w.urgent(n); err != nil {
							t.Fatal(err)
						}
					}
					w.checkAll()
					starts := make(map[string]string) // partition and first offset → key
					for _, key := range w.bucket.keys() {
						all := w.bucket.uploads[key]
						for _, data := range all {
							if !bytes.Equal(data, all[0]) {
								t.Fatalf("other bytes under %s", key)
							}
						}
						if s, err := keys.ParseSegment(key); err == nil {
							place := fmt.Sprint(s.Topic, s.Start)
							if starts[place] != "" {
								t.Fatalf("offset %d was sent as %s and as %s", s.Start, starts[place], key)
							}
							starts[place] = key
						}
					}
					if most := len(w.bucket.keys()); object > 0 && most > 4 || len(w.bucket.uploads[w.bucket.keys()[0]]) < 6 {
						t.Fatalf("%d objects, the first sent %d times", most, len(w.bucket.uploads[w.bucket.keys()[0]]))
					}
				})
			})
		}
	}
}

// A commit without an answer is asked for again, whether it was applied or not; the object is sent once.
func TestUnknownCommitIsAskedAgain(t *testing.T) {
	for name, applied := range map[string]bool{"lost": false, "applied": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3, 2, nil)
				defer w.close()
				asked := make(map[string]int)
				w.meta.script(func(e Entry) (before, after error) {
					asked[e.Segment.Object.Key()]++
					if asked[e.Segment.Object.Key()] > 6 {
						return nil, nil
					}
					if applied {
						return nil, errLost
					}
					return errLost, nil
				})
				for n := range w.parts {
					w.must(n, 2, 100)
				}
				wait(3 * time.Minute)
				w.checkAll()
				if n := len(w.bucket.keys()); n != 2 {
					t.Errorf("%d objects", n)
				}
				for key, all := range w.bucket.uploads {
					if len(all) != 1 {
						t.Errorf("%s was sent %d times", key, len(all))
					}
				}
				if s := w.export.Stats(); s.Failing != 0 || s.Kept != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A refused entry refuses alone. When another epoch is there, what was put before stays uncatalogued, and the same
// offsets go again under a key of their own.
func TestRefusedEntryRefusesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 3, nil)
		defer w.close()
		w.bucket.script(func(context.Context, string, []byte) error {
			w.meta.setEpoch(named(1), 2) // between the put and the commit
			return nil
		})
		for n := range w.parts {
			w.must(n, 2, 100)
		}
		wait(900 * time.Millisecond)
		if w.end(0) != 2 || w.end(1) != 0 || w.end(2) != 2 {
			t.Fatalf("committed up to %d, %d, %d", w.end(0), w.end(1), w.end(2))
		}
		if p := w.export.Problems(9); len(p) != 1 || p[0].ID != named(1) || !errors.Is(p[0].Err, ErrRefused) {
			t.Fatalf("%+v", p)
		}
		wait(3 * time.Second)
		w.checkAll()
		if n := len(w.bucket.keys()); n != 2 {
			t.Errorf("%d objects", n)
		}
		if p := w.export.Problems(9); len(p) != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// Who hands a partition over waits for the catalog, and not for the store alone (R11, R16).
func TestUrgentWaitsForTheCatalog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 0, nil)
		defer w.close()
		w.must(0, 30, 1000)
		w.meta.script(func(Entry) (before, after error) { return errLost, nil })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := w.export.Urgent(ctx, named(0), 30)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errLost) {
			t.Fatalf("the catalog ends at %d: %v", w.end(0), err)
		}
		w.meta.script(nil)
		began := time.Now()
		if err := w.urgent(0); err != nil || w.end(0) != 30 {
			t.Fatalf("the catalog ends at %d: %v", w.end(0), err)
		}
		if took := time.Since(began); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
		began = time.Now()
		w.must(1, 1, 10)
		if err := w.urgent(1); err != nil || time.Since(began) > time.Second {
			t.Errorf("what is young took %v: %v", time.Since(began), err)
		}
		if err := w.urgent(1); err != nil {
			t.Errorf("nothing to do: %v", err)
		}
	})
}

// Who waits hears when a partition is exported elsewhere, and when the exporter ends.
func TestUrgentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 0, nil)
		defer w.close()
		w.bucket.script(func(ctx context.Context, _ string, _ []byte) error { <-ctx.Done(); return ctx.Err() })
		got := make(chan error, 2)
		for n := range 2 {
			w.must(n, 1, 100)
			go func() { got <- w.export.Urgent(t.Context(), named(n), 1) }()
		}
		wait(time.Second)
		w.export.Remove(named(0))
		if err := <-got; !errors.Is(err, ErrRemoved) {
			t.Errorf("removed: %v", err)
		}
		if err := w.export.Urgent(t.Context(), named(0), 1); !errors.Is(err, ErrRemoved) {
			t.Errorf("of a stranger: %v", err)
		}
		wait(100 * time.Millisecond)
		if s := w.export.Stats(); s.Partitions != 1 || s.Running != 1 {
			t.Errorf("its upload goes on: %+v", s)
		}
		w.stop()
		if err := <-got; !errors.Is(err, ErrStopped) {
			t.Errorf("ended: %v", err)
		}
		if err := w.export.Urgent(t.Context(), named(1), 1); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// Uploads of some topics that hang, fail, or are refused for ever hold up no other (A17, A25): what is behind them
// stays out of their catalogs, all is made up for when they come through, and status names them meanwhile.
func TestSickTopicsHoldUpNoOther(t *testing.T) {
	for name, sickness := range map[string]func(ctx context.Context) error{
		"hanging": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"refused": func(context.Context) error { return &said{status: 403} },
		"bad":     func(context.Context) error { return &said{status: 400} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 12, 2, func(c *Config) { c.Slots = 6 })
				defer w.close()
				sick := func(key string) bool {
					s, err := keys.ParseSegment(key)
					return err == nil && s.Topic[0] >= 8
				}
				w.bucket.script(func(ctx context.Context, key string, _ []byte) error {
					if sick(key) {
						return sickness(ctx)
					}
					return nil
				})
				for range 60 {
					for n := range w.parts {
						w.must(n, 2, 1000)
					}
					wait(10 * time.Second)
				}
				for n, p := range w.parts {
					behind := p.log.Committed() - w.end(n)
					if n >= 8 && w.end(n) != 0 {
						t.Errorf("sick partition %d: the catalog ends at %d", n, w.end(n))
					}
					if n < 2 && behind > 0 || n < 8 && behind > 40 {
						t.Errorf("partition %d is %d messages behind", n, behind)
					}
				}
				problems := w.export.Problems(99)
				for _, p := range problems {
					if p.ID.Topic[0] < 8 || p.Offset != 0 || p.Times < 3 || p.Err == nil {
						t.Errorf("%+v", p)
					}
				}
				s := w.export.Stats()
				if len(problems) != 4 || s.Failing != 4 || !strings.Contains(s.Degraded, "cold tier") || s.Age < 9*time.Minute {
					t.Errorf("%d problems, %+v", len(problems), s)
				}
				w.bucket.script(nil)
				wait(2 * time.Minute)
				for n := range w.parts {
					if err := w.urgent(n); err != nil {
						t.Error(err)
					}
				}
				w.checkAll()
				if s := w.export.Stats(); s.Degraded != "" || s.Failing != 0 || s.Kept != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// A cut that hangs keeps the acknowledgements of those that are in it, and not of others.
func TestHangingCutHoldsUpNoOtherCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 4, nil)
		defer w.close()
		var hung atomic.Bool
		w.bucket.script(func(ctx context.Context, _ string, _ []byte) error {
			if hung.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.must(0, 1, 100)
		wait(400 * time.Millisecond)
		w.must(1, 1, 100)
		wait(1500 * time.Millisecond)
		if w.end(0) != 0 || w.end(1) != 1 {
			t.Fatalf("committed up to %d and %d", w.end(0), w.end(1))
		}
		wait(10 * time.Second)
		if w.end(0) != 1 {
			t.Fatalf("it never came through")
		}
	})
}

// Paused, nothing goes that nobody waits for; a full disk empties everything, however young.
func TestPausedAndPressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4, 1, nil)
		defer w.close()
		w.export.Pause()
		for n := range w.parts {
			w.must(n, 30, 1000)
		}
		wait(5 * time.Minute)
		if w.end(0) != 30 || w.end(1) != 0 || w.end(2) != 0 {
			t.Fatalf("paused: committed up to %d, %d, %d", w.end(0), w.end(1), w.end(2))
		}
		if s := w.export.Stats(); !s.Paused || !strings.Contains(s.Degraded, "paused") || s.Waiting != 3 {
			t.Errorf("%+v", s)
		}
		if err := w.urgent(1); err != nil || w.end(2) != 0 {
			t.Fatalf("urgent while paused: %v, others up to %d", err, w.end(2))
		}
		w.export.Resume()
		wait(time.Second)
		w.checkAll()
		w.must(3, 1, 10)
		wait(5 * time.Second)
		if w.end(3) != 30 {
			t.Fatal("what is young was exported")
		}
		w.export.Pressed(true)
		wait(time.Second)
		w.checkAll()
		if s := w.export.Stats(); !s.Pressed {
			t.Errorf("%+v", s)
		}
	})
}

// Paused, what failed before waits too, until somebody needs it.
func TestPauseHoldsWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 0, nil)
		defer w.close()
		var uploads atomic.Int64
		w.bucket.script(func(context.Context, string, []byte) error { uploads.Add(1); return &said{status: 403} })
		w.must(0, 30, 1000)
		wait(2 * time.Second)
		w.export.Pause()
		wait(5 * time.Second)
		before := uploads.Load()
		wait(5 * time.Minute)
		if uploads.Load() != before || before == 0 {
			t.Fatalf("%d uploads, %d before", uploads.Load(), before)
		}
		w.bucket.script(nil)
		if err := w.urgent(0); err != nil {
			t.Fatal(err)
		}
	})
}

// Bytes that went bad on the disk are never put, and stay a problem with a name.
func TestBadBytesStayOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, nil)
		defer w.close()
		w.must(0, 12, 1000)
		f, err := w.fsys.Open("/data/wal/00010000000000000000000000000000/0/00000000000000000000-0000000000000001.seg", 2)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte{0x55}, 5000); err != nil {
			t.Fatal(err)
		}
		w.must(0, 20, 1000)
		wait(time.Minute)
		if len(w.bucket.keys()) != 0 || w.end(0) != 0 {
			t.Fatalf("sent %v", w.bucket.keys())
		}
		if p := w.export.Problems(9); len(p) != 1 || !errors.Is(p[0].Err, cold.Corrupt) {
			t.Fatalf("%+v", p)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A log that cannot be looked at is a problem, and none any more once it can.
func TestBlindSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, 0, nil)
		defer w.close()
		w.must(0, 1, 10)
		p := w.parts[0]
		p.mu.Lock()
		p.fail = errLost
		p.mu.Unlock()
		wait(5 * time.Second)
		if list := w.export.Problems(9); len(list) != 1 || !errors.Is(list[0].Err, errLost) || list[0].Times < 3 {
			t.Fatalf("%+v", list)
		}
		p.mu.Lock()
		p.fail = nil
		p.mu.Unlock()
		wait(2 * time.Second)
		if list := w.export.Problems(9); len(list) != 0 {
			t.Fatalf("%+v", list)
		}
	})
}

// A partition that is added again is exported from the new source, and who waits for it goes on waiting.
func TestAddedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, 0, nil)
		defer w.close()
		var hung atomic.Bool
		w.bucket.script(func(ctx context.Context, _ string, _ []byte) error {
			if hung.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		w.must(0, 2, 100)
		done := make(chan error, 1)
		go func() { done <- w.urgent(0) }()
		wait(time.Second)
		began := time.Now()
		w.meta.setEpoch(named(0), 2)
		w.export.Add(w.parts[0])
		if err := <-done; err != nil || time.Since(began) > time.Second {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		w.checkAll()
	})
}

func TestConfigIsChecked(t *testing.T) {
	commit := func(context.Context, []Entry) []error { return nil }
	for name, c := range map[string]Config{
		"no store":      {Commit: commit},
		"no commit":     {Store: &cold.Store{}},
		"one slot":      {Store: &cold.Store{}, Commit: commit, Slots: 1},
		"negative time": {Store: &cold.Store{}, Commit: commit, Sweep: -1},
	} {
		if _, err := Open(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The series are well named, count what was done, and leave with the exporter.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		w := newWorld(t, 2, 1, func(c *Config) { c.Metrics = reg; c.Plan = plan.Config{SegmentAge: 5 * time.Second} })
		defer w.close()
		var once atomic.Bool
		w.bucket.script(func(context.Context, string, []byte) error {
			if once.CompareAndSwap(false, true) {
				return &said{status: 403}
			}
			return nil
		})
		w.must(0, 2, 100)
		w.must(1, 2, 100)
		wait(20 * time.Second)
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) > 0 {
			t.Fatalf("%v, %v", problems, err)
		}
		want := `# HELP danube_export_segments_total Segments that came into a catalog, by why they were exported.
# TYPE danube_export_segments_total counter
danube_export_segments_total{reason="acks"} 1
danube_export_segments_total{reason="age"} 1
# HELP danube_export_failures_total Attempts to export that failed, by cause; those that are tried again included.
# TYPE danube_export_failures_total counter
danube_export_failures_total{cause="denied"} 1
# HELP danube_export_backlog_bytes Bytes that the cold tier does not have yet.
# TYPE danube_export_backlog_bytes gauge
danube_export_backlog_bytes 0
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "danube_export_segments_total", "danube_export_failures_total", "danube_export_backlog_bytes"); err != nil {
			t.Fatal(err)
		}
		w.stop()
		if n, err := testutil.GatherAndCount(reg); err != nil || n != 0 {
			t.Fatalf("%d series are left, %v", n, err)
		}
	})
}
