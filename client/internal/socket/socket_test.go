package socket

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dial dials a peer that answers HELLO with some bytes, and gives its end of the connection.
func dial(t *testing.T, answer []byte) (*Socket, net.Conn, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close(); _ = theirs.Close() })
	go func() { // returns when HELLO is answered, or the connection is over
		if _, err := protocol.NewReader(theirs, 64<<10).Next(); err == nil && answer != nil {
			_, _ = theirs.Write(answer)
		}
	}()
	s, err := Dial(t.Context(), "a:1", Config{
		Name: "test", Limits: batch.Limits{}.WithDefaults(), Timeout: time.Second,
		Dialer: func(context.Context, string, string) (net.Conn, error) { return ours, nil },
	})
	return s, theirs, err
}

func hello(h protocol.HelloOK) []byte {
	return protocol.AppendFrame(nil, protocol.TypeHelloOK, 1, &h, nil)
}

// TestLimitsAreTheBrokers where it announces some that make sense.
func TestLimitsAreTheBrokers(t *testing.T) {
	own := batch.Limits{}.WithDefaults()
	for name, c := range map[string]struct {
		hello   protocol.HelloOK
		message int
		batch   int
		frame   int
	}{
		"none":      {protocol.HelloOK{}, own.Message, own.Batch, own.Batch + 64<<10},
		"all":       {protocol.HelloOK{MaxMessage: 1000, MaxBatch: 5000, MaxFrame: 9000}, 1000, 5000, 9000},
		"a lie":     {protocol.HelloOK{MaxMessage: -1, MaxBatch: 1, MaxFrame: -5}, own.Message, own.Batch, own.Batch + 64<<10},
		"no window": {protocol.HelloOK{Window: 0, MaxFrame: 9000}, own.Message, own.Batch, 9000},
	} {
		c.hello.Version = protocol.Version
		s, _, err := dial(t, hello(c.hello))
		if err != nil {
			t.Fatal(name, err)
		}
		if s.Limits.Message != c.message || s.Limits.Batch != c.batch || s.Hello.MaxFrame != c.frame {
			t.Errorf("%s: %+v and frames of %d bytes", name, s.Limits, s.Hello.MaxFrame)
		}
	}
}

// TestGreetingThatFails says whether it is worth another attempt.
func TestGreetingThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusal := protocol.AppendFrame(nil, protocol.TypeError, 1, protocol.Errorf(protocol.CodeNotAuthenticated, "who?"), nil)
		for name, c := range map[string]struct {
			answer []byte
			lost   bool
			want   error
		}{
			"silence":             {nil, true, &protocol.Error{Code: protocol.CodeTimeout}},
			"refused":             {refusal, false, &protocol.Error{Code: protocol.CodeNotAuthenticated}},
			"version of tomorrow": {hello(protocol.HelloOK{Version: protocol.Version + 1}), false, &protocol.Error{Code: protocol.CodeUnsupported}},
			"another frame":       {protocol.AppendFrame(nil, protocol.TypePong, 1, nil, nil), true, nil},
		} {
			_, _, err := dial(t, c.answer)
			_, lost := errors.AsType[*retry.LostError](err)
			if err == nil || lost != c.lost || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestHeardIsWholeFrames: a frame that never ends is no sign of life until much of it has come.
func TestHeardIsWholeFrames(t *testing.T) {
	s, peer, err := dial(t, hello(protocol.HelloOK{Version: protocol.Version, MaxFrame: 1 << 20}))
	if err != nil {
		t.Fatal(err)
	}
	began := s.Heard(time.Now())
	frames := make(chan error)
	go func() { // returns with the connection
		for {
			_, err := s.Next()
			frames <- err
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		_ = s.Close()
		if err := <-frames; err == nil {
			t.Error("a closed socket goes on")
		}
	}()
	send := func(b []byte) {
		if _, err := peer.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	at := func(d time.Duration) time.Time { return began.Add(d) }
	send(protocol.AppendFrame(nil, protocol.TypePong, 0, nil, nil))
	if err := <-frames; err != nil {
		t.Fatal(err)
	}
	if got := s.Heard(at(time.Second)); got != at(time.Second) {
		t.Errorf("behind a frame heard %v after the begin", got.Sub(began))
	}
	// The pipe hands bytes over before Write returns, but for the last, which may be on their way to the count.
	long := protocol.AppendFrame(nil, protocol.TypePong, 0, nil, make([]byte, lifeBytes+1000))
	send(long[:1000])
	if got := s.Heard(at(2 * time.Second)); got != at(time.Second) {
		t.Errorf("the begin of a frame is taken for life: heard %v after the begin", got.Sub(began))
	}
	send(long[1000 : lifeBytes+500])
	send(long[lifeBytes+500 : lifeBytes+501])
	if got := s.Heard(at(3 * time.Second)); got != at(3*time.Second) {
		t.Errorf("behind much of a frame heard %v after the begin", got.Sub(began))
	}
	if _, err := peer.Write(long[lifeBytes+501:]); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
	if err := <-frames; err != nil {
		t.Fatal(err)
	}
}
