package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// Node is this broker's replica of the metadata.
type Node struct {
	cfg       Config
	raft      *raft.Raft
	machine   *machine
	store     *store
	metrics   *metrics
	transport raft.Transport
	peers     *transport // the same, nil if this node reaches nobody
	leader    leadership
	started   time.Time

	membership chan struct{} // room for one: held while a change of the members is under way

	mu       sync.Mutex // guards closing, and inflight.Add against inflight.Wait
	closing  bool
	inflight sync.WaitGroup // one for each call into Raft whose answer is outstanding
	stop     chan struct{}  // closed when nothing more will be answered
	workers  sync.WaitGroup
	calls    sync.WaitGroup // one for each request at another member; they end with stop
	closed   sync.Once
	closeErr error
}

// View returns the state as far as this broker has applied it, without waiting and without allocating.
func (n *Node) View() *state.View { return n.machine.view.Load() }

// Changed returns a channel that is closed when a newer view is there. Take the channel first, then the view, or a
// change between the two is missed.
func (n *Node) Changed() <-chan struct{} { return n.machine.changed() }

// WaitIndex waits until the view has applied a command at index i or above. Entries of Raft itself have indexes too, so
// only the index of a Result is sure to come.
func (n *Node) WaitIndex(ctx context.Context, i uint64) error {
	for {
		changed := n.Changed()
		if n.View().Index() >= i {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for metadata index %d: %w", i, ctx.Err())
		case <-n.stop:
			return ErrClosed
		}
	}
}

// Ready says whether a leader is known and a commit was seen by this process: the metadata can move.
func (n *Node) Ready() bool {
	if n.machine.err() != nil {
		return false
	}
	_, id := n.raft.LeaderWithID()
	return id != "" && n.raft.CommitIndex() > 0
}

// WaitReady waits until Ready.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !n.Ready() {
		if err := n.Err(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for a metadata leader: %w", ctx.Err())
		case <-n.stop:
			return ErrClosed
		}
	}
	return nil
}

// Err returns why this node applies nothing more (state.ErrNewerCommand, state.ErrDamaged), nil if it does.
func (n *Node) Err() error { return n.machine.err() }

// Status is a snapshot of where Raft stands on this node.
type Status struct {
	Leader        string // store id of the leader in hex, empty if none is known
	IsLeader      bool
	Term          uint64
	LastIndex     uint64 // of the log
	CommitIndex   uint64
	AppliedIndex  uint64 // of the last command applied
	SnapshotIndex uint64
	LowSpace      bool // the disk ran full and the reserve is in use (R20)
}

// Status returns where Raft stands. It takes no lock of Raft's and may be called often.
func (n *Node) Status() Status {
	_, leader := n.raft.LeaderWithID()
	return Status{
		Leader:        string(leader),
		IsLeader:      n.raft.State() == raft.Leader,
		Term:          n.raft.CurrentTerm(),
		LastIndex:     n.raft.LastIndex(),
		CommitIndex:   n.raft.CommitIndex(),
		AppliedIndex:  n.View().Index(),
		SnapshotIndex: n.store.snapshotIndex(),
		LowSpace:      n.store.lowSpace(),
	}
}

// snapshotOnSize takes a snapshot whenever the log has grown by snapshotBytes. Returns when the node stops.
func (n *Node) snapshotOnSize(large <-chan struct{}) {
	for {
		select {
		case <-large:
		case <-n.stop:
			return
		}
		if err := n.takeSnapshot(); err != nil && !errors.Is(err, raft.ErrRaftShutdown) {
			n.cfg.Logger.Warn("metadata snapshot not taken", "error", err)
		}
	}
}

// takeSnapshot takes a snapshot unless nothing has changed since the last, and clears away what a failed one left.
func (n *Node) takeSnapshot() error {
	if err := n.machine.err(); err != nil {
		return fmt.Errorf("take metadata snapshot: %w", err) // Raft would flatten it to text
	}
	err := n.raft.Snapshot().Error()
	if errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	}
	if err != nil {
		return errors.Join(fmt.Errorf("take metadata snapshot: %w", err), n.store.removeLeftovers())
	}
	return nil
}

// drainTimeout bounds how long Close waits for proposals in flight. With a majority they end in milliseconds, without
// one when the leader steps down.
const drainTimeout = 5 * time.Second

// Close stops the node and closes its files. Proposals in flight are given a moment to end; what is not answered by
// then is unknown to its proposer. It is idempotent.
func (n *Node) Close() error {
	n.closed.Do(func() { n.closeErr = n.close() })
	return n.closeErr
}

func (n *Node) close() error {
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()

	// Raft's shutdown leaves the futures of what is in flight unanswered for ever, and their goroutines with them.
	drained := make(chan struct{})
	go func() { n.inflight.Wait(); close(drained) }() // returns when every call into Raft has been answered
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	select {
	case <-drained:
	case <-timeout.C:
	}
	close(n.stop)
	down := n.raft.Shutdown()
	n.store.release()
	// Before waiting: messages on their way to servers that do not answer would hold Raft up.
	err := closeTransport(n.transport)
	err = errors.Join(err, down.Error())
	n.workers.Wait()
	n.calls.Wait()
	n.metrics.unregister(n.cfg.Registerer)
	return errors.Join(err, n.store.Close())
}
