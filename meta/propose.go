package meta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

var (
	// ErrNotLeader: another broker leads, or none does. Nothing was proposed.
	ErrNotLeader = errors.New("not the metadata leader")
	// ErrBusy: too many proposals wait. Nothing was proposed.
	ErrBusy = errors.New("too many metadata proposals in flight")
	// ErrUnknown: the command may or may not be applied, now or later (R5). Commands are compare-and-set: find out from
	// a later view, or propose the same command again.
	ErrUnknown = errors.New("outcome of a metadata proposal is unknown")
	// ErrClosed: the node is closed. Nothing was proposed.
	ErrClosed = errors.New("metadata node is closed")
)

// enqueueTimeout bounds how long a proposal waits for room in Raft's queue.
const enqueueTimeout = 5 * time.Second

// Propose replicates a command and returns its result once this node has applied it; View shows it then. Concurrent
// proposals share disk syncs. A batched command that is too large for one entry is proposed in parts, one after the
// other. A follower forwards (Config.Forward); until ctx ends it tries again while no leader is known, the leader moves,
// or an attempt ended unknown.
//
// The error is nil, the refusal that is also in Result.Err, or one of ErrNotLeader, ErrBusy, ErrClosed (nothing was
// proposed) and ErrUnknown. A done ctx ends the waiting, and the outcome is unknown. Refused entries of a batched
// command are in Result.Entries only. A refusal that is ErrUnknown as well, and refused entries with ErrUnknown, may come
// of proposing twice what was applied the first time: the view tells.
func (n *Node) Propose(ctx context.Context, c state.Command) (state.Result, error) {
	return inParts(c, func(b []byte) (state.Result, error) { return n.propose(ctx, b) })
}

// ProposeHere is Propose in one attempt by this node as leader: never forwarded and never tried again, so that what one
// leader decided is not committed by the next.
func (n *Node) ProposeHere(ctx context.Context, c state.Command) (state.Result, error) {
	return inParts(c, func(b []byte) (state.Result, error) { return n.proposeHere(ctx, b) })
}

// inParts proposes a command, if it is too large for one entry in parts one after the other.
func inParts(c state.Command, propose func([]byte) (state.Result, error)) (state.Result, error) {
	b, err := state.Encode(c)
	switch {
	case errors.Is(err, state.ErrTooLarge):
		return proposeParts(c, propose)
	case err != nil:
		return state.Result{}, err
	}
	return propose(b)
}

// proposeParts proposes a large batched command in parts and joins their answers.
func proposeParts(c state.Command, propose func([]byte) (state.Result, error)) (state.Result, error) {
	parts := state.Split(c)
	var whole state.Result
	for _, p := range parts {
		b, err := state.Encode(p.Command)
		if err != nil {
			return whole, err
		}
		r, err := propose(b)
		if err != nil {
			whole.Err = r.Err
			return whole, err
		}
		whole.Index = r.Index
		for i, e := range r.Entries {
			if e == nil {
				continue
			}
			for len(whole.Entries) <= p.First+i {
				whole.Entries = append(whole.Entries, nil)
			}
			whole.Entries[p.First+i] = e
		}
	}
	return whole, nil
}

func (n *Node) propose(ctx context.Context, b []byte) (state.Result, error) {
	start := n.cfg.Now()
	r, again, err := n.ask(ctx, opPropose, b)
	if refusal := r.Err; refusal != nil && err == refusal {
		err = nil
	}
	n.metrics.proposals.WithLabelValues(outcome(err)).Inc()
	if err != nil {
		return r, err
	}
	n.metrics.proposeTime.Observe(n.cfg.Now().Sub(start).Seconds())
	if again && (r.Err != nil || r.Entries != nil) {
		return r, errors.Join(fmt.Errorf("%w: refused, but an earlier attempt may have been applied", ErrUnknown), r.Err)
	}
	return r, r.Err
}

// proposeHere proposes as leader. With an error of Raft's the result is empty.
func (n *Node) proposeHere(ctx context.Context, b []byte) (state.Result, error) {
	if n.store.hung() {
		return state.Result{}, fmt.Errorf("%w: %w", ErrNotLeader, errHungDisk)
	}
	var r state.Result
	err := n.call(ctx, func() error {
		f := n.raft.Apply(b, enqueueTimeout)
		if err := f.Error(); err != nil {
			return translate(err)
		}
		r = f.Response().(state.Result)
		return nil
	})
	if err != nil {
		// r may still be written by the call that goes on.
		return state.Result{}, err
	}
	return r, r.Err
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "applied"
	case errors.Is(err, ErrUnknown):
		return "unknown"
	}
	return "not_proposed"
}

// Barrier waits until this node has applied everything that was committed before the call; what must be read first is
// read after it (R6). The leader proves itself by a log write. The errors are those of Propose.
func (n *Node) Barrier(ctx context.Context) error {
	_, _, err := n.ask(ctx, opBarrier, nil)
	return err
}

// BarrierHere is Barrier in one attempt by this node as leader: it proves this one and no other.
func (n *Node) BarrierHere(ctx context.Context) error {
	if n.store.hung() {
		return fmt.Errorf("%w: %w", ErrNotLeader, errHungDisk)
	}
	return n.call(ctx, func() error { return translate(n.raft.Barrier(enqueueTimeout).Error()) })
}

// Snapshot writes a snapshot and cuts the log behind it. It does not hold up proposals. A node that has stopped takes
// none and answers why it stopped (Err).
func (n *Node) Snapshot(ctx context.Context) error {
	return n.call(ctx, n.takeSnapshot)
}

// call runs f, which waits on a future of Raft, and returns when it has returned, ctx is done or the node stops. Raft
// may never answer; so f has a goroutine of its own, which returns when Raft answers.
func (n *Node) call(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.mu.Lock()
	if n.closing {
		n.mu.Unlock()
		return ErrClosed
	}
	n.inflight.Add(1)
	n.mu.Unlock()

	done := make(chan error, 1)
	go func() {
		defer n.inflight.Done()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnknown, ctx.Err())
	case <-n.stop:
		return fmt.Errorf("%w: %w", ErrUnknown, ErrClosed)
	}
}

// translate says of an error of Raft whether something may have been applied.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return ErrBusy
	}
	// Lost leadership, a shutdown, a failed write of the log: the entry may be on disk here or elsewhere.
	return fmt.Errorf("%w: %w", ErrUnknown, err)
}
