package broker

import "github.com/danubemq/danube/protocol"

// fetch answers a plain read beside the connection's reader.
func (c *conn) fetch(f protocol.Frame) error {
	q := new(protocol.Fetch)
	if err := q.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "fetch: %v", err)
	}
	run := func() {
		p, err := c.b.serving(c.ctx, q.Topic, q.Partition, q.Epoch)
		if err != nil {
			c.refuse(f.ID, err)
			return
		}
		ok, view, err := p.Fetch(c.ctx, q)
		if err != nil {
			c.refuse(f.ID, err)
			return
		}
		c.out.FrameWithView(protocol.TypeFetchOK, f.ID, ok, view.Data, view)
	}
	if q.WaitMS > 0 {
		select {
		case c.waits <- struct{}{}:
			c.holding(c.waits, run)
			return nil
		default:
			q.WaitMS = 0 // a connection that only waits must not keep its other requests from being read
		}
	}
	c.beside(run)
	return nil
}
