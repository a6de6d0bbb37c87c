package broker

import (
	"context"

	"github.com/danubemq/danube/broker/admin"
	"github.com/danubemq/danube/protocol"
)

// here is what this broker does as the owner of partitions, for whichever broker was asked.
func (b *Broker) here() *admin.Here {
	return &admin.Here{
		Describe: b.describeHere, Truncate: b.truncateHere, Verify: b.verifyHere, Resolve: b.resolveHere, Users: b.usersHere,
		End: b.endHere, Reset: b.resetHere, Serves: b.servesHere, Position: b.positionHere, Present: b.presentHere, Bury: b.bury,
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
		c.out.FrameWithBody(protocol.TypeAdminOK, f.ID, nil, data)
	})
	return nil
}

// call runs an admin operation by name.
func (b *Broker) call(ctx context.Context, name string, decode func(any) error) (any, error) {
	if !b.ready.Load() {
		return nil, protocol.Errorf(protocol.CodeNotReady, "the broker is starting")
	}
	return b.admin.Call(ctx, name, decode)
}
