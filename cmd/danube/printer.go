package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/render"
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
		p.format = appendMessageJSON
	case "raw":
		p.format = appendRaw
	default:
		p.format = appendText
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

// appendRaw appends the payload as it is, and a newline.
func appendRaw(b []byte, m *client.Message) []byte {
	b = append(b, m.Payload...)
	return append(b, '\n')
}

// appendText appends the payload on one line; what is not printable is written as Go would.
func appendText(b []byte, m *client.Message) []byte {
	for rest := m.Payload; len(rest) > 0; {
		if c := rest[0]; c >= ' ' && c < 0x7f || c == '\t' {
			b, rest = append(b, c), rest[1:]
			continue
		}
		r, n := utf8.DecodeRune(rest)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, rest[0])
		case unicode.IsPrint(r):
			b = append(b, rest[:n]...)
		default:
			q := strconv.QuoteRuneToASCII(r)
			b = append(b, q[1:len(q)-1]...)
		}
		rest = rest[n:]
	}
	return append(b, '\n')
}

// appendMessageJSON appends m as one object on a line.
func appendMessageJSON(b []byte, m *client.Message) []byte {
	b = appendJSON(append(b, `{"topic":`...), m.Topic)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(m.Partition), 10)
	b = strconv.AppendUint(append(b, `,"offset":`...), m.Offset, 10)
	if m.Key == nil {
		b = append(b, `,"key":null`...)
	} else {
		b = appendBytes(b, "key", m.Key)
	}
	b = append(b, `,"properties":{`...)
	for i, p := range m.Properties {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendJSON(append(appendJSON(b, p.Name), ':'), p.Value)
	}
	b = appendBytes(append(b, '}'), "payload", m.Payload)
	b = m.PublishTime.UTC().AppendFormat(append(b, `,"publish_time":"`...), render.TimeLayout)
	b = m.AppendTime.UTC().AppendFormat(append(b, `","append_time":"`...), render.TimeLayout)
	b = strconv.AppendInt(append(b, `","deliveries":`...), int64(m.Deliveries), 10)
	return append(b, "}\n"...)
}

// appendBytes appends a field: as text when it is UTF-8, else in base64 under name_base64.
func appendBytes(b []byte, name string, value []byte) []byte {
	b = append(append(b, `,"`...), name...)
	if utf8.Valid(value) {
		return appendJSON(append(b, `":`...), value)
	}
	b = base64.StdEncoding.AppendEncode(append(b, `_base64":"`...), value)
	return append(b, '"')
}

// appendJSON appends s as a JSON string; bytes that are no UTF-8 become U+FFFD.
func appendJSON[S string | []byte](b []byte, s S) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	clean := 0 // s[clean:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(string(s[i:min(len(s), i+utf8.UTFMax)]))
			if r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
			b = append(append(b, s[clean:i]...), "\ufffd"...)
			i += n
			clean = i
			continue
		}
		b = append(b, s[clean:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\r':
			b = append(b, '\\', 'r')
		case '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		clean = i
	}
	return append(append(b, s[clean:]...), '"')
}
