package broker

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
)

// What is served here of topics and subscriptions.

// openDelivery is a step of the start.
func (b *Broker) openDelivery(context.Context) error {
	b.carrier = delivery.Open(delivery.Config{
		Meta: b.meta, Leased: b.leased, Coded: b.wireError, GapWait: b.cfg.GapWait, CursorInterval: b.cfg.CursorInterval,
		Go:      func(do func(context.Context)) { b.wg.Go(func() { do(b.ctx) }) },
		Metrics: b.metrics.deliveries(), Now: b.cfg.Now, Log: b.log,
	})
	return nil
}

// consumers counts the consumers of a topic on this broker.
func (b *Broker) consumers(t *state.Topic) (n int) {
	for i := range t.Settings.Partitions {
		p := b.served(partitionKey{t.ID, i})
		if p == nil {
			continue
		}
		if p.live != nil {
			n += p.live.Attached()
			continue
		}
		for _, s := range b.subscriptionsOf(p) {
			n += s.Consumers()
		}
	}
	return n
}

// bury removes what this store holds of a deleted topic and says so.
func (b *Broker) bury(ctx context.Context, t *state.Topic) error {
	for n := range t.Settings.Partitions {
		key := partitionKey{t.ID, n}
		if p := b.served(key); p != nil {
			b.retire(p, words.DeletedTopic(t.Name))
		}
		b.dropPrepared(func(k partitionKey, _ *prepared) bool { return k == key })
		if err := b.history.Remove(key.id()); err != nil {
			return fmt.Errorf("remove data of %s:%d: %w", t.Name, n, err)
		}
	}
	if _, err := b.peers.Request(ctx, &state.PurgeTopic{ID: t.ID, Store: b.self().Store}); err != nil {
		return fmt.Errorf("purge topic %s: %w", t.Name, err)
	}
	return nil
}

// running returns the shells of a subscription by partition.
func (b *Broker) running(id state.TopicID, name string) map[uint32]*delivery.Subscription {
	out := map[uint32]*delivery.Subscription{}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for key, p := range b.parts {
		if key.topic != id {
			continue
		}
		p.mu.Lock()
		if s := p.subs[name]; s != nil {
			out[key.n] = s
		}
		p.mu.Unlock()
	}
	return out
}

// unlist forgets a subscription that was closed.
func (b *Broker) unlist(key partitionKey, s *delivery.Subscription) {
	p := b.served(key)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[s.Name] == s {
		delete(p.subs, s.Name)
	}
}

// served returns a partition that is being served, nil otherwise.
func (b *Broker) served(key partitionKey) *partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.parts[key]
}
