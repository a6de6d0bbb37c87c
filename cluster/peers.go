package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/danubemq/danube/meta/state"
)

var (
	// ErrUnreachable: the request was not carried out, because the broker cannot be reached or refused the connection.
	ErrUnreachable = errors.New("broker cannot be reached")
	// ErrUnanswered: the request was sent and no answer came; whether it was carried out is unknown (R5).
	ErrUnanswered = errors.New("broker did not answer")
	// ErrWrongCluster: the other broker belongs to another cluster (R9).
	ErrWrongCluster = errors.New("broker belongs to another cluster")
	// ErrRemoved: this store was removed from the cluster.
	ErrRemoved = errors.New("store was removed from the cluster")
	// ErrOutdated: the cluster went on without what this store's metadata say (R22).
	ErrOutdated = errors.New("metadata are of a history that is over")
	// ErrDuplicate: another process runs on a copy of this data directory (R9).
	ErrDuplicate = errors.New("store is in use by another process")
)

// The codes of a refused hello.
const (
	refusedCluster   = "cluster"
	refusedDuplicate = "duplicate"
	refusedRemoved   = "removed"
	refusedOutdated  = "outdated"
	refusedOther     = "other"
)

// timing are the bounds of the peer port.
type timing struct {
	hello  time.Duration // a peer that has not said hello by then is dropped
	dial   time.Duration // connecting and saying hello take this long at most
	ping   time.Duration // how often a caller shows that it lives
	silent time.Duration // a peer that says nothing for so long is gone
	write  time.Duration // one frame must be written within this
}

func usualTiming() timing {
	return timing{hello: 10 * time.Second, dial: 3 * time.Second, ping: time.Second, silent: 5 * time.Second, write: 5 * time.Second}
}

const (
	// maxStrangers is how many connections may be at their hello at a time, maxConnections how many there may be.
	maxStrangers   = 128
	maxConnections = 1024
)

// handler carries out one operation for another broker.
type handler func(ctx context.Context, from state.StoreID, body []byte) ([]byte, error)

// peers is the peer port: what comes in on it, and the connections to the other brokers.
type peers struct {
	timing   timing
	listener net.Listener
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	self     func() hello // as of now: the cluster id comes later
	log      *slog.Logger
	raft     *raftListener
	judge    func(kind byte, calling hello) (code, text string) // why a caller is refused beside what its hello says
	told     func(err error)                                    // this store is out of the cluster: ErrRemoved, ErrOutdated

	mu        sync.Mutex
	closed    bool
	handlers  map[string]handler
	links     map[state.StoreID]*link
	conns     map[net.Conn]struct{} // accepted ones, Raft's aside
	strangers int
	workers   sync.WaitGroup
	cancel    context.CancelFunc // of everything that is being handled
}

// newPeers takes over the listener, nil if nobody is to connect. listen must be called before anything is accepted.
func newPeers(listener net.Listener, dial func(context.Context, string, string) (net.Conn, error), self func() hello, log *slog.Logger) *peers {
	var addr net.Addr
	if listener != nil {
		addr = listener.Addr()
	}
	return &peers{
		timing: usualTiming(), listener: listener, dial: dial, self: self, log: log,
		raft:     &raftListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})},
		handlers: map[string]handler{}, links: map[state.StoreID]*link{}, conns: map[net.Conn]struct{}{},
		cancel: func() {},
		judge:  func(byte, hello) (string, string) { return "", "" }, told: func(error) {},
	}
}

// listen begins to accept.
func (p *peers) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if p.listener != nil {
		p.workers.Go(func() { p.accept(ctx) })
	}
}

// accept returns when the listener is closed.
func (p *peers) accept(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		conn, err := p.listener.Accept()
		if err == nil {
			if !p.admit(ctx, conn) {
				conn.Close()
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		p.log.Warn("peer connection not accepted", "error", err)
		pause.Reset(100 * time.Millisecond) // out of descriptors, say
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// admit starts to greet a connection, unless there are too many.
func (p *peers) admit(ctx context.Context, conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.strangers >= maxStrangers || len(p.conns) >= maxConnections {
		return false
	}
	p.strangers++
	p.conns[conn] = struct{}{}
	p.workers.Go(func() { p.greet(ctx, conn) })
	return true
}

// greet answers a connection's hello and serves what follows. It returns when the connection is over or is Raft's.
func (p *peers) greet(ctx context.Context, conn net.Conn) {
	kind, from, err := p.welcome(conn)
	p.mu.Lock()
	p.strangers--
	if err != nil || kind == kindRaft {
		delete(p.conns, conn)
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		p.log.Debug("peer connection refused", "from", conn.RemoteAddr(), "error", err)
		conn.Close()
	case kind == kindRaft:
		if !p.raft.deliver(conn) {
			conn.Close()
		}
	default:
		newServed(p, conn, from).serve(ctx)
		p.mu.Lock()
		delete(p.conns, conn)
		p.mu.Unlock()
	}
}

// welcome exchanges hellos on an accepted connection. Until the peer is known it makes us hold no more than one hello.
func (p *peers) welcome(conn net.Conn) (kind byte, from hello, err error) {
	if err := conn.SetDeadline(time.Now().Add(p.timing.hello)); err != nil {
		return 0, from, err
	}
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return 0, from, fmt.Errorf("read first byte: %w", err)
	}
	kind = first[0]
	if kind != kindRaft && kind != kindRequest {
		return 0, from, fmt.Errorf("%w: first byte %#x", errBadHello, kind)
	}
	from, err = readHello(conn)
	if err != nil {
		return 0, from, err
	}
	answer := p.self()
	answer.Code, answer.Refused = judgeHello(kind, answer, from)
	if answer.Refused == "" {
		answer.Code, answer.Refused = p.judge(kind, from)
	}
	b, err := appendHello(nil, answer)
	if err != nil {
		return 0, from, err
	}
	if _, err := conn.Write(b); err != nil {
		return 0, from, fmt.Errorf("answer hello: %w", err)
	}
	if answer.Refused != "" {
		return 0, from, errors.New(answer.Refused)
	}
	return kind, from, conn.SetDeadline(time.Time{})
}

// judgeHello says whether two brokers may talk, and if not why, in words for the operator of the calling one.
func judgeHello(kind byte, called, calling hello) (code, text string) {
	none := [16]byte{}
	switch {
	case called.Store == calling.Store && called.Run != calling.Run:
		return refusedDuplicate, fmt.Sprintf("store %s is already in use by broker %s, which is running: was its data directory copied?", called.Store, called.Name)
	case called.Of != calling.Of:
		return refusedCluster, fmt.Sprintf("broker %s belongs to the cluster named %q, broker %s to %q", called.Name, called.Of, calling.Name, calling.Of)
	case called.Cluster != none && calling.Cluster != none && called.Cluster != calling.Cluster:
		return refusedCluster, fmt.Sprintf("broker %s belongs to cluster %x, broker %s to cluster %x: both are named %q", called.Name, called.Cluster, calling.Name, calling.Cluster, called.Of)
	case kind == kindRaft && called.Cluster == none:
		return refusedOther, fmt.Sprintf("broker %s belongs to no cluster yet", called.Name)
	case kind == kindRaft && calling.Cluster == none:
		return refusedOther, fmt.Sprintf("broker %s belongs to no cluster yet", calling.Name)
	}
	return "", ""
}

// connect opens a connection of one kind to address and exchanges hellos. want is who must answer; zero: whoever does.
func (p *peers) connect(ctx context.Context, kind byte, address string, want state.StoreID) (net.Conn, hello, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.dial)
	defer cancel()
	conn, err := p.dial(ctx, "tcp", address)
	if err != nil {
		return nil, hello{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	them, err := p.introduce(conn, kind)
	if err == nil && want != (state.StoreID{}) && them.Store != want {
		err = fmt.Errorf("store %s answers at %s, not %s", them.Store, address, want)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, them, fmt.Errorf("%w: greet %s: %w", ErrUnreachable, address, err)
	}
	return conn, them, nil
}

func (p *peers) introduce(conn net.Conn, kind byte) (hello, error) {
	me := p.self()
	b, err := appendHello([]byte{kind}, me)
	if err != nil {
		return hello{}, err
	}
	if _, err := conn.Write(b); err != nil {
		return hello{}, err
	}
	them, err := readHello(conn)
	if err != nil {
		return hello{}, err
	}
	code, text := them.Code, them.Refused
	if text == "" {
		code, text = judgeHello(kind, them, me)
	}
	switch {
	case text == "":
		return them, nil
	case code == refusedCluster:
		return them, fmt.Errorf("%w: %s", ErrWrongCluster, text)
	case code == refusedDuplicate:
		return them, fmt.Errorf("%w: %s", ErrDuplicate, text)
	case code == refusedRemoved:
		err = fmt.Errorf("%w: %s", ErrRemoved, text)
	case code == refusedOutdated:
		err = fmt.Errorf("%w: %s", ErrOutdated, text)
	default:
		return them, errors.New(text)
	}
	p.told(err)
	return them, err
}

// handle registers what carries out op for other brokers; a later one replaces it.
func (p *peers) handle(op string, f handler) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[op] = f
}

func (p *peers) handler(op string) handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handlers[op]
}

// do carries out a request here.
func (p *peers) do(ctx context.Context, from state.StoreID, op string, body []byte) ([]byte, error) {
	f := p.handler(op)
	if f == nil {
		return nil, &RemoteError{Code: codeNoOperation, Text: fmt.Sprintf("broker %s knows no operation %q", p.self().Name, op)}
	}
	answer, err := f(ctx, from, body)
	if err == nil && len(answer) > maxBody {
		return nil, &RemoteError{Code: codeTooLarge, Text: fmt.Sprintf("the answer to %s has %d bytes; at most %d are allowed", op, len(answer), maxBody)}
	}
	return answer, err
}

// close stops accepting, ends every connection and waits for what is being handled.
func (p *peers) close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	links := p.links
	p.links = map[state.StoreID]*link{}
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.cancel()
	var err error
	if p.listener != nil {
		if err = p.listener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
	}
	p.raft.Close()
	for _, l := range links {
		l.close()
	}
	p.workers.Wait()
	return err
}

// raftListener hands Raft its share of the accepted connections.
type raftListener struct {
	addr   net.Addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *raftListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept Raft stream: %w", net.ErrClosed)
	}
}

// deliver waits until Raft takes the connection. Before the metadata is open nobody does: then it is given up.
func (l *raftListener) deliver(c net.Conn) bool {
	timeout := time.NewTimer(time.Second)
	defer timeout.Stop()
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
	case <-timeout.C:
	}
	return false
}

// Close implements net.Listener. The peer port itself stays open.
func (l *raftListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *raftListener) Addr() net.Addr { return l.addr }
