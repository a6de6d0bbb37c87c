package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// The requests that brokers make of each other, beside those of package cluster.
const (
	opMeta     = "meta"           // a proposal or barrier for the leader
	opPosition = "position"       // find a position on a partition that the other owns
	opPrepare  = "move.prepare"   // get ready to own a partition
	opFetch    = "log.fetch"      // batches of a range that the other holds
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
	opReport   = "range.report" // what the other has of a range after it was away
	opSettled  = "move.settled" // its last cursors are committed
)

// peerHandler carries out a request of another broker.
type peerHandler func(ctx context.Context, from state.StoreID, body []byte) ([]byte, error)

// handlePeers registers every request, before anybody can make one.
func (b *Broker) handlePeers() {
	for op, do := range map[string]peerHandler{
		opMeta:     b.serveMeta,
		opPosition: serve(b, (*Broker).servePosition),
		opPrepare:  serve(b, (*Broker).servePrepare),
		opSettled:  serve(b, (*Broker).serveSettled),
		opFetch:    b.serveFetch,
		opDescribe: serve(b, (*Broker).describeHere),
		opTruncate: serve(b, (*Broker).truncateHere),
		opVerify:   serve(b, (*Broker).verifyHere),
		opResolve:  serve(b, (*Broker).resolveHere),
		opUsers:    serve(b, (*Broker).usersHere),
		opEnd:      serve(b, (*Broker).endHere),
		opReset:    serve(b, (*Broker).resetHere),
		opServes:   serve(b, (*Broker).servesHere),
		opNotes:    serve(b, (*Broker).notesHere),
		opPromote:  serve(b, (*Broker).promoteHere),
		opDemote:   serve(b, (*Broker).demoteHere),
		opSnapshot: serve(b, (*Broker).snapshotHere),
		opRestore:  serve(b, (*Broker).restoreHere),
		opReport:   serve(b, (*Broker).serveReport),
	} {
		b.cluster.Handle(op, do)
	}
}

// serve makes a handler of a function that takes a decoded argument. Before the
// broker is registered nothing of this kind is answered.
func serve[Q, A any](b *Broker, do func(*Broker, context.Context, *Q) (*A, error)) peerHandler {
	return func(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
		if b.owner.Load() == nil {
			return nil, peerError{protocol.Errorf(protocol.CodeNotReady, "the broker is starting")}
		}
		q := new(Q)
		err := protocol.DecodeBody(body, q)
		var a *A
		if err == nil {
			a, err = do(b, ctx, q)
		}
		if err != nil {
			return nil, peerError{b.wireError(err)}
		}
		return protocol.EncodeBody(a)
	}
}

// peerError is a coded error as it goes between brokers.
type peerError struct{ coded *protocol.Error }

func (e peerError) Error() string { return e.coded.Error() }

// Code is the number of the error's code; the text goes beside it.
func (e peerError) Code() string { return fmt.Sprint(uint16(e.coded.Code)) }

// callTime bounds a request that is made of another broker.
const callTime = 5 * time.Second

// callPeer has another broker carry out op. What it refuses comes back as the
// coded error that it was there; one that cannot be reached, or does not
// answer, as NOT_READY.
func callPeer[A any](ctx context.Context, b *Broker, to state.StoreID, op string, q any) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return callPeerLong[A](ctx, b, to, op, q)
}

// callPeerLong is callPeer with ctx as the only bound.
func callPeerLong[A any](ctx context.Context, b *Broker, to state.StoreID, op string, q any) (*A, error) {
	body, err := protocol.EncodeBody(q)
	if err != nil {
		return nil, err
	}
	answer, err := b.cluster.Call(ctx, to, op, body)
	if err != nil {
		return nil, b.calledError(to, err)
	}
	a := new(A)
	return a, protocol.DecodeBody(answer, a)
}

// calledError is the error of a request at another broker.
func (b *Broker) calledError(to state.StoreID, err error) error {
	if remote, ok := errors.AsType[*cluster.RemoteError](err); ok {
		var code protocol.Code
		if _, err := fmt.Sscan(remote.Code, &code); err == nil {
			return protocol.Errorf(code, "%s", remote.Text)
		}
		return protocol.Errorf(protocol.CodeInternal, "broker %s: %s", b.brokerName(to), remote.Text)
	}
	return fmt.Errorf("broker %s: %w: %w", b.brokerName(to), err, protocol.Errorf(protocol.CodeNotReady, "broker %s is away", b.brokerName(to)))
}

// brokerName is how people call a store: by the name of its broker.
func (b *Broker) brokerName(id state.StoreID) string {
	if s := b.meta.View().Store(id); s != nil {
		return s.Broker
	}
	return id.String()
}

// partitionArg names a partition to another broker.
type partitionArg struct {
	Topic     []byte `msgpack:"t"` // its id
	Partition uint32 `msgpack:"n"`
	Epoch     uint64 `msgpack:"e"`
}

func argOf(m *state.Partition) partitionArg {
	return partitionArg{Topic: m.Topic[:], Partition: m.Number, Epoch: m.Epoch}
}

func (a *partitionArg) key() (partitionKey, error) {
	k := partitionKey{n: a.Partition}
	if len(a.Topic) != len(k.topic) {
		return k, protocol.Errorf(protocol.CodeBadRequest, "topic id of %d bytes", len(a.Topic))
	}
	copy(k.topic[:], a.Topic)
	return k, nil
}

// positionArg asks for a position on a partition.
type positionArg struct {
	partitionArg
	At protocol.Position `msgpack:"a"`
}

type positionAnswer struct {
	Offset uint64 `msgpack:"o"`
}

// servePosition resolves a position on a partition that this broker owns.
func (b *Broker) servePosition(ctx context.Context, q *positionArg) (*positionAnswer, error) {
	key, err := q.key()
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
