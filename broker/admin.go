package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// operation is one admin operation: it decodes its argument with the given
// function and returns its result. The binary protocol and HTTP both call it.
type operation func(ctx context.Context, b *Broker, decode func(any) error) (any, error)

// op makes an operation of a function that takes a decoded argument.
func op[Q any](do func(*Broker, context.Context, *Q) (any, error)) operation {
	return func(ctx context.Context, b *Broker, decode func(any) error) (any, error) {
		q := new(Q)
		if err := decode(q); err != nil {
			return nil, err
		}
		return do(b, ctx, q)
	}
}

// operations returns the table of admin operations.
func operations() map[string]operation {
	return map[string]operation{
		protocol.OpTopicCreate:   op((*Broker).adminTopicCreate),
		protocol.OpTopicList:     op((*Broker).adminTopicList),
		protocol.OpTopicDescribe: op((*Broker).adminTopicDescribe),
		protocol.OpTopicDelete:   op((*Broker).adminTopicDelete),
		protocol.OpTopicSet:      op((*Broker).adminTopicSet),
		protocol.OpTopicTruncate: op((*Broker).adminTopicTruncate),
		protocol.OpTopicVerify:   op((*Broker).adminTopicVerify),
		protocol.OpTopicResolve:  op((*Broker).adminTopicResolve),
		protocol.OpSubCreate:     op((*Broker).adminSubCreate),
		protocol.OpSubList:       op((*Broker).adminSubList),
		protocol.OpSubDescribe:   op((*Broker).adminSubDescribe),
		protocol.OpSubDelete:     op((*Broker).adminSubDelete),
		protocol.OpSubReset:      op((*Broker).adminSubReset),
		protocol.OpSubSet:        op((*Broker).adminSubSet),
		protocol.OpTopicMove:     op((*Broker).adminTopicMove),
		protocol.OpStatus:        op((*Broker).adminStatus),

		protocol.OpBrokerList:      op((*Broker).adminBrokerList),
		protocol.OpBrokerDescribe:  op((*Broker).adminBrokerDescribe),
		protocol.OpBrokerDrain:     op((*Broker).adminBrokerDrain),
		protocol.OpBrokerActivate:  op((*Broker).adminBrokerActivate),
		protocol.OpBrokerRemove:    op((*Broker).adminBrokerRemove),
		protocol.OpClusterPromote:  op((*Broker).adminPromote),
		protocol.OpClusterDemote:   op((*Broker).adminDemote),
		protocol.OpClusterSnapshot: op((*Broker).adminSnapshot),
		protocol.OpClusterRestore:  op((*Broker).adminRestore),
	}
}

// admin answers an admin frame beside the connection's reader.
func (c *conn) admin(f protocol.Frame) error {
	var h protocol.Admin
	if err := h.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "admin: %v", err)
	}
	if len(f.Body) > protocol.MaxAdminBody {
		return protocol.Errorf(protocol.CodeTooLarge, "admin argument of %d bytes, at most %d", len(f.Body), protocol.MaxAdminBody)
	}
	body := append([]byte(nil), f.Body...)
	c.beside(func() {
		out, err := c.b.call(c.ctx, h.Op, func(v any) error { return protocol.DecodeBody(body, v) })
		var data []byte
		if err == nil {
			data, err = protocol.EncodeBody(out)
		}
		if err != nil {
			c.refuse(f.ID, err)
			return
		}
		c.out.frameWithBody(protocol.TypeAdminOK, f.ID, nil, data)
	})
	return nil
}

// call runs an admin operation by name.
func (b *Broker) call(ctx context.Context, name string, decode func(any) error) (any, error) {
	do, ok := b.operations[name]
	if !ok {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "this broker has no operation %q", name)
	}
	if !b.ready.Load() {
		return nil, protocol.Errorf(protocol.CodeNotReady, "the broker is starting")
	}
	return do(ctx, b, decode)
}

func (b *Broker) adminTopicCreate(ctx context.Context, q *protocol.TopicCreate) (any, error) {
	full, _, err := protocol.ParseTopic(q.Topic)
	if err != nil {
		return nil, err
	}
	res, err := b.createTopic(ctx, full, q.Config)
	if err != nil {
		return nil, err
	}
	t := b.meta.View().TopicByID(res.Topic)
	if t == nil {
		return nil, noSuchTopic(full)
	}
	return &protocol.TopicCreated{Topic: t.Name, ID: t.ID.String(), Created: res.Created, Config: wireConfig(t.Settings)}, nil
}

func wireConfig(s state.TopicSettings) protocol.TopicConfig {
	return protocol.TopicConfig{
		Partitions: int(s.Partitions), NonReliable: !s.Reliable, Durability: s.Durability.String(),
		RetentionMS: s.RetentionTime.Milliseconds(), RetentionBytes: int64(s.RetentionBytes),
	}
}

func (b *Broker) adminTopicDelete(ctx context.Context, q *protocol.TopicArgs) (any, error) {
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
			Text: fmt.Sprintf("topic %s has %s attached", t.Name, counted(consumers, "consumer", "consumers")),
		}
	}
	return protocol.Done{}, b.deleteTopic(ctx, t)
}

func (b *Broker) adminTopicSet(ctx context.Context, q *protocol.TopicSet) (any, error) {
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
	if q.Durability != nil {
		c.Durability = *q.Durability
	}
	s, err := settings(c)
	if err != nil {
		return nil, err
	}
	s.Limits = t.Settings.Limits
	if _, err := b.request(ctx, &state.SetTopic{ID: t.ID, Settings: s}); err != nil {
		return nil, fmt.Errorf("set topic %s: %w", t.Name, err)
	}
	return protocol.Done{}, nil
}

// adminTopicTruncate moves log_start: committed first, deleted later (R13).
func (b *Broker) adminTopicTruncate(ctx context.Context, q *protocol.Truncate) (any, error) {
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
	return calls.Errand[protocol.Truncate, protocol.Truncated]{Op: opTruncate, Here: b.truncateHere}.On(ctx, b.peers, owner, &here)
}

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
	errs, err := b.requestEach(ctx, &state.UpdatePartitions{Entries: []state.PartitionUpdate{{
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

func (b *Broker) adminTopicResolve(ctx context.Context, q *protocol.Resolve) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	owner, err := b.ownerOf(t, q.Partition)
	if err != nil {
		return nil, err
	}
	here := *q
	here.Topic = t.Name
	e := calls.Errand[protocol.Resolve, protocol.Done]{Op: opResolve, Limit: resolveTime, Here: b.resolveHere}
	if _, err := e.On(ctx, b.peers, owner, &here); err != nil {
		return nil, err
	}
	return protocol.Done{}, nil
}

// resolveTime bounds the settlement of ranges on another broker, which may have a
// store recover a log and tell what it has.
const resolveTime = 60 * time.Second

// resolveHere settles ORPHANED or LOST ranges of a partition that this broker owns.
func (b *Broker) resolveHere(ctx context.Context, q *protocol.Resolve) (*protocol.Done, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, 0)
	if err != nil {
		return nil, err
	}
	m := b.meta.View().Partition(p.key.topic, p.key.n)
	if m == nil {
		return nil, noSuchTopic(p.topic)
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
	errs, err := b.requestEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
	if err != nil {
		return nil, err
	}
	for _, s := range b.subscriptionsOf(p) {
		notify(s.wake)
	}
	return &protocol.Done{}, joinErrors(errs)
}

func (b *Broker) adminTopicVerify(ctx context.Context, q *protocol.TopicArgs) (any, error) {
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
		e := calls.Errand[protocol.TopicArgs, protocol.VerifyPartition]{Op: opVerify, Limit: verifyTime, Here: b.verifyHere}
		v, err := e.On(ctx, b.peers, owner, here)
		if err != nil {
			return nil, err
		}
		out.Partitions = append(out.Partitions, *v)
	}
	return out, nil
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
	v.Messages = messages(m, v.From, v.To)
	found := func(d storage.Damage, what string) {
		v.Findings = append(v.Findings, protocol.VerifyFinding{From: d.From, To: d.To, Tier: "hot", File: d.File, At: d.At, What: what})
		v.Messages -= messages(m, d.From, d.To)
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

// messages is how many offsets of [from, to) the metadata says a message has:
// plain gaps, ORPHANED and LOST ranges hold none that can be read.
func messages(m *state.Partition, from, to uint64) uint64 {
	if m == nil {
		return 0
	}
	n := uint64(0)
	for i := range m.Ranges {
		r := &m.Ranges[i]
		end := min(r.End, to)
		if r.Status == state.RangeOpen {
			end = to
		} else if r.Status != state.RangeSealed {
			continue
		}
		if start := max(r.Start, from); start < end {
			n += end - start
		}
	}
	return n
}

func (b *Broker) adminSubCreate(ctx context.Context, q *protocol.SubCreate) (any, error) {
	_, err := b.createSubscription(ctx, q)
	return protocol.Done{}, err
}

func (b *Broker) adminSubDelete(ctx context.Context, q *protocol.SubArgs) (any, error) {
	return protocol.Done{}, b.deleteSubscription(ctx, q)
}

func (b *Broker) adminSubReset(ctx context.Context, q *protocol.SubReset) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	if q.To.Kind == protocol.AtOffset && q.Partition < 0 && t.Settings.Partitions > 1 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "%s has %d partitions, each with offsets of its own: name one, as %s:0", t.Name, t.Settings.Partitions, t.Name)
	}
	return protocol.Done{}, b.resetSubscription(ctx, t.ID, q.Subscription, q.Partition, q.To)
}

func (b *Broker) adminSubSet(ctx context.Context, q *protocol.SubCreate) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	m := b.meta.View().Subscription(t.ID, q.Subscription)
	if m == nil {
		return nil, protocol.Errorf(protocol.CodeNoSuchSub, "topic %s has no subscription %q", t.Name, q.Subscription)
	}
	opts, err := subOptions(q.Options)
	if err != nil {
		return nil, err
	}
	if _, err := b.request(ctx, &state.SetSubscription{Subscription: m.ID, Options: opts}); err != nil {
		return nil, fmt.Errorf("set subscription %s: %w", q.Subscription, err)
	}
	// Consumers attach again and find the new settings; nothing is lost.
	return protocol.Done{}, b.endSubscription(ctx, t, m,
		protocol.Errorf(protocol.CodeShuttingDown, "the settings of subscription %s changed; attach again", q.Subscription))
}

// adminTime bounds an operation that came over HTTP.
const adminTime = 60 * time.Second
