package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/meta/state"
)

var (
	// ErrUnreachable: the request was not carried out, because the broker cannot be reached or refused the connection.
	ErrUnreachable = errors.New("broker cannot be reached")
	// ErrUnanswered: the request was sent and no answer came; whether it was carried out is unknown (R5).
	ErrUnanswered = errors.New("broker did not answer")
	// ErrWrongCluster: the other broker belongs to another cluster (R9).
	ErrWrongCluster = errors.New("broker belongs to another cluster")
	// ErrRemoved: this store was removed from the cluster.
	ErrRemoved = errors.New("store was removed from the cluster")
	// ErrOutdated: the cluster went on without what this store's metadata say (R22).
	ErrOutdated = errors.New("metadata are of a history that is over")
	// ErrDuplicate: another process runs on a copy of this data directory (R9).
	ErrDuplicate = errors.New("store is in use by another process")
)

// The first byte of a connection to the peer port says what follows it.
const (
	kindRaft    = 'R' // Raft's own stream, after the hello
	kindRequest = 'P' // frames of requests and answers, after the hello
)

const (
	helloMagic  = "DNBP"
	peerVersion = 1
	helloHead   = 7       // the magic, version u8, length u16
	maxHello    = 2 << 10 // bytes of a hello's body; what a peer may make us hold before it is known
)

var errBadHello = errors.New("peer does not speak this protocol")

// Hello is what both sides of a connection say first: who they are.
type Hello struct {
	Cluster [16]byte      `msgpack:"c"` // zero: belongs to none yet
	Store   state.StoreID `msgpack:"s"`
	Run     uint64        `msgpack:"r"` // random, of this process: two processes on copies of one store differ in it
	Name    string        `msgpack:"n"` // the broker's
	Of      string        `msgpack:"o"` // the cluster's name
	// Opened says that this store has had metadata of the cluster; History is the one they are in (R22).
	Opened  bool   `msgpack:"m,omitempty"`
	History uint16 `msgpack:"h,omitempty"`
	// Refused is why the answering side wants no connection; empty: welcome. Code makes some refusals recognisable.
	// The port fills in both.
	Refused string `msgpack:"e,omitempty"`
	Code    string `msgpack:"k,omitempty"`
}

func appendHello(b []byte, h Hello) ([]byte, error) {
	body, err := Encode(h)
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
func readHello(r io.Reader) (Hello, error) {
	var head [helloHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Hello{}, fmt.Errorf("read hello: %w", err)
	}
	if string(head[:4]) != helloMagic {
		return Hello{}, fmt.Errorf("%w: it begins with %q", errBadHello, head[:4])
	}
	if head[4] != peerVersion {
		return Hello{}, fmt.Errorf("%w: it speaks version %d, this broker %d", errBadHello, head[4], peerVersion)
	}
	n := int(binary.LittleEndian.Uint16(head[5:]))
	if n > maxHello {
		return Hello{}, fmt.Errorf("%w: a hello of %d bytes", errBadHello, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return Hello{}, fmt.Errorf("read hello: %w", err)
	}
	var h Hello
	if err := Decode(body, &h); err != nil {
		return Hello{}, fmt.Errorf("%w: %w", errBadHello, err)
	}
	if h.Store == (state.StoreID{}) {
		return Hello{}, fmt.Errorf("%w: it names no store", errBadHello)
	}
	return h, nil
}

// Refusal is why a caller is not let in. Without Text it is.
type Refusal struct {
	Err  error  // ErrWrongCluster, ErrDuplicate, ErrRemoved or ErrOutdated: the caller gets it. Nil: any other reason
	Text string // for the operator of the calling broker
}

func (r Refusal) err() error {
	switch {
	case r.Text == "":
		return nil
	case r.Err == nil:
		return errors.New(r.Text)
	}
	return fmt.Errorf("%w: %s", r.Err, r.Text)
}

// refusalCodes are how the reasons of a refusal are written.
func refusalCodes() map[string]error {
	return map[string]error{"cluster": ErrWrongCluster, "duplicate": ErrDuplicate, "removed": ErrRemoved, "outdated": ErrOutdated}
}

// refuse writes a refusal into an answer; one without text leaves it a welcome.
func (h *Hello) refuse(r Refusal) {
	h.Refused, h.Code = r.Text, ""
	for code, err := range refusalCodes() {
		if r.Text != "" && err == r.Err {
			h.Code = code
		}
	}
}

// refusal returns what refuse wrote. A code of a later version is any other reason.
func (h Hello) refusal() Refusal { return Refusal{Err: refusalCodes()[h.Code], Text: h.Refused} }

// judgeHello says whether two brokers may talk, and if not why.
func judgeHello(kind byte, called, calling Hello) Refusal {
	none := [16]byte{}
	switch {
	case called.Store == calling.Store && called.Run != calling.Run:
		return Refusal{ErrDuplicate, fmt.Sprintf("store %s is already in use by broker %s, which is running: was its data directory copied?", called.Store, called.Name)}
	case called.Of != calling.Of:
		return Refusal{ErrWrongCluster, fmt.Sprintf("broker %s belongs to the cluster named %q, broker %s to %q", called.Name, called.Of, calling.Name, calling.Of)}
	case called.Cluster != none && calling.Cluster != none && called.Cluster != calling.Cluster:
		return Refusal{ErrWrongCluster, fmt.Sprintf("broker %s belongs to cluster %x, broker %s to cluster %x: both are named %q", called.Name, called.Cluster, calling.Name, calling.Cluster, called.Of)}
	case kind == kindRaft && called.Cluster == none:
		return Refusal{nil, fmt.Sprintf("broker %s belongs to no cluster yet", called.Name)}
	case kind == kindRaft && calling.Cluster == none:
		return Refusal{nil, fmt.Sprintf("broker %s belongs to no cluster yet", calling.Name)}
	}
	return Refusal{}
}
