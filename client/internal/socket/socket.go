// Package socket is a connection to a broker before anybody hangs on it: it is dialled, HELLO is exchanged, the limits that
// the broker announced are taken over. From then on it gives whole frames, takes bytes, and knows when it last heard of the
// peer. It has no goroutine; one may read, one write, and one ask what was heard, at the same time.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

const (
	// dialTimeout bounds the dialling and the greeting together.
	dialTimeout = 5 * time.Second
	// lifeBytes of a frame that does not end are a sign of life.
	lifeBytes = 128 << 10
	// readBuffer is how many bytes are read from a socket at a time.
	readBuffer = 256 << 10
)

// Config is who greets, and how. All fields are required but the token.
type Config struct {
	Name, Token string
	Dialer      func(ctx context.Context, network, address string) (net.Conn, error)
	Limits      batch.Limits  // of the batches accepted from brokers, where they announce none
	Timeout     time.Duration // bounds Dial, as do ctx and 5 s
}

// Socket is a connection whose broker has answered.
type Socket struct {
	Hello  protocol.HelloOK // what the broker said of itself; its MaxFrame is above 0
	Limits batch.Limits     // of batches in both directions

	address string
	nc      net.Conn
	in      *protocol.Reader
	input   meter
	frames  atomic.Uint64 // that arrived whole
	pulse   pulse
}

// pulse is what was known when it was last asked what was heard.
type pulse struct {
	bytes, frames uint64
	at            time.Time
}

// meter counts what arrives, which is how a dead peer is told from a slow one.
type meter struct {
	nc net.Conn
	n  atomic.Uint64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.nc.Read(p)
	m.n.Add(uint64(n))
	return n, err
}

// Dial connects to address and exchanges HELLO. Errors are a [retry.LostError], or carry the [protocol.Error] that the
// broker answered.
func Dial(ctx context.Context, address string, cfg Config) (*Socket, error) {
	limit := min(dialTimeout, cfg.Timeout)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	nc, err := cfg.Dialer(ctx, "tcp", address)
	if err != nil {
		return nil, retry.Lost(address, err)
	}
	s := &Socket{address: address, nc: nc, input: meter{nc: nc}}
	s.in = protocol.NewReader(&s.input, readBuffer)
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() }) // the error is that of the greeting
	err = s.greet(&cfg)
	if !stop() {
		err = retry.Lost(address, context.Cause(ctx))
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = retry.Lost(address, fmt.Errorf("no answer to HELLO in %v: %w", limit, protocol.Errorf(protocol.CodeTimeout, "timed out")))
		}
	}
	if err != nil {
		_ = nc.Close() // nothing was sent that could be lost
		return nil, err
	}
	s.pulse.at = time.Now()
	return s, nil
}

// greet exchanges HELLO.
func (s *Socket) greet(cfg *Config) error {
	h := protocol.Hello{Cookie: protocol.Magic, MinVersion: protocol.Version, MaxVersion: protocol.Version, Client: cfg.Name}
	if cfg.Token != "" {
		h.Auth, h.Secret = "token", []byte(cfg.Token)
	}
	if _, err := s.nc.Write(protocol.AppendFrame(nil, protocol.TypeHello, 1, &h, nil)); err != nil {
		return retry.Lost(s.address, err)
	}
	f, err := s.in.Next()
	if fe, ok := errors.AsType[*protocol.FrameError](err); ok && fe.Code != protocol.CodeUnsupported {
		return retry.Lost(s.address, errors.New("what listens there does not speak as a broker does to clients"))
	}
	if err != nil {
		return retry.Lost(s.address, fmt.Errorf("no answer to HELLO: %w", err))
	}
	switch f.Type {
	case protocol.TypeHelloOK:
	case protocol.TypeError:
		var e protocol.Error
		if err := e.Decode(f.Header); err != nil {
			return retry.Lost(s.address, err)
		}
		return s.refused(&e)
	default:
		return retry.Lost(s.address, errors.New("this is no Danube broker: HELLO was not answered"))
	}
	if err := s.Hello.Decode(f.Header); err != nil {
		return retry.Lost(s.address, err)
	}
	if s.Hello.Version != protocol.Version {
		return s.refused(protocol.Errorf(protocol.CodeUnsupported,
			"the broker speaks protocol version %d, this client %d", s.Hello.Version, protocol.Version))
	}
	s.adopt(cfg.Limits)
	return nil
}

func (s *Socket) refused(e *protocol.Error) error {
	return fmt.Errorf("connect to %s: %w", s.address, e)
}

// adopt takes over the limits the broker announced, where they make sense.
func (s *Socket) adopt(own batch.Limits) {
	s.Limits = own
	if n := s.Hello.MaxMessage; n > 0 {
		s.Limits.Message = n
	}
	if n := s.Hello.MaxBatch; n > batch.HeaderSize {
		s.Limits.Batch, s.Limits.Body = n, max(n, own.Body)
	}
	if s.Hello.MaxFrame <= 0 {
		s.Hello.MaxFrame = s.Limits.Batch + 64<<10
	}
	s.in.SetLimit(max(s.Hello.MaxFrame, protocol.HelloLimit+1))
}

// Next returns the next frame, valid until the call after.
func (s *Socket) Next() (protocol.Frame, error) {
	f, err := s.in.Next()
	if err == nil {
		s.frames.Add(1)
	}
	return f, err
}

// Write writes buffers, which it uses up, with as few system calls as the kernel allows.
func (s *Socket) Write(buffers *net.Buffers) error {
	_, err := buffers.WriteTo(s.nc)
	return err
}

// Heard is when, as far as calls have asked, the last whole frame came, or a good part of a long one. A frame that never
// ends is no sign of life, however it trickles.
func (s *Socket) Heard(now time.Time) time.Time {
	if f, n := s.frames.Load(), s.input.n.Load(); f != s.pulse.frames || n-s.pulse.bytes >= lifeBytes {
		s.pulse = pulse{bytes: n, frames: f, at: now}
	}
	return s.pulse.at
}

// Close ends the connection; reads and writes under way fail.
func (s *Socket) Close() error { return s.nc.Close() }
