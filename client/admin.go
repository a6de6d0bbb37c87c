package client

import (
	"context"
	"errors"

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
	if op == protocol.OpTopicVerify {
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
		if _, is := errors.AsType[*lostError](err); is {
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
