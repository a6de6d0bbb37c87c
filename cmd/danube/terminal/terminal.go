// Package terminal shows a person at a terminal how far something is: bars and spinners. Where there is no terminal it
// shows nothing.
package terminal

import (
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Is reports whether w is a terminal.
func Is(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Bar is a bar on a terminal. A nil one does nothing.
type Bar struct{ bar *progressbar.ProgressBar }

// NewBar begins a bar up to total, in bytes or things; total -1 is unknown and shows a spinner. It is nil where w is no
// terminal.
func NewBar(w io.Writer, total int64, what string, bytes bool) *Bar {
	if !Is(w) {
		return nil
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionShowIts(),
		progressbar.OptionShowCount(),
	}
	if bytes {
		options = append(options, progressbar.OptionShowBytes(true))
	}
	return &Bar{progressbar.NewOptions64(total, options...)}
}

// Set moves the bar. What the terminal answers is nobody's concern.
func (p *Bar) Set(n int64) {
	if p != nil {
		_ = p.bar.Set64(n)
	}
}

// Done takes the bar away.
func (p *Bar) Done() {
	if p != nil {
		_ = p.bar.Finish()
		_ = p.bar.Clear()
	}
}

// Busy shows that a single long call runs, until the function it returns is called.
func Busy(w io.Writer, what string) (stop func()) {
	p := NewBar(w, -1, what, false)
	if p == nil {
		return func() {}
	}
	n := int64(0)
	return every(200*time.Millisecond, func() { n++; p.Set(n) }, p.Done)
}

// Watch shows how far a counter is, until the function it returns is called.
func Watch(w io.Writer, n *atomic.Int64, total int64, what string) (stop func()) {
	if total <= 0 {
		total = -1
	}
	bar := NewBar(w, total, what, false)
	if bar == nil {
		return func() {}
	}
	return every(200*time.Millisecond, func() { bar.Set(n.Load()) }, bar.Done)
}

// every calls do again and again until the function it returns is called, and then last.
func every(d time.Duration, do, last func()) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	// Returns when stop is called.
	go func() {
		defer close(gone)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		last()
	}
}
