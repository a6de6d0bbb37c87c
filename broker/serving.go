package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// opening is a partition that is being opened; others who want it wait.
type opening struct {
	done chan struct{}
	err  error
}

// The time that a request waits for what is about to be true, so that a
// redirect costs one hop and no back-off.
const (
	redirectWait = 200 * time.Millisecond // for the view to know an epoch that a client names
	openWait     = time.Second            // for a partition that is this broker's to be opened
)

// aheadError says that the client may know more than this broker does yet.
type aheadError struct{ coded *protocol.Error }

func (e aheadError) Error() string { return e.coded.Error() }
func (e aheadError) Unwrap() error { return e.coded }

// serving returns the partition a request names, opened if it is this broker's to serve.
func (b *Broker) serving(ctx context.Context, topic string, n int, epoch uint64) (*served.Partition, error) {
	full, _, err := protocol.ParseTopic(topic)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(redirectWait)
	defer timeout.Stop()
	for {
		changed := b.meta.Changed()
		p, err := b.servingNow(ctx, full, n, epoch)
		if _, ahead := errors.AsType[aheadError](err); !ahead {
			return p, err
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// servingNow is serving by what this broker has applied.
func (b *Broker) servingNow(ctx context.Context, full string, n int, epoch uint64) (*served.Partition, error) {
	t := b.meta.View().Topic(full)
	switch {
	case t == nil && epoch != 0:
		return nil, aheadError{words.NoSuchTopic(full)}
	case t == nil:
		return nil, words.NoSuchTopic(full)
	case n < 0 || n >= int(t.Settings.Partitions):
		return nil, words.NoSuchPartition(t, n)
	}
	return b.owned(ctx, served.Key{Topic: t.ID, N: uint32(n)}, epoch)
}

// owned returns a partition that this broker owns, under an epoch if one is
// named. An aheadError says that the caller knows of a newer epoch.
func (b *Broker) owned(ctx context.Context, key served.Key, epoch uint64) (*served.Partition, error) {
	p := b.served(key)
	if p == nil {
		if m := b.meta.View().Partition(key.Topic, key.N); m != nil && epoch > m.Epoch {
			return nil, aheadError{&protocol.Error{Code: protocol.CodeUnknownEpoch, Epoch: m.Epoch, Text: fmt.Sprintf("epoch %d is not known here yet", epoch)}}
		}
		opening, cancel := context.WithTimeoutCause(ctx, openWait, protocol.Errorf(protocol.CodeNotReady, "the partition is being opened"))
		defer cancel()
		var err error
		if p, err = b.partition(opening, key); err != nil {
			return nil, err
		}
	}
	if epoch == 0 || epoch == p.Epoch {
		return p, nil
	}
	err := &protocol.Error{Code: protocol.CodeUnknownEpoch, Epoch: p.Epoch,
		Text: fmt.Sprintf("%s is served under epoch %d, the request names %d", p.Name(), p.Epoch, epoch)}
	if epoch > p.Epoch {
		return nil, aheadError{err}
	}
	return nil, err
}

// partition returns a partition this broker owns, opening it at first use. It
// goes on opening when ctx ends: others want it too.
func (b *Broker) partition(ctx context.Context, key served.Key) (*served.Partition, error) {
	for {
		b.mu.Lock()
		if p := b.parts[key]; p != nil || b.stopping {
			b.mu.Unlock()
			if p == nil {
				return nil, errShuttingDown
			}
			return p, nil
		}
		o := b.opening[key]
		if o == nil {
			o = &opening{done: make(chan struct{})}
			b.opening[key] = o
			b.wg.Go(func() {
				o.err = b.openOne(b.ctx, key)
				b.opened(key, o)
			})
		}
		b.mu.Unlock()
		select {
		case <-o.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if o.err != nil {
			return nil, o.err
		}
	}
}

// opened ends what opening says.
func (b *Broker) opened(key served.Key, o *opening) {
	b.mu.Lock()
	delete(b.opening, key)
	b.mu.Unlock()
	close(o.done)
}

// notMine is why this broker does not serve a partition: another does, or will.
func (b *Broker) notMine(view *state.View, t *state.Topic, m *state.Partition) *protocol.Error {
	name := fmt.Sprintf("%s:%d", t.Name, m.Number)
	s := view.Store(m.Owner.Store)
	if !words.Serves(s, m) || m.Owner.Store == b.self().Store {
		return &protocol.Error{Code: protocol.CodeNotReady, Epoch: m.Epoch, Text: fmt.Sprintf("%s: %v", name, words.ErrNotThere)}
	}
	return &protocol.Error{Code: protocol.CodeMoved, Epoch: m.Epoch, Broker: s.Broker, Address: s.Addresses.Client,
		Text: fmt.Sprintf("%s is served by broker %s at %s", name, s.Broker, s.Addresses.Client)}
}
