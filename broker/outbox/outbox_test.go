package outbox

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// rig is an outbox whose peer reads when the test does.
type rig struct {
	*Outbox
	in     *protocol.Reader
	far    net.Conn
	cancel context.CancelFunc
	failed error
	done   chan struct{}
}

// newRig makes one; the writer runs until end.
func newRig(t *testing.T) *rig {
	t.Helper()
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	r := &rig{far: far, in: protocol.NewReader(far, 64<<10), cancel: cancel, done: make(chan struct{})}
	r.in.SetLimit(16 << 20)
	r.Outbox = New(Config{
		Conn: near, Acked: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "acked"}), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent"}),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	go func() { // returns when Write does, which end waits for
		defer close(r.done)
		r.Write(ctx, func(err error) { r.failed = err })
	}()
	return r
}

// end ends the connection and waits for the writer.
func (r *rig) end() {
	r.Finish()
	r.cancel()
	_ = r.far.Close()
	<-r.done
}

// next is the type and request of the next frame.
func (r *rig) next(t *testing.T) (protocol.Type, uint64) {
	t.Helper()
	f, err := r.in.Next()
	if err != nil {
		t.Fatal(err)
	}
	return f.Type, f.ID
}

// The answers of a producer leave in the order of its frames, refusals and the
// end of it included; whoever closes it hears of that before its client does.
func TestAnswersKeepTheOrderOfFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		closed := false
		l := &Lane{Closed: func() { closed = true }}
		for id := range uint64(3) {
			if !r.Admit() {
				t.Fatal("not admitted")
			}
			a := Ack{ID: id, Done: true}
			if id == 1 {
				a.Err = protocol.Errorf(protocol.CodeTooLarge, "too large")
			}
			r.Pending(l, a)
		}
		r.WhenAcked(l, 3)
		for id, want := range []protocol.Type{protocol.TypeProduceOK, protocol.TypeError, protocol.TypeProduceOK, protocol.TypeClosed} {
			if typ, got := r.next(t); typ != want || got != uint64(id) {
				t.Errorf("frame type %v of request %d, want %v of %d", typ, got, want, id)
			}
		}
		if !closed {
			t.Error("the client hears that its producer is closed before the broker does")
		}
	})
}

// A connection that ends waits for acknowledgements a moment, and for no store that is
// away: its client sends again what it has not heard of (R5).
func TestEndedConnectionWaitsForNoStore(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log, _, err := store.Log(t.Context(), storage.Facts{ID: storage.PartitionID{Topic: [16]byte{1}}, Topic: "/default/t"})
	if err == nil {
		err = log.Begin(1, 0, 1<<20)
	}
	if err == nil {
		_, _, err = log.OpenSession(7, 1, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	log.Hold(true, 0)
	var b batch.Builder
	b.Add(&batch.Message{Payload: []byte("m")})
	data, err := b.AppendTo(nil, batch.None, batch.Identity{Producer: 7, Session: 1})
	if err != nil {
		t.Fatal(err)
	}
	pending, err := log.Append(data)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t)
	r.Admit()
	r.Pending(&Lane{}, Ack{ID: 1, Pending: pending})
	began := time.Now()
	r.cancel()
	select {
	case <-r.done:
	case <-time.After(20 * time.Second):
		t.Fatal("the connection does not end")
	}
	if took := time.Since(began); took < ackTime {
		t.Errorf("ended after %v: a commit round is waited for", took)
	}
	r.end()
}

// A connection has so many produce frames in flight and no more; one that is
// over admits none, and nobody waits at it.
func TestWindowBoundsWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range Window {
			r.Admit()
		}
		admitted := make(chan bool, 1)
		go func() { admitted <- r.Admit() }()
		synctest.Wait()
		if len(admitted) > 0 {
			t.Error("one beyond the window is admitted")
		}
		r.Pending(&Lane{}, Ack{ID: 7, Done: true})
		r.next(t)
		if !<-admitted {
			t.Error("not admitted behind an answer")
		}
		go func() { admitted <- r.Admit() }()
		synctest.Wait()
		r.end()
		if <-admitted {
			t.Error("admitted to a connection that is over")
		}
	})
}

// A peer that takes nothing is full; who asked is woken when it has taken half.
func TestFullPeerWakesWhoWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.end()
		wake := make(chan struct{}, 1)
		if r.Full(wake) {
			t.Fatal("full with nothing in it")
		}
		body := make([]byte, 1<<20)
		for range 5 {
			r.Deliver(&protocol.Deliver{Count: 1}, body, storage.View{})
		}
		for _, ch := range []chan<- struct{}{wake, wake, nil} {
			if !r.Full(ch) {
				t.Fatal("not full")
			}
		}
		r.Flush()
		synctest.Wait()
		if len(wake) > 0 {
			t.Error("woken before anything was taken")
		}
		for range 5 {
			r.next(t)
		}
		synctest.Wait()
		if len(wake) != 1 || r.Full(wake) {
			t.Error("not woken when the peer had taken all")
		}
	})
}

// A peer that takes nothing for long is cut off, and its connection closed.
func TestPeerThatTakesNothingIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.Frame(protocol.TypePong, 1, nil)
		<-r.done
		var coded *protocol.Error
		if !errors.As(r.failed, &coded) || coded.Code != protocol.CodeSlowConsumer {
			t.Errorf("it ended with %v", r.failed)
		}
		if _, err := r.far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is not closed: %v", err)
		}
		r.end()
	})
}
