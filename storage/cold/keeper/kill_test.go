package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

// stops halts a broker at the nth time that it comes to a step.
type stops struct {
	step    string
	n       int
	mu      sync.Mutex
	seen    int
	reached chan struct{}
	release chan struct{}
}

func newStops(step string, n int) *stops {
	return &stops{step: step, n: n, reached: make(chan struct{}), release: make(chan struct{})}
}

func (s *stops) at(step string) {
	s.mu.Lock()
	hit := step == s.step
	if hit {
		s.seen++
		hit = s.seen == s.n
	}
	s.mu.Unlock()
	if hit {
		close(s.reached)
		<-s.release
	}
}

// all is one round of everything a broker does, in an order in which each step is come by.
func (b *broker) all(ctx context.Context) error {
	return errors.Join(b.Compact(ctx), b.Collect(ctx), second(b.Sweep(ctx)))
}

// TestKilledAtEveryStepItConverges: nothing is lost, and no object is left that no catalog names.
func TestKilledAtEveryStepItConverges(t *testing.T) {
	for _, step := range []string{
		stepMerged, stepStored, stepChecked, stepSwapped, stepListed, stepPaged, stepUnpaged, stepCondemned, stepDeleted, stepForgotten,
	} {
		for n := 1; n <= 2; n++ {
			if n > 1 && slices.Contains([]string{stepSwapped, stepUnpaged, stepForgotten, stepListed, stepPaged}, step) {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d", step, n), func(t *testing.T) { kill(t, step, n) })
		}
	}
}

func kill(t *testing.T, step string, n int) {
	w := filled(t)
	for range 40 {
		w.export(2, 12, 800)
		w.pass(time.Second)
	}
	// An object of a run that is over, and a page that retention passes, so that every step is come by.
	stray := catalog.NewName(w.topic, 0, catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: 99}, 5, 9)
	if _, err := w.store.Put(t.Context(), keys.Of(stray), cold.Bytes([]byte("left over"))); err != nil {
		t.Fatal(err)
	}
	at := newStops(step, n)
	b := w.broker(w.partition(0).Owner, at.at)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; i < 8 && ctx.Err() == nil; i++ {
			w.pass(90 * time.Minute)
			_ = b.all(ctx)
			if i == 3 {
				q := w.partition(2)
				for _, page := range q.Catalog.Pages() {
					w.trim(2, page.Start+(page.End-page.Start)/2)
					break
				}
			}
			if i == 5 {
				w.trim(2, w.parts[2].next)
			}
		}
	}()
	select {
	case <-at.reached:
	case <-ended:
		t.Fatalf("%s was not come by %d times", step, n)
	}
	b.dead.Store(true)
	cancel()
	after := w.broker(w.restart(), nothing)
	after.quiet()
	w.readable()
	w.clean()
	close(at.release)
	<-ended
}

// TestTwoOwnersCompactOneWins: the old owner was stopped in the middle of a merge, lost everything, and goes on.
func TestTwoOwnersCompactOneWins(t *testing.T) {
	for _, step := range []string{stepMerged, stepStored, stepChecked} {
		t.Run(step, func(t *testing.T) {
			w := filled(t)
			at := newStops(step, 1)
			zombie := w.broker(w.partition(0).Owner, at.at)
			w.pass(2 * time.Hour)
			ended := make(chan error)
			go func() { ended <- zombie.Compact(t.Context()) }()
			<-at.reached
			b := w.broker(w.takeover(2), nothing)
			w.cuts = 0
			w.export(0, 4, 300)
			if err := b.Compact(t.Context()); err != nil {
				t.Fatal(err)
			}
			merged := w.hot(0)
			close(at.release)
			if err := <-ended; err == nil || errors.Is(err, context.Canceled) {
				t.Fatalf("the old owner was answered %v", err)
			}
			for i, s := range w.hot(0) {
				if s != merged[i] {
					t.Fatal("the old owner has changed the catalog")
				}
			}
			if report, err := b.Audit(t.Context(), nil); err != nil || report[upkeep.Abandoned].Objects == 0 {
				t.Fatalf("the old owner has left nothing, it was not in the middle of a merge: %v %v", report, err)
			}
			b.quiet()
			w.readable()
			w.clean()
		})
	}
}

// TestWhatIsUnderWayIsNotCondemned: one job fails while another uploads.
func TestWhatIsUnderWayIsNotCondemned(t *testing.T) {
	w := newWorld(t, 1)
	b := w.broker(w.partition(0).Owner, nothing)
	name := func(n uint64) catalog.Name {
		return catalog.NewName(w.topic, 0, catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: b.owner.Incarnation, Unique: n}, 5, 9)
	}
	b.owe(name(1))
	b.owe(name(2))
	b.giveUp(name(2))
	b.giveUp(name(3))
	if err := b.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := w.view(b.owner)
	if v.GarbageOf(name(1)) != nil || v.GarbageOf(name(2)) == nil || v.GarbageOf(name(3)) != nil {
		t.Error("what was given up, and nothing else, is condemned")
	}
}
