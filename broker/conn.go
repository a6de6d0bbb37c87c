package broker

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/outbox"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/protocol"
)

// conn is one client's connection: a goroutine that reads and handles frames
// and one that writes. Requests that may wait run in goroutines of their own,
// bounded in number.
type conn struct {
	b      *Broker
	id     uint64
	nc     net.Conn
	log    *slog.Logger
	in     *protocol.Reader
	input  *meteredReader
	out    *outbox.Outbox
	ctx    context.Context // ends when the connection does
	cancel context.CancelCauseFunc
	slots  chan struct{} // held by requests that may wait for the metadata or the disk
	waits  chan struct{} // held by fetches that wait for messages
	wg     sync.WaitGroup

	scratch scratch // of the reading goroutine

	mu        sync.Mutex // guards what follows
	handles   uint32
	producers map[uint32]*producer
	consumers map[uint32]*consumer
	client    string
}

// producer is a producer over one connection.
type producer struct {
	served.Producer
	closed bool // its client closes it; guarded by the conn
}

// consumer is a consumer over one connection: of a subscription, or of a
// non-reliable topic.
type consumer struct {
	part   *served.Partition
	handle uint32
	sub    *delivery.Consumer     // nil of a non-reliable topic
	live   *delivery.LiveConsumer // nil of a subscription
}

// leave ends a consumer. Clean: its client closed in order.
func (o *consumer) leave(clean bool) {
	if o.live != nil {
		o.live.Leave()
		return
	}
	o.sub.Leave(clean)
}

// Out is what is written to the connection.
func (c *conn) Out() *outbox.Outbox { return c.out }

// Address is the client's.
func (c *conn) Address() string { return c.nc.RemoteAddr().String() }

func newConn(b *Broker, nc net.Conn, id uint64) *conn {
	ctx, cancel := context.WithCancelCause(b.ctx)
	c := &conn{
		b: b, id: id, nc: nc, ctx: ctx, cancel: cancel,
		log:       b.log.With("conn", id, "peer", nc.RemoteAddr().String()),
		input:     &meteredReader{nc: nc},
		slots:     make(chan struct{}, requestLimit),
		waits:     make(chan struct{}, waitLimit),
		producers: map[uint32]*producer{},
		consumers: map[uint32]*consumer{},
	}
	c.in = protocol.NewReader(c.input, 64<<10)
	c.in.SetBudget(b.frames)
	c.out = outbox.New(outbox.Config{Conn: nc, Acked: b.metrics.ackSeconds, Sent: b.metrics.sentBytes, Now: b.cfg.Now, Log: c.log})
	return c
}

// serve handles the connection until it ends. It returns when both goroutines
// and all requests have.
func (c *conn) serve() {
	defer c.b.metrics.connections.Dec()
	c.b.metrics.connections.Inc()
	c.wg.Go(func() { c.out.Write(c.ctx, c.cancel) })
	err := c.read()
	c.in.Close()
	c.close(err)
	c.detach()
	c.wg.Wait()
	if err := context.Cause(c.ctx); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.log.Debug("connection ended", "err", err)
	}
}

// close ends the connection: a coded error, if the peer is to know one, is the last frame.
func (c *conn) close(err error) {
	if pe, ok := errors.AsType[*protocol.Error](err); ok {
		c.out.Frame(protocol.TypeError, 0, pe)
	}
	c.out.Finish()
	c.cancel(err)
}

// hangUp ends the connection for the broker: what is queued is written, then it is closed.
func (c *conn) hangUp(why error) {
	c.out.Finish()
	_ = c.nc.SetReadDeadline(time.Now()) // wakes the reader; a failure means it is closed already
	c.cancel(why)
	c.out.Farewell()
}

// detach takes the connection's producers and consumers out of their partitions.
func (c *conn) detach() {
	c.mu.Lock()
	producers, consumers := c.producers, c.consumers
	c.producers, c.consumers = nil, nil
	c.mu.Unlock()
	for _, p := range producers {
		p.Leave()
	}
	for _, s := range consumers {
		s.leave(false)
	}
}

// read is the reading goroutine.
func (c *conn) read() error {
	if err := c.hello(); err != nil {
		return err
	}
	for {
		f, err := c.in.Next()
		if err != nil {
			return c.readError(err)
		}
		c.input.frameDone()
		if err := c.handle(f); err != nil {
			return err
		}
	}
}

func (c *conn) readError(err error) error {
	if fe, ok := errors.AsType[*protocol.FrameError](err); ok {
		return &protocol.Error{Code: fe.Code, Text: fe.Error()}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return protocol.Errorf(protocol.CodeTimeout, "nothing came for %v, or a frame did not come whole in time", 3*outbox.Heartbeat)
	}
	return err
}

// hello reads the first frame under the small limit and answers it.
func (c *conn) hello() error {
	c.in.SetLimit(helloLimit)
	c.input.begin(c.b.cfg.Now())
	f, err := c.in.Next()
	if err != nil {
		return c.readError(err)
	}
	var h protocol.Hello
	if f.Type != protocol.TypeHello {
		return protocol.Errorf(protocol.CodeBadFrame, "the first frame is not HELLO")
	}
	if err := h.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "HELLO: %v", err)
	}
	if h.Cookie != protocol.Magic {
		return protocol.Errorf(protocol.CodeBadFrame, "this is a Danube broker's client port; the peer speaks something else")
	}
	if h.MinVersion > protocol.Version || h.MaxVersion < protocol.Version {
		return protocol.Errorf(protocol.CodeUnsupported, "the client speaks protocol versions %d to %d, this broker speaks %d", h.MinVersion, h.MaxVersion, protocol.Version)
	}
	if h.Auth != "" {
		return protocol.Errorf(protocol.CodeUnsupported, "this broker has no authentication; connect without credentials")
	}
	c.mu.Lock()
	c.client = h.Client
	c.mu.Unlock()
	limits := c.b.cfg.Limits
	c.out.Frame(protocol.TypeHelloOK, f.ID, &protocol.HelloOK{
		Version: protocol.Version, Broker: c.b.cfg.Name, Cluster: c.b.cfg.Cluster, Release: c.b.cfg.Release,
		MaxFrame: c.b.maxFrame(), MaxMessage: limits.Message, MaxBatch: limits.Batch,
		Window: outbox.Window, HeartbeatMS: int(outbox.Heartbeat.Milliseconds()),
	})
	c.in.SetLimit(c.b.maxFrame())
	c.input.established()
	return nil
}

// helloLimit bounds what a peer can make the broker hold before its HELLO.
const helloLimit = 16 << 10

// handle acts on one frame. An error ends the connection.
func (c *conn) handle(f protocol.Frame) error {
	switch f.Type {
	case protocol.TypeProduce:
		return c.produce(f)
	case protocol.TypeAck, protocol.TypeNack, protocol.TypeReceived, protocol.TypeCredit:
		return c.settle(f)
	case protocol.TypePing:
		c.out.Frame(protocol.TypePong, f.ID, nil)
		return nil
	case protocol.TypePong:
		return nil
	case protocol.TypeCloseProducer:
		return c.closeProducer(f)
	case protocol.TypeLookup:
		return request(c, f, new(protocol.Lookup), protocol.TypeLookupOK, c.b.admin.Lookup)
	case protocol.TypeOpenProducer:
		return request(c, f, new(protocol.OpenProducer), protocol.TypeOpenProducerOK, c.openProducer)
	case protocol.TypeSubscribe:
		return request(c, f, new(protocol.Subscribe), protocol.TypeSubscribeOK, c.subscribe)
	case protocol.TypeSeek:
		return request(c, f, new(protocol.Seek), protocol.TypeSeekOK, c.seek)
	case protocol.TypeCloseConsumer:
		return request(c, f, new(protocol.Handle), protocol.TypeClosed, c.closeConsumer)
	case protocol.TypeFetch:
		return c.fetch(f)
	case protocol.TypeAdmin:
		return c.admin(f)
	}
	c.out.Frame(protocol.TypeError, f.ID, protocol.Errorf(protocol.CodeUnsupported, "unknown request type %d", f.Type))
	return nil
}

// header is a frame header that decodes itself.
type header interface{ Decode([]byte) error }

// request decodes a header and runs do beside the reader, bounded by the
// connection's slots; its result or error is the answer.
func request[Q header](c *conn, f protocol.Frame, q Q, answer protocol.Type, do func(context.Context, Q) (protocol.Header, error)) error {
	if err := q.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "frame type %d: %v", f.Type, err)
	}
	c.beside(func() {
		h, err := do(c.ctx, q)
		if err != nil {
			c.refuse(f.ID, err)
			return
		}
		c.out.Frame(answer, f.ID, h)
		if a, ok := h.(answered); ok {
			a.then()
		}
	})
	return nil
}

// refuse answers a request with an error; a connection that is over gets no answer.
func (c *conn) refuse(id uint64, err error) {
	if c.ctx.Err() == nil {
		c.out.Frame(protocol.TypeError, id, c.b.wireError(err))
	}
}

// beside runs do in a goroutine that serve waits for, when a slot is free.
func (c *conn) beside(do func()) {
	select {
	case c.slots <- struct{}{}:
	case <-c.ctx.Done():
		return
	}
	c.holding(c.slots, do)
}

// holding runs do in a goroutine that serve waits for and gives back one of slots then.
func (c *conn) holding(slots chan struct{}, do func()) {
	c.wg.Go(func() {
		defer func() { <-slots }()
		do()
	})
}

// newHandle gives out a number for a producer or consumer; ok is false when
// the connection is over.
func (c *conn) addProducer(p *producer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.producers == nil {
		return false
	}
	c.handles++
	p.Handle = c.handles
	c.producers[p.Handle] = p
	return true
}

func (c *conn) addConsumer(s *consumer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.consumers == nil {
		return false
	}
	c.handles++
	if s.handle = c.handles; s.sub != nil {
		s.sub.Handle = s.handle
	} else {
		s.live.Handle = s.handle
	}
	c.consumers[s.handle] = s
	return true
}

func (c *conn) producer(h uint32) *producer {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.producers[h]; p != nil && !p.closed {
		return p
	}
	return nil
}

// dropProducer takes out a producer whose close is about to be answered. Those of
// a connection that is over are detach's.
func (c *conn) dropProducer(p *producer) {
	c.mu.Lock()
	mine := c.producers[p.Handle] == p
	delete(c.producers, p.Handle)
	c.mu.Unlock()
	if mine {
		p.Leave()
	}
}

func (c *conn) consumer(h uint32) *consumer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.consumers[h]
}

// over reports whether the connection has taken its consumers out: one that
// joined since must leave by itself.
func (c *conn) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.consumers == nil
}

// Drop forgets a consumer that the broker ended.
func (c *conn) Drop(h uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.consumers, h)
}

// meteredReader puts deadlines on the reads of a connection without setting
// one for each: a peer must send something every three heartbeats, its HELLO
// within 10 s of connecting, and a frame it began at a rate of at least 16 KiB/s.
type meteredReader struct {
	nc       net.Conn
	hello    bool
	set      time.Time     // when the deadline was last set
	received int           // bytes of the frame in progress
	waited   time.Duration // for them behind the first; not for what this side made wait, for room or the disk
}

const (
	helloTime   = 10 * time.Second
	frameGrace  = 10 * time.Second
	frameMinBps = 16 << 10
)

// begin starts the time for the HELLO.
func (r *meteredReader) begin(time.Time) {
	r.hello = true
	r.set = time.Now()
	_ = r.nc.SetReadDeadline(r.set.Add(helloTime)) // fails only on a closed connection, as the read then does
}

// established says that the HELLO has come.
func (r *meteredReader) established() { r.hello, r.set, r.received = false, time.Time{}, 0 }

// frameDone says that the bytes so far made whole frames.
func (r *meteredReader) frameDone() { r.received, r.waited = 0, 0 }

func (r *meteredReader) Read(p []byte) (int, error) {
	if r.hello {
		return r.nc.Read(p)
	}
	now := time.Now()
	if late := r.waited - frameGrace; late > 0 && float64(r.received) < late.Seconds()*frameMinBps {
		return 0, os.ErrDeadlineExceeded
	}
	if now.Sub(r.set) > time.Second {
		r.set = now
		if err := r.nc.SetReadDeadline(now.Add(3*outbox.Heartbeat + time.Second)); err != nil {
			return 0, err
		}
	}
	n, err := r.nc.Read(p)
	if r.received > 0 { // before a frame the peer may have had nothing to say
		r.waited += time.Since(now)
	}
	r.received += n
	return n, err
}
