package admin

import (
	"context"
	"slices"

	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// The bounds of a page of topics.
const (
	defaultPage = 1000
	maxPage     = 10_000
)

func (b *Board) topicList(_ context.Context, q *protocol.ListArgs) (any, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultPage
	}
	limit = min(limit, maxPage)
	view := b.cfg.Meta.View()
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
			RetentionAcked: t.Settings.RetentionAcked,
		}
		for range view.Subscriptions(t.ID) {
			s.Subscriptions++
		}
		out.Topics = append(out.Topics, s)
	}
	return out, nil
}

func (b *Board) topicDescribe(ctx context.Context, q *protocol.TopicArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.cfg.Meta.View()
	out := &protocol.TopicDescription{
		Topic: t.Name, ID: t.ID.String(), Reliable: t.Settings.Reliable, Durability: t.Settings.Durability.String(),
		RetentionMS: t.Settings.RetentionTime.Milliseconds(), RetentionBytes: int64(t.Settings.RetentionBytes),
		RetentionAcked: t.Settings.RetentionAcked,
		Partitions:     []protocol.PartitionDescription{}, Subscriptions: []protocol.SubDescription{},
	}
	subs := slices.Collect(view.Subscriptions(t.ID))
	g := b.gather(ctx, view, t, q.Partition, namesOf(subs))
	if out.Partitions, out.Sync = g.partitions(), g.sync; len(out.Partitions) == 0 {
		return nil, words.NoSuchPartition(t, q.Partition)
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

func (b *Board) subList(ctx context.Context, q *protocol.TopicArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.cfg.Meta.View()
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

func (b *Board) subDescribe(ctx context.Context, q *protocol.SubArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.cfg.Meta.View()
	m := view.Subscription(t.ID, q.Subscription)
	if m == nil {
		return nil, words.NoSuchSubscription(t.Name, q.Subscription)
	}
	return describeSubscription(m, b.gather(ctx, view, t, -1, []string{m.Name})), nil
}
