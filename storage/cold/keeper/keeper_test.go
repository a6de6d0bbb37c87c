package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

func nothing(string) {}

func (w *world) hot(part int) []catalog.Segment {
	return slices.Collect(w.partition(part).Catalog.All())
}

// filled is a world in which every kind of work waits: small segments, cuts, a long catalog, several ranges.
func filled(t *testing.T) *world {
	w := newWorld(t, 3)
	for i := range 3 {
		for range 6 {
			w.export(i, 4, 300)
			w.pass(time.Second)
		}
	}
	for range 8 {
		w.cut(3, 200)
		w.pass(time.Second)
	}
	w.restart()
	w.cuts = 0
	for range 3 {
		w.cut(2, 100)
		w.export(1, 2, 500)
	}
	return w
}

func TestSmallSegmentsAreMergedAndReadTheSame(t *testing.T) {
	w := filled(t)
	o := w.partition(0).Owner
	before := len(w.hot(0)) + len(w.hot(1)) + len(w.hot(2))
	b := w.broker(o, nothing)
	b.quiet()
	after := len(w.hot(0)) + len(w.hot(1)) + len(w.hot(2))
	if after*4 > before {
		t.Errorf("%d segments of %d are left", after, before)
	}
	for i := range 3 {
		p, _ := w.view(o).Find(w.topic, uint32(i))
		for _, s := range w.hot(i) {
			if s.Object.Kind == catalog.Cut {
				t.Errorf("a piece of a cut is left at %d", s.Start)
			}
			if r := p.Range(s.Start); r == nil || s.End > r.End {
				t.Errorf("[%d, %d) lies in two ranges", s.Start, s.End)
			}
		}
	}
	w.readable()
	w.clean()
}

// A cut is read once for all partitions that have something in it.
func TestACutIsReadOnceForAllItsPartitions(t *testing.T) {
	w := newWorld(t, 5)
	for range 6 {
		w.cut(3, 200)
	}
	reads := 0
	outs := []*output{}
	for p := range w.view(w.partition(0).Owner).Partitions {
		outs = append(outs, &output{merge: upkeep.Merge{Partition: p, Inputs: slices.Collect(p.Catalog.All())}})
	}
	for {
		list := together(outs, outs[0])
		if len(list) != 5 {
			t.Fatalf("%d of 5 read the cut together", len(list))
		}
		reads++
		done := false
		for _, o := range list {
			o.next++
			done = o.next == len(o.merge.Inputs)
		}
		if done {
			break
		}
	}
	if reads != 6 {
		t.Errorf("6 cuts are read %d times", reads)
	}
}

func TestLongCatalogsAreFoldedAndUnfolded(t *testing.T) {
	w := newWorld(t, 1)
	for range 40 {
		w.export(0, 12, 800) // too large to be merged
		w.pass(time.Second)
	}
	b := w.broker(w.partition(0).Owner, nothing)
	b.quiet()
	c := w.partition(0).Catalog
	if len(c.Pages()) == 0 || c.Len() > 16 {
		t.Fatalf("%d pages, %d segments outside", len(c.Pages()), c.Len())
	}
	w.readable()
	w.clean()
	page := c.Pages()[0]
	w.trim(0, page.Start+(page.End-page.Start)/2)
	b.quiet()
	if first := w.partition(0).Catalog.Pages(); len(first) > 0 && first[0].Start == page.Start {
		t.Error("the page that retention is in was not taken back")
	}
	w.readable()
	w.clean()
	w.trim(0, w.parts[0].next)
	b.quiet()
	if w.partition(0).Catalog != nil || len(w.objects()) != 0 {
		t.Errorf("%q are left of a log that was given up", w.objects())
	}
}

func TestADeletedTopicLeavesNothing(t *testing.T) {
	w := filled(t)
	b := w.broker(w.partition(0).Owner, nothing)
	for range 40 {
		w.export(2, 12, 800)
	}
	b.quiet()
	w.must(&state.DeleteTopic{ID: w.topic, At: w.clock().UnixMilli()})
	w.must(&state.PurgeTopic{ID: w.topic, Store: b.owner.Store})
	b.quiet()
	if len(w.objects()) != 0 || w.frozen().TopicByID(w.topic) != nil {
		t.Errorf("%q are left of a deleted topic", w.objects())
	}
}

// TestGarbageStaysForReadersOfTheOldCatalog: a reader that knows the old version finds its objects for an hour (R12).
func TestGarbageStaysForReadersOfTheOldCatalog(t *testing.T) {
	w := newWorld(t, 1)
	for range 8 {
		w.export(0, 4, 300)
	}
	old := w.hot(0)
	b := w.broker(w.partition(0).Owner, nothing)
	w.pass(10 * time.Minute)
	pass := func() {
		t.Helper()
		if err := errors.Join(b.Compact(t.Context()), b.Collect(t.Context()), second(b.Sweep(t.Context()))); err != nil {
			t.Fatal(err)
		}
	}
	there := func() (n int) {
		for _, s := range old {
			if _, err := w.store.Stat(t.Context(), keys.Of(catalog.NewName(w.topic, 0, s.Object, s.Start, s.End))); err == nil {
				n++
			}
		}
		return n
	}
	pass()
	if len(w.hot(0)) >= len(old) {
		t.Fatal("nothing was merged")
	}
	w.pass(59 * time.Minute)
	if pass(); there() != len(old) {
		t.Fatalf("%d of %d objects are there after 59 minutes", there(), len(old))
	}
	w.pass(2 * time.Minute)
	if pass(); there() != 0 {
		t.Fatalf("%d objects are there after 61 minutes", there())
	}
}

// TestABadObjectIsNeverCommitted: what comes back from the store is not what was sent.
func TestABadObjectIsNeverCommitted(t *testing.T) {
	for name, hurt := range map[string]func(b []byte) []byte{
		"a byte of a batch flipped": func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a byte of the header":      func(b []byte) []byte { b[40] ^= 1; return b },
		"a byte of the footer":      func(b []byte) []byte { b[len(b)-30] ^= 1; return b },
		"cut short":                 func(b []byte) []byte { return b[:len(b)-100] },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			for range 8 {
				w.export(0, 4, 300)
			}
			before := w.hot(0)
			known := w.objects()
			hurts := 0
			b := w.broker(w.partition(0).Owner, func(step string) {
				if step != stepStored || hurts > 0 {
					return
				}
				for _, key := range w.objects() {
					if slices.Contains(known, key) {
						continue
					}
					info, err := w.store.Stat(t.Context(), key)
					data := make([]byte, info.Size)
					if err = errors.Join(err, w.store.ReadAt(t.Context(), key, data, 0)); err != nil {
						t.Error(err)
					}
					if err := w.store.Replace(t.Context(), key, hurt(data)); err != nil {
						t.Error(err)
					}
					hurts++
				}
			})
			w.pass(10 * time.Minute)
			if err := b.Compact(t.Context()); err == nil || hurts != 1 {
				t.Fatalf("%v after %d objects were hurt", err, hurts)
			}
			if !slices.Equal(w.hot(0), before) {
				t.Fatal("the catalog has changed")
			}
			w.readable()
			b.quiet()
			if len(w.hot(0)) >= len(before) {
				t.Error("the merge was not tried again")
			}
			w.readable()
			w.clean()
		})
	}
}

// TestADamagedInputIsNamedAndHoldsUpNoOther: merging would give damage a new CRC.
func TestADamagedInputIsNamedAndHoldsUpNoOther(t *testing.T) {
	w := newWorld(t, 2)
	var bad catalog.Segment
	for i := range 8 {
		s := w.export(0, 4, 300)
		w.export(1, 4, 300)
		if i == 3 {
			bad = s
		}
	}
	key := keys.Of(catalog.NewName(w.topic, 0, bad.Object, bad.Start, bad.End))
	data := make([]byte, bad.Bytes)
	if err := w.store.ReadAt(t.Context(), key, data, 0); err != nil {
		t.Fatal(err)
	}
	data[bad.Bytes/2] ^= 4
	if err := w.store.Replace(t.Context(), key, data); err != nil {
		t.Fatal(err)
	}
	b := w.broker(w.partition(0).Owner, nothing)
	w.pass(2 * time.Hour)
	err := b.Compact(t.Context())
	if d, ok := errors.AsType[*Damage](err); !ok || d.Key != key {
		t.Fatalf("%v, want damage of %s", err, key)
	}
	if len(w.hot(1)) >= 8 {
		t.Error("the other partition was held up")
	}
	if err := b.Compact(t.Context()); err != nil {
		t.Fatalf("it is read again and again: %v", err)
	}
	if got, ok := w.partition(0).Catalog.Find(bad.Start); !ok || got != bad {
		t.Error("the damaged segment left the catalog")
	}
	if len(w.hot(0)) >= 8 {
		t.Error("its neighbours are not merged")
	}
	if p := b.Problems(); len(p) != 1 || !strings.Contains(p[0].Error(), key) {
		t.Errorf("problems are %v", p)
	}
}

// TestUnknownAnswersAreAskedAgain: the same object, the same command (R5).
func TestUnknownAnswersAreAskedAgain(t *testing.T) {
	w := filled(t)
	b := w.broker(w.partition(0).Owner, nothing)
	b.lose = func(n int64) (bool, bool) { return n%3 == 0, n%3 == 1 }
	var mu sync.Mutex
	puts := map[string]int{}
	w.fault = func(op, key string) error {
		mu.Lock()
		defer mu.Unlock()
		if op != "put" {
			return nil
		}
		if puts[key]++; puts[key] == 1 {
			return context.DeadlineExceeded
		}
		return nil
	}
	w.trim(0, w.parts[0].next/2)
	w.pass(2 * time.Hour)
	for range 3 {
		if err := errors.Join(b.Compact(t.Context()), b.Collect(t.Context())); err != nil {
			t.Fatal(err)
		}
		w.pass(2 * time.Hour)
	}
	w.fault = nil
	if len(puts) == 0 {
		t.Fatal("nothing was put")
	}
	for key, n := range puts {
		if n < 2 {
			t.Errorf("%s was put %d times: another key took its place", key, n)
		}
	}
	b.lose = func(int64) (bool, bool) { return false, false }
	b.quiet()
	w.readable()
	w.clean()
}

// TestRetentionMayWinTheRace: between the merge and its swap the log's start moves into, or over, what was merged.
func TestRetentionMayWinTheRace(t *testing.T) {
	for name, part := range map[string]uint64{"into it": 2, "over it": 1} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			for range 8 {
				w.export(0, 4, 300)
			}
			once := false
			b := w.broker(w.partition(0).Owner, func(step string) {
				if step == stepChecked && !once {
					once = true
					w.trim(0, w.parts[0].next/part)
				}
			})
			w.pass(10 * time.Minute)
			if err := b.Compact(t.Context()); !errors.Is(err, ErrRefused) || !once {
				t.Fatalf("the swap was answered %v", err)
			}
			b.quiet()
			w.readable()
			w.clean()
		})
	}
}

// TestDeletionIsTriedAgain: the bucket is away, then back (A43, A44 of the failure scenarios).
func TestDeletionIsTriedAgain(t *testing.T) {
	w := filled(t)
	b := w.broker(w.partition(0).Owner, nothing)
	w.pass(2 * time.Hour)
	if err := b.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.fault = func(op, _ string) error {
		if op == "delete" {
			return errors.New("away")
		}
		return nil
	}
	w.pass(2 * time.Hour)
	before := len(w.objects())
	if err := b.Collect(t.Context()); err == nil || len(w.objects()) != before {
		t.Fatalf("%v, %d objects of %d", err, len(w.objects()), before)
	}
	w.fault = nil
	b.quiet()
	w.readable()
	w.clean()
}

// TestNothingIsDeletedUnderAudit (R22).
func TestNothingIsDeletedUnderAudit(t *testing.T) {
	w := filled(t)
	b := w.broker(w.partition(0).Owner, nothing)
	w.pass(2 * time.Hour)
	if err := b.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.must(&state.NewHistory{History: 1})
	before := w.objects()
	o := w.register(1) // a new run: what the one before made is abandoned if no catalog names it
	after := w.broker(o, nothing)
	for range 3 {
		w.pass(5 * time.Hour)
		if err := errors.Join(after.Collect(t.Context()), second(after.Sweep(t.Context()))); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(w.objects(), before) {
		t.Fatal("something was deleted under audit")
	}
	w.must(&state.EndAudit{History: 1})
	if err := after.Collect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.objects()) >= len(before) {
		t.Error("nothing was deleted after the audit")
	}
}

func TestPausedMergesWait(t *testing.T) {
	w := newWorld(t, 1)
	for range 8 {
		w.export(0, 4, 300)
	}
	b := w.broker(w.partition(0).Owner, nothing)
	w.pass(10 * time.Minute)
	b.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if err := b.Compact(ctx); !errors.Is(err, context.DeadlineExceeded) || len(w.hot(0)) != 8 {
		t.Fatalf("%v, %d segments", err, len(w.hot(0)))
	}
	b.Resume()
	if err := b.Compact(t.Context()); err != nil || len(w.hot(0)) == 8 {
		t.Fatalf("%v, %d segments", err, len(w.hot(0)))
	}
}

func TestPaceBoundsBytes(t *testing.T) {
	now := time.Unix(0, 0)
	p := newPace(Clock{Now: func() time.Time { return now }, Wait: func(_ context.Context, d time.Duration) error {
		now = now.Add(d)
		return nil
	}}, 1000)
	for range 10 {
		if err := p.take(t.Context(), 500); err != nil {
			t.Fatal(err)
		}
	}
	if got := now.Sub(time.Unix(0, 0)); got != 4500*time.Millisecond {
		t.Errorf("5,000 bytes took %v at 1,000 a second", got)
	}
}

// TestRunDoesAllOfItInTime: compaction on every broker, collection and sweeps on the one that collects.
func TestRunDoesAllOfItInTime(t *testing.T) {
	for name, collects := range map[string]bool{"the collector": true, "another": false} {
		t.Run(name, func(t *testing.T) {
			w := filled(t)
			stray := catalog.NewName(w.topic, 0, catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: 99}, 5, 9)
			if _, err := w.store.Put(t.Context(), keys.Of(stray), cold.Bytes([]byte("left over"))); err != nil {
				t.Fatal(err)
			}
			before := len(w.objects())
			b := w.broker(w.partition(0).Owner, nothing)
			ctx, cancel := context.WithCancel(t.Context())
			end := w.clock().Add(9 * time.Hour)
			b.cfg.Collects = func() bool { return collects }
			b.cfg.Clock.Wait = func(ctx context.Context, d time.Duration) error {
				if w.pass(20 * d); w.clock().After(end) {
					cancel()
				}
				return ctx.Err()
			}
			if err := b.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if len(w.hot(0)) > 4 {
				t.Errorf("%d segments are left", len(w.hot(0)))
			}
			w.readable()
			if collects {
				w.clean()
			} else if len(w.objects()) < before {
				t.Error("a broker that does not collect has deleted something")
			}
		})
	}
}

func TestMetricsCountWhatWasDone(t *testing.T) {
	w := filled(t)
	b := w.broker(w.partition(0).Owner, nothing)
	reg := prometheus.NewRegistry()
	var err error
	if b.m, err = newMetrics(reg, b.Keeper); err != nil {
		t.Fatal(err)
	}
	if _, err := newMetrics(reg, b.Keeper); err == nil {
		t.Error("the series are registered twice")
	}
	b.cfg.Metrics = reg
	b.quiet()
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	for _, name := range []string{"danube_upkeep_merged_segments_total", "danube_upkeep_merged_bytes_total", "danube_upkeep_bytes_total", "danube_upkeep_deleted_objects_total"} {
		if got[name] == 0 {
			t.Errorf("%s is 0", name)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if families, _ := reg.Gather(); len(families) > 0 {
		t.Errorf("%d series are left", len(families))
	}
}

func TestConfigsAreRefused(t *testing.T) {
	w := newWorld(t, 1)
	whole := w.broker(w.partition(0).Owner, nothing).cfg
	for name, spoil := range map[string]func(*Config){
		"no store":         func(c *Config) { c.Store = nil },
		"no view":          func(c *Config) { c.View = nil },
		"a command less":   func(c *Config) { c.Commands.Forget = nil },
		"no folder":        func(c *Config) { c.Dir = "" },
		"negative slots":   func(c *Config) { c.Slots = -1 },
		"a negative pause": func(c *Config) { c.Every = -1 },
	} {
		t.Run(name, func(t *testing.T) {
			c := whole
			if spoil(&c); second(Open(c)) == nil {
				t.Error("it was taken")
			}
		})
	}
}
