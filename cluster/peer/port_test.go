package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// port is a peer port alone, without gossip.
type port struct {
	*Port
	hello   Hello
	address string
}

func openPort(t testing.TB, h Hello) *port {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &port{hello: h, address: l.Addr().String()}
	p.Port = Open(Config{Listener: l, Dial: (&net.Dialer{}).DialContext, Store: h.Store, Self: func() Hello { return p.hello }})
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close peer port: %v", err)
		}
	})
	return p
}

func named(n byte, cluster byte) Hello {
	h := Hello{Store: store(n), Run: uint64(n), Name: fmt.Sprintf("n%d", n), Of: "danube"}
	h.Cluster[0] = cluster
	return h
}

func (p *port) ask(ctx context.Context, to *port, op string, body []byte) ([]byte, error) {
	return p.Call(ctx, Target{to.hello.Store, []string{to.address}}, op, body)
}

func two(t testing.TB) (a, b *port) {
	t.Helper()
	a, b = openPort(t, named(1, 7)), openPort(t, named(2, 7))
	a.Listen()
	b.Handle("echo", func(_ context.Context, from state.StoreID, body []byte) ([]byte, error) {
		return append([]byte(from.String()[:2]), body...), nil
	})
	return a, b
}

func TestCallsShareOneConnection(t *testing.T) {
	a, b := two(t)
	var accepted atomic.Int32
	b.cfg.Listener = counting{b.cfg.Listener, &accepted}
	b.Listen()
	large := bytes.Repeat([]byte("x"), maxBody-2)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			body := fmt.Appendf(nil, "%d", i)
			if i%50 == 0 {
				body = large
			}
			got, err := a.ask(t.Context(), b, "echo", body)
			if err != nil || string(got[:2]) != "01" || !bytes.Equal(got[2:], body) {
				t.Errorf("call %d: %d bytes, %v", i, len(got), err)
			}
		})
	}
	wg.Wait()
	if n := accepted.Load(); n != 1 {
		t.Errorf("%d connections for one peer", n)
	}
}

type counting struct {
	net.Listener
	n *atomic.Int32
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

type codedError struct{}

func (codedError) Error() string { return "the handler says no" }
func (codedError) Code() string  { return "NO" }

func TestCallErrors(t *testing.T) {
	a, b := two(t)
	b.Handle("refuse", func(context.Context, state.StoreID, []byte) ([]byte, error) {
		return nil, fmt.Errorf("wrapped: %w", codedError{})
	})
	b.Handle("huge", func(context.Context, state.StoreID, []byte) ([]byte, error) { return make([]byte, maxBody+1), nil })
	hanging, ended := make(chan struct{}), make(chan struct{})
	b.Handle("hang", func(ctx context.Context, _ state.StoreID, _ []byte) ([]byte, error) {
		close(hanging)
		<-ctx.Done()
		close(ended)
		return nil, ctx.Err()
	})
	b.Listen()
	for op, want := range map[string]RemoteError{
		"refuse": {"NO", "wrapped: the handler says no"},
		"huge":   {codeTooLarge, "the answer to huge has 8388609 bytes; at most 8388608 are allowed"},
		"what":   {codeNoOperation, `broker n2 knows no operation "what"`},
	} {
		_, err := a.ask(t.Context(), b, op, nil)
		if e, ok := errors.AsType[*RemoteError](err); !ok || *e != want {
			t.Errorf("%s: %v, want %v", op, err, want)
		}
	}
	if _, err := a.ask(t.Context(), b, "echo", make([]byte, maxBody+1)); err == nil {
		t.Error("a body over the limit was sent")
	}

	// Whoever no longer waits is said to be gone, and the handler learns it.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hanging; cancel() }() // returns when the handler hangs
	if _, err := a.ask(ctx, b, "hang", nil); !errors.Is(err, ErrUnanswered) || errors.Is(err, ErrUnreachable) {
		t.Errorf("cancelled call: %v", err)
	}
	<-ended

	// The connection ends with a request in flight: unknown. The next finds nobody: certainly not carried out.
	hanging = make(chan struct{})
	b.Handle("hang", func(ctx context.Context, _ state.StoreID, _ []byte) ([]byte, error) {
		close(hanging)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	go func() { <-hanging; b.Close() }() // returns when the port is closed
	if _, err := a.ask(t.Context(), b, "hang", nil); !errors.Is(err, ErrUnanswered) {
		t.Errorf("call to a broker that ends: %v", err)
	}
	if _, err := a.ask(t.Context(), b, "echo", nil); !errors.Is(err, ErrUnreachable) || errors.Is(err, ErrUnanswered) {
		t.Errorf("call to a broker that ended: %v", err)
	}
}

// TestHelloRefusals: who may talk to whom, on both kinds of connection.
func TestHelloRefusals(t *testing.T) {
	other := named(1, 7)
	other.Of = "rhine"
	copied := named(2, 7)
	copied.Run = 99
	tests := map[string]struct {
		calling   Hello
		r, p      string // part of the refusal of a Raft stream and of a request; empty: welcome
		sentinel  error
		forWhomIt state.StoreID
	}{
		"same cluster":     {calling: named(1, 7)},
		"another cluster":  {calling: named(1, 8), r: "to cluster 08", p: "to cluster 08", sentinel: ErrWrongCluster},
		"another name":     {calling: other, r: `"rhine"`, p: `"rhine"`, sentinel: ErrWrongCluster},
		"no cluster yet":   {calling: named(1, 0), r: "n1 belongs to no cluster yet"},
		"copied directory": {calling: copied, r: "copied", p: "copied", sentinel: ErrDuplicate},
		"another store":    {calling: named(1, 7), r: "answers at", p: "answers at", forWhomIt: store(5)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := openPort(t, named(2, 7))
			b.Listen()
			a := openPort(t, test.calling)
			go func() { // returns when the port is closed
				for {
					c, err := b.raft.Accept()
					if err != nil {
						return
					}
					c.Close()
				}
			}()
			for kind, want := range map[byte]string{kindRaft: test.r, kindRequest: test.p} {
				conn, _, err := a.connect(t.Context(), kind, b.address, test.forWhomIt)
				if conn != nil {
					conn.Close()
				}
				if (want == "") != (err == nil) {
					t.Fatalf("%c: %v, want %q", kind, err, want)
				}
				if err == nil {
					continue
				}
				if !strings.Contains(err.Error(), want) || !errors.Is(err, ErrUnreachable) {
					t.Errorf("%c: %v, want %q", kind, err, want)
				}
				if test.sentinel != nil && !errors.Is(err, test.sentinel) {
					t.Errorf("%c: %v is not %v", kind, err, test.sentinel)
				}
			}
		})
	}
}

// TestStrangersAreDropped: a peer that does not say hello in time, or says something else, is hung up on; a Raft stream
// begins right after the hello.
func TestStrangersAreDropped(t *testing.T) {
	b := openPort(t, named(2, 7))
	b.timing.hello = 50 * time.Millisecond
	b.Listen()
	for _, first := range []string{"", "R", "PDNB", "GET / HTTP/1.1\r\n\r\n", "PDNBP\x02\x00\x00", "PDNBP\x01\xff\xff", "PDNBP\x01\x01\x00\xc1"} {
		conn, err := net.Dial("tcp", b.address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		conn.Write([]byte(first))
		if n, err := io.Copy(io.Discard, conn); n != 0 || err != nil && errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q: %d bytes, %v", first, n, err)
		}
		conn.Close()
	}
	a := openPort(t, named(1, 7))
	conn, them, err := a.connect(t.Context(), kindRaft, b.address, store(2))
	if err != nil || them.Name != "n2" {
		t.Fatal(them, err)
	}
	defer conn.Close()
	go conn.Write([]byte("raft bytes")) // returns when they are taken
	there, err := b.raft.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	got := make([]byte, 10)
	if _, err := io.ReadFull(there, got); err != nil || string(got) != "raft bytes" {
		t.Errorf("%q %v", got, err)
	}
}

// TestSilentPeerIsNoticed: a peer that is paused answers no ping, and calls to it end without waiting for their own
// deadline.
func TestSilentPeerIsNoticed(t *testing.T) {
	a := openPort(t, named(1, 7))
	a.timing = timing{hello: time.Second, dial: time.Second, ping: 10 * time.Millisecond, silent: 100 * time.Millisecond, write: time.Second}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var kind [1]byte
		io.ReadFull(conn, kind[:])
		readHello(conn)
		b, _ := appendHello(nil, named(2, 7))
		conn.Write(b)
		io.Copy(io.Discard, conn) // and says no more
	})
	silent := &port{hello: named(2, 7), address: l.Addr().String()}
	if _, err := a.ask(t.Context(), silent, "echo", nil); !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), "nothing heard") {
		t.Errorf("call to a silent peer: %v", err)
	}
}

// TestTooManyRequestsAreBusy: what one connection may have in the works is bounded, and urgent
// operations do not wait for a turn.
func TestTooManyRequestsAreBusy(t *testing.T) {
	a, b := two(t)
	release := make(chan struct{})
	var running atomic.Int32
	wait := func(context.Context, state.StoreID, []byte) ([]byte, error) {
		running.Add(1)
		<-release
		return nil, nil
	}
	b.Handle("wait", wait)
	b.Handle(Urgent+"wait", wait)
	b.Listen()
	var wg sync.WaitGroup
	for range maxOutstanding + 10 {
		wg.Go(func() { a.ask(t.Context(), b, "wait", nil) })
	}
	eventually(t, "all turns taken", func() bool { return running.Load() == maxOutstanding })
	for range maxServed - maxOutstanding {
		wg.Go(func() { a.ask(t.Context(), b, Urgent+"wait", nil) })
	}
	eventually(t, "all places taken", func() bool { return running.Load() == maxServed })
	_, err := a.ask(t.Context(), b, Urgent+"wait", nil)
	if e, ok := errors.AsType[*RemoteError](err); !ok || e.Code != codeBusy {
		t.Errorf("one too many: %v", err)
	}
	close(release)
	wg.Wait()
}

func store(n byte) state.StoreID { return state.StoreID{0: n, 15: 1} }

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("never: %s", what)
		}
	}
}
