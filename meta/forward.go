package meta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// Serve answers a request that another member's Forward carried here. An error in place of the answer means that the
// request cannot be read; every other outcome lies in the answer.
func (n *Node) Serve(ctx context.Context, op byte, body []byte) ([]byte, error) {
	switch op {
	case opPropose:
		if err := state.Verify(body); err != nil {
			return nil, fmt.Errorf("serve a metadata proposal: %w", err)
		}
		r, err := n.proposeHere(ctx, body)
		return encodeReply(r, r.Index, err)
	case opBarrier:
		err := n.BarrierHere(ctx)
		return encodeReply(state.Result{}, n.View().Index(), err)
	case opReach:
		if len(body) != 8 {
			return nil, fmt.Errorf("serve a metadata request: index of %d bytes", len(body))
		}
		err := n.WaitIndex(ctx, binary.BigEndian.Uint64(body))
		return encodeReply(state.Result{}, 0, err)
	}
	return nil, fmt.Errorf("serve a metadata request: unknown operation %d", op)
}

// askRetry is how long to wait before a leader is asked again that had no answer, unless another leads before.
const askRetry = 20 * time.Millisecond

// ask has the leader carry out a request, whoever that is, and returns once this node's own view shows it. Until ctx
// ends it tries again: after ErrNotLeader nothing was proposed, and after ErrUnknown the same command again is right
// (R5). again says that an earlier attempt may have been applied as well.
func (n *Node) ask(ctx context.Context, op byte, body []byte) (r state.Result, again bool, err error) {
	if n.cfg.Forward == nil {
		r, err = n.here(ctx, op, body)
		return r, false, err
	}
	for {
		if err := n.admits(ctx); err != nil {
			return state.Result{}, again, orUnknown(err, again)
		}
		changed := n.Leadership()
		r, err = n.attempt(ctx, op, body)
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
			return r, again, err
		}
		again = again || errors.Is(err, ErrUnknown)
		retry := time.NewTimer(askRetry)
		select {
		case <-changed:
		case <-retry.C:
		case <-ctx.Done():
		case <-n.stop:
		}
		retry.Stop()
		if ctx.Err() != nil {
			return state.Result{}, again, orUnknown(fmt.Errorf("%w: %w", err, ctx.Err()), again)
		}
	}
}

// orUnknown makes err an ErrUnknown if an earlier attempt may have been applied.
func orUnknown(err error, again bool) error {
	if again && !errors.Is(err, ErrUnknown) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err
}

// admits says whether a request can begin.
func (n *Node) admits(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closing {
		return ErrClosed
	}
	return nil
}

// attempt asks the present leader once.
func (n *Node) attempt(ctx context.Context, op byte, body []byte) (state.Result, error) {
	leader, ok := n.Leader()
	if !ok {
		return state.Result{}, fmt.Errorf("%w: none is known", ErrNotLeader)
	}
	if leader.Store == n.cfg.Store {
		return n.here(ctx, op, body)
	}
	a, err := n.forward(ctx, leader, op, body)
	if err != nil {
		return state.Result{}, err
	}
	// Read your writes: what was proposed here is to be seen here.
	if err := n.WaitIndex(ctx, a.Index); err != nil {
		return state.Result{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return a.Result, a.Result.Err
}

// here carries out a request on this node, as leader.
func (n *Node) here(ctx context.Context, op byte, body []byte) (state.Result, error) {
	if op == opBarrier {
		return state.Result{}, n.BarrierHere(ctx)
	}
	return n.proposeHere(ctx, body)
}

// forward sends a request to leader and gives it up when another leads: a leader that hangs never answers.
func (n *Node) forward(ctx context.Context, leader Server, op byte, body []byte) (answer, error) {
	n.mu.Lock()
	if n.closing {
		n.mu.Unlock()
		return answer{}, ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	n.calls.Go(func() { // returns when the answer is there, another leads or the node stops
		defer cancel()
		for {
			changed := n.Leadership()
			if now, ok := n.Leader(); ok && now.Store != leader.Store {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			case <-n.stop:
				return
			}
		}
	})
	n.mu.Unlock()
	reply, err := n.cfg.Forward(ctx, leader, op, body)
	if errors.Is(err, ErrNotLeader) {
		return answer{}, err
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return decodeReply(reply)
}
