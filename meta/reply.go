package meta

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/msgpackwalk"
)

// The requests of Serve, append-only.
const (
	opPropose byte = iota + 1 // an encoded command
	opBarrier                 // nothing
	opReach                   // index u64: answer when it is applied
)

// A reply is a status and what belongs to it: of statusDone a msgpack map, of the others a text. Append-only.
const (
	statusDone byte = iota
	statusNotLeader
	statusBusy
	statusUnknown
	statusNewer
	statusDamaged
)

// statusErrors are the errors that keep their identity on the way.
func statusErrors() map[byte]error {
	return map[byte]error{
		statusNotLeader: ErrNotLeader,
		statusBusy:      ErrBusy,
		statusUnknown:   ErrUnknown,
		statusNewer:     state.ErrNewerCommand,
		statusDamaged:   state.ErrDamaged,
	}
}

// answer is what a request brought. Index is what the proposer's own view must reach before it goes on.
type answer struct {
	Result  state.Result   `msgpack:"r"` // without its errors
	Refusal *state.Error   `msgpack:"e,omitempty"`
	Entries []*state.Error `msgpack:"n,omitempty"`
	Index   uint64         `msgpack:"i"`
}

// encodeReply writes an answer, or the error in place of one.
func encodeReply(r state.Result, index uint64, err error) ([]byte, error) {
	refusal, refused := errors.AsType[*state.Error](err)
	if err != nil && !refused {
		return encodeError(err), nil
	}
	a := answer{Result: r, Refusal: refusal, Index: index}
	for _, e := range r.Entries {
		entry, ok := errors.AsType[*state.Error](e)
		if e != nil && !ok {
			return nil, fmt.Errorf("encode a result: %w", e)
		}
		a.Entries = append(a.Entries, entry)
	}
	b, err := msgpack.Marshal(&a)
	if err != nil {
		return nil, fmt.Errorf("encode a result: %w", err)
	}
	return append([]byte{statusDone}, b...), nil
}

func encodeError(err error) []byte {
	status := statusUnknown
	switch {
	case errors.Is(err, ErrUnknown):
	case errors.Is(err, ErrNotLeader), errors.Is(err, ErrClosed): // closed: nothing was proposed, and another may lead
		status = statusNotLeader
	case errors.Is(err, ErrBusy):
		status = statusBusy
	case errors.Is(err, state.ErrNewerCommand):
		status = statusNewer
	case errors.Is(err, state.ErrDamaged):
		status = statusDamaged
	}
	return append([]byte{status}, err.Error()...)
}

// decodeReply reads what encodeReply wrote. The refusal of a command is in the answer's result.
func decodeReply(b []byte) (answer, error) {
	var a answer
	if len(b) == 0 {
		return a, fmt.Errorf("%w: empty answer", ErrUnknown)
	}
	if b[0] != statusDone {
		err, ok := statusErrors()[b[0]]
		if !ok {
			err = ErrUnknown
		}
		return a, fmt.Errorf("%w: the leader says: %s", err, b[1:])
	}
	err := msgpackwalk.Check(b[1:])
	if err == nil {
		err = msgpack.Unmarshal(b[1:], &a)
	}
	if err != nil {
		return answer{}, fmt.Errorf("%w: decode the answer: %w", ErrUnknown, err)
	}
	if a.Refusal != nil {
		a.Result.Err = a.Refusal
	}
	for _, e := range a.Entries {
		var entry error
		if e != nil {
			entry = e
		}
		a.Result.Entries = append(a.Result.Entries, entry)
	}
	return a, nil
}

func appendIndex(b []byte, i uint64) []byte { return binary.BigEndian.AppendUint64(b, i) }
