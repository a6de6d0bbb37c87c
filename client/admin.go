package client

import (
	"context"
	"errors"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// Admin is the administration of the cluster: one method for each operation of
// package protocol, whose types carry arguments and results. Operations wait for
// a broker that is not ready or not reachable, until ctx ends or the configured timeout is over.
type Admin struct{ c *Client }

// Admin returns the administration of the cluster.
func (c *Client) Admin() *Admin { return &Admin{c} }

// admin calls an operation. Every one may be done twice: one whose answer was
// lost is asked for again. lost tells whether that was so.
func admin[R any](ctx context.Context, c *Client, op string, arg any) (res *R, lost bool, err error) {
	var body []byte
	if arg != nil {
		if body, err = protocol.EncodeBody(arg); err != nil {
			return nil, false, err
		}
	}
	try := c.persist
	if op == protocol.OpTopicVerify || op == protocol.OpClusterAudit {
		try = c.insist
	}
	err = try(ctx, op, func(ctx context.Context) error {
		conn, err := c.any(ctx)
		if err != nil {
			return err
		}
		res = new(R)
		err = conn.call(ctx, protocol.TypeAdmin, &protocol.Admin{Op: op}, body, &call{
			op: op, want: protocol.TypeAdminOK,
			decode: func(f protocol.Frame) error { return protocol.DecodeBody(f.Body, res) },
		})
		if _, is := errors.AsType[*retry.LostError](err); is {
			lost = true
		}
		return err
	})
	return res, lost, err
}

// TopicCreate makes a topic. One that exists with the same settings is no error.
func (a *Admin) TopicCreate(ctx context.Context, arg protocol.TopicCreate) (*protocol.TopicCreated, error) {
	res, _, err := admin[protocol.TopicCreated](ctx, a.c, protocol.OpTopicCreate, &arg)
	return res, err
}

// TopicList returns a page of topics.
func (a *Admin) TopicList(ctx context.Context, arg protocol.ListArgs) (*protocol.TopicList, error) {
	res, _, err := admin[protocol.TopicList](ctx, a.c, protocol.OpTopicList, &arg)
	return res, err
}

// TopicDescribe returns everything about a topic.
func (a *Admin) TopicDescribe(ctx context.Context, arg protocol.TopicArgs) (*protocol.TopicDescription, error) {
	res, _, err := admin[protocol.TopicDescription](ctx, a.c, protocol.OpTopicDescribe, &arg)
	return res, err
}

// TopicDelete deletes a topic with its messages and subscriptions.
func (a *Admin) TopicDelete(ctx context.Context, arg protocol.TopicArgs) error {
	_, lost, err := admin[protocol.Done](ctx, a.c, protocol.OpTopicDelete, &arg)
	if lost && errors.Is(err, ErrNoSuchTopic) {
		return nil // the attempt whose answer was lost did it
	}
	return err
}

// TopicSet changes settings of a topic.
func (a *Admin) TopicSet(ctx context.Context, arg protocol.TopicSet) error {
	_, _, err := admin[protocol.Done](ctx, a.c, protocol.OpTopicSet, &arg)
	return err
}

// TopicTruncate gives up the messages before an offset, or says which those are.
func (a *Admin) TopicTruncate(ctx context.Context, arg protocol.Truncate) (*protocol.Truncated, error) {
	res, _, err := admin[protocol.Truncated](ctx, a.c, protocol.OpTopicTruncate, &arg)
	return res, err
}

// TopicVerify reads a topic through and reports what is wrong with it. It takes
// as long as that takes: only ctx bounds it.
func (a *Admin) TopicVerify(ctx context.Context, arg protocol.TopicArgs) (*protocol.VerifyReport, error) {
	res, _, err := admin[protocol.VerifyReport](ctx, a.c, protocol.OpTopicVerify, &arg)
	return res, err
}

// TopicResolve settles a range of offsets whose store is away.
func (a *Admin) TopicResolve(ctx context.Context, arg protocol.Resolve) error {
	_, _, err := admin[protocol.Done](ctx, a.c, protocol.OpTopicResolve, &arg)
	return err
}

// SubscriptionCreate makes a subscription.
func (a *Admin) SubscriptionCreate(ctx context.Context, arg protocol.SubCreate) error {
	_, _, err := admin[protocol.Done](ctx, a.c, protocol.OpSubCreate, &arg)
	return err
}

// SubscriptionList returns the subscriptions of a topic.
func (a *Admin) SubscriptionList(ctx context.Context, arg protocol.TopicArgs) (*protocol.SubList, error) {
	res, _, err := admin[protocol.SubList](ctx, a.c, protocol.OpSubList, &arg)
	return res, err
}

// SubscriptionDescribe returns everything about a subscription.
func (a *Admin) SubscriptionDescribe(ctx context.Context, arg protocol.SubArgs) (*protocol.SubDescription, error) {
	res, _, err := admin[protocol.SubDescription](ctx, a.c, protocol.OpSubDescribe, &arg)
	return res, err
}

// SubscriptionDelete deletes a subscription and its progress.
func (a *Admin) SubscriptionDelete(ctx context.Context, arg protocol.SubArgs) error {
	_, lost, err := admin[protocol.Done](ctx, a.c, protocol.OpSubDelete, &arg)
	if lost && hasCode(err, protocol.CodeNoSuchSub) {
		return nil // the attempt whose answer was lost did it
	}
	return err
}

// SubscriptionReset moves a subscription, with or without consumers.
func (a *Admin) SubscriptionReset(ctx context.Context, arg protocol.SubReset) error {
	_, _, err := admin[protocol.Done](ctx, a.c, protocol.OpSubReset, &arg)
	return err
}

// SubscriptionSet changes the options of a subscription.
func (a *Admin) SubscriptionSet(ctx context.Context, arg protocol.SubCreate) error {
	_, _, err := admin[protocol.Done](ctx, a.c, protocol.OpSubSet, &arg)
	return err
}

// Status returns the state of the cluster as the broker that answers sees it.
func (a *Admin) Status(ctx context.Context) (*protocol.Status, error) {
	res, _, err := admin[protocol.Status](ctx, a.c, protocol.OpStatus, nil)
	return res, err
}

// ClusterAudit compares the cold tier with what the catalogs say is in it. It takes as
// long as listing all of it takes: only ctx bounds it.
func (a *Admin) ClusterAudit(ctx context.Context) (*protocol.AuditReport, error) {
	res, _, err := admin[protocol.AuditReport](ctx, a.c, protocol.OpClusterAudit, nil)
	return res, err
}

// ClusterAudited says that somebody has looked at what the metadata of before a rebuild,
// restore or recovery left in the cold tier: from now on what nobody names is deleted there.
func (a *Admin) ClusterAudited(ctx context.Context) error {
	_, _, err := admin[protocol.Done](ctx, a.c, protocol.OpClusterAudited, nil)
	return err
}

// TopicMove moves partitions and returns when their new owners serve.
func (a *Admin) TopicMove(ctx context.Context, arg protocol.TopicMove) (*protocol.TopicMoved, error) {
	res, _, err := admin[protocol.TopicMoved](ctx, a.c, protocol.OpTopicMove, &arg)
	return res, err
}

// BrokerList returns every broker that is not removed.
func (a *Admin) BrokerList(ctx context.Context) (*protocol.BrokerList, error) {
	res, _, err := admin[protocol.BrokerList](ctx, a.c, protocol.OpBrokerList, nil)
	return res, err
}

// BrokerDescribe returns what a broker owns, and what lies nowhere else.
func (a *Admin) BrokerDescribe(ctx context.Context, arg protocol.BrokerArgs) (*protocol.BrokerDescription, error) {
	res, _, err := admin[protocol.BrokerDescription](ctx, a.c, protocol.OpBrokerDescribe, &arg)
	return res, err
}

// BrokerDrain begins to empty a broker: its topics move to others, then its history is copied. It does not wait.
func (a *Admin) BrokerDrain(ctx context.Context, arg protocol.BrokerArgs) error {
	return a.broker(ctx, protocol.OpBrokerDrain, arg)
}

// BrokerActivate ends a drain: the broker takes topics again.
func (a *Admin) BrokerActivate(ctx context.Context, arg protocol.BrokerArgs) error {
	return a.broker(ctx, protocol.OpBrokerActivate, arg)
}

// BrokerRemove takes a broker out of the cluster for good. One that owns partitions, or holds the only copy of
// messages, is refused unless arg.Lose gives those up.
func (a *Admin) BrokerRemove(ctx context.Context, arg protocol.BrokerArgs) error {
	return a.broker(ctx, protocol.OpBrokerRemove, arg)
}

// Promote gives a broker a vote on the metadata.
func (a *Admin) Promote(ctx context.Context, arg protocol.BrokerArgs) error {
	return a.broker(ctx, protocol.OpClusterPromote, arg)
}

// Demote takes a broker's vote.
func (a *Admin) Demote(ctx context.Context, arg protocol.BrokerArgs) error {
	return a.broker(ctx, protocol.OpClusterDemote, arg)
}

func (a *Admin) broker(ctx context.Context, op string, arg protocol.BrokerArgs) error {
	_, _, err := admin[protocol.Done](ctx, a.c, op, &arg)
	return err
}

// SnapshotPage returns the next page of a snapshot of the metadata; an empty ID begins one.
func (a *Admin) SnapshotPage(ctx context.Context, arg protocol.SnapshotPage) (*protocol.SnapshotPage, error) {
	res, _, err := admin[protocol.SnapshotPage](ctx, a.c, protocol.OpClusterSnapshot, &arg)
	return res, err
}

// RestorePage sends a page of a snapshot; the last one puts it in place of the metadata there are.
func (a *Admin) RestorePage(ctx context.Context, arg protocol.SnapshotPage) (*protocol.SnapshotPage, error) {
	res, _, err := admin[protocol.SnapshotPage](ctx, a.c, protocol.OpClusterRestore, &arg)
	return res, err
}
