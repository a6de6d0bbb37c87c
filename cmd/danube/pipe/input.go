package pipe

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/danubemq/danube/cmd/danube/terminal"
	"github.com/danubemq/danube/protocol/batch"
)

// Input yields the messages to send.
type Input struct {
	// next returns the next payload, which the call after overwrites, and its number from 1.
	// io.EOF ends it; a *tooLongError concerns one message only.
	next func() ([]byte, uint64, error)
	file *os.File      // to be closed; nil: nothing is
	bar  *terminal.Bar // nil: none
	read func() int64  // how far the bar is
}

// MessageLimit is the longest line that is read, in bytes: no broker takes more unless it is told to.
func MessageLimit() int { return batch.Limits{}.WithDefaults().Message }

// Close gives back what the input holds open.
func (in *Input) Close() {
	if in.file != nil {
		_ = in.file.Close() // it was only read
	}
}

// Texts yields each of some texts.
func Texts(texts []string) *Input {
	n := uint64(0)
	return &Input{next: func() ([]byte, uint64, error) {
		if n == uint64(len(texts)) {
			return nil, 0, io.EOF
		}
		n++
		return []byte(texts[n-1]), n, nil
	}}
}

// Lines yields each line of r.
func Lines(r io.Reader) *Input { return lineInput(newLineReader(r, MessageLimit())) }

func lineInput(lines *lineReader) *Input {
	return &Input{next: func() ([]byte, uint64, error) { b, err := lines.next(); return b, lines.line, err }}
}

// File yields each line of the file name, and shows on a terminal how far it is.
func File(name string, progress io.Writer) (*Input, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	counted := &countingReader{r: file}
	in := Lines(counted)
	in.file = file
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		in.bar, in.read = terminal.NewBar(progress, info.Size(), "produce", true), func() int64 { return counted.n }
	}
	return in, nil
}

// Repeat yields one payload count times, and shows on a terminal how far it is.
func Repeat(payload []byte, count int64, progress io.Writer) *Input {
	n := int64(0)
	return &Input{
		bar:  terminal.NewBar(progress, count, "produce", false),
		read: func() int64 { return n },
		next: func() ([]byte, uint64, error) {
			if n == count {
				return nil, 0, io.EOF
			}
			n++
			return payload, uint64(n), nil
		},
	}
}

// Generate makes a payload of size printable characters that do not compress to nothing.
func Generate(size int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	b := make([]byte, size)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return b
}

// countingReader counts what was read.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// pacer lets through so many a second, counted from its first call.
type pacer struct {
	every time.Duration // 0: no pause
	begun time.Time
	n     int64
}

func newPacer(rate int) *pacer {
	if rate <= 0 {
		return &pacer{}
	}
	return &pacer{every: time.Second / time.Duration(rate)}
}

// wait returns when the next one is due, or with ctx's cause.
func (p *pacer) wait(ctx context.Context) error {
	if p.every == 0 {
		return nil
	}
	now := time.Now()
	if p.n == 0 {
		p.begun = now
	}
	due := p.begun.Add(time.Duration(p.n) * p.every)
	p.n++
	if !due.After(now) {
		return nil
	}
	timer := time.NewTimer(due.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
