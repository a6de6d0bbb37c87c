package meta

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

var errHungDisk = errors.New("a write of the metadata hangs; silent, so that another broker can lead")

// transport is Raft's, over streams, with four things added. It says to whom a message goes by store id, not only by
// address. It is silent while a write of the log hangs: Raft's heartbeats come from goroutines that touch no disk, and
// would keep a leader whose disk hangs in office for ever (A53). It knows when each server last answered. And
// it tells followers at once what is committed (notice.go).
//
// It embeds the concrete transport because Raft looks for pre-vote and Close on what it is given.
type transport struct {
	*raft.NetworkTransport
	address raft.ServerAddress
	resolve func(state.StoreID) (string, bool)
	hung    func() bool
	streams *streams
	raft    atomic.Pointer[raft.Raft] // set once Raft runs

	mu        sync.Mutex // guards what follows
	peers     map[raft.ServerID]peer
	followers map[raft.ServerID]*follower
}

// peer is what heartbeats say of another server.
type peer struct {
	heard time.Time // of the last answer
	down  bool      // the last heartbeat had none
}

// newTransport takes the listener of cfg. hung says whether a write of the log has been under way for too long.
func newTransport(cfg Config, hung func() bool) *transport {
	s := newStreams(cfg)
	return &transport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: s, MaxPool: 3, Timeout: rpcTimeout, Logger: newLogger(cfg.Logger),
			// One message at a time to each server: entries are batched, and a message in a pipeline could not be held back.
			MaxRPCsInFlight: 1,
		}),
		address: raft.ServerAddress(cfg.Address), resolve: cfg.Resolve, hung: hung, streams: s,
		peers: make(map[raft.ServerID]peer), followers: make(map[raft.ServerID]*follower),
	}
}

// rpcTimeout bounds a message of Raft's and its answer; a snapshot has that long for each 256 KiB. It is also how long
// a stream that a network swallowed is waited for after the network has healed.
const rpcTimeout = 2 * time.Second

// LocalAddr implements raft.Transport: what is advertised, not where it listens.
func (t *transport) LocalAddr() raft.ServerAddress { return t.address }

// Close implements raft.WithClose.
func (t *transport) Close() error {
	t.CloseStreams()
	return t.NetworkTransport.Close()
}

// route returns where streams dials for a server.
func (t *transport) route(id raft.ServerID, target raft.ServerAddress) raft.ServerAddress {
	address := hostPort(target)
	store, err := state.ParseStoreID(string(id))
	if err == nil && t.resolve != nil {
		if newer, ok := t.resolve(store); ok {
			address = newer
		}
	}
	return serverAddress(store, address)
}

// AppendEntries implements raft.Transport.
func (t *transport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	heartbeat := len(args.Entries) == 0 && args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && args.LeaderCommitIndex == 0
	if !heartbeat {
		t.awaitPeer(id, args.Term)
	}
	if t.hung() {
		return errHungDisk
	}
	err := t.NetworkTransport.AppendEntries(id, t.route(id, target), args, resp)
	t.note(id, err, heartbeat)
	if err == nil && !heartbeat && resp.Success {
		t.acknowledged(id, target, args)
	}
	return err
}

// RequestPreVote implements raft.WithPreVote. A broker whose disk hangs does not ask to lead.
func (t *transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if t.hung() {
		return errHungDisk
	}
	return t.NetworkTransport.RequestPreVote(id, t.route(id, target), args, resp)
}

// RequestVote implements raft.Transport.
func (t *transport) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return t.NetworkTransport.RequestVote(id, t.route(id, target), args, resp)
}

// InstallSnapshot implements raft.Transport.
func (t *transport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := t.NetworkTransport.InstallSnapshot(id, t.route(id, target), args, resp, data)
	t.note(id, err, false)
	return err
}

// TimeoutNow implements raft.Transport.
func (t *transport) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return t.NetworkTransport.TimeoutNow(id, t.route(id, target), args, resp)
}

func (t *transport) note(id raft.ServerID, err error, heartbeat bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.peers[id]
	if err == nil {
		p.heard = time.Now()
	}
	if heartbeat {
		p.down = err != nil
	}
	t.peers[id] = p
}

// heard returns when a server last answered this one as leader; zero if never.
func (t *transport) heard(id raft.ServerID) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[id].heard
}

// peerPoll is how often a message for a server that is down looks whether it is back.
const peerPoll = 10 * time.Millisecond

// awaitPeer holds a message back while the server it is for answers no heartbeat, or a write hangs here, as long as this
// broker leads in that term and the server is a member. Raft would try again and again, at last every ten seconds, and a broker that
// returned after a while would hear nothing for that long.
func (t *transport) awaitPeer(id raft.ServerID, term uint64) {
	var tick *time.Ticker
	for {
		t.mu.Lock()
		down := t.peers[id].down
		t.mu.Unlock()
		r := t.raft.Load()
		if !down && !t.hung() || r == nil || r.State() != raft.Leader || r.CurrentTerm() != term || !isMember(r, id) {
			return
		}
		if tick == nil {
			tick = time.NewTicker(peerPoll)
			defer tick.Stop()
		}
		select {
		case <-tick.C:
		case <-t.streams.done:
			return
		}
	}
}

func isMember(r *raft.Raft, id raft.ServerID) bool {
	for _, s := range r.GetConfiguration().Configuration().Servers {
		if s.ID == id {
			return true
		}
	}
	return false
}
