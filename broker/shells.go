package broker

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
)

// What is served here of topics and subscriptions.

// consumers counts the consumers of a topic on this broker.
func (b *Broker) consumers(t *state.Topic) (n int) {
	for i := range t.Settings.Partitions {
		p := b.served(partitionKey{t.ID, i})
		if p == nil {
			continue
		}
		if p.live != nil {
			n += p.live.attached()
			continue
		}
		for _, s := range b.subscriptionsOf(p) {
			s.mu.Lock()
			n += len(s.consumers)
			s.mu.Unlock()
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
func (b *Broker) running(id state.TopicID, name string) map[uint32]*subscription {
	out := map[uint32]*subscription{}
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

// reset follows a committed reset.
func (s *subscription) reset(generation, to uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.d.Generation() < generation {
		if err := s.d.Reset(to); err != nil {
			return err
		}
	}
	s.gapSince = 0
	s.changed()
	return nil
}

// unlist forgets a subscription that was closed.
func (b *Broker) unlist(key partitionKey, s *subscription) {
	p := b.served(key)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[s.name] == s {
		delete(p.subs, s.name)
	}
}

// served returns a partition that is being served, nil otherwise.
func (b *Broker) served(key partitionKey) *partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.parts[key]
}
