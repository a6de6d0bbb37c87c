package client

import (
	"errors"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// lane is a producer's road to one partition: the open batch, and the sealed
// ones in the order of their sequences. Producer.mu guards it.
type lane struct {
	p         *Producer
	partition int
	state     laneState
	conn      *conn
	handle    uint32
	epoch     uint64

	open    *batch.Builder
	filling *flight // callbacks and bytes of the open batch; nil while it is empty
	openSeq uint64  // sequence of its first message
	flushTo uint64  // sequences below go out without waiting for company
	sentAt  time.Time

	flights []*flight // not settled; the first sent of them were written on this session
	sent    int
	flying  int    // written and not answered
	first   uint32 // number on this session of flights[0]
	queued  bool   // in the connection's line

	health
}

// health is what is wrong with a lane.
type health struct {
	cause error // what the lane suffers from, nil when a batch was stored since
	fails int   // mendings in a row since then
}

type laneState uint8

const (
	laneDown     laneState = iota // no session; mend runs, or the next message starts it
	laneMending                   // mend runs
	laneOpen                      // batches may go out
	laneDraining                  // a batch was refused: nothing goes out until all under way are answered
	laneFenced                    // another producer took over: for good
)

// How batches go out while others are in flight.
const (
	maxFlying   = 64                     // batches of a lane in flight, at most
	quickFlying = 4                      // up to so many, a batch goes out however small …
	quickPause  = 100 * time.Microsecond // … when none did for so long
	fullEnough  = 128 << 10              // a batch of so many bytes goes out in any case
	maxMessages = 1 << 16                // messages of a batch, at most (the format's default limit)
	keepSpare   = 128                    // buffers kept for use again
)

// flight is a sealed batch, or the callbacks of one that is filling.
type flight struct {
	lane    *lane
	builder *batch.Builder // until it is encoded
	frame   []byte         // the encoded batch: the same bytes at every attempt
	done    []func(Result, error)
	seq     uint64
	bytes   int // that it counts for in MaxPending
	since   time.Time

	writing  int  // writers that have its bytes: after a move more than one
	inflight bool // written, or being written, on this session and not answered
	doubt    bool // an earlier attempt may have stored it
	claimed  bool // someone calls its callbacks, or has
	settled  bool // they were called
	gone     bool // the lane is done with it; the writer is not
}

// next is the sequence after the last message. The caller holds p.mu, as for all that follow.
func (l *lane) next() uint64 { return l.openSeq + uint64(l.open.Count()) }

// lowest is the lowest sequence without an outcome.
func (l *lane) lowest() uint64 {
	for _, f := range l.flights {
		if !f.settled {
			return f.seq
		}
	}
	return l.openSeq
}

// resume is the sequence that a new session begins with.
func (l *lane) resume() uint64 {
	for _, f := range l.flights {
		if !f.claimed {
			return f.seq
		}
	}
	return l.openSeq
}

// builder returns an empty Builder.
func (p *Producer) builder() *batch.Builder {
	if n := len(p.st.builders); n > 0 {
		b := p.st.builders[n-1]
		p.st.builders = p.st.builders[:n-1]
		return b
	}
	return new(batch.Builder)
}

// spare returns an empty flight.
func (p *Producer) spare() *flight {
	if n := len(p.st.spare); n > 0 {
		f := p.st.spare[n-1]
		p.st.spare = p.st.spare[:n-1]
		return f
	}
	return new(flight)
}

// add copies a message into the open batch and returns the time. The wall clock
// is read for the first message of a batch; the others count from there, which
// is half the price.
func (l *lane) add(b *batch.Message, size int, done func(Result, error)) (now time.Time) {
	if n := l.open.Count(); n > 0 && (n >= maxMessages || l.open.Size()+size > l.batchBytes()) {
		l.seal()
	}
	f := l.filling
	if f == nil {
		now = time.Now()
		f = l.p.spare()
		f.lane, f.since = l, now
		l.filling = f
		if l.p.cfg.Linger > 0 {
			l.linger()
		}
	} else {
		now = f.since.Add(time.Since(f.since))
	}
	if b.PublishTime == 0 {
		b.PublishTime = now.UnixMilli()
	}
	l.open.Add(b)
	f.bytes += size
	f.done = append(f.done, done)
	return now
}

// batchBytes is how large a batch may become.
func (l *lane) batchBytes() int {
	n := l.p.cfg.BatchBytes
	if l.conn != nil {
		n = min(n, l.conn.sock.Limits.Batch, l.conn.sock.Hello.MaxFrame-1024)
	}
	return n
}

// seal closes the open batch and opens another.
func (l *lane) seal() {
	f := l.filling
	f.builder, f.seq = l.open, l.openSeq
	l.flights = append(l.flights, f)
	l.openSeq = l.next()
	l.open, l.filling = l.p.builder(), nil
	l.p.sealed(l)
}

// linger makes the open batch go out when it is old enough.
func (l *lane) linger() {
	seq := l.openSeq
	time.AfterFunc(l.p.cfg.Linger, func() {
		l.p.mu.Lock()
		defer l.p.mu.Unlock()
		l.flushTo = max(l.flushTo, seq+1)
		l.kick(time.Now())
	})
}

// due reports whether a batch should go out now.
func (l *lane) due(now time.Time) bool {
	switch {
	case l.state != laneOpen || l.flying >= maxFlying:
		return false
	case l.sent < len(l.flights):
		return true
	case l.filling == nil:
		return false
	case l.openSeq < l.flushTo:
		return true
	case l.p.cfg.Linger > 0:
		return l.open.Size() >= l.batchBytes()
	case l.flying == 0:
		return true
	}
	return l.open.Size() >= fullEnough || l.flying < quickFlying && now.Sub(l.sentAt) >= quickPause
}

// kick puts the lane into its connection's line if a batch is due, and begins
// to mend it if it is down and has something to send.
func (l *lane) kick(now time.Time) {
	if l.state == laneDown {
		l.mend(protocol.LookUp)
		return
	}
	if !l.queued && l.due(now) {
		l.queued = true
		l.conn.enqueue(l)
	}
}

// take gives the writer of c the next batch, encoded, with its correlation id
// and header, or nil if none is due. It locks p.mu itself, as wrote, answered and lost do.
func (l *lane) take(c *conn, now time.Time) (f *flight, id uint64, h protocol.Produce) {
	p := l.p
	p.mu.Lock()
	if l.conn != c {
		p.mu.Unlock()
		return nil, 0, h // the lane lives on another connection by now
	}
	l.queued = false
	for l.sent < len(l.flights) && l.flights[l.sent].claimed {
		l.sent++ // its messages were given up: its number stays unused
	}
	if !l.due(now) {
		p.mu.Unlock()
		return nil, 0, h
	}
	if l.sent == len(l.flights) {
		l.seal()
	}
	f = l.flights[l.sent]
	id = produceID(l.handle, l.first+uint32(l.sent))
	h = protocol.Produce{Handle: l.handle, Epoch: l.epoch}
	l.sent++
	l.flying++
	l.sentAt = now
	f.inflight = true
	f.writing++
	b := f.builder
	l.kick(now)
	p.mu.Unlock()
	if b != nil {
		f.encode(p, b)
	}
	return f, id, h
}

// encode makes the bytes of the batch, once. Until it is done no answer is accepted.
func (f *flight) encode(p *Producer, b *batch.Builder) {
	frame, err := b.AppendTo(f.frame[:0], p.cfg.Compression, batch.Identity{Producer: p.id, Session: p.session, Sequence: f.seq})
	if err != nil {
		// The broker refuses the empty batch, and with that its messages fail; the
		// compressors do not fail on any input, so this is not seen to happen.
		frame = frame[:0]
		b.Reset()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	f.frame, f.builder = frame, nil
	if len(p.st.builders) < keepSpare {
		p.st.builders = append(p.st.builders, b)
	}
}

// wrote says that the writer needs the buffers of f no more.
func (l *lane) wrote(f *flight) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	f.writing--
	if f.gone {
		l.p.recycle(f)
	}
}

// recycle keeps a flight that the lane is done with for use again.
func (p *Producer) recycle(f *flight) {
	if f.gone = f.writing > 0; f.gone {
		return // wrote does it
	}
	if len(p.st.spare) >= keepSpare || f.builder != nil {
		return
	}
	clear(f.done)
	*f = flight{frame: f.frame[:0], done: f.done[:0]}
	p.st.spare = append(p.st.spare, f)
}

// answered takes the answer to the frame with number n: ok, or the refusal. An
// answer to no frame in flight ends the connection.
func (l *lane) answered(c *conn, n uint32, ok *protocol.ProduceOK, refusal *protocol.Error) error {
	p := l.p
	p.mu.Lock()
	i := int(int32(n - l.first))
	if l.conn != c || i < 0 || i >= l.sent || !l.flights[i].inflight || l.flights[i].builder != nil {
		p.mu.Unlock()
		return errors.New("malformed answer: to a produce frame that is not in flight")
	}
	f := l.flights[i]
	f.inflight = false
	l.flying--
	var err error
	if refusal != nil {
		err = l.refuse(f, refusal)
	} else {
		l.health = health{}
		l.kick(time.Now())
	}
	final := (refusal == nil || err != nil) && !f.claimed
	if final {
		f.claimed = true
		p.st.calling++
	}
	p.mu.Unlock()
	if final {
		f.call(l.partition, ok, err)
	}
	p.mu.Lock()
	if final {
		l.settle(f, err)
		p.st.calling--
	}
	l.tidy()
	fenced := l.state == laneFenced && l.flying == 0
	if l.state == laneDraining && l.flying == 0 {
		l.mend(retry.Verdict(l.cause).Action)
	}
	err = l.cause
	p.mu.Unlock()
	if fenced {
		l.giveUp(err)
	}
	return nil
}

// refuse notes the refusal of f and returns the error its messages end with, or
// nil when it is to be sent again.
func (l *lane) refuse(f *flight, refusal *protocol.Error) error {
	meaning := refusal.Code.Meaning()
	err := wireError("send to "+l.p.topic, refusal)
	if l.state == laneOpen {
		l.state = laneDraining
		l.cause = err
	}
	if !meaning.NotStored {
		f.doubt = true
	}
	switch {
	case refusal.Code == protocol.CodeProducerFenced:
		l.state, l.cause = laneFenced, err
	case meaning.Retriable:
		return nil
	}
	if f.doubt {
		err = &UnknownError{Count: len(f.done), Err: err}
	}
	return err
}

// call calls the callbacks of f. No lock is held.
func (f *flight) call(partition int, ok *protocol.ProduceOK, err error) {
	if err != nil {
		for _, done := range f.done {
			if done != nil {
				done(Result{Partition: partition}, err)
			}
		}
		return
	}
	r := Result{
		Partition: partition, Offset: ok.Base, AppendTime: time.UnixMilli(ok.AppendTime),
		Duplicate: ok.Duplicate, Level: protocol.Level(ok.Level),
	}
	for _, done := range f.done {
		if done != nil {
			done(r, nil)
		}
		r.Offset++
	}
}

// settle books a flight whose callbacks were called.
func (l *lane) settle(f *flight, err error) {
	p := l.p
	f.settled = true
	p.st.bytes -= f.bytes
	f.bytes = 0
	if err != nil {
		for _, done := range f.done {
			if done == nil {
				p.st.failed++
				if p.st.err == nil {
					p.st.err = err
				}
			}
		}
	}
	if p.st.waiting > 0 {
		p.cond.Broadcast()
	}
}

// tidy takes settled flights off the front.
func (l *lane) tidy() {
	n := 0
	for n < len(l.flights) && l.flights[n].settled && !l.flights[n].inflight {
		l.p.recycle(l.flights[n])
		n++
	}
	if n == 0 {
		return
	}
	rest := copy(l.flights, l.flights[n:])
	clear(l.flights[rest:])
	l.flights = l.flights[:rest]
	l.sent = max(l.sent-n, 0)
	l.first += uint32(n)
}

// lost says that connection c is over; nothing reads or writes it any more.
func (l *lane) lost(c *conn, err error) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.conn != c {
		return
	}
	for _, f := range l.flights[:l.sent] {
		if f.inflight {
			f.inflight, f.doubt = false, true
		}
	}
	l.conn, l.sent, l.flying, l.queued = nil, 0, 0, false
	l.tidy()
	if l.state == laneFenced {
		return
	}
	l.cause = err
	l.mend(protocol.LookUp)
}
