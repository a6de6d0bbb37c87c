package outbox

import (
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// The bounds of a connection.
const (
	// Window is how many produce frames one connection may have in flight.
	Window = 256
	// Heartbeat is how long either side may be silent; a peer that sent nothing
	// for three of them is dead (10 s).
	Heartbeat = 3 * time.Second
	// highBytes is how much waits to be written to one connection before its
	// consumers count as having no room.
	highBytes = 4 << 20
)

// Config says whom an outbox writes to, and who is told. All fields are required.
type Config struct {
	Conn  net.Conn            // the writer closes it when it returns
	Acked prometheus.Observer // seconds from a produce frame's arrival to its acknowledgement
	Sent  prometheus.Counter  // bytes
	Now   func() time.Time
	Log   *slog.Logger
}

// Outbox is what waits to be written to a connection: small frames and the
// heads of deliveries in one buffer, bodies as slices of the log's memory that
// are released once written, and producers with acknowledgements to come.
type Outbox struct {
	cfg     Config
	wake    chan struct{} // of capacity one: there is something to write
	closing []*Lane       // closed and answered; of the writing goroutine

	mu       sync.Mutex // guards what follows
	heads    []byte     // frames and heads, back to back
	bodies   []body
	bytes    int // of heads and bodies queued or being written, for back-pressure
	writing  int // the part of bytes that the writer has taken
	acking   []*Lane
	inflight int // produce frames not answered yet
	room     sync.Cond
	finished bool
	drained  []chan<- struct{} // to wake when the backlog is gone
}

// body is bytes to be written behind heads[:at].
type body struct {
	at   int
	data []byte
	view storage.View // released after the write; the zero View when data belongs to nobody else
}

// New makes an outbox; Write writes it.
func New(cfg Config) *Outbox {
	o := &Outbox{cfg: cfg, wake: make(chan struct{}, 1)}
	o.room.L = &o.mu
	return o
}

// Waker is where somebody else, as a log, says that there may be something to write.
func (o *Outbox) Waker() chan<- struct{} { return o.wake }

// Flush wakes the writer.
func (o *Outbox) Flush() { notify(o.wake) }

// notify wakes whoever waits at a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Frame queues a frame without a body.
func (o *Outbox) Frame(t protocol.Type, id uint64, h protocol.Header) {
	o.FrameWithBody(t, id, h, nil)
}

// FrameWithBody queues a frame whose body nobody changes or recycles.
func (o *Outbox) FrameWithBody(t protocol.Type, id uint64, h protocol.Header, data []byte) {
	o.mu.Lock()
	if !o.finished {
		at := len(o.heads)
		o.heads = protocol.AppendHead(o.heads, t, id, h, len(data))
		o.bytes += len(o.heads) - at + len(data)
		if len(data) > 0 {
			o.bodies = append(o.bodies, body{at: len(o.heads), data: data})
		}
	}
	o.mu.Unlock()
	notify(o.wake)
}

// FrameWithView queues a frame whose body is data, a part of view, and takes over one reference to view.
func (o *Outbox) FrameWithView(t protocol.Type, id uint64, h protocol.Header, data []byte, view storage.View) {
	o.mu.Lock()
	if o.finished {
		view.Release()
	} else {
		at := len(o.heads)
		o.heads = protocol.AppendHead(o.heads, t, id, h, len(data))
		o.bodies = append(o.bodies, body{at: len(o.heads), data: data, view: view})
		o.bytes += len(o.heads) - at + len(data)
	}
	o.mu.Unlock()
	notify(o.wake)
}

// Deliver queues a frame whose body is data, a part of view; the outbox takes
// over one reference to view. Without flush the writer is not woken yet.
func (o *Outbox) Deliver(h *protocol.Deliver, data []byte, view storage.View) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.finished {
		return false
	}
	at := len(o.heads)
	o.heads = protocol.AppendHead(o.heads, protocol.TypeDeliver, 0, h, len(data))
	o.bodies = append(o.bodies, body{at: len(o.heads), data: data, view: view})
	o.bytes += len(o.heads) - at + len(data)
	return true
}

// Full reports whether the peer is behind; if so, ch is notified when it is not any more.
func (o *Outbox) Full(ch chan<- struct{}) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes < highBytes {
		return false
	}
	if ch == nil {
		return true
	}
	for _, c := range o.drained {
		if c == ch {
			return true
		}
	}
	o.drained = append(o.drained, ch)
	return true
}

// Finish lets the writer write what is queued and end.
func (o *Outbox) Finish() {
	o.mu.Lock()
	o.finished = true
	o.room.Broadcast()
	o.mu.Unlock()
	notify(o.wake)
}

// Admit waits until the connection may have one produce frame more in flight.
// It reports false when the connection is over.
func (o *Outbox) Admit() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.inflight >= Window && !o.finished {
		o.room.Wait()
	}
	o.inflight++
	return !o.finished
}

// Pending queues the answer to a produce frame.
func (o *Outbox) Pending(l *Lane, a Ack) {
	o.mu.Lock()
	if l.acks.empty() {
		o.acking = append(o.acking, l)
	}
	l.acks.push(a)
	o.mu.Unlock()
	notify(o.wake)
}

// WhenAcked queues the answer to CloseProducer behind the producer's acknowledgements.
func (o *Outbox) WhenAcked(l *Lane, id uint64) {
	o.mu.Lock()
	o.inflight++ // taken off again when it is written
	o.mu.Unlock()
	o.Pending(l, Ack{ID: id, Done: true, closed: true})
	notify(o.wake)
}
