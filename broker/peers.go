package broker

import (
	"context"

	"github.com/danubemq/danube/broker/admin"
	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/meta/state"
)

// The requests that brokers make of each other, beside those of packages cluster,
// history and admin.
const (
	opMeta    = "meta"         // a proposal or barrier for the leader
	opReady   = "move.ready"   // get ready to own a partition that goes on meanwhile
	opPrepare = "move.prepare" // get ready to own a partition that is paused
	opSettled = "move.settled" // its last cursors are committed
)

// handlePeers registers every request, before anybody can make one.
func (b *Broker) handlePeers() {
	s := calls.Server{Ready: func() bool { return b.owner.Load() != nil }, Coded: b.wireError}
	for op, do := range map[string]calls.Handler{
		opMeta:    b.serveMeta,
		opReady:   calls.Serve(s, b.serveReady),
		opPrepare: calls.Serve(s, b.servePrepare),
		opSettled: calls.Serve(s, b.serveSettled),
		// These are answered once the broker is registered: it has a history by then, and a board.
		history.OpFetch:  s.Raw(func(ctx context.Context, body []byte) ([]byte, error) { return b.history.Fetch(ctx, body) }),
		history.OpReport: s.Raw(func(ctx context.Context, body []byte) ([]byte, error) { return b.history.Report(ctx, body) }),
	} {
		b.cluster.Handle(op, do)
	}
	admin.Handle(func(op string, do calls.Handler) { b.cluster.Handle(op, do) }, s, b.here(), func() *admin.Board { return b.admin })
}

// brokerName is how people call a store: by the name of its broker.
func (b *Broker) brokerName(id state.StoreID) string { return b.peers.Name(id) }

// keyOf is the partition that another broker names.
func keyOf(a *calls.Partition) (served.Key, error) {
	topic, n, err := a.Key()
	return served.Key{Topic: topic, N: n}, err
}
