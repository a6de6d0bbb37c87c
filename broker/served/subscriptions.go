package served

import (
	"fmt"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Subscription returns the running state of a subscription, made if nobody uses
// it yet.
func (p *Partition) Subscription(m *state.Subscription) (*delivery.Subscription, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.subs[m.Name]; s != nil && s.ID == m.ID {
		return s, nil
	}
	if p.over != nil {
		return nil, p.over
	}
	// Read again: a reset that was committed since finds this shell only once it is listed.
	if now := p.h.cfg.Meta.View().Subscription(p.Key.Topic, m.Name); now != nil && now.ID == m.ID {
		m = now
	}
	s, err := p.h.cfg.Carrier.Subscription(&p.source, m)
	if err != nil {
		return nil, err
	}
	p.subs[m.Name] = s
	return s, nil
}

// Subscriptions returns those in use.
func (p *Partition) Subscriptions() []*delivery.Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*delivery.Subscription, 0, len(p.subs))
	for _, s := range p.subs {
		out = append(out, s)
	}
	return out
}

// Running returns a subscription in use by its name, nil if nobody uses it.
func (p *Partition) Running(name string) *delivery.Subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.subs[name]
}

// Unlist forgets a subscription that was closed.
func (p *Partition) Unlist(s *delivery.Subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[s.Name] == s {
		delete(p.subs, s.Name)
	}
}

// Consumers counts those that are attached.
func (p *Partition) Consumers() (n int) {
	if p.Live != nil {
		return p.Live.Attached()
	}
	for _, s := range p.Subscriptions() {
		n += s.Consumers()
	}
	return n
}

// UnackedBelow is how many messages below an offset some subscription has not
// acknowledged: the most that any one of them would miss.
func (p *Partition) UnackedBelow(offset uint64) uint64 {
	most := uint64(0)
	for m := range p.h.cfg.Meta.View().Subscriptions(p.Key.Topic) {
		s, err := p.Subscription(m)
		if err != nil {
			continue // closed in between: there is nothing to warn of
		}
		most = max(most, s.Lag(offset))
	}
	return most
}

// Describe says what is known of the partition, beside what the metadata say.
func (p *Partition) Describe(view *state.View, m *state.Partition) protocol.PartitionDescription {
	next := m.Floor
	if p.Log != nil {
		next = p.Log.Next()
	}
	d := words.Partition(view, m, next)
	p.mu.Lock()
	d.Producers = len(p.producers)
	p.mu.Unlock()
	if p.Log == nil {
		d.NextOffset = p.Live.Next()
		d.CommittedEnd, d.LogStart, d.Ranges = d.NextOffset, d.NextOffset, []protocol.RangeDescription{}
		return d
	}
	d.LogStart, d.CommittedEnd, d.Ceiling = p.Log.Start(), p.Log.Committed(), p.Log.Ceiling()
	d.Protected = d.NextOffset // without a write buffer nothing is protected
	d.Segments, d.Bytes = p.Log.Bytes()
	for _, x := range p.Past.Damage() {
		d.Ranges = append(d.Ranges, protocol.RangeDescription{
			Epoch: m.Epoch, Start: x.From, End: x.To, Status: "DAMAGED", Stores: []string{d.Owner},
			Detail: fmt.Sprintf("%s at byte %d: %v", x.File, x.At, x.Err),
		})
	}
	return d
}
