package broker_test

import (
	"net"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

// rawConn is a connection that speaks frames without the client.
type rawConn struct {
	t  testing.TB
	nc net.Conn
	in *protocol.Reader
}

func rawDial(t testing.TB, address string) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	c := &rawConn{t: t, nc: nc, in: protocol.NewReader(nc, 64<<10)}
	c.in.SetLimit(20 << 20)
	c.write(protocol.AppendFrame(nil, protocol.TypeHello, 1, &protocol.Hello{Cookie: protocol.Magic, MinVersion: 1, MaxVersion: 1}, nil))
	c.expect(protocol.TypeHelloOK)
	return c
}

func (c *rawConn) write(b []byte) {
	c.t.Helper()
	if _, err := c.nc.Write(b); err != nil {
		c.t.Fatal(err)
	}
}

// expect returns the next frame, pings aside.
func (c *rawConn) expect(want protocol.Type) protocol.Frame {
	c.t.Helper()
	f := c.next()
	c.is(f, want)
	return f
}

func (c *rawConn) next() protocol.Frame {
	c.t.Helper()
	for {
		f, err := c.in.Next()
		if err != nil {
			c.t.Fatal(err)
		}
		if f.Type != protocol.TypePing {
			return f
		}
	}
}

func (c *rawConn) is(f protocol.Frame, want protocol.Type) {
	c.t.Helper()
	if f.Type == want {
		return
	}
	var e protocol.Error
	if f.Type == protocol.TypeError && e.Decode(f.Header) == nil {
		c.t.Fatalf("got error %v: %v", e.Code, e.Error())
	}
	c.t.Fatalf("got frame type %v, want %v", f.Type, want)
}

// ask sends a frame and returns its answer. As a client does it sends it again while the broker has no touch with the
// leader, which on a busy machine happens without a fault.
func (c *rawConn) ask(frame []byte, want protocol.Type) protocol.Frame {
	c.t.Helper()
	for began := time.Now(); ; {
		c.write(frame)
		f := c.next()
		var e protocol.Error
		if f.Type == protocol.TypeError && e.Decode(f.Header) == nil && e.Code == protocol.CodeNotReady && time.Since(began) < 20*time.Second {
			<-time.After(50 * time.Millisecond)
			continue
		}
		c.is(f, want)
		return f
	}
}

// open opens a producer and returns its handle.
func (c *rawConn) open(topic string) protocol.OpenProducerOK {
	c.t.Helper()
	c.write(protocol.AppendFrame(nil, protocol.TypeOpenProducer, 2, &protocol.OpenProducer{Topic: topic, Producer: 7, Session: 1}, nil))
	var ok protocol.OpenProducerOK
	if err := ok.Decode(c.expect(protocol.TypeOpenProducerOK).Header); err != nil {
		c.t.Fatal(err)
	}
	return ok
}

// consume subscribes and takes the first messages of a topic. It returns the
// frame that acknowledges them.
func (c *rawConn) consume(topic, subscription string, messages uint64, confirm bool) (ack []byte) {
	c.t.Helper()
	c.write(protocol.AppendFrame(nil, protocol.TypeSubscribe, 3, &protocol.Subscribe{
		Topic: topic, Subscription: subscription, Type: protocol.Exclusive, Start: earliest, Credit: uint32(messages),
	}, nil))
	var (
		ok  protocol.SubscribeOK
		got protocol.Deliver
	)
	if err := ok.Decode(c.expect(protocol.TypeSubscribeOK).Header); err != nil {
		c.t.Fatal(err)
	}
	for got.First+uint64(got.Count) < messages {
		if err := got.Decode(c.expect(protocol.TypeDeliver).Header); err != nil {
			c.t.Fatal(err)
		}
	}
	return protocol.AppendFrame(nil, protocol.TypeAck, 4, &protocol.Ack{Confirm: confirm, Ranges: protocol.Ranges{
		Handle: ok.Handle, Generation: ok.Generation, Ranges: []protocol.Range{{From: 0, To: messages}},
	}}, nil)
}

// openFrom opens the session of rawConn.open with a lowest sequence that is not acknowledged.
func (c *rawConn) openFrom(topic string, lowest uint64) protocol.OpenProducerOK {
	c.t.Helper()
	frame := protocol.AppendFrame(nil, protocol.TypeOpenProducer, 3, &protocol.OpenProducer{Topic: topic, Producer: 7, Session: 1, Lowest: lowest}, nil)
	var ok protocol.OpenProducerOK
	if err := ok.Decode(c.ask(frame, protocol.TypeOpenProducerOK).Header); err != nil {
		c.t.Fatal(err)
	}
	return ok
}
