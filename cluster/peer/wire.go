package peer

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// smallFrame is the size below which a frame goes before larger ones: a lease is not to wait behind a copy of history.
const smallFrame = 64 << 10

// slowest is how many bytes a second a connection must carry at least.
const slowest = 256 << 10

// writer lets many goroutines write frames to one connection. Large frames first queue among themselves, so that a
// small one waits for one large frame at most.
type writer struct {
	conn    net.Conn
	timeout time.Duration
	large   chan struct{} // held by the large frame whose turn it is
	turn    chan struct{} // held by whoever writes
}

func newWriter(conn net.Conn, timeout time.Duration) *writer {
	return &writer{conn: conn, timeout: timeout, large: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
}

// write writes one frame. An error means that the peer cannot have got the whole of it. A frame that was begun and not
// ended breaks the connection: broken says so.
func (w *writer) write(ctx context.Context, h head, op string, body []byte) (broken bool, err error) {
	if len(body) >= smallFrame {
		select {
		case w.large <- struct{}{}:
			defer func() { <-w.large }()
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	var small [frameHead + maxOp]byte
	frame := net.Buffers{appendHead(small[:0], h.id, h.kind, op, len(body))}
	if len(body) > 0 {
		frame = append(frame, body)
	}
	limit := w.timeout + time.Duration(len(body))*time.Second/slowest
	if err := w.conn.SetWriteDeadline(time.Now().Add(limit)); err != nil {
		return true, err
	}
	_, err = frame.WriteTo(w.conn)
	return err != nil, err
}

// frames reads frames off a connection.
type frames struct {
	r *bufio.Reader
}

func newFrames(r io.Reader) frames { return frames{bufio.NewReaderSize(r, 32<<10)} }

// next reads the head of the next frame and its operation's name. The body must be taken or skipped after it.
func (f frames) next() (head, string, error) {
	var b [frameHead]byte
	if _, err := io.ReadFull(f.r, b[:]); err != nil {
		return head{}, "", err
	}
	h, err := parseHead(&b)
	if err != nil || h.op == 0 {
		return h, "", err
	}
	var name [maxOp]byte
	if _, err := io.ReadFull(f.r, name[:h.op]); err != nil {
		return h, "", err
	}
	return h, string(name[:h.op]), nil
}

func (f frames) skip(n int) error {
	_, err := f.r.Discard(n)
	return err
}

// firstRead is how much of a body is made room for before any of it came.
const firstRead = 64 << 10

// body reads n bytes. Room is made as they come: a length that is only claimed costs little.
func (f frames) body(n int) ([]byte, error) {
	b := make([]byte, min(n, firstRead))
	for at := 0; ; {
		if _, err := io.ReadFull(f.r, b[at:]); err != nil {
			return nil, fmt.Errorf("read body of a frame: %w", err)
		}
		at = len(b)
		if at == n {
			return b, nil
		}
		more := make([]byte, min(n, 4*at))
		copy(more, b)
		b = more
	}
}
