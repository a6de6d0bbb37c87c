package broker

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
)

// What is served here of topics and subscriptions.

// consumers counts the consumers of a topic on this broker.
func (b *Broker) consumers(t *state.Topic) (n int) {
	for i := range t.Settings.Partitions {
		p := b.served(served.Key{Topic: t.ID, N: i})
		if p != nil {
			n += p.Consumers()
		}
	}
	return n
}

// bury removes what this store holds of a deleted topic and says so.
func (b *Broker) bury(ctx context.Context, t *state.Topic) error {
	for n := range t.Settings.Partitions {
		key := served.Key{Topic: t.ID, N: n}
		if p := b.served(key); p != nil {
			b.retire(p, words.DeletedTopic(t.Name))
		}
		b.dropPrepared(func(k served.Key, _ *prepared) bool { return k == key })
		if err := b.history.Remove(key.ID()); err != nil {
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
		if key.Topic != id {
			continue
		}
		if s := p.Running(name); s != nil {
			out[key.N] = s
		}
	}
	return out
}

// served returns a partition that is being served, nil otherwise.
func (b *Broker) served(key served.Key) *served.Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.parts[key]
}
