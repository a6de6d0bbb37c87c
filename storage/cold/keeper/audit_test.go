package keeper

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

// TestAuditListsBothSides: what lies in the bucket and in no catalog, by reason, and what a catalog has and the bucket not.
func TestAuditListsBothSides(t *testing.T) {
	w := newWorld(t, 3)
	for range 40 {
		w.export(0, 12, 800)
	}
	for range 3 {
		w.cut(2, 100)
	}
	w.export(1, 3, 100)
	b := w.broker(w.partition(0).Owner, nothing)
	if err := b.Compact(t.Context()); err != nil { // a page: too early for merges
		t.Fatal(err)
	}
	page := w.partition(0).Catalog.Pages()[0]
	listed := w.lists(mustFind(w, 0))[catalog.NewName(w.topic, 0, page.Object, page.Start, page.End)]
	nameOf := func(part uint32, s catalog.Segment) string {
		return keys.Of(catalog.NewName(w.topic, part, s.Object, s.Start, s.End))
	}
	stray := func(run, unique uint64) string {
		return keys.Of(catalog.NewName(w.topic, 0, catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: run, Unique: unique}, 5, 9))
	}
	before := b.owner.Incarnation
	w.restart()
	put := func(key string) {
		if _, err := w.store.Put(t.Context(), key, cold.Bytes([]byte("something"))); err != nil {
			t.Fatal(err)
		}
	}
	hot := w.hot(0)
	put(stray(before, 1))
	put(stray(before+1, 1))
	put(stray(before+50, 1))
	put("holiday.jpg")
	put(keys.Cluster)
	want := map[string]upkeep.Verdict{
		stray(before, 1): upkeep.Abandoned, stray(before+50, 1): upkeep.Unknown, "holiday.jpg": upkeep.Foreign,
		nameOf(0, listed[3]): upkeep.Missing, nameOf(0, hot[len(hot)-5]): upkeep.Missing, nameOf(1, w.hot(1)[1]): upkeep.Missing,
		nameOf(0, hot[0]): upkeep.Resized,
	}
	for key, v := range want {
		switch v {
		case upkeep.Missing:
			if err := w.store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		case upkeep.Resized:
			if err := w.store.Replace(t.Context(), key, []byte("short")); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := map[string]upkeep.Verdict{}
	report, err := b.Audit(t.Context(), func(f upkeep.Finding) { got[f.Key] = f.Verdict })
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(got, want) {
		t.Errorf("found %v\nwant %v", got, want)
	}
	if report[upkeep.UnderWay].Objects != 1 || report[upkeep.Metadata].Objects != 1 || report[upkeep.Catalogued].Objects == 0 || report[upkeep.Missing].Objects != 3 {
		t.Errorf("the report is %v", report)
	}

	// Nobody knows what a page lists that is not there: nothing of its partition is called abandoned.
	if err := w.store.Delete(t.Context(), keys.Of(catalog.NewName(w.topic, 0, page.Object, page.Start, page.End))); err != nil {
		t.Fatal(err)
	}
	clear(got)
	if _, err := b.Audit(t.Context(), func(f upkeep.Finding) { got[f.Key] = f.Verdict }); !errors.Is(err, cold.NotFound) {
		t.Errorf("a page is away: %v", err)
	}
	if got[stray(before, 1)] != upkeep.Unread || slices.Contains(slices.Collect(maps.Values(got)), upkeep.Abandoned) {
		t.Errorf("found %v", got)
	}
}

func mustFind(w *world, part uint32) upkeep.Partition {
	w.t.Helper()
	p, ok := w.view(w.partition(0).Owner).Find(w.topic, part)
	if !ok {
		w.t.Fatalf("no partition %d", part)
	}
	return p
}

// TestWhatIsOnlyListedIsNotDeleted: an object that no catalog names is condemned first, by command, and waits for an hour
// then; one whose run lives, or that nobody knows, stays (R12).
func TestWhatIsOnlyListedIsNotDeleted(t *testing.T) {
	w := newWorld(t, 1)
	w.export(0, 3, 100)
	old := w.partition(0).Owner.Incarnation
	now := w.restart()
	name := func(run uint64) catalog.Name {
		return catalog.NewName(w.topic, 0, catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: run, Unique: 1}, 5, 9)
	}
	for _, run := range []uint64{old, now.Incarnation, now.Incarnation + 9} {
		if _, err := w.store.Put(t.Context(), keys.Of(name(run)), cold.Bytes([]byte("something"))); err != nil {
			t.Fatal(err)
		}
	}
	b := w.broker(now, nothing)
	there := func(run uint64) bool {
		_, err := w.store.Stat(t.Context(), keys.Of(name(run)))
		return err == nil
	}
	if err := b.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if g := w.view(now).GarbageOf(name(old)); !there(old) || g == nil || g.Reason != catalog.Abandoned {
		t.Fatalf("what a run left that is over is there=%t, garbage=%v", there(old), g)
	}
	w.pass(61 * time.Minute)
	if err := b.all(t.Context()); err != nil {
		t.Fatal(err)
	}
	if there(old) || !there(now.Incarnation) || !there(now.Incarnation+9) {
		t.Errorf("after the grace: of a run that is over %t, of the present one %t, of one nobody knows %t", there(old), there(now.Incarnation), there(now.Incarnation+9))
	}
	// An upload that a server still held when its client gave up.
	if _, err := w.store.Put(t.Context(), keys.Of(name(old)), cold.Bytes([]byte("something"))); err != nil {
		t.Fatal(err)
	}
	b.quiet()
	if there(old) {
		t.Error("what came back is there")
	}
}
