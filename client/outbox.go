package client

import (
	"errors"
	"net"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// outbox is what waits to be written to a connection: small frames, encoded
// back to back, and lanes that have a batch due.
type outbox struct {
	frames  []byte
	spare   []byte // the buffer that frames changes places with
	ready   []*lane
	window  int    // produce frames in flight, at most
	flying  int    // produce frames taken from lanes and not answered
	writes  uint64 // how often the writer wrote
	writing bool
}

// A write takes at most so many bytes of batches.
const writeBytes = 4 << 20

// produceID is the correlation id of a lane's n-th frame on a connection. The
// top bit tells it from the ids of calls.
func produceID(handle, n uint32) uint64 { return 1<<63 | uint64(handle)<<32 | uint64(n) }

// enqueue puts l into the line of those with a batch due. Its owner's lock is held.
func (c *conn) enqueue(l *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.out.ready = append(c.out.ready, l)
	if !c.out.writing && c.out.flying < c.out.window {
		c.wake.Signal()
	}
}

// landed counts a produce frame as answered and returns the lane it was of.
func (c *conn) landed(handle uint32) *lane {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.flying--
	if len(c.out.ready) > 0 && !c.out.writing {
		c.wake.Signal()
	}
	return c.peers.lanes[handle]
}

// write is the writing goroutine. It returns when the connection is over.
func (c *conn) write() {
	var w writer
	for w.collect(c) {
		if err := w.flush(c); err != nil {
			c.fail(err)
		}
	}
}

// writer is the state of the writing goroutine.
type writer struct {
	frames  []byte
	lanes   []*lane
	flights []*flight
	heads   []byte // of the flights' frames
	ends    []int  // where each head ends
	hdr     protocol.Produce
	vec     net.Buffers
}

// collect waits until something is to be written and takes it. False: the connection is over.
func (w *writer) collect(c *conn) bool {
	c.mu.Lock()
	o := &c.out
	o.writing = false
	for c.err == nil && len(o.frames) == 0 && (len(o.ready) == 0 || o.flying >= o.window) {
		c.wake.Wait()
	}
	if c.err != nil {
		c.mu.Unlock()
		return false
	}
	o.writing = true
	w.frames, o.frames, o.spare = o.frames, o.spare[:0], nil
	n := min(len(o.ready), o.window-o.flying)
	w.lanes = append(w.lanes[:0], o.ready[:n]...)
	o.ready = append(o.ready[:0], o.ready[n:]...)
	clear(o.ready[len(o.ready) : len(o.ready)+n])
	o.flying += n
	c.mu.Unlock()
	w.take(c)
	return true
}

// take seals and encodes what the lanes in line have due, one batch each.
func (w *writer) take(c *conn) {
	now := time.Now()
	bytes, unused := 0, 0
	for i, l := range w.lanes {
		if bytes >= writeBytes {
			c.requeue(w.lanes[i:])
			break
		}
		f, id, h := l.take(c, now)
		if f == nil {
			unused++
			continue
		}
		w.hdr = h
		w.heads = protocol.AppendHead(w.heads, protocol.TypeProduce, id, &w.hdr, len(f.frame))
		w.ends = append(w.ends, len(w.heads))
		bytes += len(f.frame)
		w.flights = append(w.flights, f)
	}
	clear(w.lanes)
	if unused > 0 {
		c.mu.Lock()
		c.out.flying -= unused
		c.mu.Unlock()
	}
}

// requeue puts lanes back at the front of the line.
func (c *conn) requeue(lanes []*lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.flying -= len(lanes)
	c.out.ready = append(append(make([]*lane, 0, len(lanes)+len(c.out.ready)), lanes...), c.out.ready...)
}

// flush writes what was collected with as few system calls as the kernel allows.
func (w *writer) flush(c *conn) error {
	w.vec = w.vec[:0]
	if len(w.frames) > 0 {
		w.vec = append(w.vec, w.frames)
	}
	from := 0
	for i, f := range w.flights {
		w.vec = append(w.vec, w.heads[from:w.ends[i]], f.frame)
		from = w.ends[i]
	}
	var err error
	if len(w.vec) > 0 {
		vec := w.vec
		err = c.sock.Write(&w.vec)
		w.vec = vec
		clear(w.vec)
	}
	for i, f := range w.flights {
		f.lane.wrote(f)
		w.flights[i] = nil
	}
	w.flights, w.heads, w.ends = w.flights[:0], w.heads[:0], w.ends[:0]
	c.mu.Lock()
	c.out.writes++
	if cap(w.frames) <= 1<<20 {
		c.out.spare = w.frames[:0]
	}
	c.mu.Unlock()
	return err
}

// dispatcher decodes what the reading goroutine gets, without allocating for
// what comes often.
type dispatcher struct {
	ok      protocol.ProduceOK
	deliver protocol.Deliver
}

// dispatch hands a frame to what it is for. An error ends the connection.
func (d *dispatcher) dispatch(c *conn, f protocol.Frame) error {
	switch f.Type {
	case protocol.TypeProduceOK:
		if err := d.ok.Decode(f.Header); err != nil {
			return err
		}
		return c.produced(f.ID, &d.ok, nil)
	case protocol.TypeDeliver:
		if err := d.deliver.Decode(f.Header); err != nil {
			return err
		}
		if s := c.stream(d.deliver.Handle); s != nil {
			return s.deliver(c, &d.deliver, f.Body)
		}
		return nil
	case protocol.TypePing:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.out.frames = protocol.AppendFrame(c.out.frames, protocol.TypePong, f.ID, nil, nil)
		c.wake.Signal()
		return nil
	case protocol.TypePong:
		return nil
	case protocol.TypeError:
		return c.refused(f)
	case protocol.TypeGap, protocol.TypeUnsubscribed, protocol.TypeGoAway:
		return c.notice(f)
	}
	return c.answer(f)
}

// produced hands the answer of a produce frame to its lane.
func (c *conn) produced(id uint64, ok *protocol.ProduceOK, refusal *protocol.Error) error {
	if id>>63 == 0 {
		return errors.New("malformed answer: PRODUCE_OK with an id of no produce frame")
	}
	l := c.landed(uint32(id>>32) &^ (1 << 31))
	if l == nil {
		return nil // of a producer that was closed
	}
	return l.answered(c, uint32(id), ok, refusal)
}

func (c *conn) stream(handle uint32) *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peers.streams[handle]
}

// refused hands an error to the request it answers; one of the whole
// connection ends it.
func (c *conn) refused(f protocol.Frame) error {
	e := new(protocol.Error)
	if err := e.Decode(f.Header); err != nil {
		return err
	}
	c.doubtRefusal(e)
	switch {
	case f.ID == 0:
		return e
	case f.ID>>63 != 0:
		return c.produced(f.ID, nil, e)
	}
	if k := c.unregister(f.ID); k != nil {
		k.finish(wireError(k.op, e))
	}
	return nil
}

func (c *conn) unregister(id uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.peers.calls[id]
	delete(c.peers.calls, id)
	return k
}

// answer hands a frame to the call it answers.
func (c *conn) answer(f protocol.Frame) error {
	k := c.unregister(f.ID)
	if k == nil {
		return errors.New("malformed answer: a frame that answers no request")
	}
	var err error
	if f.Type != k.want {
		err = retry.Lost(c.address, errors.New("malformed answer: a frame of another type than was asked for"))
	} else if k.decode != nil {
		err = k.decode(f)
	}
	k.finish(err)
	return err
}

// notice handles what a broker says unasked.
func (c *conn) notice(f protocol.Frame) error {
	switch f.Type {
	case protocol.TypeGap:
		var g protocol.GapNotice
		if err := g.Decode(f.Header); err != nil {
			return err
		}
		if s := c.stream(g.Handle); s != nil {
			s.gap(&g)
		}
	case protocol.TypeUnsubscribed:
		var d protocol.Detached
		if err := d.Decode(f.Header); err != nil {
			return err
		}
		if s := c.stream(d.Handle); s != nil {
			s.detached(c, d.Handle, &d.Err)
		}
	case protocol.TypeGoAway:
		c.mu.Lock()
		c.away = true
		c.mu.Unlock()
	}
	return nil
}
