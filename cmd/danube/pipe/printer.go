package pipe

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/danubemq/danube/client"
)

const (
	printBuffer = 128 << 10
	// Messages printed and not yet acknowledged, at most: a fraction of a
	// subscription's window, so that the broker need not pause.
	printAcks = 250
	// How long bytes wait for more to come.
	printDelay = 3 * time.Millisecond
)

// printer writes messages to standard output through a buffer and acknowledges
// each after its bytes were written. It flushes when the buffer or the list of
// acknowledgements is full, and when nothing came for a moment.
type printer struct {
	format func([]byte, *client.Message) []byte
	ack    func(client.Message) error // nil: none
	stop   context.CancelCauseFunc    // called when writing fails

	mu      sync.Mutex
	out     io.Writer
	buf     []byte
	unacked []client.Message
	printed uint64
	err     error
	timer   *time.Timer
	armed   bool
}

func newPrinter(out io.Writer, format string, ack func(client.Message) error, stop context.CancelCauseFunc) *printer {
	p := &printer{out: out, ack: ack, stop: stop, buf: make([]byte, 0, printBuffer+4096)}
	switch format {
	case "json":
		p.format = AppendJSON
	case "raw":
		p.format = AppendRaw
	default:
		p.format = AppendText
	}
	p.timer = time.AfterFunc(time.Hour, p.idle)
	p.timer.Stop()
	return p
}

// print appends m to the output. Its error is that of an earlier write, or of an acknowledgement.
func (p *printer) print(m *client.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.buf = p.format(p.buf, m)
	p.printed++
	if p.ack != nil {
		p.unacked = append(p.unacked, *m)
	}
	if len(p.buf) >= printBuffer || len(p.unacked) >= printAcks {
		return p.flush()
	}
	if !p.armed {
		p.armed = true
		p.timer.Reset(printDelay)
	}
	return nil
}

// count is how many messages were printed.
func (p *printer) count() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.printed
}

// idle is called by the timer.
func (p *printer) idle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	if p.flush() != nil {
		p.stop(p.err)
	}
}

// flush writes the buffer and then acknowledges. p.mu is held.
func (p *printer) flush() error {
	if p.err != nil || len(p.buf) == 0 && len(p.unacked) == 0 {
		return p.err
	}
	if _, err := p.out.Write(p.buf); err != nil {
		p.err = fmt.Errorf("write to standard output: %w", err)
		return p.err
	}
	p.buf = p.buf[:0]
	if cap(p.buf) > 4*printBuffer {
		p.buf = make([]byte, 0, printBuffer+4096) // one huge message is no reason to keep its room
	}
	for i := range p.unacked {
		if err := p.ack(p.unacked[i]); err != nil {
			p.err = fmt.Errorf("acknowledge: %w", err)
			return p.err
		}
	}
	clear(p.unacked) // payloads are let go
	p.unacked = p.unacked[:0]
	return nil
}

// close flushes for the last time.
func (p *printer) close() error {
	p.timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flush()
}
