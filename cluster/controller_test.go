package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/cluster/plan"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

func storeN(n int) state.StoreID { return state.StoreID{15: byte(n)} }
func topicN(n int) state.TopicID { return state.TopicID{0: 1, 15: byte(n)} }

// bureau is an office whose surroundings are a metadata state and brokers that a test silences. Everything that has no
// say of its own works: leases are renewed four times each.
type bureau struct {
	mu        sync.Mutex
	state     *state.State
	index     uint64
	changed   chan struct{}
	moved     chan struct{} // leadership
	term      uint64
	leads     bool
	skipped   time.Duration // by which the clock jumped
	leases    *leases
	silent    map[state.StoreID]bool // does not answer probes
	starting  map[state.StoreID]bool // answers, but has no run yet
	unrenewed map[state.StoreID]bool // does not renew
	gossip    map[state.StoreID]MemberState
	servers   []meta.Server
	commits   bool                      // whether proposals and barriers are committed
	propose   func(state.Command) error // what comes of a proposal; nil: it is applied
	proposed  []state.Command
	slowMove  chan struct{} // a change of Raft's configuration waits for it
	start     time.Time
}

func newBureau(t *testing.T, n int) *bureau {
	b := &bureau{
		state: state.New(), changed: make(chan struct{}), moved: make(chan struct{}), commits: true,
		leases: newLeases(3 * time.Second), silent: map[state.StoreID]bool{}, starting: map[state.StoreID]bool{}, unrenewed: map[state.StoreID]bool{},
		gossip: map[state.StoreID]MemberState{}, start: time.Now(),
	}
	b.apply(&state.InitCluster{ID: [16]byte{1}, Name: "c"})
	for i := 1; i <= n; i++ {
		b.register(i)
		b.servers = append(b.servers, meta.Server{Store: storeN(i), Voter: i <= 3})
	}
	t.Cleanup(func() { b.lead(0) })
	return b
}

func (b *bureau) apply(c state.Command) state.Result {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.applyLocked(c)
}

func (b *bureau) applyLocked(c state.Command) state.Result {
	b.index++
	r := b.state.Apply(b.index, c)
	close(b.changed)
	b.changed = make(chan struct{})
	return r
}

func (b *bureau) register(n int) {
	b.apply(&state.RegisterStore{Store: storeN(n), Broker: fmt.Sprintf("n%d", n), Nonce: [16]byte{1, byte(b.index)}, Boot: "b"})
}

func (b *bureau) topic(n int, owners ...int) {
	c := &state.CreateTopic{ID: topicN(n), Name: fmt.Sprintf("/default/t%d", n), Settings: state.TopicSettings{
		Partitions: uint32(len(owners)), Reliable: true, Durability: state.LevelLocal,
	}}
	for _, o := range owners {
		c.Owners = append(c.Owners, state.Owner{Store: storeN(o), Incarnation: b.view().Store(storeN(o)).Incarnation})
	}
	b.apply(c)
}

func (b *bureau) view() *state.View {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state.Freeze()
}

// lead gives n1 the leadership in a term; zero takes it away.
func (b *bureau) lead(term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.term, b.leads = term, term != 0
	close(b.moved)
	b.moved = make(chan struct{})
}

func (b *bureau) clock() time.Duration { return time.Since(b.start) + b.skipped }

func (b *bureau) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

// renew has every broker that does so renew its lease until ctx is done.
func (b *bureau) renew(ctx context.Context) {
	tick := time.NewTicker(750 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		for s := range b.state.Freeze().Stores() {
			if !b.unrenewed[s.ID] && b.leads {
				owner := state.Owner{Store: s.ID, Incarnation: s.Incarnation}
				b.leases.renew(renewal{Owner: owner, Applied: b.index, Time: time.Now().UnixMilli()}, s, b.clock(), time.Now())
			}
		}
		b.mu.Unlock()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *bureau) office() office {
	locked := func(f func()) { b.mu.Lock(); defer b.mu.Unlock(); f() }
	return office{
		self:       storeN(1),
		now:        func() (t time.Time) { locked(func() { t = onClock(b.clock()) }); return },
		view:       b.view,
		changed:    func() (c <-chan struct{}) { locked(func() { c = b.changed }); return },
		leading:    func() (term uint64, ok bool) { locked(func() { term, ok = b.term, b.leads }); return },
		leadership: func() (c <-chan struct{}) { locked(func() { c = b.moved }); return },
		propose:    b.take,
		barrier: func(ctx context.Context) error {
			b.mu.Lock()
			commits := b.commits
			b.mu.Unlock()
			if !commits {
				<-ctx.Done()
				return meta.ErrUnknown
			}
			return nil
		},
		unwell:  func() string { return "" },
		servers: func() (s []meta.Server) { locked(func() { s = slices.Clone(b.servers) }); return },
		change:  b.change,
		count:   func(term uint64) { locked(func() { b.leases.lead(term, b.clock()) }) },
		lease: func(store state.StoreID) (granted, time.Time) {
			g, _ := b.leases.of(store)
			return g, onClock(g.Until)
		},
		condemn: func(o state.Owner, term uint64) (ok bool) {
			locked(func() { ok = b.leases.condemn(o, term, b.clock()) })
			return
		},
		pardon: b.leases.pardon,
		members: func() (m []Member) {
			locked(func() {
				for id, s := range b.gossip {
					m = append(m, Member{Store: id, State: s})
				}
			})
			return
		},
		broken: func(state.StoreID) bool { return false },
		probe:  b.probe,
	}
}

func (b *bureau) take(ctx context.Context, c state.Command) (state.Result, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.proposed = append(b.proposed, c)
	if b.propose != nil {
		if err := b.propose(c); err != nil {
			return state.Result{}, err
		}
	}
	r := b.applyLocked(c)
	return r, r.Err
}

func (b *bureau) change(ctx context.Context, a plan.Action) error {
	if b.slowMove != nil {
		select {
		case <-b.slowMove:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.servers {
		if b.servers[i].Store == a.Store {
			b.servers[i].Voter = a.Kind == plan.Promote
		}
	}
	return nil
}

func (b *bureau) probe(ctx context.Context, p probe) (probeAnswer, error) {
	b.mu.Lock()
	silent, index, starting := b.silent[p.store], b.index, b.starting[p.store]
	b.mu.Unlock()
	if silent {
		<-ctx.Done()
		return probeAnswer{}, errors.New("no answer")
	}
	if starting {
		return probeAnswer{}, nil
	}
	return probeAnswer{Run: 1, Applied: index}, nil
}

// open has every target open what it was granted.
func (b *bureau) open() {
	v := b.view()
	for s := range v.Stores() {
		c := &state.OpenPartitions{Owner: state.Owner{Store: s.ID, Incarnation: s.Incarnation}}
		for p := range v.Owned(s.ID) {
			if p.State == state.Opening {
				r := p.OpenRange()
				c.Entries = append(c.Entries, state.PartitionOpen{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, End: r.Start, Tail: state.TailOrphaned})
			}
		}
		if len(c.Entries) > 0 {
			b.apply(c)
		}
	}
}

func (b *bureau) count(kind string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, c := range b.proposed {
		if strings.HasSuffix(fmt.Sprintf("%T", c), "."+kind) {
			n++
		}
	}
	return n
}

// govern runs the controller of n1 over b while f runs, in fake time.
func govern(t *testing.T, brokers int, f func(t *testing.T, b *bureau, c *Controller)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBureau(t, brokers)
		metrics, err := newControllerMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &Controller{
			office: b.office(), metrics: metrics, log: slog.New(slog.DiscardHandler),
			set: plan.Settings{Voters: 3, Lease: 3 * time.Second, DrainParallel: 16},
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { b.renew(ctx) })
		wg.Go(func() { c.run(ctx) })
		f(t, b, c)
		cancel()
		wg.Wait()
	})
}

// elapse lets fake time go by.
func elapse(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
	synctest.Wait()
}

func (b *bureau) silence(n int) {
	b.set(func() { b.silent[storeN(n)], b.unrenewed[storeN(n)] = true, true })
}

// TestControllerReplacesADeadOwner within a second of the end of its lease, and not before it.
func TestControllerReplacesADeadOwner(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3, 3, 1)
		b.lead(1)
		elapse(t, 10*time.Second)
		if n := len(b.proposed); n != 0 {
			t.Fatalf("proposed %d commands although all is well", n)
		}
		b.silence(3)
		b.set(func() { b.gossip[storeN(3)] = Dead })
		elapse(t, 2*time.Second)
		if n := len(b.proposed); n != 0 {
			t.Fatalf("proposed %d commands before the lease ran out", n)
		}
		if notes := strings.Join(c.Notes(), "; "); !strings.Contains(notes, "n3 is suspected: probes fail: no answer") {
			t.Errorf("notes: %s", notes)
		}
		elapse(t, 2*time.Second)
		if b.count("LoseStore") != 1 || b.count("GrantPartitions") != 1 || b.count("Tick") == 0 {
			t.Fatalf("proposed %T", b.proposed)
		}
		b.open()
		elapse(t, time.Second)
		for p := range b.view().Partitions(topicN(1)) {
			if p.State != state.Open || p.Owner.Store == storeN(3) {
				t.Errorf("partition %d is %s with %s", p.Number, p.State, p.Owner.Store)
			}
		}
	})
}

// TestControllerIgnoresGossip: gossip calls a broker dead and its probes fail for a minute, but leases are renewed.
func TestControllerIgnoresGossip(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3)
		b.lead(1)
		b.set(func() { b.silent[storeN(3)], b.gossip[storeN(3)] = true, Dead })
		elapse(t, time.Minute)
		if b.count("LoseStore") != 0 {
			t.Error("a broker is lost on the word of gossip")
		}
	})
}

// TestControllerIgnoresLapsedLeases: no renewal comes through for a minute, but the broker answers.
func TestControllerIgnoresLapsedLeases(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3)
		b.lead(1)
		b.set(func() { b.unrenewed[storeN(3)] = true })
		elapse(t, time.Minute)
		if b.count("LoseStore") != 0 {
			t.Error("a broker that answers is lost")
		}
		if notes := strings.Join(c.Notes(), "; "); !strings.Contains(notes, "but answers") {
			t.Errorf("notes: %s", notes)
		}
	})
}

// TestControllerAfterAJump: the clock jumps by three leases while a broker does not answer. Nobody is lost before another
// full lease.
func TestControllerAfterAJump(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3)
		b.lead(1)
		elapse(t, 5*time.Second)
		b.silence(3)
		elapse(t, time.Second)
		b.set(func() { b.skipped += 9 * time.Second })
		elapse(t, 2800*time.Millisecond)
		if b.count("LoseStore") != 0 {
			t.Fatal("lost right after the leader stood still")
		}
		elapse(t, 2*time.Second)
		if b.count("LoseStore") != 1 {
			t.Error("a dead broker is not lost in the end")
		}
	})
}

// TestControllerWithoutMajority: nothing commits, so nobody is declared lost.
func TestControllerWithoutMajority(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3)
		b.lead(1)
		elapse(t, 5*time.Second)
		b.silence(2)
		b.silence(3)
		b.set(func() { b.commits = false })
		elapse(t, 20*time.Second)
		if b.count("LoseStore") != 0 {
			t.Error("a leader without a majority declares others lost")
		}
		b.set(func() { b.commits = true })
		elapse(t, 10*time.Second)
		if b.count("LoseStore") != 1 {
			t.Errorf("%d of two silent brokers lost, want one of three", b.count("LoseStore"))
		}
	})
}

// TestControllerOfANewTerm gives everyone a full lease from its election, and finishes what the term before began.
func TestControllerOfANewTerm(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3)
		b.topic(2, 3)
		b.lead(1)
		elapse(t, 5*time.Second)
		b.silence(3)
		b.set(func() { // it dies between the loss and the grant
			b.propose = func(c state.Command) error {
				if _, ok := c.(*state.GrantPartitions); ok {
					return meta.ErrNotLeader
				}
				return nil
			}
		})
		elapse(t, 2500*time.Millisecond)
		b.lead(0)
		elapse(t, time.Second)
		b.lead(2)
		elapse(t, 2900*time.Millisecond)
		if b.count("LoseStore") != 0 {
			t.Fatal("lost before a full lease from the election")
		}
		elapse(t, time.Second)
		if b.count("LoseStore") != 1 {
			t.Fatalf("%d lost after a full lease: %v", b.count("LoseStore"), c.Notes())
		}
		b.lead(0)
		b.set(func() { b.propose = nil })
		b.lead(3)
		elapse(t, 2*time.Second)
		for n := 1; n <= 2; n++ {
			if p := b.view().Partition(topicN(n), 0); p.State != state.Opening {
				t.Errorf("t%d is %s after two leaders", n, p.State)
			}
		}
	})
}

// TestControllerPardons: a proposal of a loss with an unknown outcome keeps the lease away until the outcome is known.
func TestControllerPardons(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 3)
		b.lead(1)
		elapse(t, 5*time.Second)
		b.silence(3)
		b.set(func() { b.propose = func(state.Command) error { return meta.ErrUnknown } })
		elapse(t, 3800*time.Millisecond)
		if b.count("LoseStore") == 0 {
			t.Fatal("no loss was proposed")
		}
		if g, _ := b.leases.of(storeN(3)); !g.Condemned {
			t.Error("it could have a lease although its loss may be committed")
		}
		b.set(func() { b.silent[storeN(3)], b.unrenewed[storeN(3)] = false, false })
		elapse(t, 5*time.Second)
		if g, _ := b.leases.of(storeN(3)); g.Condemned || g.Until < b.clock() {
			t.Errorf("it answers again and has no lease: %+v", g)
		}
		if b.view().Store(storeN(3)).Status != state.StoreActive {
			t.Error("lost")
		}
	})
}

// TestControllerGoesOnBesideASlowChange: a promotion that waits for a broker holds up no takeover.
func TestControllerGoesOnBesideASlowChange(t *testing.T) {
	govern(t, 4, func(t *testing.T, b *bureau, c *Controller) {
		b.topic(1, 4)
		b.set(func() { b.servers[2].Voter = false; b.slowMove = make(chan struct{}) })
		b.lead(1)
		elapse(t, 5*time.Second)
		b.silence(4)
		elapse(t, 4*time.Second)
		if b.count("GrantPartitions") != 1 {
			t.Error("no takeover while a change of the configuration is under way")
		}
		close(b.slowMove)
		elapse(t, 2*time.Second)
		if !b.servers[2].Voter {
			t.Error("n3 has no vote in the end")
		}
	})
}

// spoken is a log that is read while it is written.
type spoken struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *spoken) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestControllerWaitsForAStart: a broker that answers and has not taken up its run lives, so nothing is said of it and its
// partitions stay, for a lease's time. If it never gets further they go.
func TestControllerWaitsForAStart(t *testing.T) {
	govern(t, 3, func(t *testing.T, b *bureau, c *Controller) {
		var said spoken
		c.log = slog.New(slog.NewTextHandler(&said, nil))
		b.topic(1, 3)
		b.lead(1)
		elapse(t, 10*time.Second)
		b.register(3)
		b.set(func() { b.starting[storeN(3)], b.unrenewed[storeN(3)] = true, true })
		elapse(t, 2900*time.Millisecond)
		if b.count("LoseStore") != 0 || strings.Contains(said.String(), "suspected") {
			t.Errorf("while it started: %s", said.String())
		}
		elapse(t, 3*time.Second)
		if b.count("LoseStore") != 1 || !strings.Contains(said.String(), "has been starting for") {
			t.Errorf("when it never came: %d losses, %s", b.count("LoseStore"), said.String())
		}
	})
}

// TestInquiryRow: failures count from the first one after the last answer, and one that began before an answer came says
// nothing.
func TestInquiryRow(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(100, 0).Add(time.Duration(ms) * time.Millisecond) }
	var q inquiry
	q.note(probeAnswer{}, errors.New("a"), plan.Span{From: at(0), To: at(1000)})
	q.note(probeAnswer{}, errors.New("b"), plan.Span{From: at(250), To: at(1250)})
	if q.failures != 2 || q.failing != at(0) || q.failedAt != at(1250) || q.why != "b" {
		t.Errorf("two failures: %+v", q)
	}
	q.note(probeAnswer{Applied: 7}, nil, plan.Span{From: at(500), To: at(1300)})
	q.note(probeAnswer{}, errors.New("c"), plan.Span{From: at(750), To: at(1750)})
	if q.failures != 0 || !q.failing.IsZero() || q.applied != 7 {
		t.Errorf("a failure that began before the answer came counts: %+v", q)
	}
	q.note(probeAnswer{}, errors.New("d"), plan.Span{From: at(1400), To: at(2400)})
	if q.failures != 1 || q.failing != at(1400) {
		t.Errorf("a failure after the answer: %+v", q)
	}
}
