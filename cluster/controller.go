package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/cluster/plan"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// Duties says how the leader does its part. Zero values mean the default.
type Duties struct {
	// Voters is how many brokers vote on the metadata, 3 or 5. Default 3.
	Voters int
	// DrainParallel is how many partitions of a draining broker move at once. Default 16.
	DrainParallel int
	// Registerer takes the danube_controller_ metrics. Nil: none.
	Registerer prometheus.Registerer
}

// Controller carries out the leader's duties while this node leads: it finds out who is lost, gives partitions to those
// who can serve them, empties draining brokers and keeps the number of voters. What to do is the planner's to say; the
// controller gathers what the planner must know and proposes what it answers.
type Controller struct {
	office  office
	set     plan.Settings
	log     *slog.Logger
	metrics *controllerMetrics

	mu    sync.Mutex
	notes []string
}

// office is what the controller asks of its surroundings.
type office struct {
	self       state.StoreID
	now        func() time.Time // the clock that leases are counted on
	view       func() *state.View
	changed    func() <-chan struct{}
	leading    func() (term uint64, ok bool)
	leadership func() <-chan struct{}
	propose    func(ctx context.Context, c state.Command) (state.Result, error)
	barrier    func(ctx context.Context) error
	unwell     func() string // why this node must not judge others, as far as it knows itself; empty: it may
	servers    func() []meta.Server
	change     func(ctx context.Context, a plan.Action) error // of Raft's configuration
	count      func(term uint64)                              // leases, from now on if not before, as the leader of this term
	lease      func(store state.StoreID) (g granted, until time.Time)
	condemn    func(o state.Owner, term uint64) bool // no lease while the loss is being decided; false: it has one
	pardon     func(o state.Owner)
	members    func() []Member
	broken     func(store state.StoreID) bool // a connection to it has ended and no other has begun
	probe      func(ctx context.Context, p probe) (probeAnswer, error)
}

const (
	// turnInterval is how often the leader looks without being woken.
	turnInterval = 250 * time.Millisecond
	// standstill is how long a turn may take before the leader takes it that it, or its clock, stood still.
	standstill = time.Second
	// proposeTime bounds a proposal. A leader that cannot commit in it is not well.
	proposeTime = 2 * time.Second
	// changeTime bounds a change of Raft's configuration, which may wait for a broker to catch up.
	changeTime = 10 * time.Second
	// holdTime is how long something that failed or was refused is left alone.
	holdTime = time.Second
	// recountTime is how long the census follows decisions before all is counted again.
	recountTime = 5 * time.Second
	// restShare is how many times as long as a look took the leader rests before the next that a decision asks for: while
	// thousands of topics are made there are thousands of decisions that ask nothing of it.
	restShare = 10
)

// Notes returns what an operator wants to know of the cluster, in words: who is suspected, lost, stopped or behind, what
// cannot be moved and why. Empty on a broker that does not lead.
func (c *Controller) Notes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.notes
}

func (c *Controller) publish(notes []plan.Note) {
	var texts []string
	for _, n := range notes {
		texts = append(texts, n.Text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = texts
}

// run leads whenever this node is the leader. It returns when ctx is done.
func (c *Controller) run(ctx context.Context) {
	for ctx.Err() == nil {
		changed := c.office.leadership()
		term, ok := c.office.leading()
		if ok {
			c.lead(ctx, term)
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// lead does the duties of one term. It returns when this node no longer leads in it, or ctx is done.
func (c *Controller) lead(ctx context.Context, term uint64) {
	ctx, cancel := context.WithCancel(ctx)
	r := newReign(c, term)
	defer func() {
		cancel()
		r.helpers.Wait()
		r.tick.Stop()
		c.publish(nil)
		c.metrics.leading.Set(0)
		c.metrics.suspects.Set(0)
		c.metrics.ownerless.Set(0)
	}()
	r.helpers.Go(func() { // returns when the term is over
		defer cancel()
		for ctx.Err() == nil {
			changed := c.office.leadership()
			if now, ok := c.office.leading(); !ok || now != term {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	})
	// What must be read first is read behind a barrier in this term (R6).
	for !r.prove(ctx) {
		if !r.pause(ctx) {
			return
		}
	}
	c.metrics.leading.Set(1)
	c.log.Info("this broker leads the cluster", "term", term)
	r.office.count(term)
	r.begin(c.office.now())
	for {
		changed := c.office.changed()
		r.turn(ctx)
		if !r.wait(ctx, changed) {
			return
		}
	}
}

// reign is one term of this leader. Only its own goroutine touches it.
type reign struct {
	*Controller
	term      uint64
	since     time.Time // when it began to count
	turned    time.Time // when it looked last
	proof     plan.Span
	index     uint64
	indexAt   time.Time
	memory    *plan.Memory
	census    *plan.Census
	counted   time.Time
	rested    time.Time // until when no decision asks for another look
	inquiries map[state.StoreID]*inquiry
	held      map[string]time.Time // what was refused → when it may be tried again
	condemned map[state.Owner]time.Time
	changing  bool        // a change of Raft's configuration is under way
	results   chan func() // what helpers found out, for this goroutine to note
	tick      *time.Ticker
	helpers   sync.WaitGroup
}

func newReign(c *Controller, term uint64) *reign {
	return &reign{
		Controller: c, term: term, memory: plan.NewMemory(), inquiries: map[state.StoreID]*inquiry{},
		held: map[string]time.Time{}, condemned: map[state.Owner]time.Time{}, results: make(chan func(), 16),
		tick: time.NewTicker(turnInterval),
	}
}

// begin counts anew: leases get their full length, and what was found out before is forgotten.
func (r *reign) begin(now time.Time) {
	r.since, r.turned = now, now
	for _, q := range r.inquiries {
		q.failing, q.failures, q.failedAt = time.Time{}, 0, time.Time{}
	}
}

// pause waits for the next tick; false: the term is over.
func (r *reign) pause(ctx context.Context) bool {
	select {
	case <-r.tick.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait returns true when there may be something to do, false when the term is over.
func (r *reign) wait(ctx context.Context, changed <-chan struct{}) bool {
	resting := time.NewTimer(time.Hour)
	defer resting.Stop()
	resting.Stop()
	for {
		select {
		case note := <-r.results:
			note()
			return ctx.Err() == nil
		case <-r.tick.C:
			return ctx.Err() == nil
		case <-changed:
			// Most of what is committed is not about ownership.
			changed = r.office.changed()
			if r.office.view().Decided() == r.census.View.Decided() {
				continue
			}
			if rest := r.rested.Sub(r.office.now()); rest > 0 {
				resting.Reset(rest)
				changed = nil
				continue
			}
			return ctx.Err() == nil
		case <-resting.C:
			return ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
}

// prove commits something in this term: this leader's own log writes return, and a majority of the voters answers (R7).
// It says whether it did.
func (r *reign) prove(ctx context.Context) bool {
	from := r.office.now()
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	if err := r.office.barrier(ctx); err != nil {
		return false
	}
	// On another leader the barrier would prove that one.
	if term, ok := r.office.leading(); !ok || term != r.term {
		return false
	}
	r.proof = plan.Span{From: from, To: r.office.now()}
	return true
}

// turn looks once and does what is to be done.
func (r *reign) turn(ctx context.Context) {
	now := r.office.now()
	if stood := now.Sub(r.turned); stood > standstill {
		r.log.Warn("this leader stood still and counts all leases anew", "for", waited(stood))
		r.begin(now)
	}
	r.turned = now
	r.look(now)
	looked := r.office.now().Sub(now)
	r.inquire(ctx, now)
	if r.doubts() {
		r.prove(ctx)
	}
	start := r.office.now()
	actions, notes := plan.Next(start, r.census, r.know())
	end := r.office.now()
	r.metrics.planTime.Observe(end.Sub(start).Seconds())
	r.rested = end.Add(restShare * (looked + end.Sub(start)))
	r.metrics.ownerless.Set(float64(len(r.census.Ownerless)))
	r.publish(notes)
	r.forgive(actions)
	for _, a := range actions {
		if ctx.Err() != nil {
			return
		}
		r.carryOut(ctx, a)
	}
}

// look has the census follow the decisions that it does not know, and takes it anew now and then: what it has missed
// is found.
func (r *reign) look(now time.Time) {
	v := r.office.view()
	if old := r.census; old == nil || now.Sub(r.counted) > recountTime || !old.Follow(v) {
		r.census, r.counted = plan.Count(v), now
		if old == nil || !sameStores(old.Stores, r.census.Stores) {
			r.index, r.indexAt = v.Decided(), now
		}
	}
	r.memory.Look(now, r.census)
}

func sameStores(a, b []*state.Store) bool {
	return slices.EqualFunc(a, b, func(s, t *state.Store) bool {
		return s.ID == t.ID && s.Incarnation == t.Incarnation && s.Status == t.Status && s.Clean == t.Clean
	})
}

// know gathers what the planner must know.
func (r *reign) know() *plan.Knowledge {
	k := &plan.Knowledge{
		Self: r.office.self, Since: r.since, Proof: r.proof, Unwell: r.office.unwell(), Head: r.office.view().Index(),
		Index: r.index, IndexAt: r.indexAt, Peers: map[state.StoreID]plan.Peer{}, Servers: r.servers(),
		Memory: r.memory, Settings: r.set,
	}
	for _, s := range r.census.Stores {
		g, until := r.office.lease(s.ID)
		p := plan.Peer{Run: g.Owner.Incarnation, Lease: until, Applied: g.Applied}
		if q := r.inquiries[s.ID]; q != nil {
			p.Failing, p.Failures, p.FailedAt, p.Why = q.failing, q.failures, q.failedAt, q.why
			p.Applied = max(p.Applied, q.applied)
		}
		if s.ID == k.Self {
			p.Applied = k.Head
		}
		k.Peers[s.ID] = p
	}
	for _, m := range r.office.members() {
		if p, ok := k.Peers[m.Store]; ok {
			p.Bytes = m.Load.BytesIn + m.Load.BytesOut
			if m.State != Alive {
				p.Gossip = m.State.String()
			}
			k.Peers[m.Store] = p
		}
	}
	return k
}

func (r *reign) servers() []plan.Server {
	var out []plan.Server
	for _, s := range r.office.servers() {
		out = append(out, plan.Server(s))
	}
	return out
}

// forgive lets brokers have leases again whose loss is no longer intended, once it is known how the proposal ended.
func (r *reign) forgive(actions []plan.Action) {
	for o, at := range r.condemned {
		s := r.census.View.Store(o.Store)
		again := slices.ContainsFunc(actions, func(a plan.Action) bool { return a.Kind == plan.Lose && a.Store == o.Store })
		over := s == nil || s.Incarnation != o.Incarnation || s.Status == state.StoreLost || s.Status == state.StoreRemoved
		if over || !again && r.proof.From.After(at) {
			r.office.pardon(o)
			delete(r.condemned, o)
		}
	}
}

// carryOut proposes a command or changes Raft's configuration, and logs the decision with its reason.
func (r *reign) carryOut(ctx context.Context, a plan.Action) {
	now := r.office.now()
	key := string(a.Kind) + string(a.Store[:])
	if now.Before(r.held[key]) || a.Command == nil && r.changing {
		return
	}
	if a.Kind != plan.Tick {
		r.log.Info("cluster decision", "do", string(a.Kind), "broker", r.name(a.Store), "partitions", a.Count, "reason", a.Reason)
	}
	if a.Command == nil {
		r.reconfigure(ctx, key, a)
		return
	}
	err := r.propose(ctx, a)
	if errors.Is(err, errRenewed) {
		r.log.Info("a broker is not lost after all", "broker", r.name(a.Store), "reason", err)
		return
	}
	r.metrics.decided(a, err)
	if err != nil {
		r.held[key] = now.Add(holdTime)
		r.counted = time.Time{}
		r.log.Warn("cluster decision not carried out", "do", string(a.Kind), "broker", r.name(a.Store), "error", err)
		return
	}
	r.memory.Remember(now, a)
}

func (r *reign) name(id state.StoreID) string {
	if s := r.office.view().Store(id); s != nil {
		return s.Broker
	}
	return ""
}

var errRenewed = errors.New("its lease was renewed meanwhile")

func (r *reign) propose(ctx context.Context, a plan.Action) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTime)
	defer cancel()
	lose, ok := a.Command.(*state.LoseStore)
	if ok {
		if !r.office.condemn(lose.Owner, r.term) {
			return errRenewed
		}
		r.condemned[lose.Owner] = r.office.now()
	}
	result, err := r.office.propose(ctx, a.Command)
	if err != nil {
		if ok && !errors.Is(err, meta.ErrUnknown) {
			r.office.pardon(lose.Owner)
			delete(r.condemned, lose.Owner)
		}
		return err
	}
	return errors.Join(result.Entries...)
}

// reconfigure changes Raft's configuration beside the turns: it may take long, and one is under way at a time.
func (r *reign) reconfigure(ctx context.Context, key string, a plan.Action) {
	r.changing = true
	r.helpers.Go(func() { // returns when the change has ended, or the term
		ctx, cancel := context.WithTimeout(ctx, changeTime)
		defer cancel()
		err := r.office.change(ctx, a)
		r.tell(ctx, func() {
			r.changing = false
			r.metrics.decided(a, err)
			if err != nil {
				r.held[key] = r.office.now().Add(holdTime)
				r.log.Warn("cluster decision not carried out", "do", string(a.Kind), "broker", r.name(a.Store), "error", err)
			}
		})
	})
}

// tell has the reign's goroutine note something.
func (r *reign) tell(ctx context.Context, note func()) {
	select {
	case r.results <- note:
	case <-ctx.Done():
	}
}

// waited is a time as logs give it.
func waited(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
