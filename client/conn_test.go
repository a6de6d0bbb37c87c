package client

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol"
)

// TestErrorsTellTheCause asks for things that fail in four ways and gets four errors.
func TestErrorsTellTheCause(t *testing.T) {
	f := newFake(t)
	c := f.dial(Config{Timeout: 100 * time.Millisecond})
	tests := map[string]struct {
		code protocol.Code // refuses every lookup; 0: it is not answered
		want error
	}{
		"no such topic": {protocol.CodeNoSuchTopic, ErrNoSuchTopic},
		"not allowed":   {protocol.CodeNotAllowed, ErrNotAllowed},
		"overloaded":    {protocol.CodeOverloaded, ErrOverloaded},
		"timed out":     {0, ErrTimeout},
	}
	all := []error{ErrNoSuchTopic, ErrNotAllowed, ErrOverloaded, ErrTimeout}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
				if fr.Type != protocol.TypeLookup {
					return false
				}
				if test.code != 0 {
					c.refuse(fr.ID, &protocol.Error{Code: test.code, Text: "the text of the broker", Hint: "a hint"})
				}
				return true
			})
			began := time.Now()
			_, err := c.Producer(t.Context(), "a", ProducerConfig{})
			if time.Since(began) > time.Second {
				t.Errorf("it took %v", time.Since(began))
			}
			for _, e := range all {
				// What was tried again until time ran out is both.
				also := test.code == protocol.CodeOverloaded && e == ErrTimeout
				if errors.Is(err, e) != (e == test.want || also) {
					t.Errorf("%v is %v: %v", err, e, errors.Is(err, e))
				}
			}
			if e, ok := errors.AsType[*protocol.Error](err); test.code != 0 && test.code != protocol.CodeOverloaded && (!ok || e.Hint != "a hint") {
				t.Errorf("the hint is lost: %v", err)
			}
			if test.code != 0 && !strings.Contains(err.Error(), "the text of the broker") {
				t.Errorf("the broker's text is lost: %v", err)
			}
		})
	}
}

func TestDialTriesEveryAddress(t *testing.T) {
	f := newFake(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), []string{dead, f.addr}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := Dial(t.Context(), []string{dead}, Config{}); err == nil || !strings.Contains(err.Error(), dead) {
		t.Errorf("dial a dead address: %v", err)
	}
	if _, err := Dial(t.Context(), nil, Config{}); err == nil {
		t.Error("dial of no address succeeded")
	}
}

// TestStrangePeers connects to what is no broker, or one that will not have us.
func TestStrangePeers(t *testing.T) {
	tests := map[string]struct {
		answer func(c *fakeConn, fr protocol.Frame)
		code   protocol.Code
	}{
		"http": {func(c *fakeConn, _ protocol.Frame) {
			c.raw([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = c.nc.Close()
		}, 0},
		"hangs up":      {func(c *fakeConn, _ protocol.Frame) { _ = c.nc.Close() }, 0},
		"says nothing":  {func(*fakeConn, protocol.Frame) {}, 0},
		"another frame": {func(c *fakeConn, fr protocol.Frame) { c.send(protocol.TypePong, fr.ID, nil, nil) }, 0},
		"a huge length": {func(c *fakeConn, _ protocol.Frame) { c.raw(bytes.Repeat([]byte{0xff}, 64)) }, 0},
		"not authenticated": {func(c *fakeConn, fr protocol.Frame) {
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeNotAuthenticated, "who?"))
		}, protocol.CodeNotAuthenticated},
		"version of tomorrow": {func(c *fakeConn, fr protocol.Frame) {
			c.send(protocol.TypeHelloOK, fr.ID, &protocol.HelloOK{Version: 9}, nil)
		}, protocol.CodeUnsupported},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.intercept(func(c *fakeConn, fr protocol.Frame) bool { test.answer(c, fr); return true })
			c, err := Dial(t.Context(), []string{f.addr}, Config{Timeout: 200 * time.Millisecond})
			if err == nil {
				c.Close()
				t.Fatal("it connected")
			}
			if test.code != 0 && !hasCode(err, test.code) {
				t.Error(err)
			}
		})
	}
}

// TestGarbageEndsTheConnectionOnly has a broker whose answers turn to garbage
// once in a while; the client connects again and loses nothing.
func TestGarbageEndsTheConnectionOnly(t *testing.T) {
	f := newFake(t)
	f.hello.HeartbeatMS = 150 // garbage may look like the beginning of a large frame
	part := f.topic("/default/a", 1).parts[0]
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{BatchBytes: 300})
	rnd := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	n := 0
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		mu.Lock()
		defer mu.Unlock()
		if fr.Type != protocol.TypeProduce {
			return false
		}
		if n++; n%6 != 0 || n > 48 {
			return false
		}
		ok, refusal := c.store(fr)
		if refusal != nil {
			return false
		}
		frame := protocol.AppendFrame(nil, protocol.TypeProduceOK, fr.ID, ok, nil)
		switch n / 6 % 4 {
		case 0:
			rnd.Shuffle(len(frame), func(i, j int) { frame[i], frame[j] = frame[j], frame[i] })
		case 1:
			frame[8]++ // another correlation id
			frame[9] += 3
		case 2:
			frame[4] = byte(protocol.TypeFetchOK)
		case 3:
			frame = append(frame, frame...) // answered twice
		}
		c.raw(frame)
		return true
	})
	want := numbers(0, 600)
	for _, s := range want {
		if err := p.SendAsync(t.Context(), text(s), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := part.payloads(); len(got) != len(want) {
		t.Errorf("%d messages stored, %d sent", len(got), len(want))
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestDeadPeerIsFound connects to a broker that goes silent without hanging
// up: within ten seconds the connection is given up and the message sent again.
func TestDeadPeerIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bareFake(t)
		part := f.topic("/default/a", 1).parts[0]
		c, err := Dial(t.Context(), []string{f.addr}, Config{Dialer: f.dialPipe})
		if err != nil {
			t.Fatal(err)
		}
		p := producer(t, c, "a", ProducerConfig{})
		var mu sync.Mutex
		var mute *fakeConn
		f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
			mu.Lock()
			defer mu.Unlock()
			if fr.Type == protocol.TypeProduce && mute == nil {
				mute = c
			}
			return c == mute
		})
		began := time.Now()
		if _, err := p.Send(t.Context(), text("x")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 8*time.Second || took > 10*time.Second {
			t.Errorf("the dead peer was found after %v", took)
		}
		if got := part.payloads(); len(got) != 1 {
			t.Errorf("stored: %q", got)
		}
		if _, err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
		c.Close()
		f.close()
	})
}

// TestIdleConnectionLives leaves a connection alone for an hour: pings keep it.
func TestIdleConnectionLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bareFake(t)
		c, err := Dial(t.Context(), []string{f.addr}, Config{Dialer: f.dialPipe})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		idle, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		<-idle.Done()
		if n := f.count(protocol.TypeHello); n != 1 {
			t.Errorf("%d connections", n)
		}
		if n := f.count(protocol.TypePing); n < 1100 || n > 3700 {
			t.Errorf("%d pings in an hour, with a heartbeat of 3 s", n)
		}
		c.Close()
		f.close()
	})
}

// TestReconnectBacksOff counts how often a client knocks at a broker that is away for ten seconds.
func TestReconnectBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := bareFake(t)
		f.topic("/default/a", 1)
		var knocks atomic.Int32
		c, err := Dial(t.Context(), []string{f.addr}, Config{Dialer: func(ctx context.Context, n, a string) (net.Conn, error) {
			knocks.Add(1)
			return f.dialPipe(ctx, n, a)
		}})
		if err != nil {
			t.Fatal(err)
		}
		p := producer(t, c, "a", ProducerConfig{})
		f.hangUp(true)
		away, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		<-away.Done()
		synctest.Wait()
		if n := knocks.Load(); n < 10 || n > 30 {
			t.Errorf("%d attempts in ten seconds", n)
		}
		f.mu.Lock()
		f.down = false
		f.mu.Unlock()
		began := time.Now()
		if _, err := p.Send(t.Context(), text("x")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("found again after %v", took)
		}
		c.Close()
		f.close()
	})
}

// TestWindowIsHonoured has a broker that allows two produce frames in flight.
func TestWindowIsHonoured(t *testing.T) {
	f := newFake(t)
	f.hello.Window = 2
	f.topic("/default/a", 8)
	var mu sync.Mutex
	open, most := 0, 0
	answers := make(chan func(), 100)
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeProduce {
			return false
		}
		ok, refusal := c.store(fr)
		if refusal != nil {
			t.Error(refusal)
			return true
		}
		mu.Lock()
		open++
		most = max(most, open)
		mu.Unlock()
		id := fr.ID
		answers <- func() {
			mu.Lock()
			open--
			mu.Unlock()
			c.send(protocol.TypeProduceOK, id, ok, nil)
		}
		return true
	})
	p := producer(t, f.dial(Config{}), "a", ProducerConfig{BatchBytes: 300})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for do := range answers {
			do()
		}
	}()
	for _, s := range numbers(0, 500) {
		if err := p.SendAsync(t.Context(), text(s), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(answers)
	<-done
	if most > 2 {
		t.Errorf("%d frames were in flight, 2 are allowed", most)
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLostConnectionIsLoggedOnce(t *testing.T) {
	f := newFake(t)
	var mu sync.Mutex
	var out strings.Builder
	c := f.dial(Config{Logger: slog.New(slog.NewTextHandler(&lockedWriter{mu: &mu, w: &out}, nil))})
	f.hangUp(false)
	eventually(t, "it is logged", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(out.String(), "connection lost") == 1
	})
	c.Close()
}

type lockedWriter struct {
	mu *sync.Mutex
	w  *strings.Builder
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
