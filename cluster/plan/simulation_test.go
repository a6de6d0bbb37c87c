package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// simulation runs planner and metadata under a random schedule: brokers die, return, stop and drain, leaders change and
// take their memory with them, plans are carried out in part, twice, late, or by two leaders at once.
type simulation struct {
	*scene
	rng    *rand.Rand
	up     map[int]bool
	epochs map[partitionID]uint64
	stale  []Action // of an earlier leader, still to come
	log    []string
}

const simulated = 5

func TestSimulation(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			s := &simulation{
				scene: newScene(t, simulated), rng: rand.New(rand.NewPCG(seed, 3)), up: map[int]bool{}, epochs: map[partitionID]uint64{},
			}
			for n := 1; n <= simulated; n++ {
				s.up[n] = true
				s.topic(n, n, n)
			}
			for range 300 {
				s.step()
				s.check()
			}
			s.heal()
			if t.Failed() {
				for _, l := range s.log[max(0, len(s.log)-40):] {
					t.Log(l)
				}
			}
		})
	}
}

func (s *simulation) say(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%v ", s.now.Sub(time.Unix(1_000_000, 0)))+fmt.Sprintf(format, args...))
}

// try applies a command; a refusal is part of life.
func (s *simulation) try(c state.Command) state.Result {
	s.index++
	return s.state.Apply(s.index, c)
}

func (s *simulation) step() {
	n := 1 + s.rng.IntN(simulated)
	switch s.rng.IntN(14) {
	case 0: // die
		if s.up[n] && s.alive() > 3 {
			s.up[n] = false
			s.silence(n)
			s.say("n%d dies", n)
		}
	case 1: // return
		if !s.up[n] {
			s.back(n)
		}
	case 2: // another leader
		s.elect()
	case 3:
		s.try(&state.SetStore{Owner: s.run(n), Status: state.StoreDraining})
		s.say("n%d drains", n)
	case 4:
		s.try(&state.SetStore{Owner: s.run(n), Status: state.StoreActive})
	case 5: // stop cleanly
		if s.up[n] && s.alive() > 3 && s.state.Store(storeN(n)).Status == state.StoreActive {
			s.stop(n)
		}
	case 6: // somebody asks for moves
		to := 1 + s.rng.IntN(simulated)
		for p := range s.state.Owned(storeN(n)) {
			s.try(&state.MovePartitions{Entries: []state.PartitionMove{{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, To: s.run(to)}}})
		}
	case 7, 8, 9:
		s.work(n)
	default:
		s.pass(time.Duration(s.rng.IntN(2000)) * time.Millisecond)
		s.govern()
	}
}

func (s *simulation) alive() int {
	n := 0
	for _, up := range s.up {
		if up {
			n++
		}
	}
	return n
}

func (s *simulation) back(n int) {
	s.up[n] = true
	s.peer(n, func(p *Peer) { *p = Peer{} })
	s.register(n)
	s.say("n%d is back", n)
}

func (s *simulation) elect() {
	s.say("another leader")
	s.facts.Since, s.facts.Memory = s.now, NewMemory()
	s.facts.Proof = Span{}
	for id, p := range s.facts.Peers {
		if p.Failures > 0 { // it asks for itself
			p.Failing, p.FailedAt = s.now, s.now
		}
		s.facts.Peers[id] = p
	}
	s.look()
}

// stop is a clean stop: what it serves is sealed, and it says so.
func (s *simulation) stop(n int) {
	s.say("n%d stops", n)
	for p := range s.state.Freeze().Owned(storeN(n)) {
		if p.Owner == s.run(n) && (p.State == state.Open || p.State == state.Sealing) {
			s.try(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, Seal: true, End: p.Floor}}})
		}
	}
	s.try(&state.SetStore{Owner: s.run(n), Clean: true})
	s.up[n] = false
	s.silence(n)
}

// work has a broker do what the metadata ask of it: open, hand over, copy.
func (s *simulation) work(n int) {
	if !s.up[n] {
		return
	}
	me := s.run(n)
	for p := range s.state.Freeze().Owned(me.Store) {
		switch {
		case p.State == state.Opening && p.Owner == me:
			s.open(p, me)
		case p.State == state.Sealing && p.Owner == me && s.up[int(p.Target.Store[15])]:
			s.try(&state.HandOver{Owner: me, Entries: []state.PartitionHandOver{{
				Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, Move: p.Move, End: p.Floor, To: p.Target,
			}}})
		case p.State == state.Closed, p.State == state.Open && p.Owner != me:
			s.open(p, me)
		case p.State == state.Open:
			s.try(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{
				Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, Floor: min(p.Ceiling, p.Floor+1),
			}}})
			s.copy(s.state.Partition(p.Topic, p.Number), me)
		}
	}
}

func (s *simulation) open(p *state.Partition, me state.Owner) {
	e := state.PartitionOpen{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, End: p.Floor}
	if r := p.OpenRange(); r != nil && r.Stores[0] != me.Store {
		e.End, e.Tail = r.Start, state.TailOrphaned
	}
	if r := s.try(&state.OpenPartitions{Owner: me, Entries: []state.PartitionOpen{e}}); r.Err != nil || r.Entry(0) != nil {
		s.t.Errorf("open %s of %s by %x: %v %v", p.State, p.Topic, me.Store[15], r.Err, r.Entries)
	}
}

// copy takes over the history that others hold.
func (s *simulation) copy(p *state.Partition, me state.Owner) {
	for _, r := range p.Ranges {
		if r.Status == state.RangeSealed {
			s.try(&state.CopyRanges{Entries: []state.RangeCopy{{
				Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, From: r.Start, To: r.End, Add: me.Store, Drop: without(r.Stores, me.Store),
			}}})
		}
		if r.Status == state.RangeOrphaned && s.up[int(r.Stores[0][15])] {
			s.try(&state.RestoreRange{
				Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, From: r.Start, End: r.Start, To: r.End,
			})
			return
		}
	}
}

func without(stores []state.StoreID, id state.StoreID) []state.StoreID {
	var out []state.StoreID
	for _, s := range stores {
		if s != id {
			out = append(out, s)
		}
	}
	return out
}

// govern is a turn of the leader, which may die at any of its actions; what it has sent by then may come late.
func (s *simulation) govern() {
	for _, a := range s.stale {
		s.try(a.Command)
	}
	s.stale = nil
	s.facts.Head = s.index
	actions, _ := Next(s.now, s.look(), &s.facts)
	s.judge(actions)
	dies := s.rng.IntN(4 * (len(actions) + 1))
	for i, a := range actions {
		if i == dies {
			if a.Command != nil && a.Kind != Lose { // that one must not outlive its leader: see Control
				s.stale = append(s.stale, a)
			}
			s.elect()
			return
		}
		if a.Command == nil {
			continue
		}
		s.say("%s n%d %d: %s", a.Kind, a.Store[15], a.Count, a.Reason)
		s.facts.Memory.Remember(s.now, a)
		s.try(a.Command)
		if s.rng.IntN(4) == 0 {
			s.try(a.Command)
		}
	}
}

// judge holds every plan to what it must never contain.
func (s *simulation) judge(actions []Action) {
	for _, a := range actions {
		switch c := a.Command.(type) {
		case *state.LoseStore:
			if s.up[int(c.Owner.Store[15])] {
				s.t.Errorf("a healthy broker is lost: n%d: %s", c.Owner.Store[15], a.Reason)
			}
		case *state.GrantPartitions:
			for _, e := range c.Entries {
				p := s.state.Partition(e.Topic, e.Partition)
				owner := int(p.Owner.Store[15])
				if s.up[owner] && p.State == state.Open && p.Owner == s.run(owner) {
					s.t.Errorf("a partition that n%d serves is granted: %s", owner, a.Reason)
				}
				if st := s.state.Store(e.To.Store); st.Status != state.StoreActive || !s.up[int(e.To.Store[15])] {
					s.t.Errorf("granted to n%d, which is %s, up=%t", e.To.Store[15], st.Status, s.up[int(e.To.Store[15])])
				}
			}
		}
	}
}

// check holds the metadata to what is true at all times: epochs only grow, and a partition is served by one broker.
func (s *simulation) check() {
	for t := range s.state.Topics("") {
		for p := range s.state.Partitions(t.ID) {
			if old := s.epochs[idOf(p)]; p.Epoch < old {
				s.t.Errorf("epoch of %s fell from %d to %d", t.Name, old, p.Epoch)
			}
			s.epochs[idOf(p)] = p.Epoch
		}
	}
}

// heal brings back all dead brokers but one, which may be lost for good, ends all drains, and expects every partition to
// be served by a broker that is up.
func (s *simulation) heal() {
	for n := 1; n <= simulated; n++ {
		if !s.up[n] && s.alive() < simulated-1 {
			s.back(n)
		}
		if s.up[n] && s.state.Store(storeN(n)).Status == state.StoreDraining {
			s.try(&state.SetStore{Owner: s.run(n), Status: state.StoreActive})
		}
	}
	s.elect()
	served := func() bool {
		for n := 1; n <= simulated; n++ {
			for p := range s.state.Partitions(topicN(n)) {
				owner := s.state.Store(p.Owner.Store)
				if p.State != state.Open || !s.up[int(owner.ID[15])] || owner.Incarnation != p.Owner.Incarnation {
					return false
				}
			}
		}
		return true
	}
	for range 400 {
		if served() {
			return
		}
		s.pass(250 * time.Millisecond)
		s.facts.Head = s.index
		actions, _ := Next(s.now, s.look(), &s.facts)
		s.judge(actions)
		for _, a := range actions {
			if a.Command != nil {
				s.try(a.Command)
			}
		}
		for n := 1; n <= simulated; n++ {
			s.work(n)
		}
		s.check()
	}
	_, notes := s.plan()
	s.t.Errorf("not everything is served in the end: %s", words(notes))
}
