package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/msgpackwalk"
	"github.com/vmihailenco/msgpack/v5"
)

// The first byte of a connection to the peer port says what follows it.
const (
	kindRaft    = 'R' // Raft's own stream, after the hello
	kindRequest = 'P' // frames of requests and answers, after the hello
)

const (
	peerVersion = 1
	helloHead   = 7       // "DNBP", version u8, length u16
	maxHello    = 2 << 10 // bytes of a hello's body; what a peer may make us hold before it is known
	maxBody     = 8 << 20 // bytes of a request's or an answer's body
	maxOp       = 64      // bytes of an operation's name
	frameHead   = 14      // length u32 of what follows, id u64, kind u8, length of the name u8
	maxFrame    = frameHead - 4 + maxOp + maxBody
)

const helloMagic = "DNBP"

// The kinds of a frame.
const (
	frameRequest = iota + 1
	frameAnswer  // the handler's answer
	frameError   // the handler's error, encoded
	frameCancel  // the caller no longer waits for this request
	framePing
	framePong
)

var (
	errBadHello = errors.New("peer does not speak this protocol")
	errBadFrame = errors.New("malformed frame from a peer")
)

// hello is what both sides of a connection say first.
type hello struct {
	Cluster [16]byte      `msgpack:"c"` // zero: belongs to none yet
	Store   state.StoreID `msgpack:"s"`
	Run     uint64        `msgpack:"r"` // random, of this process: two processes on copies of one store differ in it
	Name    string        `msgpack:"n"` // the broker's
	Of      string        `msgpack:"o"` // the cluster's name
	// Opened says that this store has had metadata of the cluster; History is the one they are in (R22).
	Opened  bool   `msgpack:"m,omitempty"`
	History uint16 `msgpack:"h,omitempty"`
	// Refused is why the answering side wants no connection; empty: welcome.
	Refused string `msgpack:"e,omitempty"`
	// Code makes some refusals recognisable.
	Code string `msgpack:"k,omitempty"`
}

func appendHello(b []byte, h hello) ([]byte, error) {
	body, err := encode(h)
	if err != nil {
		return nil, err
	}
	if len(body) > maxHello {
		return nil, fmt.Errorf("hello has %d bytes; at most %d are allowed", len(body), maxHello)
	}
	b = append(b, helloMagic...)
	b = append(b, peerVersion)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...), nil
}

// readHello reads exactly one hello and not a byte more: a Raft stream may follow it. It allocates at most maxHello.
func readHello(r io.Reader) (hello, error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	if string(head[:4]) != helloMagic {
		return hello{}, fmt.Errorf("%w: it begins with %q", errBadHello, head[:4])
	}
	if head[4] != peerVersion {
		return hello{}, fmt.Errorf("%w: it speaks version %d, this broker %d", errBadHello, head[4], peerVersion)
	}
	n := int(binary.LittleEndian.Uint16(head[5:]))
	if n > maxHello {
		return hello{}, fmt.Errorf("%w: a hello of %d bytes", errBadHello, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return hello{}, fmt.Errorf("read hello: %w", err)
	}
	var h hello
	if err := decode(body, &h); err != nil {
		return hello{}, fmt.Errorf("%w: %w", errBadHello, err)
	}
	if h.Store == (state.StoreID{}) {
		return hello{}, fmt.Errorf("%w: it names no store", errBadHello)
	}
	return h, nil
}

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
// error has a method Code() string; else it is empty. The codes "no such operation" and "busy" are this package's.
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

func remoteError(err error) *RemoteError {
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

// encode writes a record as a map with short keys.
func encode(record any) ([]byte, error) {
	var buf bytes.Buffer
	enc := msgpack.NewEncoder(&buf)
	enc.UseCompactInts(true)
	if err := enc.Encode(record); err != nil {
		return nil, fmt.Errorf("encode %T: %w", record, err)
	}
	return buf.Bytes(), nil
}

// decode reads what encode wrote, from bytes that nobody vouches for.
func decode(b []byte, record any) error {
	if err := msgpackwalk.Check(b); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	if err := msgpack.Unmarshal(b, record); err != nil {
		return fmt.Errorf("decode %T: %w", record, err)
	}
	return nil
}
