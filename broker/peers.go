package broker

import (
	"context"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// The requests that brokers make of each other, beside those of package cluster
// and of package history.
const (
	opMeta     = "meta"           // a proposal or barrier for the leader
	opPosition = "position"       // find a position on a partition that the other owns
	opPrepare  = "move.prepare"   // get ready to own a partition
	opDescribe = "admin.describe" // what the other knows of partitions that it owns
	opTruncate = "admin.truncate"
	opVerify   = "admin.verify"
	opResolve  = "admin.resolve"
	opUsers    = "admin.users"  // how many consumers there are
	opEnd      = "admin.end"    // end the consumers of a subscription
	opReset    = "admin.reset"  // a subscription was moved
	opServes   = "admin.serves" // wait until the other serves a partition
	opNotes    = "admin.notes"  // what the leader knows of the cluster, in words
	opPromote  = "admin.promote"
	opDemote   = "admin.demote"
	opSnapshot = "admin.snapshot"
	opRestore  = "admin.restore"
	opSettled  = "move.settled" // its last cursors are committed
)

// handlePeers registers every request, before anybody can make one.
func (b *Broker) handlePeers() {
	s := calls.Server{Ready: func() bool { return b.owner.Load() != nil }, Coded: b.wireError}
	for op, do := range map[string]calls.Handler{
		opMeta:     b.serveMeta,
		opPosition: calls.Serve(s, b.servePosition),
		opPrepare:  calls.Serve(s, b.servePrepare),
		opSettled:  calls.Serve(s, b.serveSettled),
		opDescribe: calls.Serve(s, b.describeHere),
		opTruncate: calls.Serve(s, b.truncateHere),
		opVerify:   calls.Serve(s, b.verifyHere),
		opResolve:  calls.Serve(s, b.resolveHere),
		opUsers:    calls.Serve(s, b.usersHere),
		opEnd:      calls.Serve(s, b.endHere),
		opReset:    calls.Serve(s, b.resetHere),
		opServes:   calls.Serve(s, b.servesHere),
		opNotes:    calls.Serve(s, b.notesHere),
		opPromote:  calls.Serve(s, b.promoteHere),
		opDemote:   calls.Serve(s, b.demoteHere),
		opSnapshot: calls.Serve(s, b.snapshotHere),
		opRestore:  calls.Serve(s, b.restoreHere),
		// They are answered once the broker is registered, and it has a history by then.
		history.OpFetch:  s.Raw(func(ctx context.Context, body []byte) ([]byte, error) { return b.history.Fetch(ctx, body) }),
		history.OpReport: s.Raw(func(ctx context.Context, body []byte) ([]byte, error) { return b.history.Report(ctx, body) }),
	} {
		b.cluster.Handle(op, do)
	}
}

// brokerName is how people call a store: by the name of its broker.
func (b *Broker) brokerName(id state.StoreID) string { return b.peers.Name(id) }

// keyOf is the partition that another broker names.
func keyOf(a *calls.Partition) (partitionKey, error) {
	topic, n, err := a.Key()
	return partitionKey{topic, n}, err
}

// positionArg asks for a position on a partition.
type positionArg struct {
	calls.Partition
	At protocol.Position `msgpack:"a"`
}

type positionAnswer struct {
	Offset uint64 `msgpack:"o"`
}

// servePosition resolves a position on a partition that this broker owns.
func (b *Broker) servePosition(ctx context.Context, q *positionArg) (*positionAnswer, error) {
	key, err := keyOf(&q.Partition)
	if err != nil {
		return nil, err
	}
	p, err := b.owned(ctx, key, q.Epoch)
	if err != nil {
		return nil, err
	}
	n, err := p.resolve(q.At)
	return &positionAnswer{n}, err
}
