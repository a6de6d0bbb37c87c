package keeper

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
)

// upload puts an object that a run made and committed nowhere.
func (w *world) upload(run, unique uint64) (key string) {
	w.t.Helper()
	key = keys.Of(catalog.NewName(w.topic, 0, catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: run, Unique: unique}, 5, 9))
	if _, err := w.store.Put(w.t.Context(), key, cold.Bytes([]byte("uploaded"))); err != nil {
		w.t.Fatal(err)
	}
	return key
}

// TestUploadsOfALostRunAreCollected: what a broker had put and not committed when it was lost, or removed, goes after a
// look of its own and the grace, hours before the next audit is due; what comes even later goes with that. What a run
// that lives has put stays, however old it is.
func TestUploadsOfALostRunAreCollected(t *testing.T) {
	for name, removed := range map[string]bool{"lost": false, "removed": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			victim := w.partition(0).Owner
			collector := w.register(2)
			w.export(0, 4, 300)
			mine := w.upload(collector.Incarnation, 1)
			left, late := w.upload(victim.Incarnation, 2), ""
			began := w.clock()
			gone := map[string]time.Duration{} // key: how long it was there from the beginning on
			b := w.broker(collector, nothing)
			ctx, cancel := context.WithCancel(t.Context())
			over := false
			b.cfg.Clock.Wait = func(ctx context.Context, d time.Duration) error {
				w.pass(d)
				age := w.clock().Sub(began)
				switch {
				case age >= 2*time.Hour && !over: // until here it lives
					over = true
					if !slices.Contains(w.objects(), left) {
						t.Error("an upload of a run that lives was collected")
					}
					w.must(&state.LoseStore{Owner: victim})
					if removed { // which a broker is only once others have what it owned
						w.must(&state.GrantPartitions{Entries: []state.PartitionGrant{{Topic: w.topic, Epoch: w.partition(0).Epoch, To: collector}}})
						w.openAll(collector, true)
						w.must(&state.RemoveStore{Store: victim.Store, Lose: true})
					}
				case age >= 2*time.Hour+5*time.Minute && late == "":
					late = w.upload(victim.Incarnation, 3) // what was under way when it was lost
				case age > 9*time.Hour:
					cancel()
				}
				for _, key := range []string{left, late} {
					if _, seen := gone[key]; key != "" && !seen && !slices.Contains(w.objects(), key) {
						gone[key] = age
					}
				}
				return ctx.Err()
			}
			if err := b.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			for _, key := range []string{left, late} {
				if at, ok := gone[key]; !ok || at < 3*time.Hour || at > 3*time.Hour+15*time.Minute {
					t.Errorf("%s went after %v (%t), want an hour and some minutes after the loss at 2h", key, at, ok)
				}
			}
			if !slices.Contains(w.objects(), mine) {
				t.Error("an upload of the run that collects is gone")
			}
			w.readable()
		})
	}
}
