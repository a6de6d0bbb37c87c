package broker

import (
	"context"
	"time"

	"github.com/danubemq/danube/broker/admin"
	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// What this broker does for the one that was asked, as the owner of partitions.

func (b *Broker) truncateHere(ctx context.Context, q *protocol.Truncate) (*protocol.Truncated, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	return p.Truncate(ctx, q)
}

func (b *Broker) resolveHere(ctx context.Context, q *protocol.Resolve) (*protocol.Done, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	return p.SettleRanges(ctx, q)
}

func (b *Broker) verifyHere(ctx context.Context, q *protocol.TopicArgs) (*protocol.VerifyPartition, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	return p.Verify(ctx, q)
}

// describeHere says what this broker knows of partitions that it serves.
func (b *Broker) describeHere(ctx context.Context, q *admin.DescribeArg) (*admin.DescribeAnswer, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	out := &admin.DescribeAnswer{}
	for _, n := range q.Partitions {
		view := b.meta.View()
		m := view.Partition(t.ID, n)
		if m == nil {
			continue
		}
		p, err := b.owned(ctx, served.Key{Topic: t.ID, N: n}, 0)
		if p == nil {
			d := words.Partition(view, m, m.Floor)
			d.State, d.Reason = "failed", err.Error()
			out.Partitions = append(out.Partitions, d)
			continue
		}
		out.Partitions = append(out.Partitions, p.Describe(view, m))
		if p.Level() == protocol.LevelInterval {
			out.Sync = "interval"
		}
		for _, name := range q.Subscriptions {
			sub := view.Subscription(t.ID, name)
			if sub == nil || p.Log == nil {
				continue
			}
			s, err := p.Subscription(sub)
			if err != nil {
				return nil, err
			}
			out.Subs = append(out.Subs, admin.SubAnswer{Name: name, Partition: s.Describe()})
		}
	}
	return out, nil
}

// catchUp is how long a request waits until this broker has applied what the
// caller knows.
const catchUp = time.Second

// topicOf returns a topic by its id, as of an index of the metadata.
func (b *Broker) topicOf(ctx context.Context, id []byte, index uint64) (*state.Topic, error) {
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := b.meta.WaitIndex(wait, index); err != nil {
		return nil, protocol.Errorf(protocol.CodeNotReady, "this broker has not applied index %d of the metadata", index)
	}
	var key state.TopicID
	if len(id) != len(key) {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "topic id of %d bytes", len(id))
	}
	copy(key[:], id)
	t := b.meta.View().TopicByID(key)
	if t == nil || t.Deleted() {
		return nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", key)
	}
	return t, nil
}

// servesHere returns when this broker serves a partition under an epoch or a later one.
func (b *Broker) servesHere(ctx context.Context, q *admin.ServesArg) (*protocol.Done, error) {
	if _, err := b.topicOf(ctx, q.Topic, q.Index); err != nil {
		return nil, err
	}
	key, err := keyOf(&q.Partition)
	if err != nil {
		return nil, err
	}
	_, err = b.owned(ctx, key, 0)
	return &protocol.Done{}, err
}

// resetHere lets the shells of this broker follow a committed reset.
func (b *Broker) resetHere(ctx context.Context, q *admin.ResetArg) (*protocol.Done, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	shells := b.running(t.ID, q.Subscription) // looked up after the commit: one that begins later reads it
	for _, r := range q.Entries {
		if s := shells[r.Partition]; s != nil && s.ID == q.ID {
			if err := s.Reset(r.Generation, r.Start); err != nil {
				return nil, err
			}
		}
	}
	return &protocol.Done{}, nil
}

// usersHere counts the consumers on this broker.
func (b *Broker) usersHere(ctx context.Context, q *admin.SubscriptionArg) (*admin.Users, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	if q.Subscription == "" {
		return &admin.Users{Consumers: b.consumers(t)}, nil
	}
	n := 0
	for _, s := range b.running(t.ID, q.Subscription) {
		n += s.Consumers()
	}
	return &admin.Users{Consumers: n}, nil
}

func (b *Broker) endHere(ctx context.Context, q *admin.EndArg) (*protocol.Done, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	why := protocol.Errorf(q.Code, "%s", q.Why)
	subs := b.running(t.ID, q.Subscription)
	for n, s := range subs {
		if s.ID != q.ID {
			delete(subs, n) // one of the same name, made since
			continue
		}
		s.Close(why)
	}
	b.carrier.Commit(ctx)
	for n, s := range subs {
		if p := b.served(served.Key{Topic: t.ID, N: n}); p != nil {
			p.Unlist(s)
		}
	}
	return &protocol.Done{}, nil
}

// positionHere resolves a position on a partition that this broker owns.
func (b *Broker) positionHere(ctx context.Context, q *admin.PositionArg) (*admin.PositionAnswer, error) {
	key, err := keyOf(&q.Partition)
	if err != nil {
		return nil, err
	}
	p, err := b.owned(ctx, key, q.Epoch)
	if err != nil {
		return nil, err
	}
	n, err := p.Resolve(ctx, q.At)
	return &admin.PositionAnswer{Offset: n}, err
}

// presentHere says that this broker is there, how far it is, and what of its partitions holds nothing.
func (b *Broker) presentHere(_ context.Context, q *admin.PresenceArg) (*admin.PresenceAnswer, error) {
	view, self := b.meta.View(), b.self()
	out := &admin.PresenceAnswer{Applied: view.Index()}
	if s := view.Store(self.Store); s == nil || s.Incarnation != self.Incarnation || s.Status == state.StoreLost {
		return out, nil // what this run has closed it may have written to
	}
	for m := range view.Owned(self.Store) {
		if t := view.TopicByID(m.Topic); m.Owner != self || t == nil || t.Deleted() || !b.emptyHere(m) {
			continue
		}
		if out.Empty++; q.Which {
			out.Which = append(out.Which, calls.Of(m))
		}
	}
	return out, nil
}

// emptyHere reports whether nothing was ever written to the open range of a partition of this run, which it alone holds. One
// that is not served was not opened yet in its epoch: that happens at its first use.
func (b *Broker) emptyHere(m *state.Partition) bool {
	r := m.OpenRange()
	if r == nil || len(r.Stores) != 1 || r.Start != m.OpenStart() || m.State == state.Opening {
		return false
	}
	p := b.served(served.Key{Topic: m.Topic, N: m.Number})
	return p == nil || p.Log != nil && p.Epoch == m.Epoch && p.Log.Next() == r.Start
}
