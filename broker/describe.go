package broker

import (
	"fmt"
	"slices"
	"strings"

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
		d.NextOffset = p.live.next()
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
func (p *partition) shell(m *state.Subscription) (*subscription, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.subs[m.Name]; s != nil && s.id == m.ID {
		return s, nil
	}
	if p.over != nil {
		return nil, p.over
	}
	s, err := newSubscription(p, m)
	if err != nil {
		return nil, err
	}
	p.subs[m.Name] = s
	return s, nil
}

// describe says where a subscription stands on its partition and why it does not move.
func (s *subscription) describe() protocol.SubPartition {
	start, end := s.part.bounds()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.d.Explain(s.now())
	d := protocol.SubPartition{
		Partition: int(s.part.key.n), Cursor: e.Prefix, Lag: min(s.d.Lag(end), end-start), InFlight: e.InFlight, Redeliver: e.Waiting,
		Ranges: e.Ranges, Skipped: s.skipped, Generation: s.d.Generation(), State: e.Stalled.String(),
		Consumers: []protocol.SubConsumer{},
	}
	switch {
	case s.gapSince != 0:
		left := (s.gapSince + int64(s.b.cfg.GapWait) - s.now()) / 1e9
		d.State = fmt.Sprintf("waiting at a gap: the messages [%d, %d) may come back%s; passes it in %d s",
			s.gap.Start, s.gap.End, s.part.b.maybeWith(s.part, s.gap.Start), max(left, 0))
	case s.away != nil:
		d.State = fmt.Sprintf("waiting for broker %s, which is away and holds the messages [%d, %d)", strings.Join(s.away.Brokers, " or "), s.away.From, s.away.To)
	case d.State == "ready" && e.Fresh >= end && e.Waiting == 0:
		d.State = "at the end of the log"
	}
	if e.RangesHigh {
		d.State += "; nearly too many acknowledged ranges above the oldest unacknowledged message"
	}
	for _, c := range e.Consumers {
		x := protocol.SubConsumer{Name: c.Name, Credit: c.Credit, InFlight: c.InFlight}
		if o := s.consumers[c.ID]; o != nil {
			x.Address = o.c.nc.RemoteAddr().String()
		}
		d.Consumers = append(d.Consumers, x)
	}
	return d
}

// maybeWith names the brokers that an offset may come back with.
func (b *Broker) maybeWith(p *partition, offset uint64) string {
	m := b.meta.View().Partition(p.key.topic, p.key.n)
	if m == nil {
		return ""
	}
	rg := m.Range(offset)
	if rg == nil || rg.Status != state.RangeOrphaned || len(rg.Stores) == 0 || slices.Contains(rg.Stores, b.self().Store) {
		return ""
	}
	var names []string
	for _, id := range rg.Stores {
		names = append(names, b.brokerName(id))
	}
	return " with broker " + strings.Join(names, " or ")
}

// subscriptionsOf returns the subscriptions in use on a partition.
func (b *Broker) subscriptionsOf(p *partition) []*subscription {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*subscription, 0, len(p.subs))
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
		s.mu.Lock()
		most = max(most, s.d.Lag(offset))
		s.mu.Unlock()
	}
	return most
}
