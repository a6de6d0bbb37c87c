package broker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// owning is how the broker follows what the metadata say of who owns what. It
// compares and never remembers events: what a snapshot skipped, or another
// leader decided, shows in the comparison all the same.
type owning struct {
	kick     chan struct{} // of capacity one: compare again what is in anew
	slots    chan struct{} // held by partitions that are opened or moved in the background
	expelled chan struct{} // closed with whyGone
	lock     sync.Mutex    // guards what follows
	whyGone  error         // this broker must stop
	moves    map[served.Key]bool
	prepared map[served.Key]*prepared
	retry    map[served.Key]time.Time // what could not be opened, and when to try again
	files    map[served.Key]struct{}  // partitions that may have files here
	anew     map[served.Key]struct{}  // partitions to be compared again; the zero key: all
}

// besides is how many partitions are opened or moved in the background at once.
const besides = 64

func newOwning() owning {
	return owning{
		kick: make(chan struct{}, 1), slots: make(chan struct{}, besides), expelled: make(chan struct{}),
		moves: map[served.Key]bool{}, prepared: map[served.Key]*prepared{}, retry: map[served.Key]time.Time{},
		files: map[served.Key]struct{}{}, anew: map[served.Key]struct{}{},
	}
}

// compareEvery is how often everything is compared though nothing was decided.
const compareEvery = time.Second

// compareAgain has a partition compared though nothing was decided about it; the
// zero key: all of them.
func (b *Broker) compareAgain(key served.Key) {
	b.owning.lock.Lock()
	b.anew[key] = struct{}{}
	b.owning.lock.Unlock()
	notify(b.kick)
}

// again takes what is to be compared again; all: everything.
func (b *Broker) again() (keys []served.Key, all bool) {
	b.owning.lock.Lock()
	defer b.owning.lock.Unlock()
	_, all = b.anew[served.Key{}]
	for key := range b.anew {
		keys = append(keys, key)
	}
	clear(b.anew)
	return keys, all
}

// reconcile compares what the metadata say with what is served: of what they
// decide when they do, and every second of everything. It returns when ctx ends.
func (b *Broker) reconcile(ctx context.Context) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	var compared *state.View
	for {
		changed := b.meta.Changed()
		view := b.meta.View()
		b.takeUp(ctx, view)
		keys, all := b.again()
		if all {
			compared = nil
		}
		b.compare(ctx, view, compared, keys)
		compared = view
		select {
		case <-changed:
		case <-b.kick:
		case <-tick.C:
			compared = nil
		case <-ctx.Done():
			return
		}
	}
}

// compare does what the difference between the metadata and what is served asks
// for: of keys, and of what was decided since a view that was compared; if it is
// nil of everything, and also what no decision tells of.
func (b *Broker) compare(ctx context.Context, view, compared *state.View, keys []served.Key) {
	changed, known := view.Since(compared)
	if known {
		for m := range changed {
			keys = append(keys, served.Key{Topic: m.Topic, N: m.Number})
		}
		if len(keys) == 0 {
			return
		}
	}
	if !b.stillItself(ctx, view) {
		return
	}
	if known {
		for _, key := range keys {
			b.compareOne(ctx, view, key)
		}
		return
	}
	for _, p := range b.everything() {
		b.follow(ctx, view, p)
	}
	for m := range view.Owned(b.self().Store) {
		if b.mustOpen(view, m) {
			b.openBeside(ctx, served.Key{Topic: m.Topic, N: m.Number})
		}
	}
	if compared == nil {
		b.buryTombstones(ctx)
		b.deleteStruck(view)
		b.followSubscriptions(view)
	}
}

// stillItself says whether the metadata have this run as the latest of its
// store, and does what is to be done if not.
func (b *Broker) stillItself(ctx context.Context, view *state.View) bool {
	self := b.self()
	switch s := view.Store(self.Store); {
	case s == nil || s.Incarnation < self.Incarnation:
		// The metadata were put back to before this run began (R22).
		if err := b.comeBack(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("not known to the metadata; not registered again yet", "err", err)
		}
		return false
	case s.Status == state.StoreRemoved:
		b.expel(b.removedError(self.Store))
		return false
	case s.Incarnation > self.Incarnation:
		b.expel(fmt.Errorf("run %d of store %s is over: run %d has registered, from another copy of this data directory", self.Incarnation, self.Store, s.Incarnation))
		return false
	case s.Status == state.StoreLost:
		if err := b.comeBack(ctx); err != nil && ctx.Err() == nil {
			b.log.Warn("declared lost; not registered again yet", "err", err)
		}
		return false
	}
	return true
}

// compareOne compares one partition.
func (b *Broker) compareOne(ctx context.Context, view *state.View, key served.Key) {
	if p := b.served(key); p != nil {
		b.follow(ctx, view, p)
		return
	}
	if m := view.Partition(key.Topic, key.N); m != nil && m.Owner.Store == b.self().Store && b.mustOpen(view, m) {
		b.openBeside(ctx, key)
	}
}

// everything is what is served now.
func (b *Broker) everything() []*served.Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	out := make([]*served.Partition, 0, len(b.parts))
	for _, p := range b.parts {
		out = append(out, p)
	}
	return out
}

// follow compares one partition that is served with what the view says of it.
func (b *Broker) follow(ctx context.Context, view *state.View, p *served.Partition) {
	t, m := view.TopicByID(p.Key.Topic), view.Partition(p.Key.Topic, p.Key.N)
	switch {
	case t == nil || m == nil || t.Deleted():
		b.retireBeside(p, words.DeletedTopic(p.Topic))
	case b.isMoving(p.Key): // the move sees to the rest
		b.told(t, m, p)
	case m.Epoch != p.Epoch || m.Owner != b.self():
		b.retireBeside(p, b.notMine(view, t, m))
	case m.State == state.Sealing:
		b.told(t, m, p)
		b.moveBeside(ctx, p, m)
	default:
		b.told(t, m, p)
	}
}

// told passes on what the metadata say of a partition under the epoch in which it is served.
func (b *Broker) told(t *state.Topic, m *state.Partition, p *served.Partition) {
	if m.Epoch == p.Epoch && p.Follow(t, m) && b.depot != nil {
		b.depot.Changed(p.Key.ID())
	}
}

// mustOpen says whether a partition of this store is to be opened without being
// asked for: others wait for it, or only a new epoch makes it this run's.
// Partitions that were just made are opened at first use.
func (b *Broker) mustOpen(view *state.View, m *state.Partition) bool {
	if b.served(served.Key{Topic: m.Topic, N: m.Number}) != nil {
		return false
	}
	t := view.TopicByID(m.Topic)
	if t == nil || t.Deleted() {
		return false
	}
	switch self := b.self(); {
	case m.Owner == self:
		return m.State != state.Open || len(m.Ranges) > 1 || len(m.Ranges) == 1 && m.Ranges[0].Start > 0
	case m.State == state.Opening:
		return m.Anew // else granted to a run that is over: the leader grants it again
	}
	return true
}

// openBeside opens a partition in the background.
func (b *Broker) openBeside(ctx context.Context, key served.Key) {
	b.owning.lock.Lock()
	wait := time.Now().Before(b.retry[key])
	if !wait {
		b.retry[key] = time.Now().Add(time.Second)
	}
	b.owning.lock.Unlock()
	if wait {
		return
	}
	b.background(ctx, func() {
		_, err := b.partition(ctx, key)
		b.owning.lock.Lock()
		defer b.owning.lock.Unlock()
		if err == nil {
			delete(b.retry, key)
			return
		}
		if ctx.Err() == nil {
			b.log.Error("partition not opened, trying again", "topic", key.Topic, "partition", key.N, "err", err)
		}
	})
}

// background runs do beside, when a slot is free, unless the broker stops.
func (b *Broker) background(ctx context.Context, do func()) {
	b.unlessStopping(func() {
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		defer func() { <-b.slots }()
		do()
	})
}

// unlessStopping runs do in a goroutine that Close waits for.
func (b *Broker) unlessStopping(do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.stopping {
		b.wg.Go(do)
	}
}

// expel ends Run: this broker is not, or no more, of the cluster.
func (b *Broker) expel(why error) {
	b.owning.lock.Lock()
	defer b.owning.lock.Unlock()
	if b.whyGone == nil {
		b.whyGone = why
		close(b.expelled)
	}
}

func (b *Broker) whyExpelled() error {
	b.owning.lock.Lock()
	defer b.owning.lock.Unlock()
	return b.whyGone
}

// errLostRun is the answer of a run that the cluster took for lost, until the next one has begun.
var errLostRun = protocol.Errorf(protocol.CodeNotReady, "this broker registers again")

// comeBack goes on after the cluster took this broker for lost: what it served
// is closed, and a new run begins, which opens what is still this store's.
func (b *Broker) comeBack(ctx context.Context) error {
	b.log.Warn("this broker's run is not in the metadata any more; it gives up what it served and registers again")
	var closing sync.WaitGroup
	for _, p := range b.everything() {
		closing.Go(func() { b.retire(p, errLostRun) })
	}
	closing.Wait()
	b.dropPrepared(func(served.Key, *prepared) bool { return true })
	if err := b.beginRun(ctx); err != nil {
		return err
	}
	b.cluster.Reattach(b.self())
	if b.depot != nil {
		b.depot.Renew()
	}
	b.compareAgain(served.Key{})
	return nil
}

// retireBeside closes a partition that this broker does not serve any more, in the background.
func (b *Broker) retireBeside(p *served.Partition, why *protocol.Error) {
	b.unlessStopping(func() { b.retire(p, why) })
}

// retire closes a partition that this broker does not serve any more. Its files
// stay as history. Whoever wants to open it meanwhile waits.
func (b *Broker) retire(p *served.Partition, why *protocol.Error) {
	o := &opening{done: make(chan struct{})}
	b.mu.Lock()
	if b.parts[p.Key] != p {
		b.mu.Unlock()
		return
	}
	delete(b.parts, p.Key)
	b.opening[p.Key] = o
	b.mu.Unlock()
	p.Close(why)
	b.host.Forget(p)
	if b.depot != nil {
		b.depot.Remove(p.Key.ID(), p.Epoch)
	}
	if p.Log != nil {
		if err := p.Log.Close(); err != nil {
			b.log.Error("log not closed", "partition", p.Name(), "err", err)
		}
	}
	b.mu.Lock()
	delete(b.opening, p.Key)
	b.mu.Unlock()
	close(o.done)
	b.compareAgain(p.Key)
}

// deleteStruck removes the files of partitions that no range and no right ties
// to this store any more: the command that struck it is applied (R16).
//
// In a later history than the first nothing is removed: metadata that were put
// back do not list what was written after them, and it may be the only copy (R22).
func (b *Broker) deleteStruck(view *state.View) {
	if view.Cluster().History > 0 {
		return
	}
	self := b.self().Store
	b.owning.lock.Lock()
	var gone []served.Key
	for key := range b.files {
		m := view.Partition(key.Topic, key.N)
		if m == nil || concerns(m, self) || b.prepared[key] != nil || b.moves[key] {
			continue // what is not known is reported and never deleted
		}
		gone = append(gone, key)
	}
	b.owning.lock.Unlock()
	for _, key := range gone {
		b.mu.RLock()
		busy := b.parts[key] != nil || b.opening[key] != nil
		b.mu.RUnlock()
		if busy {
			continue
		}
		if err := b.history.Remove(key.ID()); err != nil {
			b.log.Warn("files of a partition that lies elsewhere now are not removed, trying again", "topic", key.Topic, "partition", key.N, "err", err)
			continue
		}
		b.owning.lock.Lock()
		delete(b.files, key)
		b.owning.lock.Unlock()
	}
}

// concerns says whether a partition has to do with a store.
func concerns(m *state.Partition, store state.StoreID) bool {
	return m.Owner.Store == store || m.Target.Store == store ||
		slices.ContainsFunc(m.Ranges, func(r state.Range) bool { return slices.Contains(r.Stores, store) })
}

// mayHaveFiles notes that a partition may have files in this store.
func (b *Broker) mayHaveFiles(key served.Key) {
	b.owning.lock.Lock()
	defer b.owning.lock.Unlock()
	b.files[key] = struct{}{}
}

// followSubscriptions ends the shells of subscriptions that were deleted through
// another broker, and moves those that were reset there.
func (b *Broker) followSubscriptions(view *state.View) {
	for _, p := range b.everything() {
		for _, s := range p.Subscriptions() {
			m := view.SubscriptionByID(s.ID)
			if m == nil {
				s.Close(protocol.Errorf(protocol.CodeNoSuchSub, "subscription %s of %s was deleted", s.Name, p.Topic))
				p.Unlist(s)
				continue
			}
			if c := &m.Cursors[p.Key.N]; s.Behind(c.Generation) {
				if err := s.Reset(c.Generation, m.Start[p.Key.N]); err != nil {
					b.log.Error("subscription not moved", "subscription", s.Name, "partition", p.Name(), "err", err)
				}
			}
		}
	}
}

// claim keeps a partition from being moved until release is called; ok is false
// if it is being moved.
func (b *Broker) claim(key served.Key) (release func(), ok bool) {
	b.owning.lock.Lock()
	defer b.owning.lock.Unlock()
	if b.moves[key] {
		return nil, false
	}
	b.moves[key] = true
	return func() {
		b.owning.lock.Lock()
		delete(b.moves, key)
		b.owning.lock.Unlock()
		b.compareAgain(key)
	}, true
}
