package broker

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

// partitionKey names a partition by its topic's id, which no other topic ever has.
type partitionKey struct {
	topic state.TopicID
	n     uint32
}

// id is the partition as the store names it.
func (k partitionKey) id() storage.PartitionID {
	return storage.PartitionID{Topic: k.topic, Partition: k.n}
}

// partition is a partition this broker owns and serves under one epoch.
type partition struct {
	b        *Broker
	key      partitionKey
	topic    string // full name
	settings state.TopicSettings
	epoch    uint64
	log      *storage.Log   // nil for a non-reliable topic
	live     *delivery.Live // of a non-reliable topic
	extendAt atomic.Uint64
	block    uint64 // offsets per extension of the ceiling; guarded by the ceiling keeper

	ranges atomic.Pointer[state.Range] // the first of those the log was told of last: lists are never changed in place
	past   *history.Partition          // nil for a non-reliable topic
	source delivery.Partition          // as its subscriptions see it; zero for a non-reliable topic
	passing

	mu        sync.Mutex      // guards what follows
	over      *protocol.Error // not served any more, because
	subs      map[string]*delivery.Subscription
	producers map[*producer]struct{}
	exclusive *producer
	raised    chan struct{} // closed when the ceiling was raised; nil while nobody waits
}

// name is the partition as output and errors write it.
func (p *partition) name() string { return fmt.Sprintf("%s:%d", p.topic, p.key.n) }

// level is what an acknowledgement of this partition survives.
func (p *partition) level() protocol.Level {
	switch {
	case p.log == nil:
		return protocol.LevelNone
	case p.b.cfg.Storage.Sync == storage.Interval:
		return protocol.LevelInterval
	}
	return protocol.LevelLocal
}

// publish takes a produce frame's batch: owner, epoch and content are checked,
// the sequence is the log's to check. What it returns answers the frame, in
// the order of the frames.
func (p *partition) publish(h *protocol.Produce, prod *producer, body []byte) outbox.Ack {
	a := outbox.Ack{Level: p.level()}
	b, err := p.check(h, prod, body)
	if err != nil {
		a.Err = err
		return a
	}
	if !p.b.leased() {
		a.Err = errNoLease
		return a
	}
	if p.log == nil {
		a.Pending.Base, a.Pending.AppendTime, a.Err = p.live.Publish(b)
		a.Done = true
		return a
	}
	pending, aerr := p.log.Append(b)
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
		p.b.ceilings.ask(p)
	}
	p.b.metrics.published(b.Count(), len(b))
	a.Pending = pending
	return a
}

// refusal is why the log did not take a batch. One that is closed says less than
// what closed it: a deleted topic is gone for good and nothing to try again.
func (p *partition) refusal(err error) *protocol.Error {
	p.mu.Lock()
	over := p.over
	p.mu.Unlock()
	if over != nil && errors.Is(err, storage.ErrClosed) {
		return over
	}
	return p.b.wireError(err)
}

// check looks at everything about a batch that its sender may have got wrong.
func (p *partition) check(h *protocol.Produce, prod *producer, body []byte) (batch.Batch, *protocol.Error) {
	if h.Epoch != p.epoch {
		return nil, &protocol.Error{Code: protocol.CodeUnknownEpoch, Epoch: p.epoch,
			Text: fmt.Sprintf("%s is served under epoch %d, the request names %d", p.name(), p.epoch, h.Epoch)}
	}
	b, err := batch.CheckHeader(body, p.b.cfg.Limits)
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
		err = b.CheckTable(p.b.cfg.Limits)
	}
	switch {
	case errors.Is(err, batch.ErrTooLarge):
		return nil, protocol.Errorf(protocol.CodeTooLarge, "publish to %s: %v", p.name(), err)
	case errors.Is(err, batch.ErrVersion):
		return nil, protocol.Errorf(protocol.CodeUnsupported, "publish to %s: %v", p.name(), err)
	case err != nil:
		return nil, protocol.Errorf(protocol.CodeCorruptBatch, "publish to %s: %v", p.name(), err)
	case b.Producer() != prod.id || b.Session() != prod.sess:
		return nil, protocol.Errorf(protocol.CodeBadRequest, "publish to %s: the batch is of another producer or session than the one opened", p.name())
	}
	return b, nil
}

// ceilingWait is how long a batch waits for the ceiling before it is refused.
const ceilingWait = 10 * time.Second

// appendAbove appends a batch for which the ceiling must be raised first.
func (p *partition) appendAbove(b batch.Batch) (storage.Pending, error) {
	timeout := time.NewTimer(ceilingWait)
	defer timeout.Stop()
	for {
		raised := p.awaitRaise()
		pending, err := p.log.Append(b)
		if !errors.Is(err, storage.ErrCeiling) {
			return pending, err
		}
		p.b.ceilings.ask(p)
		select {
		case <-raised:
		case <-timeout.C:
			return storage.Pending{}, protocol.Errorf(protocol.CodeNoLeader, "publish to %s: the metadata did not commit more offsets within %v", p.name(), ceilingWait)
		case <-p.b.ctx.Done():
			return storage.Pending{}, protocol.Errorf(protocol.CodeShuttingDown, "the broker is shutting down")
		}
	}
}

// appendAfterMove appends a batch that met a move, once that has ended.
func (p *partition) appendAfterMove(b batch.Batch) (pending storage.Pending, err error) {
	err = p.afterMove(p.b.ctx, func() error {
		if !p.b.leased() {
			return errNoLease
		}
		pending, err = p.log.Append(b)
		return err
	})
	return pending, err
}

// awaitRaise returns a channel that is closed when the ceiling is raised next.
func (p *partition) awaitRaise() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raised == nil {
		p.raised = make(chan struct{})
	}
	return p.raised
}

// raise makes a committed ceiling known.
func (p *partition) raise(ceiling, block uint64) {
	p.log.SetCeiling(ceiling)
	p.extendAt.Store(ceiling - min(block/2, ceiling))
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.raised != nil {
		close(p.raised)
		p.raised = nil
	}
}

// attach opens a producer's session here.
func (p *partition) attach(prod *producer, q *protocol.OpenProducer) (*protocol.OpenProducerOK, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over != nil:
		return nil, p.over
	case !p.b.leased():
		return nil, errNoLease
	case p.exclusive != nil && p.exclusive.id != prod.id:
		return nil, protocol.Errorf(protocol.CodeProducerBusy, "%s has an exclusive producer", p.name())
	case q.Exclusive && p.othersThan(prod.id):
		return nil, protocol.Errorf(protocol.CodeProducerBusy, "%s has other producers; an exclusive one must be alone", p.name())
	}
	ok := &protocol.OpenProducerOK{Epoch: p.epoch}
	if p.log != nil {
		last, known, err := p.log.OpenSession(q.Producer, q.Session, q.Lowest)
		if err != nil {
			return nil, err
		}
		ok.Last, ok.Stored = last, known
	}
	p.producers[prod] = struct{}{}
	if q.Exclusive {
		p.exclusive = prod
	}
	return ok, nil
}

func (p *partition) othersThan(id uint64) bool {
	for o := range p.producers {
		if o.id != id {
			return true
		}
	}
	return false
}

// leave ends a producer's session on this connection; its table entry stays.
func (prod *producer) leave() {
	p := prod.part
	p.mu.Lock()
	delete(p.producers, prod)
	if p.exclusive == prod {
		p.exclusive = nil
	}
	p.mu.Unlock()
	if prod.stop != nil {
		prod.stop()
	}
}

// floor is what may be reported as acknowledged for good: with wal.sync: interval the synced end.
func (p *partition) floor() uint64 { return min(p.log.Committed(), p.log.Synced()) }

// end of what can be read.
func (p *partition) end() uint64 {
	if p.log == nil {
		return p.live.Next()
	}
	return p.log.Committed()
}

// bounds are the first offset that is kept and the end of what can be read.
func (p *partition) bounds() (start, end uint64) {
	end = p.end()
	if p.log != nil {
		start = min(p.log.Start(), end)
	}
	return start, end
}

// resolve turns a position into an offset.
func (p *partition) resolve(at protocol.Position) (uint64, error) {
	if p.log == nil {
		return p.live.Next(), nil
	}
	switch at.Kind {
	case protocol.Latest:
		return p.log.Committed(), nil
	case protocol.Earliest:
		return p.log.Start(), nil
	case protocol.AtOffset:
		return at.Offset, p.within(at.Offset)
	case protocol.AtTime:
		return p.log.OffsetAt(at.Time)
	}
	return 0, protocol.Errorf(protocol.CodeBadRequest, "unknown kind of position %d", at.Kind)
}

// within refuses an offset beyond the end: a subscription put there would skip
// what is sent next without a word.
func (p *partition) within(offset uint64) error {
	if end := p.log.Committed(); offset > end {
		return &protocol.Error{Code: protocol.CodeAboveEnd, Want: end,
			Text: fmt.Sprintf("offset %d lies beyond the end of %s, whose next offset is %d", offset, p.name(), end)}
	}
	return nil
}

// close stops serving: consumers are told why at once, producers with their next
// batch; the log stays open for the store to close.
func (p *partition) close(why *protocol.Error) {
	p.mu.Lock()
	p.over = why
	subs := p.subs
	p.subs = map[string]*delivery.Subscription{}
	p.pausing.end()
	p.mu.Unlock()
	for _, s := range subs {
		s.Close(why)
	}
	if p.live != nil {
		p.live.Close(why)
	}
}

// ceilingKeeper extends the ceilings of partitions ahead of need (R3), all that
// ask at one time in one command.
type ceilingKeeper struct {
	b     *Broker
	wake  chan struct{}
	mu    sync.Mutex
	asked map[*partition]time.Time // when each was last extended
	todo  map[*partition]struct{}
}

// The bounds of a block of offsets: small gaps after a takeover, few commands under load.
const (
	minBlock = state.OpenCeiling
	maxBlock = 1_000_000
)

func newCeilingKeeper(b *Broker) *ceilingKeeper {
	return &ceilingKeeper{b: b, wake: make(chan struct{}, 1), asked: map[*partition]time.Time{}, todo: map[*partition]struct{}{}}
}

// ask says that a partition is about to need more offsets. It does not wait.
func (k *ceilingKeeper) ask(p *partition) {
	k.mu.Lock()
	k.todo[p] = struct{}{}
	k.mu.Unlock()
	notify(k.wake)
}

// forget drops a partition that is served no more.
func (k *ceilingKeeper) forget(p *partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.todo, p)
	delete(k.asked, p)
}

// run extends until ctx ends.
func (k *ceilingKeeper) run(ctx context.Context) {
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		parts := k.take()
		if len(parts) == 0 {
			continue
		}
		if err := k.extend(ctx, parts); err != nil && ctx.Err() == nil {
			k.b.log.Warn("ceilings not extended, trying again", "partitions", len(parts), "err", err)
			k.later(ctx, parts)
		}
	}
}

// later asks again for parts after a pause.
func (k *ceilingKeeper) later(ctx context.Context, parts []*partition) {
	select {
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
	}
	for _, p := range parts {
		k.ask(p)
	}
}

// take returns who asked, with the size of their next blocks adapted to how
// fast they used up the last: about two seconds' worth.
func (k *ceilingKeeper) take() []*partition {
	now := k.b.cfg.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	var parts []*partition
	for p := range k.todo {
		delete(k.todo, p)
		if p.log.Next() < p.extendAt.Load() && p.raisedEnough() {
			continue // extended since it asked
		}
		since := now.Sub(k.asked[p])
		switch {
		case since < time.Second:
			p.block = min(p.block*2, maxBlock)
		case since > 8*time.Second:
			p.block = max(p.block/2, minBlock)
		}
		k.asked[p] = now
		parts = append(parts, p)
	}
	return parts
}

// raisedEnough reports whether nobody waits for the ceiling.
func (p *partition) raisedEnough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.raised == nil
}

// extend commits new ceilings and makes them known.
func (k *ceilingKeeper) extend(ctx context.Context, parts []*partition) error {
	if !k.b.leased() {
		return errNoLease
	}
	entries := make([]state.PartitionUpdate, len(parts))
	for i, p := range parts {
		entries[i] = state.PartitionUpdate{
			Topic: p.key.topic, Partition: p.key.n, Epoch: p.epoch,
			Ceiling: max(p.log.Next(), p.log.Ceiling()) + p.block, Floor: p.floor(),
		}
	}
	errs, err := k.b.proposeEach(ctx, &state.UpdatePartitions{Entries: entries}, len(entries))
	if err != nil {
		return err
	}
	for i, p := range parts {
		if errs[i] != nil {
			k.b.log.Error("ceiling refused", "partition", p.name(), "err", errs[i])
			continue
		}
		p.raise(entries[i].Ceiling, p.block)
	}
	return nil
}
