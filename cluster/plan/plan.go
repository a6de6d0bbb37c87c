package plan

import (
	"fmt"
	"time"

	"github.com/danubemq/danube/meta/state"
)

const (
	// ProofAge is how old the proof of the leader's health may be when it declares a broker lost (R7).
	ProofAge = 500 * time.Millisecond
	// ProofTime is how long that proof may have taken: the leader's own log writes return within it (R7).
	ProofTime = time.Second
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
	// saidTime is how long a broker counts as one that has applied the current index though it has not said so: renewals
	// tell, every 750 ms. For planned moves that will do, because their target waits for what it has not applied.
	saidTime = 2 * time.Second
	// grantBatch is how many partitions one command grants: the first targets open while the rest is granted.
	grantBatch = 1000
	// replaceTime is how long a voter is LOST before another gets its vote: most come back.
	replaceTime = 10 * time.Second
	// voterLag is how many entries a non-voter may be behind and still get a vote.
	voterLag = 256
	// noticeableLag is how many entries a broker may be behind before the status says so.
	noticeableLag = 1024
)

// Knowledge is what the leader knows beside the metadata. All times are of its own clock.
type Knowledge struct {
	Self state.StoreID
	// Since is when this leader began to count: at its election, and anew whenever it finds that it stood still. Leases,
	// probes and proofs from before say nothing.
	Since time.Time
	// Proof is the last command or barrier of this leader that a majority of the voters and its own disk answered.
	Proof Span
	// Unwell says why the leader is not well, empty if it knows of nothing.
	Unwell string
	// Head is the metadata index this leader has applied.
	Head uint64
	// Index is what a broker must have applied to be given a partition; IndexAt is when that became known.
	Index   uint64
	IndexAt time.Time

	Peers   map[state.StoreID]Peer
	Servers []Server // Raft's configuration
	Memory  *Memory
	Settings
}

// Settings are what the operator chose.
type Settings struct {
	Voters        int           // 3 or 5
	Lease         time.Duration // how long a broker may serve without word from the leader (R8)
	DrainParallel int           // moves at once off one draining broker
}

// Span is when something began and when it ended.
type Span struct{ From, To time.Time }

// Server is one of Raft's configuration.
type Server struct {
	Store   state.StoreID
	Address string // host:port of its peer port
	Voter   bool
}

// Peer is what the leader knows of one store.
type Peer struct {
	Run      uint64    // the incarnation its lease was granted to, zero if none was
	Lease    time.Time // until when
	Failing  time.Time // when the first of the present row of failed probes began; zero: the last one succeeded
	Failures int       // how many are in that row
	FailedAt time.Time // when the last of them ended
	Why      string    // what the last of them said
	Gossip   string    // what gossip says, if it is not alive: words only, it decides nothing (R7)
	Applied  uint64    // the metadata index it has applied, as it said last
	Bytes    float64   // a second, in and out
}

// Kind says what an action does, as logs and metrics spell it.
type Kind string

// The kinds that whoever carries actions out tells apart: a loss is prepared for, a tick is not worth a word, the others
// change Raft's configuration.
const (
	Lose     Kind = "lose_store"
	Tick     Kind = "tick"
	Add      Kind = "add_server"
	Promote  Kind = "promote"
	Demote   Kind = "demote"
	Drop     Kind = "remove_server"
	Transfer Kind = "transfer_leadership"

	grant   Kind = "grant"
	move    Kind = "move"
	abort   Kind = "abort"
	drained Kind = "drained"
)

// Action is one thing to do: a command to propose, or a change of Raft's configuration.
type Action struct {
	Kind    Kind
	Store   state.StoreID // whom it is about; zero of a batch
	Reason  string        // in words
	Count   int           // partitions of a batch
	Command state.Command // nil: a change of the configuration
	Server  Server        // of the configuration's change
}

// Note is something an operator wants to know, in words.
type Note struct {
	Store state.StoreID
	Text  string
}

// planning is one run of the planner.
type planning struct {
	now     time.Time
	c       *Census
	f       *Knowledge
	actions []Action
	notes   []Note
}

// Next answers what the leader does now, in this order, and what an operator should know. At most one of the actions
// changes Raft's configuration.
func Next(now time.Time, c *Census, f *Knowledge) ([]Action, []Note) {
	p := &planning{now: now, c: c, f: f}
	p.losses()
	p.aborts()
	p.grants()
	p.drains()
	if len(p.actions) > 0 {
		// Owner and target learn the commit index from the next entry; without one they would wait for a heartbeat (R7).
		p.actions = append(p.actions, Action{Kind: Tick, Command: &state.Tick{}})
	}
	p.membership()
	p.stragglers()
	return p.actions, p.notes
}

func (p *planning) do(a Action) { p.actions = append(p.actions, a) }

func (p *planning) note(store state.StoreID, format string, args ...any) {
	p.notes = append(p.notes, Note{store, fmt.Sprintf(format, args...)})
}

// name is how people call a store: by its broker's name.
func (p *planning) name(id state.StoreID) string {
	if s := p.c.View.Store(id); s != nil {
		return p.called(s)
	}
	return id.String()
}

// called is the name of a store's broker, with the beginning of the store's id where another has the same name.
func (p *planning) called(s *state.Store) string {
	for _, other := range p.c.Stores {
		if other.ID != s.ID && other.Broker == s.Broker {
			return s.Broker + " (" + s.ID.String()[:8] + ")"
		}
	}
	return s.Broker
}

// leased says whether the present run of a store holds a lease that this leader granted.
func (p *planning) leased(s *state.Store) bool {
	peer := p.f.Peers[s.ID]
	return peer.Run == s.Incarnation && p.now.Before(peer.Lease)
}

// stragglers says who is behind in the metadata, who does not take up what it owns, and whose disk is missed.
func (p *planning) stragglers() {
	for _, s := range p.c.Stores {
		if n := p.c.orphaned[s.ID]; n > 0 {
			p.note(s.ID, "%s may have messages that are only on %s's disk: they are pending until it is back", counted(n, "partition"), p.called(s))
		}
		if !p.leased(s) {
			continue
		}
		if lag := p.f.Head - min(p.f.Head, p.f.Peers[s.ID].Applied); lag > noticeableLag && s.ID != p.f.Self {
			p.note(s.ID, "%s is %d metadata entries behind", p.called(s), lag)
		}
		if n := p.c.idle[s.ID]; n > 0 && p.now.Sub(p.f.Memory.runSince(s)) > moveTime {
			p.note(s.ID, "%s does not serve %s that it owns", p.called(s), counted(n, "partition"))
		}
	}
}

// waited is a time as notes give it.
func waited(d time.Duration) time.Duration { return d.Round(100 * time.Millisecond) }

// counted is "1 range", "2 ranges".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
