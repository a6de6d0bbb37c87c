package keeper

import (
	"context"
	"sync"
	"time"
)

// pace bounds the bytes a second that are read and written, and is where a pause takes hold. It runs into debt: whoever
// comes next waits until that is paid.
type pace struct {
	clock Clock
	rate  int64

	mu     sync.Mutex
	free   time.Time     // when the debt is paid
	closed chan struct{} // closed while there is no pause
	paused bool
}

func newPace(c Clock, rate int64) *pace {
	p := &pace{clock: c, rate: rate, closed: make(chan struct{})}
	close(p.closed)
	return p
}

func (p *pace) pause(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && !p.paused:
		p.closed = make(chan struct{})
	case !on && p.paused:
		close(p.closed)
	}
	p.paused = on
}

// take waits until n bytes may be moved.
func (p *pace) take(ctx context.Context, n int64) error {
	p.mu.Lock()
	gate := p.closed
	p.mu.Unlock()
	select {
	case <-gate:
	case <-ctx.Done():
		return ctx.Err()
	}
	if p.rate < 0 {
		return ctx.Err()
	}
	p.mu.Lock()
	now := p.clock.Now()
	if p.free.Before(now) {
		p.free = now
	}
	due := p.free
	p.free = p.free.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))
	p.mu.Unlock()
	if d := due.Sub(now); d > 0 {
		return p.clock.Wait(ctx, d)
	}
	return ctx.Err()
}
