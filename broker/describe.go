package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

func joinErrors(errs []error) error { return errors.Join(errs...) }

// The bounds of a page of topics.
const (
	defaultPage = 1000
	maxPage     = 10_000
)

func (b *Broker) adminTopicList(_ context.Context, q *protocol.ListArgs) (any, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	limit = min(limit, maxPage)
	view := b.meta.View()
	out := &protocol.TopicList{Topics: []protocol.TopicSummary{}}
	for t := range view.Topics(q.Prefix) {
		if t.Name <= q.After {
			continue
		}
		if len(out.Topics) == limit {
			out.More = true
			break
		}
		s := protocol.TopicSummary{
			Topic: t.Name, ID: t.ID.String(), Reliable: t.Settings.Reliable, Durability: t.Settings.Durability.String(),
			Partitions:  int(t.Settings.Partitions),
			RetentionMS: t.Settings.RetentionTime.Milliseconds(), RetentionBytes: int64(t.Settings.RetentionBytes),
		}
		for range view.Subscriptions(t.ID) {
			s.Subscriptions++
		}
		out.Topics = append(out.Topics, s)
	}
	return out, nil
}

func (b *Broker) adminTopicDescribe(ctx context.Context, q *protocol.TopicArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.meta.View()
	out := &protocol.TopicDescription{
		Topic: t.Name, ID: t.ID.String(), Reliable: t.Settings.Reliable, Durability: t.Settings.Durability.String(),
		RetentionMS: t.Settings.RetentionTime.Milliseconds(), RetentionBytes: int64(t.Settings.RetentionBytes),
		Partitions: []protocol.PartitionDescription{}, Subscriptions: []protocol.SubDescription{},
	}
	subs := slices.Collect(view.Subscriptions(t.ID))
	g := b.gather(ctx, view, t, q.Partition, namesOf(subs))
	if out.Partitions, out.Sync = g.partitions(), g.sync; len(out.Partitions) == 0 {
		return nil, noSuchPartition(t, q.Partition)
	}
	// A subscription is shown whole, also when one partition was asked for.
	if q.Partition >= 0 && len(subs) > 0 {
		g = b.gather(ctx, view, t, -1, namesOf(subs))
	}
	for _, m := range subs {
		out.Subscriptions = append(out.Subscriptions, *describeSubscription(m, g))
	}
	return out, nil
}

func namesOf(subs []*state.Subscription) []string {
	out := make([]string, len(subs))
	for i, m := range subs {
		out[i] = m.Name
	}
	return out
}

// describePartition says what is known of a partition; p is nil when it is not
// served here, and err says why.
func (b *Broker) describePartition(view *state.View, m *state.Partition, p *partition, err error) protocol.PartitionDescription {
	d := protocol.PartitionDescription{
		Partition: int(m.Number), Epoch: m.Epoch, State: lower(m.State.String()), LogStart: m.LogStart, Ceiling: m.Ceiling,
		NextOffset: m.Floor, CommittedEnd: m.Floor, Protected: m.Floor, ColdEnd: m.LogStart, Ranges: []protocol.RangeDescription{},
	}
	if s := view.Store(m.Owner.Store); s != nil {
		d.Owner = s.Broker
	}
	if m.State == state.Sealing {
		d.Reason = "moving to broker " + b.brokerName(m.Target.Store)
	}
	if p == nil && err != nil {
		d.State, d.Reason = "failed", err.Error()
	}
	if p != nil {
		p.mu.Lock()
		d.Producers = len(p.producers)
		p.mu.Unlock()
	}
	if p != nil && p.log == nil {
		d.NextOffset = p.live.next()
		d.CommittedEnd, d.LogStart = d.NextOffset, d.NextOffset
		return d
	}
	if p != nil {
		d.LogStart, d.NextOffset, d.CommittedEnd, d.Ceiling = p.log.Start(), p.log.Next(), p.log.Committed(), p.log.Ceiling()
		d.Protected, d.ColdEnd = d.NextOffset, d.LogStart // without a write buffer nothing is protected; without a cold tier nothing is cold
		d.Segments, d.Bytes = p.log.Bytes()
	}
	for i := range m.Ranges {
		d.Ranges = append(d.Ranges, describeRange(view, &m.Ranges[i], d.NextOffset))
	}
	for _, x := range m.Superseded {
		d.Superseded = append(d.Superseded, protocol.OffsetSpan(x))
	}
	if p == nil {
		return d
	}
	for _, x := range p.past.Damage() {
		d.Ranges = append(d.Ranges, protocol.RangeDescription{
			Epoch: m.Epoch, Start: x.From, End: x.To, Status: "DAMAGED", Stores: []string{d.Owner},
			Detail: fmt.Sprintf("%s at byte %d: %v", x.File, x.At, x.Err),
		})
	}
	return d
}

func describeRange(view *state.View, r *state.Range, next uint64) protocol.RangeDescription {
	d := protocol.RangeDescription{Epoch: r.Epochs[len(r.Epochs)-1].Epoch, Start: r.Start, End: r.End, Status: r.Status.String(), Stores: []string{}}
	if r.Status == state.RangeOpen {
		d.End = next
	}
	var away []string
	for _, id := range r.Stores {
		name := id.String()
		if s := view.Store(id); s != nil {
			name = s.Broker
			if s.Status == state.StoreLost || s.Clean {
				away = append(away, name+" ("+statusOf(s)+")")
			}
		}
		d.Stores = append(d.Stores, name)
	}
	switch {
	case r.Status == state.RangeOrphaned && len(r.Stores) == 0:
		d.Detail = "no broker is known to have it; consumers pass it"
	case r.Status == state.RangeOrphaned && r.Accepted:
		d.Detail = "consumers may pass it"
	case r.Status == state.RangeOrphaned && len(away) == len(r.Stores):
		d.Detail = "may come back with broker " + strings.Join(away, " or ")
	case r.Status == state.RangeSealed && len(away) == len(r.Stores):
		d.Detail = "pending until broker " + strings.Join(away, " or ") + " is back"
	}
	return d
}

// statusOf is the state of a store as people read it.
func statusOf(s *state.Store) string {
	if s.Clean && (s.Status == state.StoreActive || s.Status == state.StoreDraining || s.Status == state.StoreDrained) {
		return "stopped"
	}
	return s.Status.String()
}

func lower(s string) string {
	out := []byte(s)
	for i, c := range out {
		if 'A' <= c && c <= 'Z' {
			out[i] = c + 'a' - 'A'
		}
	}
	return string(out)
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

// describeSubscription says what was gathered of a subscription.
func describeSubscription(m *state.Subscription, g *gathered) *protocol.SubDescription {
	o := &m.Options
	return &protocol.SubDescription{
		Name: m.Name, Type: m.Type.String(), Partitions: g.subscription(m),
		Options: protocol.SubOptions{
			MaxUnacked: int(o.MaxUnacked), AckTimeoutMS: o.AckTimeout.Milliseconds(), MaxRedeliver: int(o.MaxRedelivery),
			BackoffMS: o.BackoffBase.Milliseconds(), BackoffCapMS: o.BackoffCap.Milliseconds(),
			BackoffFixed: o.BackoffBase != 0 && o.BackoffBase == o.BackoffCap,
		},
	}
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

func (b *Broker) adminSubList(ctx context.Context, q *protocol.TopicArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.meta.View()
	out := &protocol.SubList{Subscriptions: []protocol.SubDescription{}}
	subs := slices.Collect(view.Subscriptions(t.ID))
	if len(subs) == 0 {
		return out, nil
	}
	g := b.gather(ctx, view, t, -1, namesOf(subs))
	for _, m := range subs {
		out.Subscriptions = append(out.Subscriptions, *describeSubscription(m, g))
	}
	return out, nil
}

func (b *Broker) adminSubDescribe(ctx context.Context, q *protocol.SubArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.meta.View()
	m := view.Subscription(t.ID, q.Subscription)
	if m == nil {
		return nil, protocol.Errorf(protocol.CodeNoSuchSub, "topic %s has no subscription %q", t.Name, q.Subscription)
	}
	return describeSubscription(m, b.gather(ctx, view, t, -1, []string{m.Name})), nil
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
