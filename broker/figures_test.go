//go:build figures

package broker_test

import (
	"runtime"
	"testing"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// A produce frame of one message allocates nothing at the broker, from the
// read of the socket to the written acknowledgement.
func TestFigureProduceFrameAllocatesNothing(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	publish(t, dial(t, n), "quiet", 0, 1)
	measureFrames(t, n, "quiet", func() {})
}

// Nor does one of a non-reliable topic, to the written delivery.
func TestFigureLiveFrameAllocatesNothing(t *testing.T) {
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
	if per > 0.5 { // extensions of the ceiling, chunks of the log's memory, timers; one a frame is 1
		t.Errorf("%.3f allocations per produce frame, want none", per)
	}
}
