package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// A planned move (R16), at the broker that gets a partition: its log is opened
// while the owner before goes on, and its producer table imported before the
// command that makes it this broker's, so that serving begins the moment that is
// applied.

// prepared is a partition that is about to become this broker's.
type prepared struct {
	recovered
	epoch uint64 // the one that will be sealed
	move  uint64
	end   uint64
	whole bool // end is the exact one, and the producer table is there
	until time.Time
}

const (
	// prepareWait is how long a request to get ready waits for the view to show the move.
	prepareWait = time.Second
	// servedPoll is how often one looks whether a partition is closed at last.
	servedPoll = 2 * time.Millisecond
	// preparedTime is how long what was prepared is kept.
	preparedTime = time.Minute
)

// prepareArg asks a broker to get ready for a partition. While it is not paused
// the end is that of what was acknowledged so far, and there is no producer table.
type prepareArg struct {
	calls.Partition
	Move     uint64 `msgpack:"m"`
	End      uint64 `msgpack:"x"`
	Sessions []byte `msgpack:"s"` // the producer table at End
}

type prepareAnswer struct{}

// serveReady opens the log of a partition that goes on meanwhile.
func (b *Broker) serveReady(ctx context.Context, q *prepareArg) (*prepareAnswer, error) {
	return b.prepare(ctx, q, false)
}

// servePrepare gets ready to own a partition that is paused.
func (b *Broker) servePrepare(ctx context.Context, q *prepareArg) (*prepareAnswer, error) {
	return b.prepare(ctx, q, true)
}

// prepare gets ready for a move; whole: so far that it may end.
func (b *Broker) prepare(ctx context.Context, q *prepareArg, whole bool) (*prepareAnswer, error) {
	key, err := keyOf(&q.Partition)
	if err != nil {
		return nil, err
	}
	t, m, err := b.awaitTarget(ctx, key, q)
	if err != nil {
		return nil, err
	}
	if !b.leased() {
		return nil, delivery.ErrNoLease
	}
	b.cfg.At("move.preparing")
	o, err := b.reserve(ctx, key)
	if err != nil {
		return nil, err
	}
	defer b.opened(key, o)
	x := b.takeReady(key, m, q)
	if x == nil {
		x = &prepared{recovered: recovered{meta: m}, epoch: m.Epoch, move: q.Move, end: q.End}
		if t.Settings.Reliable {
			err = b.prepareLog(ctx, t, x)
		}
	}
	if err == nil && whole && x.log != nil {
		err = b.importEnd(t, x, q)
		b.cfg.At("move.imported")
	}
	if err != nil {
		return nil, err
	}
	x.whole, x.until = whole, time.Now().Add(preparedTime)
	b.owning.lock.Lock()
	b.prepared[key] = x
	b.owning.lock.Unlock()
	return &prepareAnswer{}, nil
}

// takeReady takes what was got ready for the same move, if nothing but the end
// of the log is new since; nil if not. What does not fit is closed.
func (b *Broker) takeReady(key served.Key, m *state.Partition, q *prepareArg) *prepared {
	b.owning.lock.Lock()
	x := b.prepared[key]
	fits := x != nil && x.epoch == m.Epoch && x.move == q.Move && x.end <= q.End && !x.whole &&
		x.meta.LogStart == m.LogStart && (x.log == nil || &x.meta.Ranges[0] == &m.Ranges[0])
	if fits {
		delete(b.prepared, key)
	}
	b.owning.lock.Unlock()
	if !fits {
		b.dropPrepared(func(k served.Key, _ *prepared) bool { return k == key })
		return nil
	}
	return x
}

// awaitTarget returns a partition once the view shows the move that is meant.
func (b *Broker) awaitTarget(ctx context.Context, key served.Key, q *prepareArg) (*state.Topic, *state.Partition, error) {
	timeout := time.NewTimer(prepareWait)
	defer timeout.Stop()
	for {
		changed := b.meta.Changed()
		view := b.meta.View()
		t, m := view.TopicByID(key.Topic), view.Partition(key.Topic, key.N)
		if t != nil && m != nil && m.State == state.Sealing && m.Epoch == q.Epoch && m.Move == q.Move && m.Target == b.self() {
			return t, m, nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return nil, nil, protocol.Errorf(protocol.CodeNotReady, "move %d of partition %d of topic %s is not known here", q.Move, key.N, key.Topic)
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// reserve keeps others from opening a partition, until opened is called. Where it
// is still being closed, after a move away from here, it waits.
func (b *Broker) reserve(ctx context.Context, key served.Key) (*opening, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, prepareWait, protocol.Errorf(protocol.CodeNotReady, "the partition is being opened or closed here"))
	defer cancel()
	for {
		b.mu.Lock()
		stopping, served, busy := b.stopping, b.parts[key], b.opening[key]
		o := &opening{done: make(chan struct{})}
		if !stopping && served == nil && busy == nil {
			b.opening[key] = o
		}
		b.mu.Unlock()
		switch {
		case stopping:
			return nil, errShuttingDown
		case busy != nil:
			select {
			case <-busy.done:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		case served != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case served != nil: // under an epoch that is over: it is about to be closed
			calls.Pause(ctx, servedPoll)
		default:
			return o, nil
		}
	}
}

// prepareLog opens the log as it would be if the epoch were sealed now.
func (b *Broker) prepareLog(ctx context.Context, t *state.Topic, x *prepared) error {
	b.mayHaveFiles(served.Key{Topic: x.meta.Topic, N: x.meta.Number})
	log, what, err := b.history.Own(ctx, b.factsAt(t, x.meta, x.end))
	if err != nil {
		return fmt.Errorf("open the log of %s:%d: %w", t.Name, x.meta.Number, err)
	}
	x.log, x.what = log, what
	if what.End != x.end {
		err = fmt.Errorf("open the log of %s:%d: it ends at %d, the owner's at %d", t.Name, x.meta.Number, what.End, x.end)
		return errors.Join(err, log.Close())
	}
	if err := log.Anchor(); err != nil {
		return errors.Join(err, log.Close())
	}
	return nil
}

// importEnd takes over the exact end and the producer table. With an error the log is closed.
func (b *Broker) importEnd(t *state.Topic, x *prepared, q *prepareArg) error {
	err := x.log.Extend(b.factsAt(t, x.meta, q.End).Ranges, q.End)
	if err == nil {
		err = x.log.ImportSessions(q.Sessions)
	}
	if err != nil {
		return errors.Join(err, x.log.Close())
	}
	x.end, x.what.End = q.End, q.End
	return nil
}

// factsAt are what the metadata will say of a partition when its open range has
// ended at end.
func (b *Broker) factsAt(t *state.Topic, m *state.Partition, end uint64) storage.Facts {
	sealed := sealedAt(m, end)
	if last := sealed.OpenRange(); last != nil {
		last.Stores = []state.StoreID{b.self().Store} // it is empty, and so here as it is there
	}
	return history.Facts(t, sealed, b.self().Store)
}

// sealedAt is a partition as it will be when its open range has ended at end.
// Where that range holds nothing it stays: it says where the log ends.
func sealedAt(m *state.Partition, end uint64) *state.Partition {
	p := *m
	p.Ranges = slices.Clone(m.Ranges)
	last := &p.Ranges[len(p.Ranges)-1]
	if p.Floor = end; end > last.Start {
		last.Status, last.End = state.RangeSealed, end
	}
	return &p
}

// takeUp serves what was prepared and is this broker's now, and forgets what
// came to nothing.
func (b *Broker) takeUp(ctx context.Context, view *state.View) {
	now := time.Now()
	var mine []served.Key
	b.dropPrepared(func(key served.Key, x *prepared) bool {
		m := view.Partition(key.Topic, key.N)
		switch {
		case m == nil:
		case m.State == state.Open && m.Owner == b.self() && m.Epoch > x.epoch:
			mine = append(mine, key)
			return false
		case m.State == state.Sealing && m.Move == x.move:
			return now.After(x.until)
		}
		return true
	})
	for _, key := range mine {
		b.unlessStopping(func() {
			if _, err := b.partition(ctx, key); err != nil && ctx.Err() == nil {
				b.log.Error("partition that was handed over is not served yet", "topic", key.Topic, "partition", key.N, "err", err)
			}
		})
	}
}

// dropPrepared forgets those of the prepared partitions that over names.
func (b *Broker) dropPrepared(over func(served.Key, *prepared) bool) {
	var gone []*prepared
	b.owning.lock.Lock()
	for key, x := range b.prepared {
		if over(key, x) {
			delete(b.prepared, key)
			gone = append(gone, x)
		}
	}
	b.owning.lock.Unlock()
	for _, x := range gone {
		if x.log != nil {
			if err := x.log.Close(); err != nil {
				b.log.Error("log not closed", "topic", x.meta.Topic, "partition", x.meta.Number, "err", err)
			}
		}
	}
}

// takePrepared returns what was prepared for exactly the epoch that is to begin.
// Anything else that was prepared is closed.
func (b *Broker) takePrepared(m *state.Partition) (recovered, bool) {
	key := served.Key{Topic: m.Topic, N: m.Number}
	b.owning.lock.Lock()
	x := b.prepared[key]
	fits := x != nil && x.whole && m.State != state.Opening && m.Owner == b.self() && m.Epoch == x.epoch+1 && (x.log == nil || m.OpenStart() == x.end)
	if fits {
		delete(b.prepared, key)
	}
	b.owning.lock.Unlock()
	if !fits {
		b.dropPrepared(func(k served.Key, _ *prepared) bool { return k == key })
		return recovered{}, false
	}
	x.meta = m
	x.settle = true
	return x.recovered, true
}

// settledArg says that the last cursors of a partition's owner before are
// committed in what an index of the metadata shows.
type settledArg struct {
	calls.Partition
	Index uint64 `msgpack:"i"`
}

// serveSettled lets subscriptions begin.
func (b *Broker) serveSettled(ctx context.Context, q *settledArg) (*struct{}, error) {
	key, err := keyOf(&q.Partition)
	if err != nil {
		return nil, err
	}
	if err := b.meta.WaitIndex(ctx, q.Index); err != nil {
		return nil, err
	}
	p, err := b.owned(ctx, key, q.Epoch)
	if err == nil {
		p.Settle()
	}
	return &struct{}{}, err
}
