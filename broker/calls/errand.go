package calls

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Errand is something that a broker does for the one that was asked.
type Errand[Q, A any] struct {
	Op    string                                // the request that asks another broker for it
	Limit time.Duration                         // how long it may take [Limit]
	Here  func(context.Context, *Q) (*A, error) // carries it out at this broker
}

// On has a broker do it; this one does it by a call.
func (e Errand[Q, A]) On(ctx context.Context, p *Peers, store state.StoreID, q *Q) (*A, error) {
	if e.Limit == 0 {
		e.Limit = Limit
	}
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	if store == p.Self {
		return e.Here(ctx, q)
	}
	return Ask[A](ctx, p, store, e.Op, q)
}

// OnEach has several brokers do it side by side. Where one fails its answer is nil.
func (e Errand[Q, A]) OnEach(ctx context.Context, p *Peers, stores []state.StoreID, q *Q) ([]*A, error) {
	answers, errs := make([]*A, len(stores)), make([]error, len(stores))
	var asked sync.WaitGroup
	for i, store := range stores {
		asked.Go(func() { answers[i], errs[i] = e.On(ctx, p, store, q) }) // returns with the answer
	}
	asked.Wait()
	return answers, errors.Join(errs...)
}

// OnLeader has the leader do it. Where leadership has moved, it is looked up
// again a few times.
func (e Errand[Q, A]) OnLeader(ctx context.Context, p *Peers, q *Q) (*A, error) {
	var last error
	for range leaderTries {
		leader, ok := p.Meta.Leader()
		if !ok {
			last = protocol.Errorf(protocol.CodeNoLeader, "no leader is known")
		} else {
			a, err := e.On(ctx, p, leader.Store, q)
			if err == nil || !errors.Is(err, meta.ErrNotLeader) && !errors.Is(err, protocol.Errorf(protocol.CodeNoLeader, "")) {
				return a, err
			}
			last = err
		}
		if Pause(ctx, leaderPause); ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

const (
	leaderTries = 10
	leaderPause = 200 * time.Millisecond
)

// Pause sleeps for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
