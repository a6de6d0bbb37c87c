package broker_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// doubtful is a partition whose history lies with its first owner, whose second
// owner it was moved to and which is lost, and whose third knows of neither.
type doubtful struct {
	*fleet
	first, second, third int
	hold                 *held
}

// held keeps those who come to a step of a doubt.
type held struct {
	mu   sync.Mutex
	step string
	do   func() // what becomes of who comes there; nil: waits until free is closed
	came chan struct{}
	free chan struct{}
}

// at sets the step, and what is done there, once; nil: everybody waits until release is called.
func (h *held) at(step string, do func()) (came <-chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step, h.do, h.came, h.free = step, do, make(chan struct{}), make(chan struct{})
	free := h.free
	return h.came, sync.OnceFunc(func() {
		h.mu.Lock()
		if h.free == free {
			h.step = ""
		}
		h.mu.Unlock()
		close(free)
	})
}

func (h *held) pass(step string) {
	h.mu.Lock()
	if step != h.step {
		h.mu.Unlock()
		return
	}
	do, free := h.do, h.free
	if h.came != nil {
		close(h.came)
		h.came = nil
	}
	if do != nil {
		h.step = ""
	}
	h.mu.Unlock()
	if do != nil {
		do()
		return
	}
	<-free
}

// newDoubtful has a producer store sequences 0 to 9 at offsets 1 to 10, and moves
// the partition to the second broker, which is not killed yet.
func newDoubtful(t *testing.T) *doubtful {
	t.Helper()
	h := &held{}
	f := newFleet(t, 3, func(c *broker.Config) {
		c.Peers.CopyDelay = time.Hour
		c.At = h.pass
	})
	publish(t, f.dial(0), "twice", 0, 1)
	d := &doubtful{fleet: f, first: f.owner("twice", 0), hold: h}
	d.second, d.third = (d.first+1)%3, (d.first+2)%3
	raw := rawDial(t, f.nodes[d.first].client)
	ok := raw.openFrom("twice", 0)
	for n := range uint64(10) {
		raw.send(ok, n)
	}
	eventually(t, "no history is brought", func() bool { return f.nodes[d.second].HoldHistory("twice", 0) })
	f.move("twice", d.second)
	return d
}

// takeOver kills the second broker and waits for the third to serve.
func (d *doubtful) takeOver() {
	d.t.Helper()
	c := d.dial(d.third)
	eventually(d.t, "the first is there and takes nothing more", func() bool {
		return c.Admin().BrokerDrain(d.t.Context(), protocol.BrokerArgs{Broker: fmt.Sprintf("n%d", d.first+1)}) == nil
	})
	d.kill(d.second)
	eventually(d.t, "the third takes over", func() bool {
		return d.owner("twice", 0) == d.third && d.nodes[d.third].Serves("twice", 0) > 0
	})
}

// again sends sequences again to the third broker, as after lost answers.
func (d *doubtful) again(from, to uint64) (stored []protocol.ProduceOK) {
	d.t.Helper()
	raw := rawDial(d.t, d.nodes[d.third].client)
	ok := raw.openFrom("twice", from)
	for n := from; n < to; n++ {
		stored = append(stored, raw.send(ok, n))
	}
	return stored
}

// wantKnown sends sequences again and wants each to be known, at its offset or where it was stored again.
func (d *doubtful) wantKnown(from, to uint64, again map[uint64]uint64) {
	d.t.Helper()
	for i, s := range d.again(from, to) {
		n := from + uint64(i)
		want := n + 1
		if at, is := again[n]; is {
			want = at
		}
		if !s.Duplicate || s.Base != want {
			d.t.Errorf("sequence %d sent again: %+v, want offset %d", n, s, want)
		}
	}
}

// settled waits until nothing is in doubt and returns what was superseded.
func (d *doubtful) settled() state.Offsets {
	d.t.Helper()
	var m *state.Partition
	eventually(d.t, "no doubt is left about what can be read", func() bool {
		m = d.nodes[d.third].Partition("twice", 0)
		for _, r := range m.Ranges {
			if r.Status == state.RangeSealed && r.Doubt > 0 {
				return false
			}
		}
		return true
	})
	return m.Superseded
}

func awaitStep(t *testing.T, came <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-came:
	case <-time.After(20 * time.Second):
		t.Fatal(what)
	}
}

// An owner that takes over knows what lies with brokers that are there before a
// producer sends it anything again (R17).
func TestTakeoverKnowsWhatLiesElsewhere(t *testing.T) {
	t.Parallel()
	d := newDoubtful(t)
	d.takeOver()
	d.wantKnown(6, 9, nil)
	d.wantKnown(3, 10, nil)
	if s := d.settled(); len(s) > 0 {
		t.Errorf("superseded %v", s)
	}
}

// While nobody can tell what lies elsewhere producers go on after a moment, and
// what they store again is read once as soon as somebody can (R15, R17, I4).
func TestStoredAgainInDoubtIsReadOnce(t *testing.T) {
	d := newDoubtful(t)
	_, release := d.hold.at("doubt.ask", nil)
	defer release()
	d.takeOver()
	began := time.Now()
	again := map[uint64]uint64{}
	for i, s := range d.again(6, 9) {
		if s.Duplicate || s.Base < 1000 {
			t.Fatalf("sequence %d sent again: %+v", 6+i, s)
		}
		again[uint64(6+i)] = s.Base
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the producer waited %v", took)
	}
	began = time.Now()
	d.again(6, 7)
	if took := time.Since(began); took > 500*time.Millisecond {
		t.Errorf("the next producer waited %v, though it was known to be in vain", took)
	}
	release()
	if s := d.settled(); len(s) != 1 || s[0] != (state.OffsetRange{Start: 7, End: 10}) {
		t.Errorf("superseded %v, want offsets 7 to 10", s)
	}
	d.wantKnown(3, 10, again)
}

// An owner that dies at any step of learning what lies elsewhere knows it when it
// is there again: from the step on that keeps it, also while nobody tells.
func TestDoubtOutlastsACrash(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"doubt.ask", "doubt.staged", "doubt.learned", "doubt.scanned"} {
		t.Run(step, func(t *testing.T) {
			d := newDoubtful(t)
			came, _ := d.hold.at(step, runtime.Goexit) // as far as the doubt is concerned the owner dies here
			d.takeOver()
			awaitStep(t, came, step+" is not reached")
			release := func() {}
			if step != "doubt.ask" {
				_, release = d.hold.at("doubt.ask", nil)
			}
			defer release()
			d.kill(d.third)
			d.start(d.third)
			eventually(t, "it is served", func() bool { return d.nodes[d.third].Serves("twice", 0) > 0 })
			d.wantKnown(6, 9, nil)
			release()
			if s := d.settled(); len(s) > 0 {
				t.Errorf("superseded %v", s)
			}
			d.wantKnown(3, 10, nil)
		})
	}
}

// An owner that dies when the metadata have taken sealed history back, and it has
// not yet taken over who had stored it, knows it when it is there again.
func TestSealedHistoryIsKnownAfterACrashBeforeItsProducersAre(t *testing.T) {
	t.Parallel()
	d := newDoubtful(t)
	d.kill(d.first)
	eventually(t, "its history is orphaned", func() bool { return d.has(d.second, "twice", state.RangeOrphaned) })
	reached, release := d.hold.at("return.report", nil)
	defer release()
	d.start(d.first)
	d.takeOver()
	awaitStep(t, reached, "the history is not asked for")
	again := map[uint64]uint64{6: d.again(6, 7)[0].Base}
	if again[6] < 1000 {
		t.Fatalf("sequence 6 sent again is at offset %d", again[6])
	}
	came, _ := d.hold.at("return.restored", runtime.Goexit)
	release()
	awaitStep(t, came, "the history is not taken back")
	_, tell := d.hold.at("doubt.ask", nil)
	defer tell()
	d.kill(d.third)
	d.start(d.third)
	eventually(t, "it is served", func() bool { return d.nodes[d.third].Serves("twice", 0) > 0 })
	d.wantKnown(3, 10, again)
	tell()
	if s := d.settled(); len(s) != 1 || s[0] != (state.OffsetRange{Start: 7, End: 8}) {
		t.Errorf("superseded %v, want offset 7", s)
	}
}
