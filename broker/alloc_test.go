package broker_test

import (
	"net"
	"runtime"
	"testing"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
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
	for {
		f, err := c.in.Next()
		if err != nil {
			c.t.Fatal(err)
		}
		if f.Type == protocol.TypePing {
			continue
		}
		if f.Type != want {
			var e protocol.Error
			if f.Type == protocol.TypeError && e.Decode(f.Header) == nil {
				c.t.Fatalf("got error %v: %v", e.Code, e.Error())
			}
			c.t.Fatalf("got frame type %v, want %v", f.Type, want)
		}
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

// A produce frame of one message allocates nothing at the broker, from the
// read of the socket to the written acknowledgement.
func TestProduceFrameOfOneMessageAllocatesNothing(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	publish(t, dial(t, n), "quiet", 0, 1)
	measureFrames(t, n, "quiet", func() {})
}

// Nor does one of a non-reliable topic, to the written delivery.
func TestLiveFrameOfOneMessageAllocatesNothing(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	if _, err := dial(t, n).Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "live", Config: protocol.TopicConfig{NonReliable: true}}); err != nil {
		t.Fatal(err)
	}
	c := rawDial(t, n.ClientAddr())
	c.write(protocol.AppendFrame(nil, protocol.TypeSubscribe, 3, &protocol.Subscribe{Topic: "live", Subscription: "s", Type: protocol.Exclusive}, nil))
	c.expect(protocol.TypeSubscribeOK)
	measureFrames(t, n, "live", func() { c.expect(protocol.TypeDeliver) })
}

// measureFrames produces frames of one message, each behind the answer to the one before and then.
func measureFrames(t *testing.T, n *node, topic string, then func()) {
	t.Helper()
	if raceEnabled {
		t.Log("the race detector allocates: nothing to measure; a plain build measures it in make figures")
		return
	}
	c := rawDial(t, n.ClientAddr())
	ok := c.open(topic)
	const frames = 12_000 // the commands that extend the ceiling are few among them
	var w batch.Builder
	sent := make([][]byte, frames)
	for i := range sent {
		w.Add(&batch.Message{Payload: make([]byte, 128), PublishTime: 1})
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 7, Session: 1, Sequence: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		sent[i] = protocol.AppendFrame(nil, protocol.TypeProduce, uint64(i), &protocol.Produce{Handle: ok.Handle, Epoch: ok.Epoch}, b)
	}
	var before, after runtime.MemStats
	for i, f := range sent {
		if i == frames/2 {
			runtime.ReadMemStats(&before)
		}
		c.write(f)
		c.expect(protocol.TypeProduceOK)
		then()
	}
	runtime.ReadMemStats(&after)
	per := float64(after.Mallocs-before.Mallocs) / (frames / 2)
	t.Logf("%.3f allocations a frame", per)
	if per > 0.3 { // extensions of the ceiling, chunks of the log's memory, timers
		t.Errorf("%.3f allocations per produce frame, want none", per)
	}
}
