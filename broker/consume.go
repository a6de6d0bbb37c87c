package broker

import (
	"context"
	"errors"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// subscribe answers Subscribe: the subscription is made if it is not there, the
// consumer attached, and after the answer deliveries begin.
func (c *conn) subscribe(ctx context.Context, q *protocol.Subscribe) (protocol.Header, error) {
	p, err := c.b.serving(ctx, q.Topic, q.Partition, q.Epoch)
	if err != nil {
		return nil, err
	}
	if p.live != nil {
		return c.subscribeLive(p, q)
	}
	if err := p.settled(ctx); err != nil {
		return nil, err
	}
	sub, created, err := c.b.subscription(ctx, p, q)
	if err != nil {
		return nil, err
	}
	cons := &consumer{c: c, sub: sub, name: q.Consumer}
	if !c.addConsumer(cons) {
		return nil, context.Cause(ctx)
	}
	ok, err := sub.join(cons, q)
	if err != nil {
		c.dropConsumer(cons.handle)
		return nil, err
	}
	if c.over() {
		cons.leave(false) // the connection took its consumers out before this one had joined
		return nil, context.Cause(ctx)
	}
	ok.Handle, ok.Created = cons.handle, created
	ok.MaxUnacked = sub.maxUnacked
	return answered{ok, func() { sub.begin(cons) }}, nil
}

// answered is an answer after which something is to begin.
type answered struct {
	protocol.Header
	then func()
}

// subscription returns the running shell of a subscription on a partition.
func (b *Broker) subscription(ctx context.Context, p *partition, q *protocol.Subscribe) (*subscription, bool, error) {
	m, created, err := b.ensureSubscription(ctx, p, q)
	if err != nil {
		return nil, false, err
	}
	if got := protocol.SubscriptionType(m.Type); got != q.Type {
		return nil, false, protocol.Errorf(protocol.CodeWrongType, "subscription %s of %s is %v, not %v", m.Name, p.topic, got, q.Type)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != nil {
		return nil, false, p.over
	}
	if s := p.subs[m.Name]; s != nil && s.id == m.ID {
		return s, created, nil
	}
	// Read again: a reset that was committed since finds this shell only once it is listed.
	if now := b.meta.View().Subscription(p.key.topic, q.Subscription); now != nil && now.ID == m.ID {
		m = now
	}
	s, err := newSubscription(p, m)
	if err != nil {
		return nil, false, err
	}
	p.subs[m.Name] = s
	return s, created, nil
}

// ensureSubscription returns what the metadata says of a subscription, making it if the request allows.
func (b *Broker) ensureSubscription(ctx context.Context, p *partition, q *protocol.Subscribe) (*state.Subscription, bool, error) {
	if m := b.meta.View().Subscription(p.key.topic, q.Subscription); m != nil {
		return m, false, nil
	}
	if q.Existing {
		return nil, false, protocol.Errorf(protocol.CodeNoSuchSub, "topic %s has no subscription %q", p.topic, q.Subscription)
	}
	created, err := b.admin.CreateSubscription(ctx, &protocol.SubCreate{
		Topic: p.topic, Subscription: q.Subscription, Type: q.Type, Start: q.Start, Options: q.Options,
	})
	if err != nil {
		return nil, false, err
	}
	m := b.meta.View().Subscription(p.key.topic, q.Subscription)
	if m == nil {
		return nil, false, protocol.Errorf(protocol.CodeNoSuchSub, "subscription %q of %s was deleted while it was opened", q.Subscription, p.topic)
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
	a := c.held(r, cons.id)
	if _, err := cons.sub.settle(func(d *dispatch.Subscription, now int64) (dispatch.Settled, error) { return do(d, a, now) }); err != nil {
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
	held := c.held(&a.Ranges, cons.id)
	upTo := a.UpTo && len(held.Ranges) == 1 && held.Ranges[0].End > 0
	res, err := cons.sub.settle(func(d *dispatch.Subscription, _ int64) (dispatch.Settled, error) {
		if upTo {
			return d.AckUpTo(held.Consumer, held.Generation, held.Ranges[0].End-1)
		}
		return d.Ack(held)
	})
	switch {
	case err != nil && a.Confirm:
		c.out.Frame(protocol.TypeError, id, c.b.wireError(err))
	case err != nil:
		c.refuseSettle(id, err)
	case a.Confirm:
		cons.sub.confirm(confirm{c: c, id: id, stale: res.Stale})
	}
}

// grant gives a consumer credit.
func (c *conn) grant(q *protocol.Credit) {
	cons := c.consumer(q.Handle)
	if cons == nil {
		return
	}
	if cons.live != nil {
		cons.live.grant(q.Messages)
		return
	}
	cons.sub.mu.Lock()
	defer cons.sub.mu.Unlock()
	if err := cons.sub.d.Grant(cons.id, q.Messages); err == nil {
		notify(cons.sub.wake)
	}
}

// closeConsumer ends a consumer in order.
func (c *conn) closeConsumer(_ context.Context, q *protocol.Handle) (protocol.Header, error) {
	cons := c.consumer(q.Handle)
	if cons == nil {
		return nil, protocol.Errorf(protocol.CodeBadHandle, "close consumer: no consumer %d on this connection", q.Handle)
	}
	c.dropConsumer(q.Handle)
	cons.leave(true)
	return nil, nil
}

// seek moves the subscription of a consumer on its partition; the others stay where they are.
func (c *conn) seek(ctx context.Context, q *protocol.Seek) (protocol.Header, error) {
	cons := c.consumer(q.Handle)
	if cons == nil || cons.sub == nil {
		return nil, protocol.Errorf(protocol.CodeBadHandle, "seek: no consumer %d of a reliable topic on this connection", q.Handle)
	}
	s := cons.sub
	if err := c.b.admin.ResetSubscription(ctx, s.part.key.topic, s.name, int(s.part.key.n), q.To); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return &protocol.SeekOK{Cursor: s.d.Cursor().Prefix, Generation: s.d.Generation()}, nil
}
