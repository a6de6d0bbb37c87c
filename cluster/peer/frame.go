package peer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/danubemq/danube/protocol/msgpackwalk"
)

const (
	maxBody   = 8 << 20 // bytes of a request's or an answer's body
	maxOp     = 64      // bytes of an operation's name
	frameHead = 14      // length u32 of what follows, id u64, kind u8, length of the name u8
	maxFrame  = frameHead - 4 + maxOp + maxBody
)

// The kinds of a frame.
const (
	frameRequest = iota + 1
	frameAnswer  // the handler's answer
	frameError   // the handler's error, encoded
	frameCancel  // the caller no longer waits for this request
	framePing
	framePong
)

var errBadFrame = errors.New("malformed frame from a peer")

// head is the head of a frame, before its name and body.
type head struct {
	id   uint64
	kind byte
	op   int // bytes of the operation's name
	body int // bytes of the body
}

func appendHead(b []byte, id uint64, kind byte, op string, body int) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(frameHead-4+len(op)+body))
	b = binary.LittleEndian.AppendUint64(b, id)
	b = append(b, kind, byte(len(op)))
	return append(b, op...)
}

// parseHead checks every length before anything is allocated for it.
func parseHead(b *[frameHead]byte) (head, error) {
	n := binary.LittleEndian.Uint32(b[:])
	h := head{id: binary.LittleEndian.Uint64(b[4:]), kind: b[12], op: int(b[13])}
	if n < frameHead-4 || n > maxFrame {
		return h, fmt.Errorf("%w: %d bytes long", errBadFrame, n)
	}
	h.body = int(n) - (frameHead - 4) - h.op
	switch {
	case h.kind < frameRequest || h.kind > framePong:
		return h, fmt.Errorf("%w: kind %d", errBadFrame, h.kind)
	case h.op > maxOp || h.body < 0 || h.body > maxBody:
		return h, fmt.Errorf("%w: a name of %d bytes in %d", errBadFrame, h.op, n)
	case h.kind != frameRequest && h.op != 0:
		return h, fmt.Errorf("%w: an operation where none belongs", errBadFrame)
	case h.kind > frameError && h.body != 0:
		return h, fmt.Errorf("%w: a body where none belongs", errBadFrame)
	}
	return h, nil
}

// RemoteError is what a handler on another broker answered instead of a body. Code is the handler's own word, if its
// error has a method Code() string; else it is empty. The codes "no such operation", "busy" and
// "answer too large" are this package's.
type RemoteError struct {
	Code string `msgpack:"c,omitempty"`
	Text string `msgpack:"t"`
}

// Error returns the text of the other broker.
func (e *RemoteError) Error() string { return e.Text }

// The codes this package answers with.
const (
	codeNoOperation = "no such operation"
	codeBusy        = "busy"
	codeTooLarge    = "answer too large"
)

// maxErrorText bounds the text of an error that is sent.
const maxErrorText = 16 << 10

func asRemote(err error) *RemoteError {
	if e, ok := errors.AsType[*RemoteError](err); ok && error(e) == err {
		return e
	}
	e := &RemoteError{Text: err.Error()}
	if c, ok := errors.AsType[interface {
		error
		Code() string
	}](err); ok {
		e.Code = c.Code()
	} else if inner, ok := errors.AsType[*RemoteError](err); ok {
		e.Code = inner.Code
	}
	if len(e.Text) > maxErrorText {
		e.Text = e.Text[:maxErrorText]
	}
	return e
}

// Encode writes a record as a map with short keys: the form of a hello, of an error and of every body.
func Encode(record any) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	if err := enc.Encode(record); err != nil {
		return nil, fmt.Errorf("encode %T: %w", record, err)
	}
	return buf.Bytes(), nil
}

// Decode reads what Encode wrote, from bytes that nobody vouches for.
func Decode(b []byte, record any) error {
	if err := msgpackwalk.Check(b); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	if err := msgpack.Unmarshal(b, record); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	return nil
}
