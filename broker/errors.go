package broker

import (
	"fmt"

	"github.com/danubemq/danube/broker/codes"
	"github.com/danubemq/danube/protocol"
)

// wireError is an error as clients get it. One without a code of its own is
// logged under the number that the client is told.
func (b *Broker) wireError(err error) *protocol.Error {
	if e := codes.Of(err); e != nil {
		return e
	}
	id := fmt.Sprintf("%s-%d", b.cfg.Name, b.lastConn.Add(1))
	b.log.Error("request failed", "request", id, "err", err)
	return &protocol.Error{Code: protocol.CodeInternal, Text: err.Error(), Request: id}
}
