package broker

import (
	"context"
	"errors"
	"time"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// subscribe answers Subscribe: the subscription is made if it is not there, the
// consumer attached, and after the answer deliveries begin.
func (c *conn) subscribe(ctx context.Context, q *protocol.Subscribe) (protocol.Header, error) {
	if err := dispatch.Supported(dispatch.Policy(q.Type), q.Filters); err != nil {
		return nil, err
	}
	p, err := c.b.serving(ctx, q.Topic, q.Partition, q.Epoch)
	if err != nil {
		return nil, err
	}
	if p.Live != nil {
		return c.subscribeLive(p, q)
	}
	if err := p.Settled(ctx); err != nil {
		return nil, err
	}
	sub, created, err := c.b.subscription(ctx, p, q)
	if err != nil {
		return nil, err
	}
	cons := &consumer{part: p, sub: sub.Consumer(c, q.Consumer)}
	if !c.addConsumer(cons) {
		return nil, context.Cause(ctx)
	}
	ok, err := sub.Join(cons.sub, q)
	if err != nil {
		c.Drop(cons.handle)
		return nil, err
	}
	if c.over() {
		cons.leave(false) // the connection took its consumers out before this one had joined
		return nil, context.Cause(ctx)
	}
	ok.Handle, ok.Created = cons.handle, created
	ok.MaxUnacked = sub.MaxUnacked
	return answered{ok, func() { sub.Begin(cons.sub) }}, nil
}

// answered is an answer after which something is to begin.
type answered struct {
	protocol.Header
	then func()
}

// subscription returns the running shell of a subscription on a partition.
func (b *Broker) subscription(ctx context.Context, p *served.Partition, q *protocol.Subscribe) (*delivery.Subscription, bool, error) {
	m, created, err := b.ensureSubscription(ctx, p, q)
	if err != nil {
		return nil, false, err
	}
	if got := protocol.SubscriptionType(m.Type); got != q.Type {
		return nil, false, protocol.Errorf(protocol.CodeWrongType, "subscription %s of %s is %v, not %v", m.Name, p.Topic, got, q.Type)
	}
	s, err := p.Subscription(m)
	return s, created, err
}

// ensureSubscription returns what the metadata says of a subscription, making it if the request allows.
func (b *Broker) ensureSubscription(ctx context.Context, p *served.Partition, q *protocol.Subscribe) (*state.Subscription, bool, error) {
	if m := b.meta.View().Subscription(p.Key.Topic, q.Subscription); m != nil {
		return m, false, nil
	}
	if q.Existing {
		return nil, false, words.NoSuchSubscription(p.Topic, q.Subscription)
	}
	created, err := b.admin.CreateSubscription(ctx, &protocol.SubCreate{
		Topic: p.Topic, Subscription: q.Subscription, Type: q.Type, Start: q.Start, Options: q.Options,
	})
	if err != nil {
		return nil, false, err
	}
	m := b.meta.View().Subscription(p.Key.Topic, q.Subscription)
	if m == nil {
		return nil, false, protocol.Errorf(protocol.CodeNoSuchSub, "subscription %q of %s was deleted while it was opened", q.Subscription, p.Topic)
	}
	return m, created, nil
}

// settle handles what clients say of messages, on the connection's reader.
func (c *conn) settle(f protocol.Frame) error {
	s := &c.scratch
	switch f.Type {
	case protocol.TypeCredit:
		if err := s.credit.Decode(f.Header); err != nil {
			return protocol.Errorf(protocol.CodeBadFrame, "credit: %v", err)
		}
		c.grant(&s.credit)
		return nil
	case protocol.TypeReceived:
		if err := s.received.Decode(f.Header); err != nil {
			return protocol.Errorf(protocol.CodeBadFrame, "received: %v", err)
		}
		c.settleRanges(f.ID, &s.received, func(d *dispatch.Subscription, a dispatch.Settle, now int64) (dispatch.Settled, error) {
			return d.Received(a, now)
		})
		return nil
	case protocol.TypeNack:
		if err := s.nack.Decode(f.Header); err != nil {
			return protocol.Errorf(protocol.CodeBadFrame, "nack: %v", err)
		}
		delay := time.Duration(s.nack.DelayMS) * time.Millisecond
		if s.nack.DelayMS == 0 {
			delay = -1
		}
		c.settleRanges(f.ID, &s.nack.Ranges, func(d *dispatch.Subscription, a dispatch.Settle, now int64) (dispatch.Settled, error) {
			return d.Nack(a, delay, now)
		})
		return nil
	}
	if err := s.ack.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "ack: %v", err)
	}
	c.ack(f.ID, &s.ack)
	return nil
}

// scratch is what the reader decodes into, so that acknowledgements allocate nothing.
type scratch struct {
	credit   protocol.Credit
	received protocol.Ranges
	nack     protocol.Nack
	ack      protocol.Ack
	ranges   []dispatch.Range
}

// held converts the ranges a client names; the result is valid until the next frame.
func (c *conn) held(r *protocol.Ranges, id dispatch.ConsumerID) dispatch.Settle {
	out := c.scratch.ranges[:0]
	for _, x := range r.Ranges {
		out = append(out, dispatch.Range{Start: x.From, End: x.To})
	}
	c.scratch.ranges = out
	return dispatch.Settle{Consumer: id, Generation: r.Generation, Ranges: out}
}

type settleFunc func(*dispatch.Subscription, dispatch.Settle, int64) (dispatch.Settled, error)

// settleRanges carries out a request that is never answered.
func (c *conn) settleRanges(id uint64, r *protocol.Ranges, do settleFunc) {
	cons := c.consumer(r.Handle)
	if cons == nil || cons.sub == nil {
		return // it was ended, and its client was told
	}
	a := c.held(r, cons.sub.ID)
	if _, err := cons.sub.Subscription().Settle(func(d *dispatch.Subscription, now int64) (dispatch.Settled, error) { return do(d, a, now) }); err != nil {
		c.refuseSettle(id, err)
	}
}

// refuseSettle tells of a request that could not be carried out; from before a
// reset or the end of a consumer is a matter of course.
func (c *conn) refuseSettle(id uint64, err error) {
	if id != 0 && !errors.Is(err, dispatch.ErrStale) && !errors.Is(err, dispatch.ErrUnknownConsumer) {
		c.out.Frame(protocol.TypeError, id, c.b.wireError(err))
	}
}

// ack carries out an acknowledgement.
func (c *conn) ack(id uint64, a *protocol.Ack) {
	cons := c.consumer(a.Handle)
	if cons == nil || cons.sub == nil {
		if a.Confirm {
			c.out.Frame(protocol.TypeError, id, protocol.Errorf(protocol.CodeBadHandle, "ack: no consumer %d on this connection", a.Handle))
		}
		return
	}
	held := c.held(&a.Ranges, cons.sub.ID)
	upTo := a.UpTo && len(held.Ranges) == 1 && held.Ranges[0].End > 0
	do := func(d *dispatch.Subscription, _ int64) (dispatch.Settled, error) {
		if upTo {
			return d.AckUpTo(held.Consumer, held.Generation, held.Ranges[0].End-1)
		}
		return d.Ack(held)
	}
	if a.Confirm {
		if err := cons.sub.Subscription().Confirm(cons.sub, id, do); err != nil {
			c.out.Frame(protocol.TypeError, id, c.b.wireError(err))
		}
		return
	}
	if _, err := cons.sub.Subscription().Settle(do); err != nil {
		c.refuseSettle(id, err)
	}
}

// grant gives a consumer credit.
func (c *conn) grant(q *protocol.Credit) {
	cons := c.consumer(q.Handle)
	if cons == nil {
		return
	}
	if cons.sub != nil { // what a live consumer does not take in time is lost, credit or not
		cons.sub.Grant(q.Messages)
	}
}

// closeConsumer ends a consumer in order.
func (c *conn) closeConsumer(_ context.Context, q *protocol.Handle) (protocol.Header, error) {
	cons := c.consumer(q.Handle)
	if cons == nil {
		return nil, protocol.Errorf(protocol.CodeBadHandle, "close consumer: no consumer %d on this connection", q.Handle)
	}
	c.Drop(q.Handle)
	cons.leave(true)
	return nil, nil
}

// seek moves the subscription of a consumer on its partition; the others stay where they are.
func (c *conn) seek(ctx context.Context, q *protocol.Seek) (protocol.Header, error) {
	cons := c.consumer(q.Handle)
	if cons == nil || cons.sub == nil {
		return nil, protocol.Errorf(protocol.CodeBadHandle, "seek: no consumer %d of a reliable topic on this connection", q.Handle)
	}
	s, p := cons.sub.Subscription(), cons.part
	if err := c.b.admin.ResetSubscription(ctx, p.Key.Topic, s.Name, int(p.Key.N), q.To); err != nil {
		return nil, err
	}
	ok := &protocol.SeekOK{}
	ok.Cursor, ok.Generation = s.Standing()
	return ok, nil
}

// subscribeLive attaches a consumer to a non-reliable topic.
func (c *conn) subscribeLive(p *served.Partition, q *protocol.Subscribe) (protocol.Header, error) {
	o := p.Live.Consumer(c, q.Consumer)
	cons := &consumer{part: p, live: o}
	if !c.addConsumer(cons) {
		return nil, context.Cause(c.ctx)
	}
	if err := p.Live.Join(o, q); err != nil {
		c.Drop(cons.handle)
		return nil, err
	}
	if c.over() {
		o.Leave() // the connection took its consumers out before this one had joined
		return nil, context.Cause(c.ctx)
	}
	return answered{&protocol.SubscribeOK{Handle: cons.handle, Epoch: p.Epoch, Type: q.Type, Cursor: p.Live.Next()}, o.Begin}, nil
}
