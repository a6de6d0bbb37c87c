package peer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// maxOutstanding is how many requests to one broker wait for their answers at a time; further ones wait for their turn.
// Urgent ones do not.
const maxOutstanding = 64

// Urgent begins the names of operations that do not wait for a turn: a lease is not to wait behind copies of history.
const Urgent = "cluster."

// link is the way to one broker: one connection, made when there is something to send and again after it broke.
type link struct {
	port  *Port
	to    state.StoreID
	slots chan struct{}
	turn  chan struct{} // held by whoever connects

	mu      sync.Mutex
	session *session
	closed  bool
}

func (p *Port) link(to state.StoreID) (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: the peer port is closed", ErrUnreachable)
	}
	l := p.links[to]
	if l == nil {
		l = &link{port: p, to: to, slots: make(chan struct{}, maxOutstanding), turn: make(chan struct{}, 1)}
		p.links[to] = l
	}
	return l, nil
}

// Broken says whether the connection to a broker has ended since it was last used.
func (p *Port) Broken(store state.StoreID) bool {
	p.mu.Lock()
	l := p.links[store]
	p.mu.Unlock()
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session != nil && !l.session.alive()
}

// call sends a request over the link's connection; addresses are tried in turn if there is none.
func (l *link) call(ctx context.Context, addresses []string, op string, body []byte) ([]byte, error) {
	if len(op) == 0 || len(op) > maxOp || len(body) > maxBody {
		return nil, fmt.Errorf("call %q with %d bytes: a name has 1 to %d bytes, a body at most %d", op, len(body), maxOp, maxBody)
	}
	if !strings.HasPrefix(op, Urgent) {
		select {
		case l.slots <- struct{}{}:
			defer func() { <-l.slots }()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: wait for a turn: %w", ErrUnreachable, ctx.Err())
		}
	}
	for first := true; ; first = false {
		s, fresh, err := l.open(ctx, addresses)
		if err != nil {
			return nil, err
		}
		answer, err := s.call(ctx, op, body)
		// A connection of earlier may have broken since; nothing was carried out, so one more try is safe.
		if errors.Is(err, ErrUnreachable) && !fresh && first && ctx.Err() == nil {
			continue
		}
		return answer, err
	}
}

// open returns the connection that is there, or makes one.
func (l *link) open(ctx context.Context, addresses []string) (_ *session, fresh bool, err error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, false, fmt.Errorf("%w: connect: %w", ErrUnreachable, ctx.Err())
	}
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s != nil && s.alive() {
		return s, false, nil
	}
	err = fmt.Errorf("%w: no address of store %s is known", ErrUnreachable, l.to)
	for _, a := range addresses {
		conn, _, cerr := l.port.connect(ctx, kindRequest, a, l.to)
		if cerr != nil {
			err = cerr
			continue
		}
		s := newSession(conn, l.port.timing)
		if !l.adopt(s) {
			conn.Close()
			return nil, false, fmt.Errorf("%w: the peer port is closed", ErrUnreachable)
		}
		return s, true, nil
	}
	return nil, false, err
}

func (l *link) adopt(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.session = s
	s.run()
	return true
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	s := l.session
	l.mu.Unlock()
	if s != nil {
		s.fail(errors.New("closed"))
		s.workers.Wait()
	}
}

// session is one connection to a broker, while it lasts.
type session struct {
	conn    net.Conn
	timing  timing
	w       *writer
	heard   atomic.Int64 // when the last frame came, on the clock of start
	start   time.Time
	workers sync.WaitGroup
	wake    chan struct{} // something to cancel
	done    chan struct{} // closed when the connection is over

	mu      sync.Mutex
	err     error // why it is over
	next    uint64
	pending map[uint64]chan answer
	cancels []uint64
}

type answer struct {
	body []byte
	err  error
}

func newSession(conn net.Conn, t timing) *session {
	return &session{
		conn: conn, timing: t, w: newWriter(conn, t.write), start: time.Now(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), pending: map[uint64]chan answer{},
	}
}

func (s *session) run() {
	s.workers.Go(s.read)
	s.workers.Go(s.watch)
}

func (s *session) alive() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// fail ends the connection; what waits for an answer learns that none will come.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.err = err
	close(s.done)
	s.conn.Close()
}

func (s *session) call(ctx context.Context, op string, body []byte) ([]byte, error) {
	id, ch, err := s.begin()
	if err != nil {
		return nil, err
	}
	if broken, err := s.w.write(ctx, head{id: id, kind: frameRequest}, op, body); err != nil {
		if broken {
			s.fail(err)
		}
		s.forget(id)
		return nil, fmt.Errorf("%w: send %s: %w", ErrUnreachable, op, err)
	}
	select {
	case a := <-ch:
		return a.body, a.err
	case <-ctx.Done():
		s.forget(id)
		s.cancel(id)
		return nil, fmt.Errorf("%w: wait for the answer to %s: %w", ErrUnanswered, op, ctx.Err())
	case <-s.done:
	}
	select {
	case a := <-ch: // it came just before the end
		return a.body, a.err
	default:
		return nil, fmt.Errorf("%w: %s: %w", ErrUnanswered, op, s.reason())
	}
}

func (s *session) begin() (uint64, chan answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, nil, fmt.Errorf("%w: %w", ErrUnreachable, s.err)
	}
	s.next++
	ch := make(chan answer, 1)
	s.pending[s.next] = ch
	return s.next, ch, nil
}

func (s *session) forget(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, id)
}

func (s *session) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// cancel lets the other side know that nobody waits any more. The watching goroutine writes it.
func (s *session) cancel(id uint64) {
	s.mu.Lock()
	s.cancels = append(s.cancels, id)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Read implements io.Reader: it notes that something came.
func (s *session) Read(b []byte) (int, error) {
	n, err := s.conn.Read(b)
	s.heard.Store(int64(time.Since(s.start)))
	return n, err
}

// read hands answers to those who wait. It returns when the connection is over.
func (s *session) read() {
	in := newFrames(s)
	for {
		if err := s.answer(in); err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *session) answer(in frames) error {
	h, _, err := in.next()
	if err != nil {
		return err
	}
	switch h.kind {
	case framePong:
		return nil
	case frameAnswer, frameError:
	default:
		return fmt.Errorf("%w: kind %d in answer", errBadFrame, h.kind)
	}
	s.mu.Lock()
	ch := s.pending[h.id]
	delete(s.pending, h.id)
	s.mu.Unlock()
	if ch == nil {
		return in.skip(h.body)
	}
	body, err := in.body(h.body)
	if err != nil {
		return err // whoever waits on ch learns that the connection is over
	}
	if h.kind == frameAnswer {
		ch <- answer{body: body}
		return nil
	}
	e := &RemoteError{}
	if err := Decode(body, e); err != nil {
		ch <- answer{err: fmt.Errorf("%w: %w", ErrUnanswered, err)}
		return err
	}
	ch <- answer{err: e}
	return nil
}

// watch pings, ends a connection on which nothing comes back, and sends cancellations. It returns when the connection
// is over.
func (s *session) watch() {
	tick := time.NewTicker(s.timing.ping)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if quiet := time.Since(s.start) - time.Duration(s.heard.Load()); quiet > s.timing.silent {
				s.fail(fmt.Errorf("nothing heard for %v", quiet.Round(time.Millisecond)))
				return
			}
			s.send(head{kind: framePing})
		case <-s.wake:
			s.mu.Lock()
			ids := s.cancels
			s.cancels = nil
			s.mu.Unlock()
			for _, id := range ids {
				s.send(head{id: id, kind: frameCancel})
			}
		case <-s.done:
			return
		}
	}
}

func (s *session) send(h head) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timing.write)
	defer cancel()
	if broken, err := s.w.write(ctx, h, "", nil); broken {
		s.fail(err)
	}
}
