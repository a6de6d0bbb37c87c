package export

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/storage/cold/plan"
)

// Exporter brings what its sources hold into the cold tier. Safe for concurrent use.
type Exporter struct {
	cfg  Config
	m    *metrics
	cuts atomic.Uint64 // number of the last cut
	wake chan struct{} // there may be something to do; holds one

	mu       sync.Mutex // guards what follows
	parts    map[ID]*part
	changed  []*part            // their facts are to be read again
	behind   map[*part]struct{} // the catalog does not have all of theirs
	running  map[*attempt]struct{}
	kept     map[*attempt]struct{} // failed, to be gone on with
	sweepAt  time.Time
	paused   bool
	pressed  bool
	stopped  bool
	leaving  chan struct{} // closed when nothing is left; nil: nobody waits for that
	retrying int           // of those that run, how many failed before
}

// part is a partition. Guarded by the exporter's lock.
type part struct {
	id      ID
	source  Source
	facts   Facts
	changed bool // it is in the list of those
	removed bool
	leaving bool // the broker stops
	waiters map[*waiter]struct{}
	attempt *attempt // under way, or kept; nil: none
	trouble trouble  // of attempts
	blind   trouble  // of looking at the source
}

// trouble is how things went wrong since they last went well.
type trouble struct {
	times int
	first time.Time
	last  time.Time
	err   error
}

func (t *trouble) add(now time.Time, err error) {
	if t.times == 0 {
		t.first = now
	}
	t.times++
	t.last, t.err = now, err
}

// why is what keeps a partition from being exported, nil when nothing does. The exporter's lock is held.
func (p *part) why() error {
	if p.blind.err != nil {
		return p.blind.err
	}
	return p.trouble.err
}

// waiter is somebody who waits for the catalog to reach an offset.
type waiter struct {
	to   uint64
	done chan error // gets one value
}

// Open makes an exporter; [Exporter.Run] does the work.
func Open(cfg Config) (*Exporter, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Exporter{
		cfg: cfg, wake: make(chan struct{}, 1), parts: make(map[ID]*part), behind: make(map[*part]struct{}),
		running: make(map[*attempt]struct{}), kept: make(map[*attempt]struct{}),
	}
	if e.m, err = newMetrics(cfg.Metrics, e); err != nil {
		return nil, fmt.Errorf("register metrics of the exporter: %w", err)
	}
	return e, nil
}

// Add begins to export a partition. One that is there already gets the new source.
func (e *Exporter) Add(s Source) {
	id := s.ID()
	e.mu.Lock()
	old := e.parts[id]
	p := &part{id: id, source: s}
	e.parts[id] = p
	e.mark(p)
	if old != nil {
		p.waiters, old.waiters = old.waiters, nil
		e.drop(old)
	}
	e.mu.Unlock()
	e.poke()
}

// Remove ends the export of a partition: no commit of it begins any more, and who
// waits for it gets ErrRemoved. What is under way may still be read from its source.
func (e *Exporter) Remove(id ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if p := e.parts[id]; p != nil {
		delete(e.parts, id)
		p.answer(ErrRemoved)
		e.drop(p)
	}
}

// drop lets go of a partition that is not in the map any more. e.mu is held.
func (e *Exporter) drop(p *part) {
	p.removed = true
	delete(e.behind, p)
	if a := p.attempt; a != nil && a.unwanted() {
		a.cancel()
		delete(e.kept, a)
	}
}

// answer ends all waiting for a partition.
func (p *part) answer(err error) {
	for w := range p.waiters {
		w.done <- err
	}
	p.waiters = nil
}

// Changed says that a source has something new to tell. It costs next to nothing.
func (e *Exporter) Changed(id ID) {
	e.mu.Lock()
	p := e.parts[id]
	news := p != nil && e.mark(p)
	e.mu.Unlock()
	if news {
		e.poke()
	}
}

// mark has the facts of a partition read again, and reports whether that is news. e.mu is held.
func (e *Exporter) mark(p *part) bool {
	if p.changed {
		return false
	}
	p.changed = true
	e.changed = append(e.changed, p)
	return true
}

// Urgent exports a partition before all others, for it moves away or the broker
// stops (R16), and returns nil once the catalog has reached offset to. Its error
// tells, beside that of the context, what is in the way.
func (e *Exporter) Urgent(ctx context.Context, id ID, to uint64) error {
	w := &waiter{to: to, done: make(chan error, 1)}
	e.mu.Lock()
	p := e.parts[id]
	switch {
	case e.stopped:
		e.mu.Unlock()
		return ErrStopped
	case p == nil:
		e.mu.Unlock()
		return ErrRemoved
	}
	if p.waiters == nil {
		p.waiters = make(map[*waiter]struct{})
	}
	p.waiters[w] = struct{}{}
	e.mark(p)
	e.mu.Unlock()
	e.poke()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	err := ctx.Err()
	if p := e.parts[id]; p != nil {
		delete(p.waiters, w)
		if why := p.why(); why != nil {
			err = fmt.Errorf("%w; %w", err, why)
		}
	}
	return fmt.Errorf("wait for the cold tier to reach offset %d: %w", to, err)
}

// Pause holds back what nobody waits for: moves, drains and level object go on.
func (e *Exporter) Pause() { e.change(func() { e.paused = true }) }

// Resume ends a pause.
func (e *Exporter) Resume() { e.change(func() { e.paused = false }) }

// Pressed says that the disk is nearly full, or no longer: everything is exported
// at once, what frees most first.
func (e *Exporter) Pressed(nearlyFull bool) { e.change(func() { e.pressed = nearlyFull }) }

func (e *Exporter) change(do func()) {
	e.mu.Lock()
	do()
	e.mu.Unlock()
	e.poke()
}

// poke has the loop look again.
func (e *Exporter) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// The loop rests for ten times as long as a turn took, so that it never takes more than a tenth of a processor.
const (
	shortRest = 2 * time.Millisecond
	longRest  = 50 * time.Millisecond
)

// Run exports until ctx ends, and returns nil once nothing runs any more. What
// was under way then is as unknown as after a kill.
func (e *Exporter) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	rest, timer := time.NewTimer(0), time.NewTimer(0)
	defer rest.Stop()
	defer timer.Stop()
	for ctx.Err() == nil {
		began := time.Now()
		wake := e.turn(ctx, &jobs)
		rest.Reset(min(max(10*time.Since(began), shortRest), longRest))
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		timer.Reset(max(0, wake.Sub(e.cfg.Now())))
		select {
		case <-e.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	cancel()
	jobs.Wait()
	e.mu.Lock()
	e.stopped = true
	for _, p := range e.parts {
		p.answer(ErrStopped)
	}
	clear(e.kept)
	if e.leaving != nil {
		close(e.leaving)
		e.leaving = nil
	}
	e.mu.Unlock()
	e.m.all.Unregister(e.cfg.Metrics)
	return nil
}

// turn looks at what has changed and begins what is due. It returns when to look again.
func (e *Exporter) turn(ctx context.Context, jobs *sync.WaitGroup) (wake time.Time) {
	e.look()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left()
	now := e.cfg.Now()
	wake = e.sweepAt
	if again := e.retry(ctx, jobs, now); !again.IsZero() && again.Before(wake) {
		wake = again
	}
	cutting := e.cutting(now)
	if !cutting.IsZero() && cutting.Before(wake) {
		wake = cutting
	}
	state := plan.State{
		Now: now, Slots: e.cfg.Slots, Free: e.cfg.Slots - len(e.running),
		Cutting: !cutting.IsZero(), Pressed: e.pressed, Paused: e.paused,
	}
	var list []plan.Partition
	for p := range e.behind {
		list = append(list, p.plan())
	}
	planned, again := e.cfg.Plan.Next(state, list)
	for _, job := range planned {
		e.start(ctx, jobs, e.attempt(job))
	}
	if !again.IsZero() && again.Before(wake) {
		wake = again
	}
	return wake
}

// look reads the facts of the sources that changed, and now and then of all.
func (e *Exporter) look() {
	e.mu.Lock()
	now := e.cfg.Now()
	all := !now.Before(e.sweepAt)
	if all {
		e.sweepAt = now.Add(e.cfg.Sweep)
	}
	if all {
		for _, p := range e.parts {
			e.mark(p)
		}
	}
	list := e.changed
	e.changed = nil
	for _, p := range list {
		p.changed = false // what changes from here on is read once more
	}
	e.mu.Unlock()
	for _, p := range list {
		facts, err := p.source.Facts()
		e.mu.Lock()
		e.learn(p, facts, err)
		e.mu.Unlock()
	}
}

// learn takes what a source says. e.mu is held.
func (e *Exporter) learn(p *part, facts Facts, err error) {
	if err != nil {
		facts = Facts{} // nothing can be cut of it
		p.blind.add(e.cfg.Now(), fmt.Errorf("look at the log: %w", err))
	} else {
		p.blind = trouble{}
	}
	p.facts = facts
	if p.removed || facts.End <= facts.Next {
		delete(e.behind, p)
		if p.attempt == nil && err == nil {
			p.trouble = trouble{}
		}
	} else {
		e.behind[p] = struct{}{}
	}
	for w := range p.waiters {
		if err == nil && facts.Next >= w.to {
			w.done <- nil
			delete(p.waiters, w)
		}
	}
}

// plan is the partition as package plan sees it. e.mu is held.
func (p *part) plan() plan.Partition {
	f := &p.facts
	return plan.Partition{
		ID: p.id, Next: f.Next, End: f.End, Bytes: f.Bytes, Oldest: f.Oldest, Sealed: f.Sealed, SealedBytes: f.SealedBytes,
		Object: f.Object, Leaving: p.awaited(), Busy: p.attempt != nil,
		Failures: p.trouble.times, Failed: p.trouble.last,
	}
}

// patience is how long a cut holds up the next one, of other partitions: one that
// hangs must not keep everybody's acknowledgements.
const patience = time.Second

// cutting is until when a cut that is under way holds up the next one, the zero time when none does. e.mu is held.
func (e *Exporter) cutting(now time.Time) (until time.Time) {
	for a := range e.running {
		if end := a.began.Add(patience); a.reason == plan.Acks && now.Before(end) && end.After(until) {
			until = end
		}
	}
	return until
}
