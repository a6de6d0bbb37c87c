package main

import (
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress is a bar on standard error when that is a terminal, and nothing anywhere else. A nil one does nothing.
type progress struct{ bar *progressbar.ProgressBar }

// newProgress begins a bar up to total, in bytes or things; total -1 is unknown and shows a spinner.
func (a *app) newProgress(total int64, what string, bytes bool) *progress {
	if !onTerminal(a.err) {
		return nil
	}
	options := []progressbar.Option{
		progressbar.OptionSetWriter(a.err),
		progressbar.OptionSetDescription(what),
		progressbar.OptionThrottle(100 * time.Millisecond),
		progressbar.OptionClearOnFinish(),
		progressbar.OptionShowIts(),
		progressbar.OptionShowCount(),
	}
	if bytes {
		options = append(options, progressbar.OptionShowBytes(true))
	}
	return &progress{progressbar.NewOptions64(total, options...)}
}

// set moves the bar. What the terminal answers is nobody's concern.
func (p *progress) set(n int64) {
	if p != nil {
		_ = p.bar.Set64(n)
	}
}

// done takes the bar away.
func (p *progress) done() {
	if p != nil {
		_ = p.bar.Finish()
		_ = p.bar.Clear()
	}
}

// busy shows that a single long call runs, until the function it returns is called.
func (a *app) busy(what string) (stop func()) {
	p := a.newProgress(-1, what, false)
	if p == nil {
		return func() {}
	}
	n := int64(0)
	return every(200*time.Millisecond, func() { n++; p.set(n) }, p.done)
}

// watch shows how far a counter is, until the function it returns is called.
func (a *app) watch(n *atomic.Int64, total int64, what string) (stop func()) {
	if total <= 0 {
		total = -1
	}
	bar := a.newProgress(total, what, false)
	if bar == nil {
		return func() {}
	}
	return every(200*time.Millisecond, func() { bar.set(n.Load()) }, bar.done)
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
