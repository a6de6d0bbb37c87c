package admin

import (
	"context"
	"log/slog"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Config says what a board is made of. All fields are required.
type Config struct {
	Meta       *meta.Node
	Cluster    *cluster.Cluster
	Controller *cluster.Controller
	Peers      *calls.Peers
	Self       func() state.Owner // this store in its present run
	Here       Here
	Name       string                                               // of this broker
	Release    string                                               // version of the binary
	AutoCreate bool                                                 // producers and consumers may make topics
	Durability string                                               // of topics that name none: local or object
	Audit      func(context.Context) (*protocol.AuditReport, error) // of the cold tier; nil: there is none
	Ready      func() bool
	Degraded   func() []string // what of this broker is not as it should be, in words
	Now        func() time.Time
	Log        *slog.Logger
}

// Here is what this broker does as the owner of partitions, for whichever broker was asked. All fields are required.
type Here struct {
	Describe func(context.Context, *DescribeArg) (*DescribeAnswer, error)
	Truncate func(context.Context, *protocol.Truncate) (*protocol.Truncated, error)
	Verify   func(context.Context, *protocol.TopicArgs) (*protocol.VerifyPartition, error)
	Resolve  func(context.Context, *protocol.Resolve) (*protocol.Done, error)
	Users    func(context.Context, *SubscriptionArg) (*Users, error)
	End      func(context.Context, *EndArg) (*protocol.Done, error)
	Reset    func(context.Context, *ResetArg) (*protocol.Done, error)
	Serves   func(context.Context, *ServesArg) (*protocol.Done, error)
	Position func(context.Context, *PositionArg) (*PositionAnswer, error)
	Present  func(context.Context, *PresenceArg) (*PresenceAnswer, error)
	// Bury removes what this store holds of a topic that was deleted. No other broker asks for it.
	Bury func(context.Context, *state.Topic) error
}

// Board answers the admin operations. Safe for concurrent use.
type Board struct {
	cfg        Config
	operations map[string]operation
	transfers  transfers
}

// Open makes a board.
func Open(cfg Config) *Board { return &Board{cfg: cfg, operations: operations()} }

// Call runs an admin operation by name; decode decodes its argument.
func (b *Board) Call(ctx context.Context, name string, decode func(any) error) (any, error) {
	do, ok := b.operations[name]
	if !ok {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "this broker has no operation %q", name)
	}
	out, err := do(ctx, b, decode)
	return out, b.decided(err)
}

// The requests that the boards of other brokers make.
const (
	opPosition = "position"       // find a position on a partition that the other owns
	opDescribe = "admin.describe" // what the other knows of partitions that it owns
	opTruncate = "admin.truncate"
	opVerify   = "admin.verify"
	opResolve  = "admin.resolve"
	opUsers    = "admin.users"  // how many consumers there are
	opEnd      = "admin.end"    // end the consumers of a subscription
	opReset    = "admin.reset"  // a subscription was moved
	opServes   = "admin.serves" // wait until the other serves a partition
	opPresence = "admin.presence"
	opNotes    = "admin.notes" // what the leader knows of the cluster, in words
	opPromote  = "admin.promote"
	opDemote   = "admin.demote"
	opSnapshot = "admin.snapshot"
	opRestore  = "admin.restore"
)

// Handle registers what this broker does for the boards of others: as an owner with here, as the leader with the board,
// which there is once s is ready.
func Handle(register func(op string, do calls.Handler), s calls.Server, here *Here, board func() *Board) {
	register(opPosition, calls.Serve(s, here.Position))
	register(opDescribe, calls.Serve(s, here.Describe))
	register(opTruncate, calls.Serve(s, here.Truncate))
	register(opVerify, calls.Serve(s, here.Verify))
	register(opResolve, calls.Serve(s, here.Resolve))
	register(opUsers, calls.Serve(s, here.Users))
	register(opEnd, calls.Serve(s, here.End))
	register(opReset, calls.Serve(s, here.Reset))
	register(opServes, calls.Serve(s, here.Serves))
	register(opPresence, calls.Serve(s, here.Present))
	register(opNotes, leading(s, board, (*Board).notesHere))
	register(opPromote, leading(s, board, (*Board).promoteHere))
	register(opDemote, leading(s, board, (*Board).demoteHere))
	register(opSnapshot, leading(s, board, (*Board).snapshotHere))
	register(opRestore, leading(s, board, (*Board).restoreHere))
}

// leading makes a handler of what a board does as the leader's.
func leading[Q, A any](s calls.Server, board func() *Board, do func(*Board, context.Context, *Q) (*A, error)) calls.Handler {
	return calls.Serve(s, func(ctx context.Context, q *Q) (*A, error) { return do(board(), ctx, q) })
}

// operation is one admin operation: it decodes its argument with the given
// function and returns its result. The binary protocol and HTTP both call it.
type operation func(ctx context.Context, b *Board, decode func(any) error) (any, error)

// op makes an operation of a function that takes a decoded argument.
func op[Q any](do func(*Board, context.Context, *Q) (any, error)) operation {
	return func(ctx context.Context, b *Board, decode func(any) error) (any, error) {
		q := new(Q)
		if err := decode(q); err != nil {
			return nil, err
		}
		return do(b, ctx, q)
	}
}

// operations returns the table of admin operations.
func operations() map[string]operation {
	return map[string]operation{
		protocol.OpTopicCreate:   op((*Board).topicCreate),
		protocol.OpTopicList:     op((*Board).topicList),
		protocol.OpTopicDescribe: op((*Board).topicDescribe),
		protocol.OpTopicDelete:   op((*Board).topicDelete),
		protocol.OpTopicSet:      op((*Board).topicSet),
		protocol.OpTopicTruncate: op((*Board).topicTruncate),
		protocol.OpTopicVerify:   op((*Board).topicVerify),
		protocol.OpTopicResolve:  op((*Board).topicResolve),
		protocol.OpSubCreate:     op((*Board).subCreate),
		protocol.OpSubList:       op((*Board).subList),
		protocol.OpSubDescribe:   op((*Board).subDescribe),
		protocol.OpSubDelete:     op((*Board).subDelete),
		protocol.OpSubReset:      op((*Board).subReset),
		protocol.OpSubSet:        op((*Board).subSet),
		protocol.OpTopicMove:     op((*Board).topicMove),
		protocol.OpStatus:        op((*Board).status),

		protocol.OpBrokerList:      op((*Board).brokerList),
		protocol.OpBrokerDescribe:  op((*Board).brokerDescribe),
		protocol.OpBrokerDrain:     op((*Board).brokerDrain),
		protocol.OpBrokerActivate:  op((*Board).brokerActivate),
		protocol.OpBrokerRemove:    op((*Board).brokerRemove),
		protocol.OpClusterAudit:    op((*Board).audit),
		protocol.OpClusterAudited:  op((*Board).audited),
		protocol.OpClusterPromote:  op((*Board).promote),
		protocol.OpClusterDemote:   op((*Board).demote),
		protocol.OpClusterSnapshot: op((*Board).snapshot),
		protocol.OpClusterRestore:  op((*Board).restore),
	}
}
