package served

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/outbox"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// Key names a partition by its topic's id, which no other topic ever has.
type Key struct {
	Topic state.TopicID
	N     uint32
}

// ID is the partition as the store names it.
func (k Key) ID() storage.PartitionID {
	return storage.PartitionID{Topic: k.Topic, Partition: k.N}
}

// Partition is a partition this broker owns and serves under one epoch. What is
// exported of it never changes.
type Partition struct {
	Key   Key
	Topic string // full name
	Epoch uint64
	Log   *storage.Log       // nil for a non-reliable topic
	Live  *delivery.Live     // nil for a reliable topic
	Past  *history.Partition // nil for a non-reliable topic

	h        *Host
	source   delivery.Partition // as its subscriptions see it; zero for a non-reliable topic
	extendAt atomic.Uint64
	block    uint64 // offsets per extension of the ceiling; guarded by the ceiling keeper

	object atomic.Bool // acknowledgements wait for the catalog

	ranges atomic.Pointer[state.Range] // the first of those the log was told of last: lists are never changed in place
	passing

	mu        sync.Mutex      // guards what follows
	over      *protocol.Error // not served any more, because
	subs      map[string]*delivery.Subscription
	producers map[*Producer]struct{}
	exclusive *Producer
	raised    chan struct{} // closed when the ceiling was raised; nil while nobody waits
}

// Name is the partition as output and errors write it.
func (p *Partition) Name() string { return fmt.Sprintf("%s:%d", p.Topic, p.Key.N) }

// Level is what an acknowledgement of this partition survives.
func (p *Partition) Level() protocol.Level {
	switch {
	case p.Log == nil:
		return protocol.LevelNone
	case p.object.Load():
		return protocol.LevelObject
	case p.h.cfg.Interval:
		return protocol.LevelInterval
	}
	return protocol.LevelLocal
}

// Publish takes a produce frame's batch: owner, epoch and content are checked,
// the sequence is the log's to check. What it returns answers the frame, in
// the order of the frames.
func (p *Partition) Publish(h *protocol.Produce, prod *Producer, body []byte) outbox.Ack {
	a := outbox.Ack{Level: p.Level()}
	b, err := p.check(h, prod, body)
	if err != nil {
		a.Err = err
		return a
	}
	if !p.h.cfg.Leased() {
		a.Err = delivery.ErrNoLease
		return a
	}
	if p.Log == nil {
		a.Pending.Base, a.Pending.AppendTime, a.Err = p.Live.Publish(b)
		a.Done = true
		return a
	}
	pending, aerr := p.Log.Append(b)
	if errors.Is(aerr, storage.ErrPaused) {
		pending, aerr = p.appendAfterMove(b)
	}
	if errors.Is(aerr, storage.ErrCeiling) {
		pending, aerr = p.appendAbove(b)
	}
	if aerr != nil {
		a.Err = p.refusal(aerr)
		return a
	}
	if pending.Base+uint64(b.Count()) >= p.extendAt.Load() {
		p.h.ceilings.ask(p)
	}
	p.h.cfg.Published(b.Count(), len(b))
	a.Pending = pending
	return a
}

// refusal is why the log did not take a batch. One that is closed says less than
// what closed it: a deleted topic is gone for good and nothing to try again.
func (p *Partition) refusal(err error) *protocol.Error {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over != nil && errors.Is(err, storage.ErrClosed) {
		return over
	}
	return p.h.cfg.Coded(err)
}

// check looks at everything about a batch that its sender may have got wrong.
func (p *Partition) check(h *protocol.Produce, prod *Producer, body []byte) (batch.Batch, *protocol.Error) {
	if h.Epoch != p.Epoch {
		return nil, &protocol.Error{Code: protocol.CodeUnknownEpoch, Epoch: p.Epoch,
			Text: fmt.Sprintf("%s is served under epoch %d, the request names %d", p.Name(), p.Epoch, h.Epoch)}
	}
	b, err := batch.CheckHeader(body, p.h.cfg.Limits)
	if err == nil && len(b) != len(body) {
		err = fmt.Errorf("%w: %d bytes behind the batch", batch.ErrCorrupt, len(body)-len(b))
	}
	if err == nil && b.Attributes()&(batch.Control|batch.Part) != 0 {
		err = fmt.Errorf("%w: attributes %#x in a produce request", batch.ErrCorrupt, b.Attributes())
	}
	if err == nil {
		err = b.CheckBody()
	}
	if err == nil {
		err = b.CheckTable(p.h.cfg.Limits)
	}
	switch {
	case errors.Is(err, batch.ErrTooLarge):
		return nil, protocol.Errorf(protocol.CodeTooLarge, "publish to %s: %v", p.Name(), err)
	case errors.Is(err, batch.ErrVersion):
		return nil, protocol.Errorf(protocol.CodeUnsupported, "publish to %s: %v", p.Name(), err)
	case err != nil:
		return nil, protocol.Errorf(protocol.CodeCorruptBatch, "publish to %s: %v", p.Name(), err)
	case b.Producer() != prod.ID || b.Session() != prod.Session:
		return nil, protocol.Errorf(protocol.CodeBadRequest, "publish to %s: the batch is of another producer or session than the one opened", p.Name())
	}
	return b, nil
}

// ceilingWait is how long a batch waits for the ceiling before it is refused.
const ceilingWait = 10 * time.Second

// appendAbove appends a batch for which the ceiling must be raised first.
func (p *Partition) appendAbove(b batch.Batch) (storage.Pending, error) {
	timeout := time.NewTimer(ceilingWait)
	defer timeout.Stop()
	for {
		raised := p.awaitRaise()
		pending, err := p.Log.Append(b)
		if !errors.Is(err, storage.ErrCeiling) {
			return pending, err
		}
		p.h.ceilings.ask(p)
		select {
		case <-raised:
		case <-timeout.C:
			return storage.Pending{}, protocol.Errorf(protocol.CodeNoLeader, "publish to %s: the metadata did not commit more offsets within %v", p.Name(), ceilingWait)
		case <-p.h.cfg.Stopping:
			return storage.Pending{}, protocol.Errorf(protocol.CodeShuttingDown, "the broker is shutting down")
		}
	}
}

// appendAfterMove appends a batch that met a move, once that has ended.
func (p *Partition) appendAfterMove(b batch.Batch) (pending storage.Pending, err error) {
	err = p.AfterMove(p.h.cfg.Stopping, func() error {
		if !p.h.cfg.Leased() {
			return delivery.ErrNoLease
		}
		pending, err = p.Log.Append(b)
		return err
	})
	return pending, err
}

// awaitRaise returns a channel that is closed when the ceiling is raised next.
func (p *Partition) awaitRaise() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raised == nil {
		p.raised = make(chan struct{})
	}
	return p.raised
}

// raise makes a committed ceiling known.
func (p *Partition) raise(ceiling, block uint64) {
	p.Log.SetCeiling(ceiling)
	p.extendAt.Store(ceiling - min(block/2, ceiling))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raised != nil {
		close(p.raised)
		p.raised = nil
	}
}

// Floor is what may be reported as acknowledged for good: with wal.sync: interval the synced end.
func (p *Partition) Floor() uint64 { return min(p.Log.Committed(), p.Log.Synced()) }

// Resolve turns a position into an offset.
func (p *Partition) Resolve(ctx context.Context, at protocol.Position) (uint64, error) {
	if p.Log == nil {
		return p.Live.Next(), nil
	}
	switch at.Kind {
	case protocol.Latest:
		return p.Log.Committed(), nil
	case protocol.Earliest:
		return p.Log.Start(), nil
	case protocol.AtOffset:
		return at.Offset, p.within(at.Offset)
	case protocol.AtTime:
		return p.Past.OffsetAt(ctx, at.Time)
	}
	return 0, protocol.Errorf(protocol.CodeBadRequest, "unknown kind of position %d", at.Kind)
}

// within refuses an offset beyond the end: a subscription put there would skip
// what is sent next without a word.
func (p *Partition) within(offset uint64) error {
	if end := p.Log.Committed(); offset > end {
		return &protocol.Error{Code: protocol.CodeAboveEnd, Want: end,
			Text: fmt.Sprintf("offset %d lies beyond the end of %s, whose next offset is %d", offset, p.Name(), end)}
	}
	return nil
}

// Close stops serving: consumers are told why at once, producers with their next
// batch; the log stays open for the store to close.
func (p *Partition) Close(why *protocol.Error) {
	p.mu.Lock()
	p.over = why
	subs := p.subs
	p.subs = map[string]*delivery.Subscription{}
	p.pausing.end()
	p.mu.Unlock()
	for _, s := range subs {
		s.Close(why)
	}
	if p.Live != nil {
		p.Live.Close(why)
	}
}
