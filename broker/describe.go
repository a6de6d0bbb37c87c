package broker

import (
	"fmt"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// describePartition says what is known of a partition; p is nil when it is not
// served here, and err says why.
func (b *Broker) describePartition(view *state.View, m *state.Partition, p *partition, err error) protocol.PartitionDescription {
	next := m.Floor
	if p != nil && p.log != nil {
		next = p.log.Next()
	}
	d := words.Partition(view, m, next)
	if p == nil {
		if err != nil {
			d.State, d.Reason = "failed", err.Error()
		}
		return d
	}
	p.mu.Lock()
	d.Producers = len(p.producers)
	p.mu.Unlock()
	if p.log == nil {
		d.NextOffset = p.live.Next()
		d.CommittedEnd, d.LogStart, d.Ranges = d.NextOffset, d.NextOffset, []protocol.RangeDescription{}
		return d
	}
	d.LogStart, d.CommittedEnd, d.Ceiling = p.log.Start(), p.log.Committed(), p.log.Ceiling()
	d.Protected, d.ColdEnd = d.NextOffset, d.LogStart // without a write buffer nothing is protected; without a cold tier nothing is cold
	d.Segments, d.Bytes = p.log.Bytes()
	for _, x := range p.past.Damage() {
		d.Ranges = append(d.Ranges, protocol.RangeDescription{
			Epoch: m.Epoch, Start: x.From, End: x.To, Status: "DAMAGED", Stores: []string{d.Owner},
			Detail: fmt.Sprintf("%s at byte %d: %v", x.File, x.At, x.Err),
		})
	}
	return d
}

// shell returns the running state of a subscription on a partition, made if nobody uses it yet.
func (p *partition) shell(m *state.Subscription) (*delivery.Subscription, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.subs[m.Name]; s != nil && s.ID == m.ID {
		return s, nil
	}
	if p.over != nil {
		return nil, p.over
	}
	s, err := p.b.carrier.Subscription(&p.source, m)
	if err != nil {
		return nil, err
	}
	p.subs[m.Name] = s
	return s, nil
}

// subscriptionsOf returns the subscriptions in use on a partition.
func (b *Broker) subscriptionsOf(p *partition) []*delivery.Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*delivery.Subscription, 0, len(p.subs))
	for _, s := range p.subs {
		out = append(out, s)
	}
	return out
}

// unackedBelow is how many messages below an offset some subscription has not
// acknowledged: the most that any one of them would miss.
func (b *Broker) unackedBelow(p *partition, offset uint64) uint64 {
	most := uint64(0)
	for m := range b.meta.View().Subscriptions(p.key.topic) {
		s, err := p.shell(m)
		if err != nil {
			continue // closed in between: there is nothing to warn of
		}
		most = max(most, s.Lag(offset))
	}
	return most
}
