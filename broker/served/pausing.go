package served

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

const (
	// pauseWait is how long what a producer sends may wait for the outcome of a move.
	pauseWait = time.Second
	// pausePoll is how often a log is tried that is paused though nothing pauses it any more.
	pausePoll = 2 * time.Millisecond
	// settledWait is how long consumers wait for word of the last cursors of the owner before.
	settledWait = 500 * time.Millisecond
)

// passing is what a partition knows of the moves that bring it here and take it away.
type passing struct {
	cursorEpoch atomic.Uint64 // under which cursors are committed: the next owner's after a hand-over
	settling    *settling     // consumers wait for it; nil: for nothing
	pausing     pausing       // guarded by the partition's mu
}

// pausing is what a partition's producers wait for while it moves.
type pausing struct {
	over chan struct{} // closed when they may try again; nil while nothing pauses
}

// Pause makes producers wait.
func (p *Partition) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pausing.over == nil {
		p.pausing.over = make(chan struct{})
	}
}

// Resume lets producers go on here.
func (p *Partition) Resume() error {
	var err error
	if p.Log != nil {
		err = p.Log.Resume()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pausing.end()
	return err
}

// end lets those who wait try again. The caller holds the partition's mu.
func (w *pausing) end() {
	if w.over != nil {
		close(w.over)
		w.over = nil
	}
}

// awaitMove waits for the outcome of a move, until done is closed or the timer ends. Its
// error says why it is no use to try again. A partition that is served no more
// has a log that stays paused until it is closed.
func (p *Partition) awaitMove(done <-chan struct{}, timeout *time.Timer) error {
	p.mu.Lock()
	over, why := p.pausing.over, p.over
	p.mu.Unlock()
	if why != nil {
		return why
	}
	var again <-chan time.Time
	if over == nil { // it ended since the log refused
		again = time.After(pausePoll)
	}
	select {
	case <-over:
		return nil
	case <-again:
		return nil
	case <-timeout.C:
	case <-done:
	}
	return p.movingError()
}

// movingError refuses what met a move that takes long. Nothing is stored.
func (p *Partition) movingError() *protocol.Error {
	return protocol.Errorf(protocol.CodeMoving, "%s is moving to another broker", p.Name())
}

// AfterMove does what a pause has refused, again after its end; it waits for that
// a moment, or until done is closed.
func (p *Partition) AfterMove(done <-chan struct{}, do func() error) error {
	timeout := time.NewTimer(pauseWait)
	defer timeout.Stop()
	for {
		err := do()
		if !errors.Is(err, storage.ErrPaused) {
			return err
		}
		if err := p.awaitMove(done, timeout); err != nil {
			return err
		}
	}
}

// HandOver has cursors committed under the epoch of the next owner.
func (p *Partition) HandOver(epoch uint64) { p.cursorEpoch.Store(epoch) }

// Settle lets subscriptions begin that wait for the owner before.
func (p *Partition) Settle() {
	if p.settling != nil {
		p.settling.end()
	}
}

// CursorEpoch is the epoch under which cursors are committed: the next owner's
// after a hand-over.
func (p *Partition) CursorEpoch() uint64 { return p.cursorEpoch.Load() }

// HandsOver says whether cursors that were refused under an epoch may still be
// committed under the next.
func (p *Partition) HandsOver(epoch uint64) bool {
	return p.cursorEpoch.Load() != epoch || p.h.cfg.Moves.Moving(p.Key)
}

// SendAway tells producers, those that wait too, that they are served elsewhere,
// and stops deliveries and acknowledgements here, without telling consumers yet.
func (p *Partition) SendAway(why *protocol.Error) {
	p.mu.Lock()
	if p.over == nil {
		p.over = why
	}
	p.pausing.end()
	subs := make([]*delivery.Subscription, 0, len(p.subs))
	for _, s := range p.subs {
		subs = append(subs, s)
	}
	p.mu.Unlock()
	for _, s := range subs {
		s.End(why)
	}
}

// Unsettled says whether a cursor has changes that are not committed.
func (p *Partition) Unsettled() bool {
	for _, s := range p.Subscriptions() {
		if s.Unsettled() {
			return true
		}
	}
	return false
}

// settling keeps consumers waiting until the owner before has committed what
// they acknowledged there.
type settling struct {
	done  chan struct{}
	once  sync.Once
	timer *time.Timer
}

func newSettling() *settling {
	s := &settling{done: make(chan struct{})}
	s.timer = time.AfterFunc(settledWait, s.end)
	return s
}

func (s *settling) end() {
	s.once.Do(func() { close(s.done) })
}

// Settled waits until subscriptions may begin here.
func (p *Partition) Settled(ctx context.Context) error {
	if p.settling == nil {
		return nil
	}
	select {
	case <-p.settling.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Over reports whether the partition is served no more.
func (p *Partition) Over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.over != nil
}

// Hold shuts the door of a partition for a moment, unless it is about to move:
// two that open the door again would let in what the other has counted out.
func (p *Partition) Hold() (release func(), err error) {
	free, claimed := p.h.cfg.Moves.Claim(p.Key)
	if !claimed {
		return nil, p.movingError()
	}
	p.Pause()
	_, err = p.Log.Pause()
	release = func() {
		if err := p.Resume(); err != nil && !p.Over() {
			p.h.cfg.Log.Error("partition does not go on", "partition", p.Name(), "err", err)
		}
		free()
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("pause %s: %w", p.Name(), err)
	}
	return release, nil
}

// Turned tells the partition's subscriptions what became of ORPHANED offsets.
func (p *Partition) Turned(o *history.Outcome) {
	for _, s := range p.Subscriptions() {
		s.Turned(o)
	}
}
