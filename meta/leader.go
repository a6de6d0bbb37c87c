package meta

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// Server is a member of the Raft group.
type Server struct {
	Store   state.StoreID // its Raft server id (R9)
	Address string        // what the others dial, host:port
	Voter   bool          // false: it replicates the metadata and is asked nothing
}

// leadership is what this node last told its callers of who leads.
type leadership struct {
	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	told    leaderFacts
}

type leaderFacts struct {
	leader Server
	known  bool
	term   uint64
	leads  bool
}

// Leader returns who leads as far as this node knows. A leader whose own disk hangs knows of none.
func (n *Node) Leader() (Server, bool) {
	address, id := n.raft.LeaderWithID()
	store, err := state.ParseStoreID(string(id))
	if err != nil {
		return Server{}, false
	}
	if store == n.cfg.Store {
		if _, leads := n.Leading(); !leads {
			return Server{}, false
		}
	}
	return Server{Store: store, Address: string(address), Voter: true}, true
}

// Term returns the newest term this node knows.
func (n *Node) Term() uint64 { return n.raft.CurrentTerm() }

// Leading says whether this node leads, and in which term. What it shows may be older than what it has to decide: read
// behind a Barrier (R6). A node whose disk hangs does not lead, nor does one that applies nothing more.
func (n *Node) Leading() (term uint64, ok bool) {
	term = n.raft.CurrentTerm()
	ok = n.raft.State() == raft.Leader && n.raft.CurrentTerm() == term && !n.store.hung() && n.machine.err() == nil
	if !ok {
		return 0, false
	}
	return term, true
}

// Leadership returns a channel that is closed when what Leader or Leading answer has changed. Take the channel first,
// then ask.
func (n *Node) Leadership() <-chan struct{} {
	n.leader.mu.Lock()
	defer n.leader.mu.Unlock()
	if n.leader.changed == nil {
		n.leader.changed = make(chan struct{})
	}
	return n.leader.changed
}

func (n *Node) leaderFacts() leaderFacts {
	var f leaderFacts
	f.leader, f.known = n.Leader()
	f.term, f.leads = n.Leading()
	return f
}

// tellLeadership wakes those who wait if something has changed since it last did.
func (n *Node) tellLeadership() {
	now := n.leaderFacts()
	n.leader.mu.Lock()
	defer n.leader.mu.Unlock()
	if now == n.leader.told {
		return
	}
	n.leader.told = now
	if n.leader.changed != nil {
		close(n.leader.changed)
		n.leader.changed = nil
	}
}

// hungPoll is how often a node looks whether a write hangs, which nothing reports.
const hungPoll = 100 * time.Millisecond

// watchLeadership follows who leads until the node stops.
func (n *Node) watchLeadership() {
	// Raft must never wait for an observer. One that is dropped because the channel is full comes after another that
	// has not been looked at yet.
	events := make(chan raft.Observation, 8)
	observer := raft.NewObserver(events, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation:
			return true
		}
		return false
	})
	n.raft.RegisterObserver(observer)
	n.tellLeadership()
	n.workers.Go(func() { // returns when the node stops
		defer n.raft.DeregisterObserver(observer)
		var poll <-chan time.Time
		if n.peers != nil {
			tick := time.NewTicker(hungPoll)
			defer tick.Stop()
			poll = tick.C
		}
		for {
			select {
			case <-events:
			case <-poll:
			case <-n.stop:
				return
			}
			n.tellLeadership()
		}
	})
}

// Health says how well this node can do its part.
type Health struct {
	OldestWrite time.Duration // age of the oldest unfinished write of the log, a term or a vote
	OldestApply time.Duration // how long the present batch of commands has been applied
	// LastContact is how long ago, on a follower, the leader was heard; on the leader, a majority of the voters, itself
	// among them, had answered. Without such an answer in this process: since it started.
	LastContact time.Duration
}

// Healthy returns the health of this node. It takes no lock of Raft's.
func (n *Node) Healthy() Health {
	h := Health{OldestWrite: n.store.writes.oldest(), OldestApply: n.machine.applying()}
	if n.raft.State() == raft.Leader {
		h.LastContact = n.quorumContact(n.Servers())
		return h
	}
	last := n.raft.LastContact()
	if last.IsZero() {
		last = n.started
	}
	h.LastContact = time.Since(last)
	return h
}

// quorumContact returns how long ago a majority of the voters among servers had answered this node.
func (n *Node) quorumContact(servers []Server) time.Duration {
	var ages []time.Duration
	for _, s := range servers {
		if s.Voter {
			ages = append(ages, n.silence(s.Store))
		}
	}
	if len(ages) == 0 {
		return time.Since(n.started)
	}
	slices.Sort(ages)
	return ages[len(ages)/2]
}

// silence returns how long ago a server last answered this node.
func (n *Node) silence(store state.StoreID) time.Duration {
	if store == n.cfg.Store {
		return 0
	}
	last := n.started
	if n.peers != nil {
		if heard := n.peers.heard(serverID(store)); heard.After(last) {
			last = heard
		}
	}
	return time.Since(last)
}
