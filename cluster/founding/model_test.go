package founding

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

var errKilled = errors.New("killed")

// world is six brokers that form a cluster in a random order of events, all drawn from one seed: kills before and after
// each write, messages that are late or never come, gossip that knows half.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	brokers []*modelBroker
	flight  []message
	calm    bool // nothing is killed or lost any more
	sparse  bool // gossip tells only of who was met: what must hold does not rest on gossip
	founded map[[16]byte]bool
	kills   int // of proposers
	trace   []string
}

// modelBroker is one broker: its disk outlives its runs.
type modelBroker struct {
	*Founder
	id       state.StoreID
	number   int
	expect   int
	seeds    []int
	disk     Record
	run      int // grows with each start
	up       bool
	reached  map[int]bool
	known    map[int]Neighbor
	dieAfter int // the write that kills: 0 none, 1 before it is on disk, 2 after
}

// message is a request or its answer on the way.
type message struct {
	to      int
	toRun   int // zero: whichever run is there
	deliver func(*modelBroker) error
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 7)), founded: map[[16]byte]bool{}}
	w.sparse = w.rng.IntN(2) == 0
	order := w.rng.Perm(6)
	hubs := w.rng.IntN(2) == 0
	for i := range 6 {
		b := &modelBroker{id: store(byte(1 + order[i])), number: i, expect: 3}
		// A ring through all, so that seeds lead from each to each, and some more.
		b.seeds = []int{(i + 1) % 6}
		for range w.rng.IntN(3) {
			if s := w.rng.IntN(6); !slices.Contains(b.seeds, s) {
				b.seeds = append(b.seeds, s)
			}
		}
		if hubs {
			b.seeds = []int{0, 1} // what two proposals have in common may be these two alone
		}
		w.brokers = append(w.brokers, b)
	}
	if w.rng.IntN(4) == 0 {
		w.brokers[w.rng.IntN(6)].expect = 0 // one that only joins
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.trace[max(0, len(w.trace)-60):] {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

func (w *world) start(b *modelBroker) {
	b.run++
	b.up, b.reached, b.known = true, map[int]bool{}, map[int]Neighbor{}
	b.Founder = &Founder{Self: b.id, Expect: b.expect, Disk: b.disk, Save: func(r Record) error { return w.save(b, r) }}
	w.note("start %d", b.number)
}

func (w *world) kill(b *modelBroker) {
	if p := b.disk.Pledge; p != nil && p.Proposer == b.id && !p.Settled {
		w.kills++
	}
	b.up, b.dieAfter = false, 0
	w.note("kill %d", b.number)
}

// save is a broker's disk. It is where kills come most often.
func (w *world) save(b *modelBroker, r Record) error {
	die := b.dieAfter
	if die == 0 && !w.calm && w.rng.IntN(4) == 0 {
		die = 1 + w.rng.IntN(2)
	}
	if die == 1 {
		w.kill(b)
		return errKilled
	}
	b.disk = r
	w.note("disk %d: cluster %x pledge %+v", b.number, r.Cluster[:2], r.Pledge)
	if r.Cluster != [16]byte{} {
		w.founded[r.Cluster] = true
		if len(w.founded) > 1 {
			w.fail("two clusters: %v", w.founded)
		}
	}
	if die == 2 {
		w.kill(b)
		return errKilled
	}
	return nil
}

func (w *world) card(b *modelBroker) Neighbor {
	return Neighbor{Broker{b.id, fmt.Sprint(b.number)}, fmt.Sprint(b.number), b.disk.Cluster, b.expect}
}

// meet is a full exchange of what two brokers know, as when one contacts another.
func (w *world) meet(a, b *modelBroker) {
	for i, n := range a.known {
		if _, ok := b.known[i]; !ok && !w.sparse {
			b.known[i] = n
		}
	}
	for i, n := range b.known {
		if _, ok := a.known[i]; !ok && !w.sparse {
			a.known[i] = n
		}
	}
	for _, x := range []*modelBroker{a, b} {
		a.known[x.number], b.known[x.number] = w.card(x), w.card(x)
	}
}

func (w *world) facts(b *modelBroker) Facts {
	k := Facts{}
	b.known[b.number] = w.card(b)
	for _, s := range b.seeds {
		if !b.reached[s] {
			k.Missing = append(k.Missing, fmt.Sprint(s))
		} else if s != b.number {
			k.Seeds = append(k.Seeds, w.card(w.brokers[s]).Broker)
		}
	}
	for _, n := range b.known {
		k.Visible = append(k.Visible, n)
	}
	slices.SortFunc(k.Visible, func(x, y Neighbor) int { return compareStores(x.Store, y.Store) })
	return k
}

func (w *world) byStore(id state.StoreID) int {
	return slices.IndexFunc(w.brokers, func(b *modelBroker) bool { return b.id == id })
}

// call sends a request; serve runs at the other end, then answer at this one, if both live and nothing is lost.
func (w *world) call(from *modelBroker, to state.StoreID, serve func(*modelBroker) (func(*modelBroker) error, error)) {
	run := from.run
	w.flight = append(w.flight, message{to: w.byStore(to), deliver: func(there *modelBroker) error {
		answer, err := serve(there)
		if err == nil {
			w.flight = append(w.flight, message{to: from.number, toRun: run, deliver: answer})
		}
		return err
	}})
}

// act is one turn of a broker's loop.
func (w *world) act(b *modelBroker) error {
	s := b.Decide(w.facts(b))
	switch s.Kind {
	case Found:
		w.fail("broker %d founds a cluster of one", b.number)
	case Propose:
		var id [16]byte
		id[0], id[1] = byte(w.rng.Uint32()), byte(w.rng.Uint32())
		id[15] = 1
		return b.Propose(id, slices.Clone(s.List))
	case GiveUp:
		return b.Release()
	case Drive:
		r := b.Request()
		p := r.Pledge
		for _, to := range s.List {
			w.call(b, to.Store, func(there *modelBroker) (func(*modelBroker) error, error) {
				a, err := there.Hold(r, w.facts(there))
				return func(b *modelBroker) error { return w.settle(b, b.Heard(p.Cluster, to.Store, a, w.facts(b))) }, err
			})
		}
		if len(s.List) == 0 {
			return w.settle(b, b.Complete(p.Cluster, w.facts(b)))
		}
	case Ask:
		to := s.List[w.rng.IntN(len(s.List))].Store
		w.call(b, to, func(there *modelBroker) (func(*modelBroker) error, error) {
			a := there.Asked(s.Cluster)
			return func(b *modelBroker) error { return b.Told(s.Cluster, to, a) }, nil
		})
	case Join:
		if err := b.Joining(s.Cluster); err != nil {
			return err
		}
		w.call(b, s.Members[w.rng.IntN(len(s.Members))].Store, func(there *modelBroker) (func(*modelBroker) error, error) {
			if there.Founder.Disk.Cluster != s.Cluster {
				return nil, errors.New("not a member")
			}
			return func(b *modelBroker) error {
				if b.Founder.Disk.Cluster != [16]byte{} {
					return nil
				}
				return b.Joined(s.Cluster)
			}, nil
		})
	}
	return nil
}

func (w *world) settle(b *modelBroker, v Verdict) error {
	switch v {
	case Everybody:
		return b.Commit()
	case Abandon:
		return b.Release()
	}
	return nil
}

// event lets one thing happen.
func (w *world) event() {
	b := w.brokers[w.rng.IntN(len(w.brokers))]
	other := w.brokers[w.rng.IntN(len(w.brokers))]
	switch n := w.rng.IntN(20); {
	case !b.up:
		if w.calm || n < 4 {
			w.start(b)
		}
	case n < 4:
		s := w.brokers[b.seeds[w.rng.IntN(len(b.seeds))]]
		if s.up {
			b.reached[s.number] = true
			w.meet(b, s)
		}
	case n < 7:
		_, ok := b.known[other.number]
		if (ok || w.calm) && other.up {
			w.meet(b, other)
		} else if ok && other != b {
			delete(b.known, other.number) // gossip gave it up
		}
	case n < 8 && !w.calm:
		if w.rng.IntN(3) == 0 {
			w.kill(b)
		}
	case n < 14 && len(w.flight) > 0:
		w.deliver()
	default:
		w.act(b)
	}
}

func (w *world) deliver() {
	i := w.rng.IntN(len(w.flight))
	m := w.flight[i]
	w.flight = slices.Delete(w.flight, i, i+1)
	b := w.brokers[m.to]
	if !b.up || m.toRun != 0 && m.toRun != b.run || !w.calm && w.rng.IntN(8) == 0 {
		return
	}
	m.deliver(b)
}

func (w *world) allIn() bool {
	for _, b := range w.brokers {
		if b.disk.Cluster == [16]byte{} {
			return false
		}
	}
	return true
}

// TestNeverTwoClusters: whatever is killed and lost, brokers whose seeds lead to each other found one cluster, and
// when all is calm all of them come to be in it.
func TestNeverTwoClusters(t *testing.T) {
	kills := 0
	for seed := range uint64(100) {
		w := newWorld(t, seed)
		for range 200 + w.rng.IntN(3000) {
			w.event()
		}
		w.calm = true
		for n := 0; !w.allIn(); n++ {
			if n > 200_000 {
				for _, b := range w.brokers {
					t.Logf("%d %s up %v seeds %v expect %d disk %+v step %+v", b.number, b.id, b.up, b.seeds, b.expect, b.disk, b.Decide(w.facts(b)))
				}
				w.fail("seed %d: no cluster", seed)
			}
			w.event()
		}
		kills += w.kills
	}
	t.Logf("%d proposers killed", kills)
	if kills < 200 {
		t.Errorf("only %d proposers were killed: the test did not bite", kills)
	}
}

// store returns a store id that sorts by n.
func store(n byte) state.StoreID { return state.StoreID{0: n, 15: 1} }
