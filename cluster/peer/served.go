package peer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

const (
	// maxServed is how many requests of one connection are handled at a time, maxServedBytes how large their bodies may
	// be in all. What is more is answered busy.
	maxServed      = 128
	maxServedBytes = 64 << 20
)

// served is one accepted connection with requests.
type served struct {
	port *Port
	conn net.Conn
	from Hello
	name string // this broker's: Self is not asked with mu held
	w    *writer

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
	bytes   int
}

func newServed(p *Port, conn net.Conn, from Hello) *served {
	return &served{port: p, name: p.cfg.Self().Name, conn: conn, from: from, w: newWriter(conn, p.timing.write), running: map[uint64]context.CancelFunc{}}
}

// serve reads requests and starts to handle each. It returns when the connection is over and nothing of it is being
// handled any more.
func (s *served) serve(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var handling sync.WaitGroup
	err := s.read(ctx, &handling)
	cancel()
	s.conn.Close()
	handling.Wait()
	s.port.cfg.Log.Debug("peer connection ended", "broker", s.from.Name, "error", err)
}

// Read implements io.Reader. The caller pings: one that is silent for long is gone.
func (s *served) Read(b []byte) (int, error) {
	if err := s.conn.SetReadDeadline(time.Now().Add(3 * s.port.timing.silent)); err != nil {
		return 0, err
	}
	return s.conn.Read(b)
}

func (s *served) read(ctx context.Context, handling *sync.WaitGroup) error {
	in := newFrames(s)
	for {
		h, op, err := in.next()
		if err != nil {
			return err
		}
		switch h.kind {
		case framePing:
			handling.Go(func() { s.write(ctx, head{id: h.id, kind: framePong}, nil) })
		case frameCancel:
			s.cancel(h.id)
		case frameRequest:
			if err := s.request(ctx, in, h, op, handling); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: kind %d from a caller", errBadFrame, h.kind)
		}
	}
}

// request takes a request's body and starts to handle it, or answers that there are too many.
func (s *served) request(ctx context.Context, in frames, h head, op string, handling *sync.WaitGroup) error {
	ctx, cancel := context.WithCancel(ctx)
	switch err := s.begin(h, cancel); {
	case err == errBadFrame:
		cancel()
		return fmt.Errorf("%w: request %d is already being handled", err, h.id)
	case err != nil:
		cancel()
		if err := in.skip(h.body); err != nil {
			return err
		}
		handling.Go(func() { s.refuse(context.WithoutCancel(ctx), h.id, err) })
		return nil
	}
	body, err := in.body(h.body)
	if err != nil {
		s.end(h, cancel)
		return err
	}
	handling.Go(func() {
		defer s.end(h, cancel)
		answer, err := s.port.do(ctx, s.from.Store, op, body)
		if ctx.Err() != nil {
			return // nobody waits
		}
		if err != nil {
			s.refuse(ctx, h.id, err)
			return
		}
		s.write(ctx, head{id: h.id, kind: frameAnswer}, answer)
	})
	return nil
}

func (s *served) begin(h head, cancel context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[h.id] != nil {
		return errBadFrame
	}
	if len(s.running) >= maxServed || s.bytes+h.body > maxServedBytes {
		return &RemoteError{Code: codeBusy, Text: fmt.Sprintf("broker %s handles %d requests of this broker already", s.name, len(s.running))}
	}
	s.running[h.id] = cancel
	s.bytes += h.body
	return nil
}

func (s *served) end(h head, cancel context.CancelFunc) {
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, h.id)
	s.bytes -= h.body
}

func (s *served) cancel(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[id]; cancel != nil {
		cancel()
	}
}

func (s *served) refuse(ctx context.Context, id uint64, err error) {
	body, err := Encode(asRemote(err))
	if err != nil {
		s.conn.Close()
		return
	}
	s.write(ctx, head{id: id, kind: frameError}, body)
}

// write sends a frame; if that breaks the connection, reading ends too.
func (s *served) write(ctx context.Context, h head, body []byte) {
	if broken, _ := s.w.write(ctx, h, "", body); broken {
		s.conn.Close()
	}
}
