// Package codes is the one table from Go errors to the codes of the protocol: what the log, the metadata and the
// packages of a broker say, as a client hears it.
//
// Its one function is Of.
package codes

import (
	"context"
	"errors"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// Of is err as clients get it, nil if it is none that the table has: then something is wrong that nobody thought of.
func Of(err error) *protocol.Error {
	if away, ok := errors.AsType[*history.AwayError](err); ok { // whatever the broker answered that was asked last
		return protocol.Errorf(protocol.CodePending, "%s", away.Error())
	}
	if pe, ok := errors.AsType[*protocol.Error](err); ok {
		return pe
	}
	if e := storageError(err); e != nil {
		return e
	}
	if e := metaError(err); e != nil {
		return e
	}
	if occupied, ok := errors.AsType[*dispatch.OccupiedError](err); ok {
		return &protocol.Error{Code: protocol.CodeConsumerBusy, Text: occupied.Error(), Hint: busyHint}
	}
	return coded(err, []coding{
		{dispatch.ErrUnsupported, protocol.CodeUnsupported},
		{dispatch.ErrStale, protocol.CodeStaleGeneration},
		{dispatch.ErrUnknownConsumer, protocol.CodeBadHandle},
		{dispatch.ErrCumulative, protocol.CodeBadRequest},
		{history.ErrStale, protocol.CodePending},
		{context.DeadlineExceeded, protocol.CodeTimeout},
		{context.Canceled, protocol.CodeShuttingDown},
	})
}

const busyHint = "end that consumer, take its place under its name, or use a subscription of type shared, which has many"

const leaderHint = "danube cluster status says who leads and which brokers are away"

// coding says which code stands for an error.
type coding struct {
	is   error
	code protocol.Code
}

// coded is err under the code of the first row that it is, nil if it is none of them.
func coded(err error, rows []coding) *protocol.Error {
	for _, row := range rows {
		if errors.Is(err, row.is) {
			return protocol.Errorf(row.code, "%s", err.Error())
		}
	}
	return nil
}

// storageError translates what the log says, nil if err is not the log's.
func storageError(err error) *protocol.Error {
	if seq, ok := errors.AsType[*storage.SequenceError](err); ok {
		return &protocol.Error{Code: protocol.CodeBadSequence, Want: seq.Expected, Text: seq.Error()}
	}
	if away, ok := errors.AsType[*storage.Elsewhere](err); ok {
		return protocol.Errorf(protocol.CodePending, "%s", away.Error())
	}
	if trimmed, ok := errors.AsType[*storage.Trimmed](err); ok {
		return &protocol.Error{Code: protocol.CodeBelowLogStart, Want: trimmed.LogStart, Text: trimmed.Error()}
	}
	if damaged, ok := errors.AsType[*storage.Damage](err); ok {
		return protocol.Errorf(protocol.CodeDamaged, "%s", damaged.Error())
	}
	return coded(err, []coding{
		{storage.ErrFull, protocol.CodeStorageFull},
		{storage.ErrOverlap, protocol.CodeSequenceOverlap},
		{storage.ErrPoisoned, protocol.CodeStorageFailed},
		{storage.ErrClosed, protocol.CodeShuttingDown},
		{storage.ErrNotOpen, protocol.CodeMoved},
		{storage.ErrPaused, protocol.CodeMoving},
		{storage.ErrCeiling, protocol.CodeNoLeader},
	})
}

// metaError translates what the metadata says, nil if err is not theirs. That
// nobody decides comes with where to see why.
func metaError(err error) *protocol.Error {
	e := coded(err, []coding{
		{state.ErrExists, protocol.CodeExists},
		{state.ErrNotFound, protocol.CodeNoSuchTopic},
		{state.ErrInvalid, protocol.CodeBadRequest},
		{state.ErrStaleEpoch, protocol.CodeUnknownEpoch},
		{state.ErrStaleGeneration, protocol.CodeStaleGeneration},
		{state.ErrFenced, protocol.CodeMoved},
		{state.ErrConflict, protocol.CodeBadRequest},
		{state.ErrOrphaned, protocol.CodeBadRequest},
		{meta.ErrNotLeader, protocol.CodeNoLeader},
		{meta.ErrUnknown, protocol.CodeTimeout},
		{meta.ErrBusy, protocol.CodeOverloaded},
		{meta.ErrClosed, protocol.CodeShuttingDown},
	})
	if e != nil && (e.Code == protocol.CodeNoLeader || e.Code == protocol.CodeTimeout) {
		e.Hint = leaderHint
	}
	return e
}
