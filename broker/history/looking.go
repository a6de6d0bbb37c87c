package history

import (
	"context"
	"sync"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// lookEvery is how often all that is served is looked at, though nothing was
// decided about it: what waits for a time, or what a look has missed.
const lookEvery = time.Second

// looking is what the goroutine that looks what is to be brought goes by. Nothing
// of it need be right: each look at everything makes it anew.
type looking struct {
	h       *History
	workers sync.WaitGroup
	waiting [lists][]*Partition // that something was due of
}

// The lists of what waits, by what goes first.
const (
	toTell   = iota // a producer waits for what is in doubt
	toReturn        // something ORPHANED may be had back, or the doubt about something ended
	toHurry         // history is to be copied without delay
	toCopy
	lists
)

// bring looks at what decisions were made about, and every second at everything.
// It returns when ctx ends and its workers have.
func (h *History) bring(ctx context.Context) {
	l := looking{h: h}
	defer l.workers.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var looked *state.View
	for {
		changed := h.cfg.Meta.Changed()
		view := h.cfg.Meta.View()
		l.look(ctx, view, looked)
		looked = view
		select {
		case <-changed:
		case <-h.wake:
		case <-tick.C:
			looked = nil
			if err := h.archive.sweep(h.cfg.Now()); err != nil {
				h.cfg.Log.Error("archived logs not closed", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// look tells subscriptions what became of offsets since a view that was looked
// at, and starts what is due.
func (l *looking) look(ctx context.Context, view, looked *state.View) {
	changed, known := view.Since(looked)
	if known {
		for m := range changed {
			if p := l.h.cfg.Served(idOf(m)); p != nil {
				l.consider(view, p)
			}
		}
		for _, p := range l.h.ended() {
			l.consider(view, p)
		}
	} else {
		l.waiting = [lists][]*Partition{}
		_ = l.h.ended()
		for _, p := range l.h.cfg.Serving() {
			l.consider(view, p)
		}
	}
	for list := range l.waiting {
		l.begin(ctx, view, list)
	}
}

// consider lists a partition of which something is due.
func (l *looking) consider(view *state.View, p *Partition) {
	if list, do := l.h.due(view, p); do != nil {
		l.waiting[list] = append(l.waiting[list], p)
	}
}

// begin starts what waits in a list, as far as there are slots. What is due by
// now may be something else, or nothing.
func (l *looking) begin(ctx context.Context, view *state.View, list int) {
	slots := l.h.copies
	if list <= toReturn {
		slots = l.h.returns
	}
	for len(l.waiting[list]) > 0 && len(slots) < cap(slots) {
		p := l.waiting[list][0]
		l.waiting[list] = l.waiting[list][1:]
		now, do := l.h.due(view, p)
		switch {
		case do == nil:
		case now == list:
			l.h.start(ctx, p, slots, &l.workers, do)
		default:
			l.waiting[now] = append(l.waiting[now], p)
		}
	}
}

// due says what is to be brought of a partition now, nil for nothing, and in which list it waits.
func (h *History) due(view *state.View, p *Partition) (list int, do func(context.Context) error) {
	m := view.Partition(p.id.Topic, p.id.Partition)
	if m == nil || m.Epoch != p.epoch {
		return 0, nil
	}
	p.notice(m)
	now := h.cfg.Now()
	if p.since.IsZero() {
		p.since = now
		p.urgent.Store(handedOver(view, m, h.cfg.Self().Store))
	}
	if m.State != state.Open || m.Owner != h.cfg.Self() {
		return 0, nil
	}
	awaited, failed := p.urgency()
	doubt, by := h.doubted(view, p, m)
	settle := func(ctx context.Context) error { return h.settleDoubt(ctx, p, doubt, by) }
	if doubt != nil && !failed { // else what can be done goes first
		if awaited {
			return toTell, settle
		}
		return toReturn, settle
	}
	if rg, store := h.returned(view, m); rg != nil {
		return toReturn, func(ctx context.Context) error { return h.takeBack(ctx, p, rg, store) }
	}
	if h.copyDue(view, p, m, now) {
		if list = toCopy; p.urgent.Load() || h.leaving(view, m) {
			list = toHurry
		}
		return list, func(ctx context.Context) error { return h.copyHistory(ctx, p) }
	}
	if doubt != nil {
		return toReturn, settle
	}
	if h.cfg.Cold != nil && len(strikes(m, h.cfg.Self().Store)) > 0 {
		return toCopy, func(ctx context.Context) error { return h.strike(ctx, p) }
	}
	return 0, nil
}

// start runs do beside unless something else is under way for the partition.
// There is a slot: only the caller takes one.
func (h *History) start(ctx context.Context, p *Partition, slots chan struct{}, workers *sync.WaitGroup, do func(context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[p.id] || h.cfg.Now().Before(h.retry[p.id]) {
		return
	}
	slots <- struct{}{}
	h.busy[p.id] = true
	workers.Go(func() { // returns when do has; bring waits
		err := do(ctx)
		<-slots
		h.mu.Lock()
		delete(h.busy, p.id)
		delete(h.retry, p.id)
		if err != nil {
			h.retry[p.id] = h.cfg.Now().Add(copyRetry)
		} else {
			h.over = append(h.over, p)
		}
		h.mu.Unlock()
		if err != nil && ctx.Err() == nil && !p.served.Over() {
			h.cfg.Log.Warn("history not brought here, trying again", "partition", p.name(), "err", err)
		}
		notify(h.wake)
	})
}

// lookAt has a partition looked at though nothing was decided about it.
func (h *History) lookAt(p *Partition) {
	h.mu.Lock()
	h.over = append(h.over, p)
	h.mu.Unlock()
	notify(h.wake)
}

// ended returns what something was brought of since the last call: there may be more.
func (h *History) ended() []*Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	over := h.over
	h.over = nil
	return over
}
