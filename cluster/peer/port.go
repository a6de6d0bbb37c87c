package peer

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

// Handler carries out one operation for another broker, whose store from is. ctx ends when the caller no longer waits.
// What it answers is not used afterwards; its error reaches the caller as a *RemoteError.
type Handler func(ctx context.Context, from state.StoreID, body []byte) ([]byte, error)

// Config says what a port is made of.
type Config struct {
	// Listener accepts the other brokers; Close closes it. Nil: nobody is to connect.
	Listener net.Listener
	// Dial opens connections to other brokers. Required.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Store is this broker's; a call to it is a call of the handler. Required.
	Store state.StoreID
	// Self is what this broker says of itself, as of now: the cluster's id comes later. Required.
	Self func() Hello
	// Judge says why a caller is refused beside what both hellos say; raft: it wants a Raft stream. Nil: never.
	Judge func(raft bool, calling Hello) Refusal
	// Told hears that this store is out of its cluster: ErrRemoved or ErrOutdated, with what the other broker said.
	// Nil: nobody does.
	Told func(error)
	// Log takes what an operator acts on. Nil: discarded.
	Log *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Judge == nil {
		c.Judge = func(bool, Hello) Refusal { return Refusal{} }
	}
	if c.Told == nil {
		c.Told = func(error) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Target is a broker to reach: its store, zero for whoever answers, and where its peer port may be, the likeliest first.
type Target struct {
	Store     state.StoreID
	Addresses []string
}

// Port is the peer port: what comes in on it, and the connections to the other brokers.
type Port struct {
	cfg    Config
	timing timing
	raft   *raftListener

	mu        sync.Mutex
	closed    bool
	handlers  map[string]Handler
	links     map[state.StoreID]*link
	conns     map[net.Conn]struct{} // accepted ones, Raft's aside
	strangers int
	workers   sync.WaitGroup
	cancel    context.CancelFunc // of everything that is being handled
}

// Open takes over cfg.Listener. Calls can be made; nothing is accepted before Listen.
func Open(cfg Config) *Port {
	var addr net.Addr
	if cfg.Listener != nil {
		addr = cfg.Listener.Addr()
	}
	return &Port{
		cfg: cfg.withDefaults(), timing: usualTiming(),
		raft:     &raftListener{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})},
		handlers: map[string]Handler{}, links: map[state.StoreID]*link{}, conns: map[net.Conn]struct{}{},
		cancel: func() {},
	}
}

// Listen begins to accept. Call it once, when the first handlers are registered.
func (p *Port) Listen() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if p.cfg.Listener != nil {
		p.workers.Go(func() { p.accept(ctx) })
	}
}

// accept returns when the listener is closed.
func (p *Port) accept(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		conn, err := p.cfg.Listener.Accept()
		if err == nil {
			if !p.admit(ctx, conn) {
				conn.Close()
			}
			continue
		}
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			return
		}
		p.cfg.Log.Warn("peer connection not accepted", "error", err)
		pause.Reset(100 * time.Millisecond) // out of descriptors, say
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// admit starts to greet a connection, unless there are too many.
func (p *Port) admit(ctx context.Context, conn net.Conn) bool {
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
func (p *Port) greet(ctx context.Context, conn net.Conn) {
	kind, from, err := p.welcome(conn)
	p.mu.Lock()
	p.strangers--
	if err != nil || kind == kindRaft {
		delete(p.conns, conn)
	}
	p.mu.Unlock()
	switch {
	case err != nil:
		p.cfg.Log.Debug("peer connection refused", "from", conn.RemoteAddr(), "error", err)
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
func (p *Port) welcome(conn net.Conn) (kind byte, from Hello, err error) {
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
	answer := p.cfg.Self()
	r := judgeHello(kind, answer, from)
	if r.Text == "" {
		r = p.cfg.Judge(kind == kindRaft, from)
	}
	answer.refuse(r)
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

// connect opens a connection of one kind to address and exchanges hellos. want is who must answer; zero: whoever does.
func (p *Port) connect(ctx context.Context, kind byte, address string, want state.StoreID) (net.Conn, Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timing.dial)
	defer cancel()
	conn, err := p.cfg.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, Hello{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
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

func (p *Port) introduce(conn net.Conn, kind byte) (Hello, error) {
	me := p.cfg.Self()
	b, err := appendHello([]byte{kind}, me)
	if err != nil {
		return Hello{}, err
	}
	if _, err := conn.Write(b); err != nil {
		return Hello{}, err
	}
	them, err := readHello(conn)
	if err != nil {
		return Hello{}, err
	}
	r := them.refusal()
	if r.Text == "" {
		r = judgeHello(kind, them, me)
	}
	if err := r.err(); err != nil {
		if r.Err == ErrRemoved || r.Err == ErrOutdated {
			p.cfg.Told(err)
		}
		return them, err
	}
	return them, nil
}

// Greet connects to a broker, exchanges hellos and hangs up: whether it lets this one in, and is the one that is
// wanted. Its errors are those of Call.
func (p *Port) Greet(ctx context.Context, address string, want state.StoreID) error {
	conn, _, err := p.connect(ctx, kindRequest, address, want)
	if err != nil {
		return err
	}
	conn.Close()
	return nil
}

// DialRaft opens a Raft stream. Its errors are those of Call.
func (p *Port) DialRaft(ctx context.Context, to Target) (net.Conn, error) {
	err := fmt.Errorf("%w: no address", ErrUnreachable)
	for _, a := range to.Addresses {
		conn, _, cerr := p.connect(ctx, kindRaft, a, to.Store)
		if cerr == nil {
			return conn, nil
		}
		err = cerr
	}
	return nil, err
}

// Raft returns the listener of Raft's streams. Closing it leaves the port open.
func (p *Port) Raft() net.Listener { return p.raft }

// Call has a broker carry out op and returns its answer, over the one connection that there is for ordinary calls. A
// body has at most 8 MiB. ctx bounds it; give it a deadline.
//
// Errors: ErrUnreachable (it was not carried out), ErrUnanswered (whether it was is unknown), *RemoteError (the handler
// refused). Who is not let in learns why beside ErrUnreachable: ErrWrongCluster, ErrDuplicate, ErrRemoved, ErrOutdated.
func (p *Port) Call(ctx context.Context, to Target, op string, body []byte) ([]byte, error) {
	if to.Store == p.cfg.Store {
		answer, err := p.do(ctx, to.Store, op, body)
		if err != nil {
			return nil, asRemote(err)
		}
		return answer, nil
	}
	l, err := p.link(to.Store)
	if err != nil {
		return nil, err
	}
	return l.call(ctx, to.Addresses, op, body)
}

// CallOnce is Call on a connection of its own: that of every day may be what is broken.
func (p *Port) CallOnce(ctx context.Context, to Target, op string, body []byte) ([]byte, error) {
	err := fmt.Errorf("%w: no address of store %s is known", ErrUnreachable, to.Store)
	for _, a := range to.Addresses {
		conn, _, cerr := p.connect(ctx, kindRequest, a, to.Store)
		if cerr != nil {
			err = cerr
			continue
		}
		s := newSession(conn, p.timing)
		s.run()
		answer, err := s.call(ctx, op, body)
		s.fail(errors.New("answered"))
		s.workers.Wait()
		return answer, err
	}
	return nil, err
}

// Handle registers what carries out op for other brokers; a later one replaces it. A name has 1 to 64 bytes.
func (p *Port) Handle(op string, f Handler) {
	if op == "" || len(op) > maxOp {
		panic(fmt.Sprintf("peer: operation %q cannot be handled", op))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handlers[op] = f
}

func (p *Port) handler(op string) Handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handlers[op]
}

// do carries out a request here.
func (p *Port) do(ctx context.Context, from state.StoreID, op string, body []byte) ([]byte, error) {
	f := p.handler(op)
	if f == nil {
		return nil, &RemoteError{Code: codeNoOperation, Text: fmt.Sprintf("broker %s knows no operation %q", p.cfg.Self().Name, op)}
	}
	answer, err := f(ctx, from, body)
	if err == nil && len(answer) > maxBody {
		return nil, &RemoteError{Code: codeTooLarge, Text: fmt.Sprintf("the answer to %s has %d bytes; at most %d are allowed", op, len(answer), maxBody)}
	}
	return answer, err
}

// Close stops accepting, ends every connection and waits for what is being handled. It is idempotent.
func (p *Port) Close() error {
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
	if p.cfg.Listener != nil {
		if err = p.cfg.Listener.Close(); errors.Is(err, net.ErrClosed) {
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
