package cluster

import (
	"fmt"
	"time"

	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// The leader's duties as a pure function: plan compares what the metadata says with what the leader knows and answers
// what to propose. It remembers no event, so that any leader can finish what another began, and everything it proposes
// is a compare-and-set, so that proposing it twice does it once.

const (
	// proofAge is how old the proof of the leader's health may be when it declares a broker lost (R7).
	proofAge = 500 * time.Millisecond
	// proofTime is how long that proof may have taken: the leader's own log writes return within it (R7).
	proofTime = time.Second
	// probeRow is how long probes must have failed without one success between them. Under packet loss single probes
	// fail on a healthy broker.
	probeRow = time.Second
	// probeAge is how old the last failed probe may be.
	probeAge = time.Second
	// moveTime is how long a move may make no progress before it is taken back (R16).
	moveTime = 30 * time.Second
	// retryTime is how long a partition whose move was taken back stays before a drain moves it again.
	retryTime = 10 * time.Second
	// spreadTime is how long grants wait for brokers that have not applied the current index yet, so that the first to
	// answer does not get everything.
	spreadTime = 500 * time.Millisecond
	// grantBatch is how many partitions one command grants: the first targets open while the rest is granted.
	grantBatch = 1000
	// replaceTime is how long a voter is LOST before another gets its vote: most come back.
	replaceTime = 10 * time.Second
	// voterLag is how many entries a non-voter may be behind and still get a vote.
	voterLag = 256
	// noticeableLag is how many entries a broker may be behind before the status says so.
	noticeableLag = 1024
)

// knowledge is what the leader knows beside the metadata. All times are of its own clock.
type knowledge struct {
	self state.StoreID
	// since is when this leader began to count: at its election, and anew whenever it finds that it stood still. Leases,
	// probes and proofs from before say nothing.
	since time.Time
	// proof is the last command or barrier of this leader that a majority of the voters and its own disk answered.
	proof span
	// unwell says why the leader is not well, empty if it knows of nothing.
	unwell string
	// head is the metadata index this leader has applied.
	head uint64
	// index is what a broker must have applied to be given a partition; indexAt is when that became known.
	index   uint64
	indexAt time.Time

	peers   map[state.StoreID]peerFacts
	servers []meta.Server // Raft's configuration
	memory  *memory
	settings
}

// settings are what the operator chose.
type settings struct {
	voters        int           // 3 or 5
	lease         time.Duration // how long a broker may serve without word from the leader (R8)
	drainParallel int           // moves at once off one draining broker
}

type span struct{ from, to time.Time }

// peerFacts are what the leader knows of one store.
type peerFacts struct {
	run      uint64    // the incarnation its lease was granted to, zero if none was
	lease    time.Time // until when
	failing  time.Time // when the first of the present row of failed probes began; zero: the last one succeeded
	failures int       // how many are in that row
	failedAt time.Time // when the last of them ended
	why      string    // what the last of them said
	gossip   string    // what gossip says, if it is not alive: words only, it decides nothing (R7)
	applied  uint64    // the metadata index it has applied, as it said last
	bytes    float64   // a second, in and out
}

type actionKind string

const (
	doLose     actionKind = "lose_store"
	doGrant    actionKind = "grant"
	doMove     actionKind = "move"
	doAbort    actionKind = "abort"
	doDrained  actionKind = "drained"
	doTick     actionKind = "tick"
	doAdd      actionKind = "add_server"
	doPromote  actionKind = "promote"
	doDemote   actionKind = "demote"
	doDrop     actionKind = "remove_server"
	doTransfer actionKind = "transfer_leadership"
)

// action is one thing to do: a command to propose, or a change of Raft's configuration.
type action struct {
	kind    actionKind
	store   state.StoreID // whom it is about; zero of a batch
	reason  string        // in words
	count   int           // partitions of a batch
	command state.Command // nil: a change of the configuration
	server  meta.Server   // of the configuration's change
}

// note is something an operator wants to know, in words.
type remark struct {
	store state.StoreID
	text  string
}

// planning is one run of the planner.
type planning struct {
	now     time.Time
	c       *census
	f       *knowledge
	actions []action
	notes   []remark
}

// plan answers what the leader does now, in this order, and what an operator should know. At most one of the actions
// changes Raft's configuration.
func plan(now time.Time, c *census, f *knowledge) ([]action, []remark) {
	p := &planning{now: now, c: c, f: f}
	p.losses()
	p.aborts()
	p.grants()
	p.drains()
	if len(p.actions) > 0 {
		// Owner and target learn the commit index from the next entry; without one they would wait for a heartbeat (R7).
		p.actions = append(p.actions, action{kind: doTick, command: &state.Tick{}})
	}
	p.membership()
	p.stragglers()
	return p.actions, p.notes
}

func (p *planning) do(a action) { p.actions = append(p.actions, a) }

func (p *planning) note(store state.StoreID, format string, args ...any) {
	p.notes = append(p.notes, remark{store, fmt.Sprintf(format, args...)})
}

// name is how people call a store: by its broker's name.
func (p *planning) name(id state.StoreID) string {
	if s := p.c.view.Store(id); s != nil {
		return s.Broker
	}
	return id.String()
}

// leased says whether the present run of a store holds a lease that this leader granted.
func (p *planning) leased(s *state.Store) bool {
	peer := p.f.peers[s.ID]
	return peer.run == s.Incarnation && p.now.Before(peer.lease)
}

// stragglers says who is behind in the metadata, who does not take up what it owns, and whose disk is missed.
func (p *planning) stragglers() {
	for _, s := range p.c.stores {
		if n := p.c.orphaned[s.ID]; n > 0 {
			p.note(s.ID, "%d partitions may have messages that are only on %s's disk: they are pending until it is back", n, s.Broker)
		}
		if !p.leased(s) {
			continue
		}
		if lag := p.f.head - min(p.f.head, p.f.peers[s.ID].applied); lag > noticeableLag && s.ID != p.f.self {
			p.note(s.ID, "%s is %d metadata entries behind", s.Broker, lag)
		}
		if n := p.c.idle[s.ID]; n > 0 && p.now.Sub(p.f.memory.runSince(s)) > moveTime {
			p.note(s.ID, "%s does not serve %d partitions that it owns", s.Broker, n)
		}
	}
}

// waited is a time as notes give it.
func waited(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }
