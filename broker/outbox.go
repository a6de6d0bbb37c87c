package broker

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// outbox is what waits to be written to a connection: small frames and the
// heads of deliveries in one buffer, bodies as slices of the log's memory that
// are released once written, and producers with acknowledgements to come.
type outbox struct {
	wake chan struct{} // of capacity one: there is something to write

	mu       sync.Mutex // guards what follows
	heads    []byte     // frames and heads, back to back
	bodies   []body
	bytes    int // of heads and bodies queued or being written, for back-pressure
	writing  int // the part of bytes that the writer has taken
	acking   []*producer
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

func (o *outbox) init() {
	o.wake = make(chan struct{}, 1)
	o.room.L = &o.mu
}

// notify wakes the writer.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// frame queues a frame without a body.
func (o *outbox) frame(t protocol.Type, id uint64, h protocol.Header) {
	o.frameWithBody(t, id, h, nil)
}

// frameWithBody queues a frame whose body nobody changes or recycles.
func (o *outbox) frameWithBody(t protocol.Type, id uint64, h protocol.Header, data []byte) {
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

// frameWithView queues a frame whose body is data, a part of view, and takes over one reference to view.
func (o *outbox) frameWithView(t protocol.Type, id uint64, h protocol.Header, data []byte, view storage.View) {
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

// deliver queues a frame whose body is data, a part of view; the outbox takes
// over one reference to view. Without flush the writer is not woken yet.
func (o *outbox) deliver(h *protocol.Deliver, data []byte, view storage.View) bool {
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

// full reports whether the peer is behind; if so, ch is notified when it is not any more.
func (o *outbox) full(ch chan<- struct{}) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes < connOutBytes {
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

// finish lets the writer write what is queued and end.
func (o *outbox) finish() {
	o.mu.Lock()
	o.finished = true
	o.room.Broadcast()
	o.mu.Unlock()
	notify(o.wake)
}

// admit waits until the connection may have one produce frame more in flight.
// It reports false when the connection is over.
func (o *outbox) admit() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.inflight >= window && !o.finished {
		o.room.Wait()
	}
	o.inflight++
	return !o.finished
}

// pending queues the answer to a produce frame.
func (o *outbox) pending(p *producer, a ack) {
	o.mu.Lock()
	if p.acks.empty() {
		o.acking = append(o.acking, p)
	}
	p.acks.push(a)
	o.mu.Unlock()
	notify(o.wake)
}

// whenAcked queues the answer to CloseProducer behind the producer's acknowledgements.
func (o *outbox) whenAcked(p *producer, id uint64) {
	o.mu.Lock()
	o.inflight++ // taken off again when it is written
	o.mu.Unlock()
	o.pending(p, ack{id: id, done: true, closed: true})
	notify(o.wake)
}

// ack is the answer to one produce frame, in the making.
type ack struct {
	id      uint64
	pending storage.Pending
	err     *protocol.Error // refused at the door
	done    bool            // there is nothing to wait for
	closed  bool            // it answers CloseProducer
	level   protocol.Level
	came    int64 // when the request was read, Unix ns
}

// ackQueue is a ring of acks in the order of the frames.
type ackQueue struct {
	ring []ack
	head int
	n    int
}

func (q *ackQueue) empty() bool { return q.n == 0 }

func (q *ackQueue) push(a ack) {
	if q.n == len(q.ring) {
		grown := make([]ack, max(8, 2*len(q.ring)))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = a
	q.n++
}

func (q *ackQueue) front() *ack { return &q.ring[q.head] }

func (q *ackQueue) pop() {
	q.ring[q.head] = ack{}
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}

// writer is the state of the writing goroutine: what it took from the outbox.
type writer struct {
	heads  []byte
	bodies []body
	vec    net.Buffers // what is to be written
	rest   net.Buffers // of vec, what was not written yet; a field, since WriteTo would move a local to the heap
	ok     protocol.ProduceOK
}

// write is the writing goroutine: it returns when the outbox is finished and
// empty, or the peer takes nothing any more.
func (c *conn) write() {
	var w writer
	ping := time.NewTicker(heartbeat)
	defer ping.Stop()
	idle := false
	ended := c.ctx.Done()
	for {
		done, taken := c.collect(&w)
		c.dropClosed()
		if len(w.heads) > 0 {
			idle = false
			err := c.send(&w)
			w.release()
			c.out.written(taken)
			if err != nil {
				c.cancel(err)
				break
			}
			continue
		}
		if done {
			break
		}
		select {
		case <-c.out.wake:
		case <-ping.C:
			if idle {
				c.out.frame(protocol.TypePing, 0, nil)
			}
			idle = true
		case <-ended:
			c.out.finish() // what waits for a commit round is answered first
			ended = nil
		}
	}
	c.out.discard()
	_ = c.nc.Close() // the connection is given up; there is nobody to tell
}

// collect moves what can be written now into w, and reports whether nothing will come any more.
func (c *conn) collect(w *writer) (done bool, taken int) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	w.heads, o.heads = o.heads, w.heads[:0]
	w.bodies, o.bodies = o.bodies, w.bodies[:0]
	taken = o.bytes - o.writing
	o.writing = o.bytes
	o.acking = c.takeAcks(w, o.acking)
	return o.finished && len(o.acking) == 0, taken
}

// takeAcks encodes the answers that are ready behind w.heads and returns the
// producers that have others to come. The caller holds the outbox's lock.
func (c *conn) takeAcks(w *writer, acking []*producer) []*producer {
	rest := acking[:0]
	for _, p := range acking {
		for !p.acks.empty() {
			a := p.acks.front()
			if !c.takeAck(w, a) {
				break
			}
			closed := a.closed
			p.acks.pop()
			c.out.inflight--
			if closed {
				c.closing = append(c.closing, p)
			}
		}
		if !p.acks.empty() {
			rest = append(rest, p)
		}
	}
	clear(acking[len(rest):])
	if len(w.heads) > 0 {
		c.out.room.Broadcast()
	}
	return rest
}

// takeAck encodes one answer if it is ready.
func (c *conn) takeAck(w *writer, a *ack) bool {
	err := a.err
	if err == nil && !a.done {
		ready, failed := a.pending.Done()
		if !ready {
			return false
		}
		if failed != nil {
			err = pendingError(failed)
		}
	}
	if err != nil {
		w.heads = protocol.AppendHead(w.heads, protocol.TypeError, a.id, err, 0)
		return true
	}
	if a.closed {
		w.heads = protocol.AppendHead(w.heads, protocol.TypeClosed, a.id, nil, 0)
		return true
	}
	c.b.metrics.ackSeconds.Observe(float64(c.b.cfg.Now().UnixNano()-a.came) / 1e9)
	w.ok = protocol.ProduceOK{Base: a.pending.Base, AppendTime: a.pending.AppendTime, Duplicate: a.pending.Duplicate, Level: uint8(a.level)}
	w.heads = protocol.AppendHead(w.heads, protocol.TypeProduceOK, a.id, &w.ok, 0)
	return true
}

// written takes n bytes off the backlog and wakes who waited for that.
func (o *outbox) written(n int) {
	o.mu.Lock()
	o.bytes -= n
	o.writing -= n
	var wake []chan<- struct{}
	if o.bytes < connOutBytes/2 && len(o.drained) > 0 {
		wake, o.drained = o.drained, nil
	}
	o.mu.Unlock()
	for _, ch := range wake {
		notify(ch)
	}
}

// discard releases what will never be written.
func (o *outbox) discard() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finished = true
	for i := range o.bodies {
		o.bodies[i].view.Release()
	}
	o.bodies, o.heads, o.acking, o.bytes, o.writing = nil, nil, nil, 0, 0
	o.room.Broadcast()
	for _, ch := range o.drained {
		notify(ch)
	}
}

// stallTime is how long a peer may take nothing at all.
const stallTime = 10 * time.Second

// farewellTime is how long a peer may take for the last frames of a connection that the broker ends.
const farewellTime = time.Second

// send writes what w holds with as few system calls as the kernel allows.
func (c *conn) send(w *writer) error {
	w.vec = w.vec[:0]
	from := 0
	for i := range w.bodies {
		if b := &w.bodies[i]; len(b.data) > 0 {
			if b.at > from {
				w.vec = append(w.vec, w.heads[from:b.at])
			}
			w.vec = append(w.vec, b.data)
			from = b.at
		}
	}
	if from < len(w.heads) {
		w.vec = append(w.vec, w.heads[from:])
	}
	w.rest = w.vec
	for len(w.rest) > 0 {
		if err := c.nc.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
			return err
		}
		over := c.ctx.Err() != nil // asked after the deadline was set: hangUp sets its own behind the cancel
		if over {
			if err := c.nc.SetWriteDeadline(time.Now().Add(farewellTime)); err != nil {
				return err
			}
		}
		n, err := w.rest.WriteTo(c.nc)
		c.b.metrics.sentBytes.Add(float64(n))
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && (over || c.ctx.Err() != nil):
			return err
		case errors.Is(err, os.ErrDeadlineExceeded) && n > 0:
			// Slow, but alive: it goes on from where it stands.
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.log.Warn("connection cut: the peer took nothing", "for", stallTime)
			return protocol.Errorf(protocol.CodeSlowConsumer, "the peer took nothing for %v", stallTime)
		default:
			return err
		}
	}
	return nil
}

// release gives the log's memory back.
func (w *writer) release() {
	for i := range w.bodies {
		w.bodies[i].view.Release()
		w.bodies[i] = body{}
	}
	w.bodies = w.bodies[:0]
	w.heads = w.heads[:0]
	if cap(w.heads) > 1<<20 {
		w.heads = nil
	}
}
