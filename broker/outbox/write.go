package outbox

import (
	"context"
	"errors"
	"net"
	"os"
	"time"

	"github.com/danubemq/danube/protocol"
)

// writer is the state of the writing goroutine: what it took from the outbox.
type writer struct {
	heads  []byte
	bodies []body
	vec    net.Buffers // what is to be written
	rest   net.Buffers // of vec, what was not written yet; a field, since WriteTo would move a local to the heap
	ok     protocol.ProduceOK
}

// Write is the writing goroutine: it returns when the outbox is finished and
// empty, or the peer takes nothing any more, which ends the connection by fail.
// ctx is the connection's: when it ends, what waits for a commit round is
// answered, and nothing else is taken; what waits longer, as for a store that is
// away, nobody has heard of (R5).
func (o *Outbox) Write(ctx context.Context, fail func(error)) {
	var w writer
	ping := time.NewTicker(Heartbeat)
	defer ping.Stop()
	idle := false
	ended := ctx.Done()
	late := make(<-chan time.Time)
	for {
		done, taken := o.collect(&w)
		o.dropClosed()
		if len(w.heads) > 0 {
			idle = false
			err := o.send(ctx, &w)
			w.release()
			o.written(taken)
			if err != nil {
				fail(err)
				break
			}
			continue
		}
		if done {
			break
		}
		select {
		case <-o.wake:
		case <-ping.C:
			if idle {
				o.Frame(protocol.TypePing, 0, nil)
			}
			idle = true
		case <-ended:
			o.Finish() // what waits for a commit round is answered first
			ended, late = nil, time.After(ackTime)
		case <-late:
			o.giveUp()
		}
	}
	o.discard()
	_ = o.cfg.Conn.Close() // the connection is given up; there is nobody to tell
}

// giveUp drops the answers that are not there yet.
func (o *Outbox) giveUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acking = nil
}

// dropClosed tells of the producers whose close is about to be answered.
func (o *Outbox) dropClosed() {
	for _, l := range o.closing {
		l.Closed()
	}
	clear(o.closing)
	o.closing = o.closing[:0]
}

// collect moves what can be written now into w, and reports whether nothing will come any more.
func (o *Outbox) collect(w *writer) (done bool, taken int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.heads, o.heads = o.heads, w.heads[:0]
	w.bodies, o.bodies = o.bodies, w.bodies[:0]
	taken = o.bytes - o.writing
	o.writing = o.bytes
	o.acking = o.takeAcks(w, o.acking)
	return o.finished && len(o.acking) == 0, taken
}

// written takes n bytes off the backlog and wakes who waited for that.
func (o *Outbox) written(n int) {
	o.mu.Lock()
	o.bytes -= n
	o.writing -= n
	var wake []chan<- struct{}
	if o.bytes < highBytes/2 && len(o.drained) > 0 {
		wake, o.drained = o.drained, nil
	}
	o.mu.Unlock()
	for _, ch := range wake {
		notify(ch)
	}
}

// discard releases what will never be written.
func (o *Outbox) discard() {
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

// ackTime is how long a connection that ends waits for what producers are to be told.
const ackTime = time.Second

// farewellTime is how long a peer may take for the last frames of a connection that the broker ends.
const farewellTime = time.Second

// Farewell bounds what is still to be written to a connection that the broker
// ends, once ctx has: a peer that takes nothing holds up no stop.
func (o *Outbox) Farewell() {
	_ = o.cfg.Conn.SetWriteDeadline(time.Now().Add(farewellTime)) // a failure means it is closed already
}

// send writes what w holds with as few system calls as the kernel allows.
func (o *Outbox) send(ctx context.Context, w *writer) error {
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
		if err := o.cfg.Conn.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
			return err
		}
		over := ctx.Err() != nil // asked after the deadline was set: Farewell sets its own behind the end of ctx
		if over {
			if err := o.cfg.Conn.SetWriteDeadline(time.Now().Add(farewellTime)); err != nil {
				return err
			}
		}
		n, err := w.rest.WriteTo(o.cfg.Conn)
		o.cfg.Sent.Add(float64(n))
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded) && (over || ctx.Err() != nil):
			return err
		case errors.Is(err, os.ErrDeadlineExceeded) && n > 0:
			// Slow, but alive: it goes on from where it stands.
		case errors.Is(err, os.ErrDeadlineExceeded):
			o.cfg.Log.Warn("connection cut: the peer took nothing", "for", stallTime)
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
