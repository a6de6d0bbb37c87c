package client

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a broker of the tests. By itself it behaves; hook makes it lie.
type fake struct {
	tb   testing.TB
	addr string
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows, topics and sessions too
	hello  protocol.HelloOK
	hook   func(c *fakeConn, f protocol.Frame) bool // true: the frame is dealt with
	topics map[string]*fakeTopic
	conns  map[*fakeConn]struct{}
	down   bool           // refuses connections
	seen   map[string]int // of frames, by name
	ln     net.Listener
}

// fakeConn is a connection to the fake.
type fakeConn struct {
	f       *fake
	nc      net.Conn
	wmu     sync.Mutex
	handles uint32
	prods   map[uint32]*fakeSession
	subs    map[uint32]*fakeConsumer
}

// newFake starts a broker on a port of its own.
func newFake(tb testing.TB) *fake {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	f := bareFake(tb)
	f.addr, f.ln = ln.Addr().String(), ln
	f.wg.Go(func() { // returns when the listener is closed
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			f.accept(nc)
		}
	})
	tb.Cleanup(f.close)
	return f
}

// bareFake has no listener: connections are handed to accept.
func bareFake(tb testing.TB) *fake {
	return &fake{
		tb: tb, addr: "fake:1", topics: map[string]*fakeTopic{}, conns: map[*fakeConn]struct{}{}, seen: map[string]int{},
		hello: protocol.HelloOK{
			Version: protocol.Version, Broker: "fake", Cluster: "test", MaxFrame: 17 << 20,
			MaxMessage: 10 << 20, MaxBatch: 16 << 20, Window: 256, HeartbeatMS: 3000,
		},
	}
}

// dialPipe connects without sockets, for tests whose time is not the machine's.
func (f *fake) dialPipe(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return nil, errors.New("connection refused")
	}
	a, b := net.Pipe()
	f.accept(b)
	return a, nil
}

func (f *fake) accept(nc net.Conn) {
	c := &fakeConn{f: f, nc: nc, prods: map[uint32]*fakeSession{}, subs: map[uint32]*fakeConsumer{}}
	f.mu.Lock()
	down := f.down
	if !down {
		f.conns[c] = struct{}{}
	}
	f.mu.Unlock()
	if down {
		_ = nc.Close()
		return
	}
	f.wg.Go(c.serve) // returns when the connection ends
}

// hangUp closes every connection, and with down refuses new ones.
func (f *fake) hangUp(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
	for c := range f.conns {
		_ = c.nc.Close()
	}
}

func (f *fake) close() {
	f.hangUp(true)
	if f.ln != nil {
		_ = f.ln.Close()
	}
	f.wg.Wait()
}

// intercept sets the hook.
func (f *fake) intercept(hook func(c *fakeConn, fr protocol.Frame) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

// count is how many frames of a type came.
func (f *fake) count(t protocol.Type) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[string(rune(t))]
}

// serve reads frames until the connection ends.
func (c *fakeConn) serve() {
	r := protocol.NewReader(c.nc, 64<<10)
	r.SetLimit(32 << 20)
	for {
		fr, err := r.Next()
		if err != nil {
			break
		}
		c.f.mu.Lock()
		hook := c.f.hook
		c.f.seen[string(rune(fr.Type))]++
		c.f.mu.Unlock()
		if hook != nil && hook(c, fr) {
			continue
		}
		c.handle(fr)
	}
	_ = c.nc.Close()
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	delete(c.f.conns, c)
	for _, s := range c.subs {
		s.sub.leave(s)
	}
}

// send writes a frame. An error is the business of the reading side.
func (c *fakeConn) send(t protocol.Type, id uint64, h protocol.Header, body []byte) {
	c.raw(protocol.AppendFrame(nil, t, id, h, body))
}

func (c *fakeConn) raw(b []byte) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_, _ = c.nc.Write(b)
}

func (c *fakeConn) refuse(id uint64, e *protocol.Error) { c.send(protocol.TypeError, id, e, nil) }

// decodable is a header.
type decodable interface{ Decode([]byte) error }

func (c *fakeConn) decode(fr protocol.Frame, h decodable) {
	if err := h.Decode(fr.Header); err != nil {
		c.f.tb.Errorf("the client sent a malformed header of type %d: %v", fr.Type, err)
	}
}

// handle does what a broker does.
func (c *fakeConn) handle(fr protocol.Frame) {
	switch fr.Type {
	case protocol.TypeHello:
		c.f.mu.Lock()
		h := c.f.hello
		c.f.mu.Unlock()
		c.send(protocol.TypeHelloOK, fr.ID, &h, nil)
	case protocol.TypePing:
		c.send(protocol.TypePong, fr.ID, nil, nil)
	case protocol.TypePong:
	case protocol.TypeLookup:
		c.lookup(fr)
	case protocol.TypeOpenProducer:
		c.openProducer(fr)
	case protocol.TypeProduce:
		c.produce(fr)
	case protocol.TypeCloseProducer:
		c.send(protocol.TypeClosed, fr.ID, nil, nil)
	case protocol.TypeSubscribe:
		c.subscribe(fr)
	case protocol.TypeCredit, protocol.TypeReceived, protocol.TypeAck, protocol.TypeNack, protocol.TypeSeek, protocol.TypeCloseConsumer:
		c.consumerFrame(fr)
	case protocol.TypeFetch:
		c.fetch(fr)
	case protocol.TypeAdmin:
		c.admin(fr)
	default:
		c.refuse(fr.ID, protocol.Errorf(protocol.CodeUnsupported, "type %d", fr.Type))
	}
}

func (c *fakeConn) admin(fr protocol.Frame) {
	var a protocol.Admin
	c.decode(fr, &a)
	var res any = protocol.Done{}
	switch a.Op {
	case protocol.OpTopicCreate:
		var arg protocol.TopicCreate
		if err := protocol.DecodeBody(fr.Body, &arg); err != nil {
			c.f.tb.Errorf("argument of %s: %v", a.Op, err)
		}
		c.f.topic(arg.Topic, max(arg.Config.Partitions, 1))
		res = protocol.TopicCreated{Topic: arg.Topic, Created: true}
	case protocol.OpStatus:
		res = protocol.Status{Cluster: "test", Ready: true}
	}
	body, err := protocol.EncodeBody(res)
	if err != nil {
		c.f.tb.Error(err)
	}
	c.send(protocol.TypeAdminOK, fr.ID, nil, body)
}

func (c *fakeConn) lookup(fr protocol.Frame) {
	var q protocol.Lookup
	c.decode(fr, &q)
	f := c.f
	f.mu.Lock()
	t, made := f.topics[q.Topic], false
	if t == nil && q.Create != nil {
		t, made = f.makeTopic(q.Topic, max(q.Create.Partitions, 1)), true
	}
	f.mu.Unlock()
	if t == nil {
		c.refuse(fr.ID, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s does not exist", q.Topic))
		return
	}
	ok := protocol.LookupOK{ID: make([]byte, 16), Name: q.Topic, Reliable: t.reliable, Created: made}
	for range t.parts {
		ok.Partitions = append(ok.Partitions, protocol.PartitionOwner{Broker: "fake", Address: f.addr, Epoch: 1})
	}
	c.send(protocol.TypeLookupOK, fr.ID, &ok, nil)
}

func (c *fakeConn) fetch(fr protocol.Frame) {
	var q protocol.Fetch
	c.decode(fr, &q)
	f := c.f
	f.mu.Lock()
	p := f.topics[q.Topic].parts[q.Partition]
	from := p.next
	switch q.From.Kind {
	case protocol.Earliest:
		from = p.start
	case protocol.AtOffset:
		from = q.From.Offset
	}
	ok := protocol.FetchOK{Epoch: 1, From: from, To: from, Next: from, LogStart: p.start, Committed: p.next}
	if from < p.start {
		f.mu.Unlock()
		c.refuse(fr.ID, protocol.Errorf(protocol.CodeBelowLogStart, "offset %d was removed", from))
		return
	}
	var body []byte
	for _, b := range p.log {
		if b.End() <= from || len(body)+len(b) > q.MaxBytes && len(body) > 0 || b.Base() > ok.To {
			continue
		}
		body = append(body, b...)
		ok.To = b.End()
	}
	ok.Next = ok.To
	if g, is := p.gaps[ok.To]; is {
		if ok.Next, ok.GapStatus = g, "lost"; p.again[ok.To] {
			ok.GapStatus = "superseded"
		}
	}
	f.mu.Unlock()
	c.send(protocol.TypeFetchOK, fr.ID, &ok, body)
}

// dial connects a client to the fake.
func (f *fake) dial(cfg Config) *Client {
	f.tb.Helper()
	c, err := Dial(f.tb.Context(), []string{f.addr}, cfg)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.tb.Cleanup(c.Close)
	return c
}

// eventually waits until ok, for ten seconds at most.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	end := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			tb.Fatalf("it did not happen that %s", what)
		}
	}
}

// text makes a message.
func text(s string) Message { return Message{Payload: []byte(s)} }

// encode makes a batch of payloads as a producer would.
func encode(tb testing.TB, id batch.Identity, payloads ...string) batch.Batch {
	tb.Helper()
	var w batch.Builder
	for _, p := range payloads {
		w.Add(&batch.Message{Payload: []byte(p)})
	}
	b, err := w.AppendTo(nil, batch.None, id)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
