package broker_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/meta/state"
)

// tripwire cuts a broker off when it comes to a named step.
type tripwire struct {
	mu   sync.Mutex
	name string // of the broker
	step string
	hit  chan struct{}
}

func (w *tripwire) set(name, step string) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.name, w.step, w.hit = name, step, make(chan struct{})
	return w.hit
}

func (w *tripwire) at(name, step string, cut func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hit != nil && w.name == name && w.step == step {
		cut()
		close(w.hit)
		w.hit = nil
	}
}

// newTrippedFleet is newFleet with a wire.
func newTrippedFleet(t testing.TB, n int) (*fleet, *tripwire) {
	w := &tripwire{}
	var f *fleet
	var mu sync.Mutex
	f = newFleet(t, n, func(c *broker.Config) {
		name := c.Name
		c.At = func(step string) {
			mu.Lock()
			all := f
			mu.Unlock()
			if all == nil {
				return
			}
			var i int
			if _, err := fmt.Sscanf(name, "n%d", &i); err == nil {
				w.at(name, step, all.nodes[i-1].wire.pull)
			}
		}
	})
	mu.Lock()
	defer mu.Unlock()
	return f, w
}

// orderMove has a broker move its partition away. A move is given up when a broker is out of touch, so what is there still
// is ordered again.
func (f *fleet) orderMove(t testing.TB, from, to int) {
	m := f.nodes[from].Partition("moved", 0)
	if m.State != state.Open || f.owner("moved", 0) != from {
		return
	}
	if err := f.nodes[from].Move(t.Context(), "moved", 0, fmt.Sprintf("n%d", to+1)); err != nil {
		t.Logf("move: %v", err)
	}
}

// Source or target die at each step of a planned move, under traffic: the
// partition goes on, at one of them or at the third, and when the dead one is
// back nothing is lost, doubled or out of order.
func TestMoveSurvivesACrashAtEveryStep(t *testing.T) {
	t.Parallel()
	f, wire := newTrippedFleet(t, 3)
	w := flow(t, f.dial(0), f.dial(1), "moved")
	w.await(20)
	for _, c := range []struct {
		step   string
		source bool
	}{
		{"move.sealing", true}, {"move.ready", true}, {"move.paused", true}, {"move.prepared", true}, {"move.handed-over", true}, {"move.sent-away", true},
		{"move.preparing", false}, {"move.imported", false},
	} {
		from := f.owner("moved", 0)
		to := (from + 1) % 3
		victim := to
		if c.source {
			victim = from
		}
		before := f.nodes[from].Partition("moved", 0).Epoch
		hit := wire.set(fmt.Sprintf("n%d", victim+1), c.step)
		eventually(t, "a move that comes to "+c.step, func() bool {
			select {
			case <-hit:
				return true
			default:
				f.orderMove(t, from, to)
				return false
			}
		})
		f.kill(victim)
		other := (victim + 1) % 3
		eventually(t, "an owner that lives after "+c.step, func() bool {
			m := f.nodes[other].Partition("moved", 0)
			owner := f.nodes[other].OwnerOf("moved", 0)
			return m.State == state.Open && owner != fmt.Sprintf("n%d", victim+1)
		})
		f.start(victim)
		if w.await(20); t.Failed() {
			t.Fatalf("after %s", c.step)
		}
		m := f.nodes[other].Partition("moved", 0)
		t.Logf("%s: epoch %d to %d, %d messages, %d ranges", c.step, before, m.Epoch, w.got.Load(), len(m.Ranges))
	}
	w.end()
}
