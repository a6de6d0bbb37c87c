package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/segment"
)

// recovered is a partition whose log was recovered and whose next epoch is to be opened.
type recovered struct {
	meta    *state.Partition
	log     *storage.Log // nil of a non-reliable topic
	what    storage.Recovery
	foreign bool // what is open of it lies in another store, which is lost
	settle  bool // it comes by a planned move: its subscriptions wait for the owner before
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
	errs, err := b.proposeEach(ctx, &state.OpenPartitions{Owner: b.self(), Entries: entries}, len(entries))
	if err != nil {
		return fmt.Errorf("open partitions: %w", err)
	}
	b.history.MarkDamage(ctx, damageOf(all))
	view = b.meta.View()
	b.beginAll(view, all, errs)
	b.reportUnknown(view)
	return nil
}

// beginAll serves what was opened. What was refused may be another's by now, and
// else the reconciler tries again: its log must not stay open.
func (b *Broker) beginAll(view *state.View, all []recovered, errs []error) {
	for i, r := range all {
		err := r.unlessRefused(errs[i])
		if err == nil {
			err = b.begin(view, r)
		}
		if err != nil {
			b.log.Error("partition not opened", "topic", r.meta.Topic, "partition", r.meta.Number, "err", err)
		}
	}
}

// unlessRefused returns err, and closes the log of a partition that will not be served for it.
func (r *recovered) unlessRefused(err error) error {
	if err != nil && r.log != nil {
		return errors.Join(err, r.log.Close())
	}
	return err
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
	for p := range view.Owned(b.self().Store) {
		t := view.TopicByID(p.Topic)
		if !b.mustOpen(view, p) || p.Owner == b.self() {
			continue // what was granted to this run meanwhile the reconciler opens
		}
		if !t.Settings.Reliable {
			mu.Lock()
			all = append(all, recovered{meta: p})
			mu.Unlock()
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

// recover opens the log of a partition as the metadata have it, or takes it
// over if it was prepared for this epoch.
func (b *Broker) recover(ctx context.Context, t *state.Topic, p *state.Partition) (recovered, error) {
	if r, ok := b.takePrepared(p); ok {
		return r, nil
	}
	b.mayHaveFiles(served.Key{Topic: p.Topic, N: p.Number})
	log, what, err := b.history.Own(ctx, history.Facts(t, p, b.self().Store))
	if err != nil {
		return recovered{}, fmt.Errorf("recover %s:%d: %w", t.Name, p.Number, err)
	}
	for _, d := range what.Damaged {
		b.log.Error("messages are damaged on disk; the rest is served", "partition", fmt.Sprintf("%s:%d", t.Name, p.Number),
			"from", d.From, "to", d.To, "file", d.File, "at", d.At, "err", d.Err)
	}
	return recovered{meta: p, log: log, what: what, foreign: b.foreign(p)}, nil
}

// foreign says whether the open range of a partition lies in other stores.
func (b *Broker) foreign(p *state.Partition) bool {
	r := p.OpenRange()
	return r != nil && !slices.Contains(r.Stores, b.self().Store)
}

// damageOf is what recovery found damaged, by partition.
func damageOf(all []recovered) map[storage.PartitionID][]storage.Damage {
	out := map[storage.PartitionID][]storage.Damage{}
	for _, r := range all {
		if len(r.what.Damaged) > 0 {
			out[storage.PartitionID{Topic: r.meta.Topic, Partition: r.meta.Number}] = r.what.Damaged
		}
	}
	return out
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
	case r.meta.State == state.Closed, r.meta.State == state.Opening && r.meta.OpenRange() == nil:
		e.End = r.meta.Floor
	case r.foreign:
		// What the lost disk holds above what the catalog covers nobody here can know, unless
		// every acknowledgement waited for the catalog (R3, R15).
		e.End, e.Tail = r.meta.Takeover()
	case r.what.End < r.meta.Floor || r.tailInDoubt():
		e.Tail = state.TailOrphaned
	case !r.what.Proven:
		e.Tail = state.TailLost
	}
	return e
}

// begin serves a partition under the epoch that the view gives it. If it cannot
// be served the log is closed.
func (b *Broker) begin(view *state.View, r recovered) error {
	return r.unlessRefused(b.beginEpoch(view, r))
}

func (b *Broker) beginEpoch(view *state.View, r recovered) error {
	id, n := r.meta.Topic, r.meta.Number
	t, p := view.TopicByID(id), view.Partition(id, n)
	if t == nil || p == nil || t.Deleted() {
		return protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", id)
	}
	if p.Owner != b.self() || p.State != state.Open && p.State != state.Sealing {
		return b.notMine(view, t, p)
	}
	part, err := b.host.Begin(served.Epoch{Topic: t, Meta: p, Log: r.log, Damaged: r.what.Damaged, Settle: r.settle})
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		return errShuttingDown
	}
	b.parts[part.Key] = part
	if b.depot != nil && part.Log != nil {
		b.depot.Add(part.Key.ID(), part.Epoch, part.Log)
	}
	return nil
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

// openOne opens a partition that was made or granted in this run, or whose open failed at the start.
func (b *Broker) openOne(ctx context.Context, key served.Key) error {
	view := b.meta.View()
	t, p := view.TopicByID(key.Topic), view.Partition(key.Topic, key.N)
	if t == nil || p == nil || t.Deleted() {
		return protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", key.Topic)
	}
	self := b.self()
	if s := view.Store(self.Store); s == nil || s.Status == state.StoreLost || s.Incarnation != self.Incarnation {
		// What this run served was closed, and the metadata that say whose it is now may not be here yet.
		return errLostRun
	}
	if p.Owner.Store != self.Store || p.State == state.Opening && p.Owner != self {
		return b.notMine(view, t, p)
	}
	r := recovered{meta: p}
	if t.Settings.Reliable {
		var err error
		if r, err = b.recover(ctx, t, p); err != nil {
			return err
		}
	}
	if p.Owner != self || p.State != state.Open && p.State != state.Sealing {
		if err := b.openEpoch(ctx, t, r); err != nil {
			return err
		}
		view = b.meta.View()
	}
	return b.begin(view, r)
}

// openEpoch commits the next epoch of a partition. If it cannot, the log is closed.
func (b *Broker) openEpoch(ctx context.Context, t *state.Topic, r recovered) error {
	b.cfg.At("takeover.recovered")
	errs, err := b.proposeEach(ctx, &state.OpenPartitions{Owner: b.self(), Entries: []state.PartitionOpen{r.open()}}, 1)
	if err = errors.Join(append(errs, err)...); err != nil {
		// Another run or broker may have it by now; who asks again finds out.
		return r.unlessRefused(protocol.Errorf(protocol.CodeNotReady, "open %s:%d: %v", t.Name, r.meta.Number, err))
	}
	b.cfg.At("takeover.opened")
	b.history.MarkDamage(ctx, damageOf([]recovered{r}))
	return nil
}
