package broker

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/storage"
)

// What package history knows of the partitions that are served here.

// openHistory is a step of the start.
func (b *Broker) openHistory(context.Context) error {
	b.history = history.Open(history.Config{
		Store: b.store, Meta: b.meta, Peers: b.peers, Self: b.self, Served: b.pastOf, Serving: b.pasts,
		CopyDelay: b.cfg.Peers.CopyDelay, Now: b.cfg.Now, At: b.cfg.At, Log: b.log,
	})
	return nil
}

// pastOf is the past of a partition that is served and has a log, nil otherwise.
func (b *Broker) pastOf(id storage.PartitionID) *history.Partition {
	if p := b.served(partitionKey{id.Topic, id.Partition}); p != nil {
		return p.past
	}
	return nil
}

// pasts are those of all partitions that are served and have a log.
func (b *Broker) pasts() []*history.Partition {
	parts := b.reliable()
	out := make([]*history.Partition, len(parts))
	for i, p := range parts {
		out[i] = p.past
	}
	return out
}

// Over reports whether the partition is served no more.
func (p *partition) Over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over != nil
}

// Hold shuts the door of a partition for a moment, unless it is about to move:
// two that open the door again would let in what the other has counted out.
func (p *partition) Hold() (release func(), err error) {
	b := p.b
	b.owning.lock.Lock()
	busy := b.moves[p.key]
	if !busy {
		b.moves[p.key] = true
	}
	b.owning.lock.Unlock()
	if busy {
		return nil, p.movingError()
	}
	p.pause()
	_, err = p.log.Pause()
	release = func() {
		if err := p.resume(); err != nil && !p.Over() {
			b.log.Error("partition does not go on", "partition", p.name(), "err", err)
		}
		b.owning.lock.Lock()
		delete(b.moves, p.key)
		b.owning.lock.Unlock()
		notify(b.kick)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("pause %s: %w", p.name(), err)
	}
	return release, nil
}

// Turned tells the partition's subscriptions what became of ORPHANED offsets.
func (p *partition) Turned(o *history.Outcome) {
	for _, s := range p.b.subscriptionsOf(p) {
		s.Turned(o)
	}
}
