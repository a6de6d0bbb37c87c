package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/segment"
)

// recovered is a partition whose log was recovered and whose next epoch is to be opened.
type recovered struct {
	meta *state.Partition
	log  *storage.Log
	what storage.Recovery
}

// openPartitions recovers every partition this store owns and opens their next
// epochs in one command (R6, R10).
func (b *Broker) openPartitions(ctx context.Context) error {
	view := b.meta.View()
	all, err := b.recoverAll(ctx, view)
	if err != nil {
		return err
	}
	entries := make([]state.PartitionOpen, len(all))
	for i, r := range all {
		entries[i] = r.open()
	}
	errs, err := b.proposeEach(ctx, &state.OpenPartitions{Owner: b.owner, Entries: entries}, len(entries))
	if err != nil {
		return fmt.Errorf("open partitions: %w", err)
	}
	b.markDamage(ctx, all)
	view = b.meta.View()
	for i, r := range all {
		if errs[i] != nil {
			b.recovered[partitionKey{r.meta.Topic, r.meta.Number}] = r // nobody else is there yet
			b.log.Error("partition not opened", "topic", r.meta.Topic, "partition", r.meta.Number, "err", errs[i])
			continue
		}
		if err := b.begin(view, r); err != nil {
			return err
		}
	}
	b.reportUnknown(view)
	return nil
}

// recoverAll recovers the logs of the store's partitions side by side. Damage
// of one never stops the others.
func (b *Broker) recoverAll(ctx context.Context, view *state.View) ([]recovered, error) {
	var (
		mu  sync.Mutex
		all []recovered
	)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for p := range view.Owned(b.owner.Store) {
		t := view.TopicByID(p.Topic)
		if t == nil || t.Deleted() || !t.Settings.Reliable {
			continue
		}
		g.Go(func() error {
			r, err := b.recover(ctx, t, p)
			if _, newer := errors.AsType[*segment.VersionError](err); newer || ctx.Err() != nil || b.store.Err() != nil {
				return err // of a newer release, or nothing can be read: touch nothing
			}
			if err != nil {
				b.log.Error("partition not recovered; it is tried again when it is asked for", "partition", fmt.Sprintf("%s:%d", t.Name, p.Number), "err", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
			return nil
		})
	}
	return all, g.Wait()
}

func (b *Broker) recover(ctx context.Context, t *state.Topic, p *state.Partition) (recovered, error) {
	if r, ok := b.takeRecovered(partitionKey{p.Topic, p.Number}); ok {
		r.meta = p
		return r, nil
	}
	log, what, err := b.store.Log(ctx, facts(t, p))
	if err != nil {
		return recovered{}, fmt.Errorf("recover %s:%d: %w", t.Name, p.Number, err)
	}
	for _, d := range what.Damaged {
		b.log.Error("messages are damaged on disk; the rest is served", "partition", fmt.Sprintf("%s:%d", t.Name, p.Number),
			"from", d.From, "to", d.To, "file", d.File, "at", d.At, "err", d.Err)
	}
	return recovered{meta: p, log: log, what: what}, nil
}

// takeRecovered returns a log whose opening failed after it was recovered.
func (b *Broker) takeRecovered(key partitionKey) (recovered, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r, ok := b.recovered[key]
	delete(b.recovered, key)
	return r, ok
}

// facts are what the metadata says of a partition, as the store takes it.
func facts(t *state.Topic, p *state.Partition) storage.Facts {
	f := storage.Facts{
		ID:    storage.PartitionID{Topic: p.Topic, Partition: p.Number},
		Topic: t.Name, LogStart: p.LogStart, Floor: p.Floor,
	}
	for i := range p.Ranges {
		r := &p.Ranges[i]
		out := storage.Range{Start: r.Start, End: r.End, Open: r.Status == state.RangeOpen, Status: storage.Status(r.Status)}
		for _, e := range r.Epochs {
			out.Epochs = append(out.Epochs, storage.EpochStart{Epoch: e.Epoch, Start: e.Start})
		}
		f.Ranges = append(f.Ranges, out)
	}
	return f
}

// tailInDoubt reports whether damage reaches the end that was found.
func (r *recovered) tailInDoubt() bool {
	for _, d := range r.what.Damaged {
		if d.To >= r.what.End {
			return true
		}
	}
	return false
}

// open says how the next epoch opens: densely at a proven end, at the ceiling
// otherwise; what may have been acknowledged above the end is never passed in silence.
func (r *recovered) open() state.PartitionOpen {
	e := state.PartitionOpen{Topic: r.meta.Topic, Partition: r.meta.Number, Epoch: r.meta.Epoch, End: r.what.End}
	switch {
	case r.meta.State == state.Closed:
		e.End = r.meta.Floor
	case r.what.End < r.meta.Floor || r.tailInDoubt():
		e.Tail = state.TailOrphaned
	case !r.what.Proven:
		e.Tail = state.TailLost
	}
	return e
}

// begin serves a partition under the epoch that the view gives it.
func (b *Broker) begin(view *state.View, r recovered) error {
	id, n, log := r.meta.Topic, r.meta.Number, r.log
	t, p := view.TopicByID(id), view.Partition(id, n)
	if t == nil || p == nil || t.Deleted() {
		return protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", id)
	}
	part := &partition{
		b: b, key: partitionKey{id, n}, topic: t.Name, settings: t.Settings, epoch: p.Epoch, log: log, damaged: damages{list: r.what.Damaged}, block: minBlock,
		subs: map[string]*subscription{}, producers: map[*producer]struct{}{},
	}
	if log == nil {
		part.live = &fanout{b: b}
	} else {
		if err := log.Begin(p.Epoch, openStart(p), p.Ceiling); err != nil {
			return fmt.Errorf("begin epoch %d of %s: %w", p.Epoch, part.name(), err)
		}
		part.raise(p.Ceiling, part.block)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return errShuttingDown
	}
	b.parts[part.key] = part
	return nil
}

// openStart is where the open range begins. A joined range began earlier: then
// it is where its last epoch did.
func openStart(p *state.Partition) uint64 {
	if len(p.Ranges) == 0 {
		return 0
	}
	last := &p.Ranges[len(p.Ranges)-1]
	return last.Epochs[len(last.Epochs)-1].Start
}

// reportUnknown names data of topics the metadata does not know. They are kept:
// data without metadata are never deleted.
func (b *Broker) reportUnknown(view *state.View) {
	all, err := b.store.Partitions()
	if err != nil {
		b.log.Warn("data folders not listed", "err", err)
	}
	for _, id := range all {
		if view.TopicByID(state.TopicID(id.Topic)) == nil {
			b.log.Warn("data of a topic that the metadata does not know; kept as they are", "topic_id", state.TopicID(id.Topic), "partition", id.Partition)
		}
	}
}

// opening is a partition that is being opened; others who want it wait.
type opening struct {
	done chan struct{}
	err  error
}

// serving returns the partition a request names, opened if it is this broker's to serve.
func (b *Broker) serving(ctx context.Context, topic string, n int, epoch uint64) (*partition, error) {
	full, _, err := protocol.ParseTopic(topic)
	if err != nil {
		return nil, err
	}
	view := b.meta.View()
	t := view.Topic(full)
	if t == nil {
		return nil, noSuchTopic(full)
	}
	if n < 0 || n >= int(t.Settings.Partitions) {
		return nil, protocol.Errorf(protocol.CodeNoSuchPartition, "topic %s has %d partitions, numbered from 0; there is no partition %d", full, t.Settings.Partitions, n)
	}
	p, err := b.partition(ctx, partitionKey{t.ID, uint32(n)})
	if err != nil {
		return nil, err
	}
	if epoch != 0 && epoch != p.epoch {
		return nil, &protocol.Error{Code: protocol.CodeUnknownEpoch, Epoch: p.epoch,
			Text: fmt.Sprintf("%s is served under epoch %d, the request names %d", p.name(), p.epoch, epoch)}
	}
	return p, nil
}

func noSuchTopic(full string) *protocol.Error {
	return &protocol.Error{Code: protocol.CodeNoSuchTopic, Text: "topic " + full + " does not exist",
		Hint: "make it with: danube topic create " + full}
}

// partition returns a partition this broker owns, opening it at first use.
func (b *Broker) partition(ctx context.Context, key partitionKey) (*partition, error) {
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
			b.mu.Unlock()
			o.err = b.openOne(ctx, key)
			b.mu.Lock()
			delete(b.opening, key)
			b.mu.Unlock()
			close(o.done)
		} else {
			b.mu.Unlock()
		}
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

// openOne opens a partition that was made in this run, or whose open failed at the start.
func (b *Broker) openOne(ctx context.Context, key partitionKey) error {
	view := b.meta.View()
	t, p := view.TopicByID(key.topic), view.Partition(key.topic, key.n)
	if t == nil || p == nil || t.Deleted() {
		return protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", key.topic)
	}
	if p.Owner.Store != b.owner.Store {
		return &protocol.Error{Code: protocol.CodeMoved, Text: fmt.Sprintf("%s:%d is served by another broker", t.Name, key.n), Epoch: p.Epoch}
	}
	if !t.Settings.Reliable {
		return b.begin(view, recovered{meta: p})
	}
	r, err := b.recover(ctx, t, p)
	if err != nil {
		return err
	}
	if p.Owner.Incarnation != b.owner.Incarnation || p.State != state.Open {
		errs, err := b.proposeEach(ctx, &state.OpenPartitions{Owner: b.owner, Entries: []state.PartitionOpen{r.open()}}, 1)
		if err = errors.Join(append(errs, err)...); err != nil {
			b.mu.Lock()
			b.recovered[key] = r // a log is recovered once in the life of the store
			b.mu.Unlock()
			return fmt.Errorf("open %s:%d: %w", t.Name, key.n, err)
		}
		b.markDamage(ctx, []recovered{r})
		view = b.meta.View()
	}
	return b.begin(view, r)
}

// rangeStatus is what the metadata says of an offset that no batch holds:
// RangeSealed stands for a plain gap.
func (b *Broker) rangeStatus(p *partition, offset uint64) state.RangeStatus {
	m := b.meta.View().Partition(p.key.topic, p.key.n)
	if m == nil {
		return state.RangeSealed
	}
	if r := m.Range(offset); r != nil && r.Status != state.RangeOpen {
		return r.Status
	}
	return state.RangeSealed
}

// gapAccepted reports whether an operator lets consumers pass an orphaned range at once.
func (b *Broker) gapAccepted(p *partition, offset uint64) bool {
	m := b.meta.View().Partition(p.key.topic, p.key.n)
	if m == nil {
		return true
	}
	r := m.Range(offset)
	return r != nil && r.Accepted
}
