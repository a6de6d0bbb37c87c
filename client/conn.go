package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/client/internal/socket"
	"github.com/danubemq/danube/protocol"
)

// conn is one connection to a broker: a goroutine that reads and dispatches
// frames and one that writes. Both return when the connection fails or is
// closed, and then everything that hung on it is told.
type conn struct {
	address string
	sock    *socket.Socket
	log     *slog.Logger
	over    chan struct{} // closed once all that hung on the connection was told
	pulse   *time.Timer

	doubted  atomic.Int64 // until when others are asked before this broker, Unix nanoseconds
	checking atomic.Bool  // recheck runs

	mu    sync.Mutex // guards what follows
	wake  sync.Cond  // the writer: there is something to do
	out   outbox
	peers peers
	err   error // why the connection is over
	away  bool  // the broker said that it is about to close
}

// peers is what frames from the broker are for.
type peers struct {
	next    uint64
	calls   map[uint64]*call
	lanes   map[uint32]*lane
	streams map[uint32]*stream
}

// call is a request whose answer somebody waits for.
type call struct {
	op     string
	about  place // the partition, if it is about one
	want   protocol.Type
	decode func(protocol.Frame) error // on the reading goroutine; nil: nothing to decode
	done   chan error                 // of capacity one; nil: nobody waits
	then   func(error)                // called with the outcome, on the reading goroutine; may be nil
}

// finish tells the outcome.
func (k *call) finish(err error) {
	if k.then != nil {
		k.then(err)
	}
	if k.done != nil {
		k.done <- err
	}
}

// connect dials address, exchanges HELLO and starts the connection.
func connect(ctx context.Context, of *Client, address string) (*conn, error) {
	cfg := &of.cfg
	sock, err := socket.Dial(ctx, address, socket.Config{Name: cfg.Name, Token: cfg.Token, Dialer: cfg.Dialer, Limits: cfg.Limits, Timeout: cfg.Timeout})
	if err != nil {
		return nil, err
	}
	c := &conn{
		address: address, sock: sock, log: cfg.Logger.With("address", address), over: make(chan struct{}),
		out:   outbox{window: max(sock.Hello.Window, 1)},
		peers: peers{calls: map[uint64]*call{}, lanes: map[uint32]*lane{}, streams: map[uint32]*stream{}},
	}
	c.wake.L = &c.mu
	c.start(of)
	return c, nil
}

// start runs the two goroutines.
func (c *conn) start(of *Client) {
	var writer sync.WaitGroup
	writer.Go(c.write) // returns when the connection is over
	of.wg.Go(func() {  // returns when the connection is over and everything that hung on it was told
		err := c.read()
		c.fail(err)
		writer.Wait()
		c.farewell()
	})
	c.beat(of)
}

// beat sends heartbeats and finds a peer that sends none. It is a timer, not a goroutine.
func (c *conn) beat(of *Client) {
	every := time.Duration(c.sock.Hello.HeartbeatMS) * time.Millisecond
	if every <= 0 {
		every = 3 * time.Second
	}
	dead := min(3*every, deadAfter)
	tick := min(every, dead/18)
	written, spoke := uint64(0), time.Now()
	var quiet silence
	pulse := func() {
		now := time.Now()
		heard := c.sock.Heard(now)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err != nil {
			return
		}
		if c.out.writes != written {
			written, spoke = c.out.writes, now
		}
		if silent := now.Sub(heard); silent >= dead {
			c.failLocked(fmt.Errorf("nothing heard for %v: the peer is dead", silent.Round(time.Millisecond)))
			return
		}
		if quiet.judge(c, heard, now) && c.checking.CompareAndSwap(false, true) {
			of.wg.Go(func() { of.recheck(c) }) // returns when others have answered, or not in time
		}
		if now.Sub(spoke) >= every-tick && len(c.out.frames) == 0 {
			c.out.frames = protocol.AppendFrame(c.out.frames, protocol.TypePing, 0, nil, nil)
			c.wake.Signal()
		}
		c.pulse.Reset(tick)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulse = time.AfterFunc(tick, pulse)
	if c.err != nil {
		c.pulse.Stop()
	}
}

// fail ends the connection. The first error counts.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = retry.Lost(c.address, err)
	if c.pulse != nil {
		c.pulse.Stop()
	}
	_ = c.sock.Close() // what was not answered counts as lost anyhow
	c.wake.Broadcast()
}

// farewell tells all that hung on the connection. Nothing reads or writes any more.
func (c *conn) farewell() {
	c.mu.Lock()
	err, p := c.err, c.peers
	c.peers = peers{}
	c.mu.Unlock()
	if !errors.Is(err, ErrClosed) {
		c.log.Warn("connection lost", "err", err)
	}
	for _, k := range p.calls {
		k.finish(err)
	}
	for _, l := range p.lanes {
		l.lost(c, err)
	}
	for _, s := range p.streams {
		s.lost(c, err)
	}
	close(c.over)
}

// usable reports whether new requests may go to the connection.
func (c *conn) usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err == nil && !c.away
}

// ended reports whether the connection is over and everyone was told.
func (c *conn) ended() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

// read is the reading goroutine's work; its error ends the connection.
func (c *conn) read() error {
	var d dispatcher
	for {
		f, err := c.sock.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("closed by the broker")
			}
			return err
		}
		if err := d.dispatch(c, f); err != nil {
			return err
		}
	}
}

// call sends a request and waits for its answer, of type want. The answer is
// decoded on the reading goroutine, where its bytes are valid, before call returns.
func (c *conn) call(ctx context.Context, t protocol.Type, h protocol.Header, body []byte, k *call) error {
	k.done = make(chan error, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return fmt.Errorf("%s: %w", k.op, c.err)
	}
	if n := len(body); n+4096 > c.sock.Hello.MaxFrame {
		c.mu.Unlock()
		return wireError(k.op, protocol.Errorf(protocol.CodeTooLarge, "a request of %d bytes, at most %d", n, c.sock.Hello.MaxFrame))
	}
	id := c.register(k)
	c.out.frames = protocol.AppendFrame(c.out.frames, t, id, h, body)
	c.wake.Signal()
	c.mu.Unlock()
	select {
	case err := <-k.done:
		return err
	case <-ctx.Done():
	}
	c.mu.Lock()
	_, waiting := c.peers.calls[id]
	if waiting {
		c.peers.calls[id] = &call{op: k.op, want: k.want} // the late answer is ignored
	}
	c.mu.Unlock()
	if !waiting {
		return <-k.done // the answer is being decoded
	}
	return retry.Stopped(ctx, k.op, nil)
}

// register gives k a correlation id. The caller holds c.mu.
func (c *conn) register(k *call) uint64 {
	c.peers.next++
	c.peers.calls[c.peers.next] = k
	return c.peers.next
}

// post sends a frame without waiting; k, if not nil, is told of the answer.
func (c *conn) post(t protocol.Type, h protocol.Header, k *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	id := uint64(0)
	if k != nil {
		id = c.register(k)
	}
	c.out.frames = protocol.AppendFrame(c.out.frames, t, id, h, nil)
	c.wake.Signal()
}
