package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// scene is a metadata state and what a leader, n1, knows beside it. Everyone is well until a test says otherwise.
type scene struct {
	t     testing.TB
	state *state.State
	index uint64
	now   time.Time
	facts Knowledge

	census *Census // as it followed what was decided
}

func storeN(n int) state.StoreID { return state.StoreID{15: byte(n)} }
func topicN(n int) state.TopicID {
	return state.TopicID{0: 1, 12: byte(n >> 24), 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)}
}

// newScene has n active brokers, the first three of which vote.
func newScene(t testing.TB, n int) *scene {
	w := &scene{t: t, state: state.New(), now: time.Unix(1_000_000, 0)}
	w.facts = Knowledge{
		Self: storeN(1), Memory: NewMemory(), Peers: map[state.StoreID]Peer{},
		Settings: Settings{Voters: 3, Lease: 3 * time.Second, DrainParallel: 4},
	}
	w.apply(&state.InitCluster{ID: [16]byte{1}, Name: "c"})
	for i := range n {
		w.register(i + 1)
		w.facts.Servers = append(w.facts.Servers, Server{Store: storeN(i + 1), Address: address(i + 1), Voter: i < 3})
	}
	w.facts.Since, w.facts.Memory = w.now, NewMemory()
	w.look()
	w.pass(time.Minute)
	return w
}

func address(n int) string { return fmt.Sprintf("127.0.0.1%d:6651", n) }

func (w *scene) apply(c state.Command) state.Result {
	w.t.Helper()
	w.index++
	r := w.state.Apply(w.index, c)
	if r.Err != nil {
		w.t.Fatalf("apply %T: %v", c, r.Err)
	}
	for _, err := range r.Entries {
		if err != nil {
			w.t.Fatalf("apply %T: %v", c, err)
		}
	}
	return r
}

// register begins a run of store n.
func (w *scene) register(n int) state.Owner {
	r := w.apply(&state.RegisterStore{
		Store: storeN(n), Broker: fmt.Sprintf("n%d", n), Nonce: [16]byte{0: byte(w.index), 1: byte(w.index >> 8), 15: 1},
		Boot: "b", Addresses: state.Addresses{Peer: address(n)},
	})
	return state.Owner{Store: storeN(n), Incarnation: r.Incarnation}
}

func (w *scene) run(n int) state.Owner {
	return state.Owner{Store: storeN(n), Incarnation: w.state.Store(storeN(n)).Incarnation}
}

// topic makes a topic with one open partition for each of the owners.
func (w *scene) topic(n int, owners ...int) {
	c := &state.CreateTopic{
		ID: topicN(n), Name: fmt.Sprintf("/default/t%d", n),
		Settings: state.TopicSettings{Partitions: uint32(len(owners)), Reliable: true, Durability: state.LevelLocal},
	}
	for _, o := range owners {
		c.Owners = append(c.Owners, w.run(o))
	}
	w.apply(c)
}

func (w *scene) partition(topic int) *state.Partition { return w.state.Partition(topicN(topic), 0) }

// look lets the leader see the view, and hear from everyone that no test has silenced.
func (w *scene) look() *Census {
	v := w.state.Freeze()
	if w.census == nil || !w.census.Follow(v) {
		w.census = Count(v)
	} else if d := w.census.differs(Count(v)); d != "" {
		w.t.Fatalf("what followed the decisions and what was counted anew differ in %s", d)
	}
	w.facts.Memory.Look(w.now, w.census)
	return w.census
}

// pass lets time go by: everyone renews its lease, the leader proves itself, a silenced broker stays silent.
func (w *scene) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.facts.Proof = Span{w.now.Add(-10 * time.Millisecond), w.now.Add(-5 * time.Millisecond)}
	for s := range w.state.Stores() {
		p := w.facts.Peers[s.ID]
		if p.Failures > 0 {
			p.FailedAt = w.now
		} else if p.Gossip != "silent" {
			p.Run, p.Lease, p.Applied = s.Incarnation, w.now.Add(w.facts.Lease), w.index
		}
		w.facts.Peers[s.ID] = p
	}
}

// silence makes a broker's probes fail from now on.
func (w *scene) silence(n int) {
	p := w.facts.Peers[storeN(n)]
	p.Failing, p.FailedAt, p.Failures, p.Why = w.now, w.now, 3, "connection refused"
	w.facts.Peers[storeN(n)] = p
}

func (w *scene) peer(n int, f func(p *Peer)) {
	p := w.facts.Peers[storeN(n)]
	f(&p)
	w.facts.Peers[storeN(n)] = p
}

func (w *scene) plan() ([]Action, []Note) {
	w.facts.Head = w.index
	return Next(w.now, w.look(), &w.facts)
}

// kinds is what was planned, in words: "lose_store n3, grant 2 n1:1 n2:1, tick".
func kinds(actions []Action) string {
	var out []string
	for _, a := range actions {
		s := string(a.Kind)
		if a.Store != (state.StoreID{}) {
			s += fmt.Sprintf(" n%d", a.Store[15])
		}
		if c, ok := a.Command.(*state.GrantPartitions); ok {
			to := map[string]int{}
			for _, e := range c.Entries {
				to[fmt.Sprintf("n%d", e.To.Store[15])]++
			}
			s += fmt.Sprint(" ", to)
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func words(notes []Note) string {
	var out []string
	for _, n := range notes {
		out = append(out, n.Text)
	}
	return strings.Join(out, "\n")
}

func (w *scene) want(want string) []Action {
	w.t.Helper()
	actions, notes := w.plan()
	if got := kinds(actions); got != want {
		w.t.Fatalf("planned %q, want %q\nnotes: %s", got, want, words(notes))
	}
	return actions
}

func (w *scene) wantNote(part string) {
	w.t.Helper()
	if _, notes := w.plan(); !strings.Contains(words(notes), part) {
		w.t.Errorf("nothing in the notes says %q:\n%s", part, words(notes))
	}
}

// carry applies what was planned.
func (w *scene) carry(actions []Action) {
	w.t.Helper()
	for _, a := range actions {
		w.facts.Memory.Remember(w.now, a)
		if a.Command != nil {
			w.apply(a.Command)
			continue
		}
		i := slices.IndexFunc(w.facts.Servers, func(s Server) bool { return s.Store == a.Store })
		switch a.Kind {
		case Promote:
			w.facts.Servers[i].Voter = true
		case Demote:
			w.facts.Servers[i].Voter = false
		case Drop:
			w.facts.Servers = slices.Delete(w.facts.Servers, i, i+1)
		case Add:
			if i < 0 {
				w.facts.Servers = append(w.facts.Servers, a.Server)
			} else {
				w.facts.Servers[i] = a.Server
			}
		}
	}
}

func TestNothingToDo(t *testing.T) {
	w := newScene(t, 3)
	w.topic(1, 1, 2, 3)
	w.pass(time.Second)
	w.want("")
}

// TestLoss is R7: what makes a loss, and each thing without which there is none.
func TestLoss(t *testing.T) {
	tests := map[string]struct {
		do   func(w *scene) // after n3 fell silent and its lease ran out
		want string
		note string
	}{
		"lost":               {func(w *scene) {}, "lose_store n3, tick", ""},
		"lease not out":      {func(w *scene) { w.peer(3, func(p *Peer) { p.Lease = w.now.Add(time.Millisecond) }) }, "", "its lease ends in"},
		"probe answers":      {func(w *scene) { w.peer(3, func(p *Peer) { p.Failures, p.Failing = 0, time.Time{} }) }, "", "but answers"},
		"one probe failed":   {func(w *scene) { w.peer(3, func(p *Peer) { p.Failures = 1 }) }, "", "is suspected"},
		"failed just now":    {func(w *scene) { w.peer(3, func(p *Peer) { p.Failing = w.now.Add(-900 * time.Millisecond) }) }, "", "is suspected"},
		"failed long ago":    {func(w *scene) { w.peer(3, func(p *Peer) { p.FailedAt = w.now.Add(-1100 * time.Millisecond) }) }, "", "is suspected"},
		"a disk that hangs":  {func(w *scene) { w.facts.Unwell = "its own log write hangs" }, "", "not sure of itself: its own log write hangs"},
		"no majority":        {func(w *scene) { w.facts.Proof.To = w.now.Add(-600 * time.Millisecond) }, "", "nothing was committed for 600ms"},
		"a slow commit":      {func(w *scene) { w.facts.Proof.From = w.facts.Proof.To.Add(-1100 * time.Millisecond) }, "", "a commit took"},
		"elected just now":   {func(w *scene) { w.facts.Since = w.now.Add(-2900 * time.Millisecond) }, "", "is suspected"},
		"elected, no proof":  {func(w *scene) { w.facts.Proof = Span{} }, "", "nothing was committed since"},
		"lease of old run":   {func(w *scene) { w.register(3) }, "", "is suspected"},
		"gossip says alive":  {func(w *scene) { w.peer(3, func(p *Peer) { p.Gossip = "" }) }, "lose_store n3, tick", ""},
		"already lost":       {func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(3)}) }, "", "n3 is lost"},
		"another lost":       {func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(2)}) }, "", "1 of 3 brokers may be lost at the same time"},
		"another came back":  {func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(2)}); w.register(2) }, "lose_store n3, tick", ""},
		"stopped cleanly":    {func(w *scene) { w.apply(&state.SetStore{Owner: w.run(3), Clean: true}) }, "", "n3 is stopped"},
		"stopped, left open": {func(w *scene) { w.topic(9, 3); w.apply(&state.SetStore{Owner: w.run(3), Clean: true}) }, "lose_store n3, tick", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newScene(t, 3)
			w.silence(3)
			w.pass(4 * time.Second)
			test.do(w)
			w.want(test.want)
			w.wantNote(test.note)
		})
	}
}

// TestNotesTellBrokersOfOneNameApart by their stores' ids; who has a name alone goes by it.
func TestNotesTellBrokersOfOneNameApart(t *testing.T) {
	w := newScene(t, 3)
	w.apply(&state.RegisterStore{Store: state.StoreID{0xab, 0xcd, 15: 9}, Broker: "n3", Nonce: [16]byte{1: 7}, Boot: "b", Addresses: state.Addresses{Peer: address(9)}})
	w.apply(&state.SetStore{Owner: w.run(2), Clean: true})
	w.apply(&state.SetStore{Owner: w.run(3), Clean: true})
	w.pass(time.Millisecond)
	_, notes := Next(w.now, w.look(), &w.facts)
	var said []string
	for _, n := range notes {
		said = append(said, n.Text)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "n3 (00000000) is stopped") || !strings.Contains(text, "n2 is stopped") {
		t.Errorf("says\n%s", text)
	}
}

// TestGossipAloneLosesNobody: neither what gossip says nor failed probes count while leases are renewed.
func TestGossipAloneLosesNobody(t *testing.T) {
	w := newScene(t, 3)
	w.topic(1, 3)
	for range 240 {
		w.pass(250 * time.Millisecond)
		w.peer(3, func(p *Peer) {
			p.Gossip, p.Failures, p.Failing, p.FailedAt = "dead", 9, w.now.Add(-5*time.Second), w.now
			p.Lease = w.now.Add(500 * time.Millisecond) // two of three renewals are missed, one comes through
		})
		w.want("")
	}
}

// TestResumedLeaderJudgesNobody: a leader that stood still finds all leases run out and all probes failed, and must begin
// to count anew.
func TestResumedLeaderJudgesNobody(t *testing.T) {
	w := newScene(t, 3)
	w.silence(2)
	w.silence(3)
	w.pass(20 * time.Second)
	w.facts.Proof = Span{w.now.Add(-20 * time.Second), w.now.Add(-20 * time.Second)}
	w.facts.Since = w.now // the shell saw the clock jump
	w.want("")
	w.pass(3500 * time.Millisecond) // the row of failures began before it stood still
	w.want("")
	w.peer(3, func(p *Peer) { p.Failing = w.facts.Since })
	w.peer(2, func(p *Peer) { p.Failures = 0 })
	w.want("lose_store n3, tick")
}

// TestMassExpiryLosesAThird: nine brokers of which six fall silent.
func TestMassExpiryLosesAThird(t *testing.T) {
	w := newScene(t, 9)
	w.topic(1, 9, 9)
	w.topic(2, 8)
	for n := 4; n <= 9; n++ {
		w.silence(n)
	}
	w.pass(4 * time.Second)
	w.carry(w.want("lose_store n9, lose_store n8, lose_store n4, tick"))
	for _, a := range mustPlan(w) {
		if a.Kind == Lose {
			t.Errorf("a fourth broker is lost: %s", a.Reason)
		}
	}
	w.wantNote("3 of 9 brokers may be lost at the same time")
}

func mustPlan(w *scene) []Action { a, _ := w.plan(); return a }

// TestLeaderNeverLosesItself: a lone broker, or one whose own lease ran out.
func TestLeaderNeverLosesItself(t *testing.T) {
	w := newScene(t, 1)
	w.topic(1, 1)
	w.silence(1)
	w.pass(time.Minute)
	w.want("")
}
