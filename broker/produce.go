package broker

import (
	"context"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/protocol"
)

// openProducer answers OpenProducer.
func (c *conn) openProducer(ctx context.Context, q *protocol.OpenProducer) (protocol.Header, error) {
	p, err := c.b.serving(ctx, q.Topic, q.Partition, q.Epoch)
	if err != nil {
		return nil, err
	}
	if q.Name != "" && protocol.ProducerID(q.Name) != q.Producer {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "producer id %d is not the one of name %q", q.Producer, q.Name)
	}
	prod := &producer{Producer: served.Producer{ID: q.Producer, Session: q.Session}}
	prod.Lane.Closed = func() { c.dropProducer(prod) }
	ok, err := p.Open(ctx.Done(), &prod.Producer, q)
	if err != nil {
		return nil, err
	}
	prod.Watch(c.out.Waker())
	if !c.addProducer(prod) {
		prod.Leave()
		return nil, context.Cause(ctx)
	}
	ok.Handle = prod.Handle
	return ok, nil
}

// produce handles a produce frame on the connection's reader: admission may
// make it wait, and with it the peer, which is the back-pressure.
func (c *conn) produce(f protocol.Frame) error {
	var h protocol.Produce
	if err := h.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "produce: %v", err)
	}
	prod := c.producer(h.Handle)
	if prod == nil {
		c.out.Frame(protocol.TypeError, f.ID, protocol.Errorf(protocol.CodeBadHandle, "produce: no producer %d on this connection", h.Handle))
		return nil
	}
	if !c.out.Admit() {
		return context.Cause(c.ctx)
	}
	came := c.b.cfg.Now().UnixNano()
	a := prod.Publish(&h, f.Body)
	a.ID, a.Came = f.ID, came
	c.out.Pending(&prod.Lane, a)
	return nil
}

// closeProducer ends a producer; frames before it are answered before it.
func (c *conn) closeProducer(f protocol.Frame) error {
	var h protocol.Handle
	if err := h.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "close producer: %v", err)
	}
	c.mu.Lock()
	prod := c.producers[h.Handle]
	if prod != nil && prod.closed {
		prod = nil
	}
	if prod != nil {
		prod.closed = true // it stays until it is answered: the log wakes the writer for it
	}
	c.mu.Unlock()
	if prod == nil {
		c.out.Frame(protocol.TypeError, f.ID, protocol.Errorf(protocol.CodeBadHandle, "close producer: no producer %d on this connection", h.Handle))
		return nil
	}
	c.out.WhenAcked(&prod.Lane, f.ID)
	return nil
}
