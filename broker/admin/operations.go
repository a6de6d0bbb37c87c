package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

func (b *Board) topicCreate(ctx context.Context, q *protocol.TopicCreate) (any, error) {
	full, _, err := protocol.ParseTopic(q.Topic)
	if err != nil {
		return nil, err
	}
	res, err := b.createTopic(ctx, full, q.Config)
	if err != nil {
		return nil, err
	}
	t := b.cfg.Meta.View().TopicByID(res.Topic)
	if t == nil {
		return nil, words.NoSuchTopic(full)
	}
	return &protocol.TopicCreated{Topic: t.Name, ID: t.ID.String(), Created: res.Created, Config: wireConfig(t.Settings)}, nil
}

func wireConfig(s state.TopicSettings) protocol.TopicConfig {
	return protocol.TopicConfig{
		Partitions: int(s.Partitions), NonReliable: !s.Reliable, Durability: s.Durability.String(),
		RetentionMS: s.RetentionTime.Milliseconds(), RetentionBytes: int64(s.RetentionBytes), RetentionAcked: s.RetentionAcked,
	}
}

func (b *Board) topicDelete(ctx context.Context, q *protocol.TopicArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	// Producers alone protect nothing: what they send nobody reads, and they are told with their next message.
	consumers, err := b.consumersEverywhere(ctx, t, "")
	if err != nil && !q.Force {
		return nil, err
	}
	if consumers > 0 && !q.Force {
		return nil, &protocol.Error{
			Code: protocol.CodeSubscriptionInUse, Hint: "--force deletes it all the same, and tells them",
			Text: fmt.Sprintf("topic %s has %s attached", t.Name, words.Counted(consumers, "consumer", "consumers")),
		}
	}
	return protocol.Done{}, b.deleteTopic(ctx, t)
}

func (b *Board) topicSet(ctx context.Context, q *protocol.TopicSet) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	c := wireConfig(t.Settings)
	if q.RetentionMS != nil {
		c.RetentionMS = *q.RetentionMS
	}
	if q.RetentionBytes != nil {
		c.RetentionBytes = *q.RetentionBytes
	}
	if q.RetentionAcked != nil {
		c.RetentionAcked = *q.RetentionAcked
	}
	if q.Durability != nil {
		c.Durability = *q.Durability
	}
	s, err := b.settings(c)
	if err != nil {
		return nil, err
	}
	s.Limits = t.Settings.Limits
	if _, err := b.cfg.Peers.Request(ctx, &state.SetTopic{ID: t.ID, Settings: s}); err != nil {
		return nil, fmt.Errorf("set topic %s: %w", t.Name, err)
	}
	return protocol.Done{}, nil
}

// topicTruncate moves log_start: committed first, deleted later (R13).
func (b *Board) topicTruncate(ctx context.Context, q *protocol.Truncate) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	if !t.Settings.Reliable {
		return nil, protocol.Errorf(protocol.CodeNotReliable, "%s is not reliable and keeps nothing", t.Name)
	}
	if q.Partition < 0 && t.Settings.Partitions > 1 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "%s has %d partitions, each with offsets of its own: name one, as %s:0", t.Name, t.Settings.Partitions, t.Name)
	}
	here := *q
	here.Topic, here.Partition = t.Name, max(q.Partition, 0)
	owner, err := b.ownerOf(t, here.Partition)
	if err != nil {
		return nil, err
	}
	return calls.Errand[protocol.Truncate, protocol.Truncated]{Op: opTruncate, Here: b.cfg.Here.Truncate}.On(ctx, b.cfg.Peers, owner, &here)
}

func (b *Board) topicResolve(ctx context.Context, q *protocol.Resolve) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	settles, err := words.Settles(q.How)
	if err != nil {
		return nil, err
	}
	here := *q
	here.Topic = t.Name
	if q.Partition >= 0 {
		return protocol.Done{}, b.resolvePartition(ctx, t, here)
	}
	if q.From != 0 || q.To != 0 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "offsets belong to a partition: name one, as %s:0", t.Name)
	}
	var errs []error
	var nothing error
	settled := 0
	for m := range b.cfg.Meta.View().Partitions(t.ID) {
		if !slices.ContainsFunc(m.Ranges, func(r state.Range) bool { return settles(&r) }) {
			continue
		}
		here.Partition = int(m.Number)
		err := b.resolvePartition(ctx, t, here)
		refused, is := errors.AsType[*protocol.Error](err)
		switch {
		case err == nil:
			settled++
		case is && refused.Code == protocol.CodeBadRequest: // nothing there to adopt
			nothing = err
		default:
			errs = append(errs, err)
		}
	}
	switch {
	case len(errs) > 0 && settled > 0:
		return nil, fmt.Errorf("%s of %s are settled, not all: %w", words.Counted(settled, "partition", "partitions"), t.Name, errors.Join(errs...))
	case settled == 0 && len(errs) == 0 && nothing != nil:
		return nil, nothing
	case settled == 0 && len(errs) == 0:
		return nil, protocol.Errorf(protocol.CodeBadRequest, "%s has no orphaned range", t.Name)
	}
	return protocol.Done{}, errors.Join(errs...)
}

// resolvePartition has the owner of a partition settle ranges of it.
func (b *Board) resolvePartition(ctx context.Context, t *state.Topic, q protocol.Resolve) error {
	owner, err := b.ownerOf(t, q.Partition)
	if err != nil {
		return err
	}
	e := calls.Errand[protocol.Resolve, protocol.Done]{Op: opResolve, Limit: resolveTime, Here: b.cfg.Here.Resolve}
	_, err = e.On(ctx, b.cfg.Peers, owner, &q)
	return err
}

// resolveTime bounds the settlement of ranges on another broker, which may have a
// store recover a log and tell what it has.
const resolveTime = 60 * time.Second

func (b *Board) topicVerify(ctx context.Context, q *protocol.TopicArgs) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	if !t.Settings.Reliable {
		return nil, protocol.Errorf(protocol.CodeNotReliable, "%s is not reliable and keeps nothing to verify", t.Name)
	}
	out := &protocol.VerifyReport{Partitions: []protocol.VerifyPartition{}}
	for n := range int(t.Settings.Partitions) {
		if q.Partition >= 0 && n != q.Partition {
			continue
		}
		owner, err := b.ownerOf(t, n)
		if err != nil {
			return nil, err
		}
		here := &protocol.TopicArgs{Topic: t.Name, Partition: n}
		e := calls.Errand[protocol.TopicArgs, protocol.VerifyPartition]{Op: opVerify, Limit: verifyTime, Here: b.cfg.Here.Verify}
		v, err := e.On(ctx, b.cfg.Peers, owner, here)
		if err != nil {
			return nil, err
		}
		out.Partitions = append(out.Partitions, *v)
	}
	return out, nil
}

func (b *Board) subCreate(ctx context.Context, q *protocol.SubCreate) (any, error) {
	_, err := b.CreateSubscription(ctx, q)
	return protocol.Done{}, err
}

func (b *Board) subDelete(ctx context.Context, q *protocol.SubArgs) (any, error) {
	return protocol.Done{}, b.deleteSubscription(ctx, q)
}

func (b *Board) subReset(ctx context.Context, q *protocol.SubReset) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	if q.To.Kind == protocol.AtOffset && q.Partition < 0 && t.Settings.Partitions > 1 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "%s has %d partitions, each with offsets of its own: name one, as %s:0", t.Name, t.Settings.Partitions, t.Name)
	}
	return protocol.Done{}, b.ResetSubscription(ctx, t.ID, q.Subscription, q.Partition, q.To)
}

func (b *Board) subSet(ctx context.Context, q *protocol.SubCreate) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	m := b.cfg.Meta.View().Subscription(t.ID, q.Subscription)
	if m == nil {
		return nil, words.NoSuchSubscription(t.Name, q.Subscription)
	}
	opts, err := subOptions(q.Options)
	if err != nil {
		return nil, err
	}
	if _, err := b.cfg.Peers.Request(ctx, &state.SetSubscription{Subscription: m.ID, Options: opts}); err != nil {
		return nil, fmt.Errorf("set subscription %s: %w", q.Subscription, err)
	}
	// Consumers attach again and find the new settings; nothing is lost.
	return protocol.Done{}, b.endSubscription(ctx, t, m,
		protocol.Errorf(protocol.CodeShuttingDown, "the settings of subscription %s changed; attach again", q.Subscription))
}

func (b *Board) audit(ctx context.Context, _ *struct{}) (any, error) {
	if b.cfg.Audit == nil {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "there is no cold tier to audit: storage.mode is local")
	}
	report, err := b.cfg.Audit(ctx)
	if err != nil {
		return nil, err
	}
	report.Awaited = b.cfg.Meta.View().Auditing()
	return report, nil
}

// audited ends the time in which nothing is deleted that an earlier history may have made (R22).
func (b *Board) audited(ctx context.Context, _ *struct{}) (any, error) {
	if b.cfg.Audit == nil {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "there is no cold tier to audit: storage.mode is local")
	}
	if _, err := b.cfg.Meta.Decide(ctx, &state.EndAudit{History: b.cfg.Meta.View().Cluster().History}); err != nil {
		return nil, err
	}
	return &protocol.Done{}, nil
}
