package export

import (
	"context"
	"fmt"
)

// Leave exports all that the sources hold, whatever its age and before what nobody waits for, because the broker stops.
// It returns nil once the catalogs have all of it; what is appended meanwhile is waited for too. Its error tells, beside
// that of the context, what is in the way. One at a time.
func (e *Exporter) Leave(ctx context.Context) error {
	over := make(chan struct{})
	e.mu.Lock()
	if e.stopped {
		e.mu.Unlock()
		return ErrStopped
	}
	e.leaving = over
	for _, p := range e.parts {
		p.leaving = true
		e.mark(p)
	}
	e.mu.Unlock()
	e.poke()
	select {
	case <-over:
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaving = nil
	err := ctx.Err()
	for _, p := range e.parts {
		p.leaving = false
		if why := p.why(); err != nil && why != nil {
			return fmt.Errorf("export all there is: %w; %w", err, why)
		}
	}
	switch {
	case e.stopped:
		return ErrStopped
	case err != nil && len(e.behind)+len(e.changed) > 0:
		return fmt.Errorf("export all there is: %w", err)
	}
	return nil
}

// left ends Leave when nothing is left. e.mu is held.
func (e *Exporter) left() {
	if e.leaving == nil || len(e.behind) > 0 || len(e.changed) > 0 {
		return
	}
	for _, p := range e.parts {
		if p.blind.err != nil {
			return // nobody knows what it holds
		}
	}
	close(e.leaving)
	e.leaving = nil
}

// awaited says that somebody waits for all that the partition holds now. The exporter's lock is held.
func (p *part) awaited() bool { return p.leaving || len(p.waiters) > 0 }
