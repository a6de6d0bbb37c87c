package meta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// Each stream begins with a preamble: version u8 · store id of the server that is meant, 16 bytes · store id of the
// caller. Raft addresses its messages by host and port alone, so that a broker with an emptied disk would be asked at
// its old address for votes in its old name, and without a configuration would grant them (R9). Whoever is not meant
// hangs up.
const (
	preambleVersion = 1
	preambleBytes   = 1 + 2*len(state.StoreID{})
	preambleTimeout = 10 * time.Second
)

var errNotMeant = errors.New("a stream of raft's for another store came to this address")

// streams is the raft.StreamLayer over the listener and the dialer that the node was given. An address is
// "<store id>@<host:port>".
type streams struct {
	listener net.Listener
	dial     func(ctx context.Context, address string) (net.Conn, error)
	self     state.StoreID
	log      *slog.Logger

	done chan struct{}  // closed by Close
	wg   sync.WaitGroup // one for each incoming stream until its reader is gone, each dial and each notifier

	mu     sync.Mutex // guards what follows
	closed bool
	open   map[*stream]struct{}
	warned map[state.StoreID]struct{} // stores whose streams were refused, each told once
}

func newStreams(cfg Config) *streams {
	return &streams{
		listener: cfg.Listener, dial: cfg.Dial, self: cfg.Store, log: cfg.Logger, done: make(chan struct{}),
		open: make(map[*stream]struct{}), warned: make(map[state.StoreID]struct{}),
	}
}

// Accept implements net.Listener. The preamble is read with the first message, so that a peer that sends none holds up
// nobody.
func (s *streams) Accept() (net.Conn, error) {
	c, err := s.listener.Accept()
	if err != nil {
		return nil, err
	}
	return s.track(&stream{Conn: c, streams: s, incoming: true})
}

// Addr implements net.Listener.
func (s *streams) Addr() net.Addr { return s.listener.Addr() }

// Dial implements raft.StreamLayer.
func (s *streams) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	id, _, _ := strings.Cut(string(address), "@")
	target, err := state.ParseStoreID(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	running := s.run(func() { // returns when the dial is over or the node closes
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	})
	if !running {
		return nil, net.ErrClosed
	}
	c, err := s.dial(ctx, hostPort(address))
	if err != nil {
		return nil, err
	}
	preamble := append(append([]byte{preambleVersion}, target[:]...), s.self[:]...)
	deadline, _ := ctx.Deadline()
	err = c.SetDeadline(deadline)
	if err == nil {
		_, err = c.Write(preamble)
	}
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return s.track(&stream{Conn: c, streams: s})
}

// track remembers an open stream, so that Close can end it.
func (s *streams) track(c *stream) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, c.Conn.Close())
	}
	s.open[c] = struct{}{}
	if c.incoming {
		s.wg.Add(1)
	}
	return c, nil
}

// run runs f, which ends when done is closed, unless that has happened.
func (s *streams) run(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.wg.Go(f)
	return true
}

// Close closes the listener and every stream, and waits until nobody reads one any more. Raft's transport would leave
// them open.
func (s *streams) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	open := make([]*stream, 0, len(s.open))
	for c := range s.open {
		open = append(open, c)
	}
	s.mu.Unlock()
	if !first {
		return nil
	}
	close(s.done)
	err := s.listener.Close()
	for _, c := range open {
		_ = c.Conn.Close() // its reader sees it closed, which is what was wanted
	}
	s.wg.Wait()
	return err
}

// refuse says once for each store that something still calls it at this address.
func (s *streams) refuse(target, caller state.StoreID) error {
	s.mu.Lock()
	_, told := s.warned[target]
	s.warned[target] = struct{}{}
	s.mu.Unlock()
	if !told {
		s.log.Warn("metadata peer looks for another store at this address", "wanted", target.String(),
			"caller", caller.String(), "store", s.self.String())
	}
	return fmt.Errorf("%w: %s", errNotMeant, target)
}

// stream is one connection. It is read by one goroutine.
type stream struct {
	net.Conn
	streams  *streams
	incoming bool
	greeted  bool // the preamble of an incoming stream was read
	once     sync.Once
}

// Read implements net.Conn.
func (c *stream) Read(b []byte) (int, error) {
	if c.incoming && !c.greeted {
		if err := c.readPreamble(); err != nil {
			return 0, err
		}
		c.greeted = true
	}
	return c.Conn.Read(b)
}

func (c *stream) readPreamble() error {
	if err := c.SetReadDeadline(time.Now().Add(preambleTimeout)); err != nil {
		return err
	}
	var b [preambleBytes]byte
	if _, err := io.ReadFull(c.Conn, b[:]); err != nil {
		return err
	}
	if b[0] != preambleVersion {
		return fmt.Errorf("stream of raft's with version %d, this release knows %d", b[0], preambleVersion)
	}
	target := state.StoreID(b[1:17])
	if target != c.streams.self {
		return c.streams.refuse(target, state.StoreID(b[17:]))
	}
	return c.SetReadDeadline(time.Time{})
}

// Close implements net.Conn. Whoever reads an incoming stream calls it last.
func (c *stream) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.streams.mu.Lock()
		delete(c.streams.open, c)
		c.streams.mu.Unlock()
		if c.incoming {
			c.streams.wg.Done()
		}
	})
	return err
}
