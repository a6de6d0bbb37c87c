package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/admin"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// What this broker does for the one that was asked, as the owner of partitions.

// truncateHere truncates a partition that this broker owns.
func (b *Broker) truncateHere(ctx context.Context, q *protocol.Truncate) (*protocol.Truncated, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	if end := p.log.Committed(); q.Before > end {
		return nil, &protocol.Error{Code: protocol.CodeAboveEnd, Want: end, Text: fmt.Sprintf("%s ends at offset %d; nothing lies before %d that could go", p.name(), end, q.Before)}
	}
	out := &protocol.Truncated{Was: p.log.Start(), LogStart: max(q.Before, p.log.Start()), Unacked: b.unackedBelow(p, q.Before)}
	if q.DryRun || q.Before <= out.Was {
		return out, nil
	}
	return out, b.moveLogStart(ctx, p, q.Before)
}

// moveLogStart commits a new start of the log, then lets the files below it go.
func (b *Broker) moveLogStart(ctx context.Context, p *partition, to uint64) error {
	if !b.leased() {
		return errNoLease
	}
	errs, err := b.peers.RequestEach(ctx, &state.UpdatePartitions{Entries: []state.PartitionUpdate{{
		Topic: p.key.topic, Partition: p.key.n, Epoch: p.epoch, Floor: p.floor(), LogStart: to,
	}}}, 1)
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return fmt.Errorf("move the start of %s to %d: %w", p.name(), to, err)
	}
	return p.log.Trim(to)
}

// resolveHere settles ORPHANED or LOST ranges of a partition that this broker owns.
func (b *Broker) resolveHere(ctx context.Context, q *protocol.Resolve) (*protocol.Done, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	m := b.meta.View().Partition(p.key.topic, p.key.n)
	if m == nil {
		return nil, words.NoSuchTopic(p.topic)
	}
	mark := state.RangeMark{Topic: p.key.topic, Partition: p.key.n, Epoch: p.epoch}
	switch q.How {
	case "lost":
		mark.Status = state.RangeLost
	case "accept-gap":
		mark.Status, mark.Accepted = state.RangeOrphaned, true
	case "adopt":
		return &protocol.Done{}, b.history.Adopt(ctx, p.past, q.From, q.To)
	default:
		return nil, protocol.Errorf(protocol.CodeBadRequest, "resolve: use lost, accept-gap or adopt")
	}
	var marks []state.RangeMark
	for _, r := range m.Ranges {
		if r.Status == state.RangeOrphaned && r.Start >= q.From && (q.To == 0 || r.End <= q.To) {
			mark.From, mark.To = r.Start, r.End
			marks = append(marks, mark)
		}
	}
	if len(marks) == 0 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "%s has no orphaned range there", p.name())
	}
	errs, err := b.peers.RequestEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
	if err != nil {
		return nil, err
	}
	for _, s := range b.subscriptionsOf(p) {
		s.Look()
	}
	return &protocol.Done{}, errors.Join(errs...)
}

// verifyHere reads a partition that this broker owns through, what other stores
// hold of it included.
func (b *Broker) verifyHere(ctx context.Context, q *protocol.TopicArgs) (*protocol.VerifyPartition, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	v := &protocol.VerifyPartition{Partition: q.Partition, Findings: []protocol.VerifyFinding{}}
	v.From, v.To = p.log.Start(), p.log.Committed()
	m := b.meta.View().Partition(p.key.topic, p.key.n) // one view: damage found now becomes ORPHANED in a later one
	v.Messages = words.Messages(m, v.From, v.To)
	found := func(d storage.Damage, what string) {
		v.Findings = append(v.Findings, protocol.VerifyFinding{From: d.From, To: d.To, Tier: "hot", File: d.File, At: d.At, What: what})
		v.Messages -= words.Messages(m, d.From, d.To)
	}
	err = p.log.Verify(func(d storage.Damage) {
		found(d, d.Err.Error())
		p.past.SawDamage(d)
	})
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", p.name(), err)
	}
	for _, d := range p.past.KnownDamage() {
		again := slices.ContainsFunc(v.Findings, func(x protocol.VerifyFinding) bool { return x.From < d.To && d.From < x.To })
		if !again && d.To > v.From {
			found(d, d.Err.Error())
		}
	}
	_, v.Bytes = p.log.Bytes()
	if m == nil {
		return v, nil
	}
	elsewhere, err := p.past.VerifyElsewhere(ctx, m, v.From, found)
	if errors.Is(err, history.ErrStale) {
		return nil, protocol.Errorf(protocol.CodeNotReady, "what %s consists of has changed meanwhile: verify it again", p.name())
	}
	v.Bytes += elsewhere
	return v, err
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
		p, err := b.owned(ctx, partitionKey{t.ID, n}, 0)
		out.Partitions = append(out.Partitions, b.describePartition(view, m, p, err))
		if p == nil {
			continue
		}
		if p.level() == protocol.LevelInterval {
			out.Sync = "interval"
		}
		for _, name := range q.Subscriptions {
			sub := view.Subscription(t.ID, name)
			if sub == nil || p.log == nil {
				continue
			}
			s, err := p.shell(sub)
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
		b.unlist(partitionKey{t.ID, n}, s)
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
	n, err := p.resolve(q.At)
	return &admin.PositionAnswer{Offset: n}, err
}
