package history

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// An owner that was handed no table knows of producers what its own disk tells.
// What other stores hold is in doubt: what is sent again of it would be stored
// again (R17). So the owner asks a store that has it, learns the answer, and then
// says in the metadata what was stored again meanwhile, which ends the doubt.
// Producers wait for the answer a moment; if nobody can give one they go on, and
// what they send again is found later.

// doubtWait is how long a producer waits for what other brokers know of it.
const doubtWait = time.Second

// doubts are what a partition knows of its ranges that are in doubt.
type doubts struct {
	learned map[uint64]bool   // by their start: what is sent again of it is known here
	settled map[uint64]uint64 // those that were told of, and how much may still come back behind
	awaited bool              // a producer waits
	waived  bool              // none waits any more in this epoch
	failed  bool              // somebody who was asked has not answered
	changed chan struct{}     // closed at the next change; nil while nobody waits
}

// change wakes those who wait. The caller holds the partition's mu.
func (d *doubts) change() {
	if d.changed != nil {
		close(d.changed)
		d.changed = nil
	}
}

// there reports whether a store can be asked for what it holds.
func there(s *state.Store) bool {
	return s != nil && s.Status != state.StoreLost && s.Status != state.StoreRemoved && !s.Clean
}

// teller returns who can say what a range of m holds: this store, the cold tier,
// which is nobody, or another store that is there.
func (h *History) teller(view *state.View, m *state.Partition, rg *state.Range) (by state.Owner, found bool) {
	if self := h.cfg.Self(); slices.Contains(rg.Stores, self.Store) {
		return self, true
	}
	if h.cfg.Cold != nil && m.Catalog.Covers(max(rg.Start, m.LogStart), rg.End) {
		return state.Owner{}, true
	}
	for _, id := range rg.Stores {
		if s := view.Store(id); there(s) {
			return state.Owner{Store: id, Incarnation: s.Incarnation}, true
		}
	}
	return state.Owner{}, false
}

// unseen is how many offsets from one on may still come back.
func unseen(m *state.Partition, from uint64) (n uint64) {
	for i := range m.Ranges {
		if r := &m.Ranges[i]; r.Status == state.RangeOrphaned && r.Start >= from {
			n += r.End - r.Start
		}
	}
	return n
}

// doubted finds a range in doubt of which somebody can tell, and who: what is
// ORPHANED is told of when it comes back.
func (h *History) doubted(view *state.View, p *Partition, m *state.Partition) (*state.Range, state.Owner) {
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if rg.Status != state.RangeSealed || rg.Doubt == 0 || p.isSettled(rg.Start, unseen(m, rg.Doubt)) {
			continue
		}
		if by, found := h.teller(view, m, rg); found {
			return rg, by
		}
	}
	return nil, state.Owner{}
}

// AwaitProducers waits until it is known here what producers have stored in
// ranges that are in doubt, but no longer than a moment, or until done is closed.
// Who opens a session after that may store again what nobody could tell of.
func (p *Partition) AwaitProducers(done <-chan struct{}) {
	timeout := time.NewTimer(doubtWait)
	defer timeout.Stop()
	for {
		decided := p.h.cfg.Meta.Changed()
		told := p.toBeTold(p.h.cfg.Meta.View())
		if told == nil {
			return
		}
		select {
		case <-told:
		case <-decided:
		case <-timeout.C:
			p.waive(false)
			return
		case <-done:
			return
		}
	}
}

// toBeTold returns what is closed when more is known of what somebody can tell
// and this partition does not know; nil if there is nothing to wait for.
func (p *Partition) toBeTold(view *state.View) <-chan struct{} {
	m := view.Partition(p.id.Topic, p.id.Partition)
	if m == nil || m.Epoch != p.epoch || p.served.Over() {
		return nil
	}
	var open []uint64
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if rg.Status != state.RangeSealed || rg.Doubt == 0 {
			continue
		}
		// What lies here was known when the log was opened, or was asked for in vain before it was copied.
		if by, found := p.h.teller(view, m, rg); found && by.Store != p.h.cfg.Self().Store {
			open = append(open, rg.Start)
		}
	}
	told, first := p.await(open)
	if first {
		p.h.lookAt(p)
	}
	return told
}

// await returns what is closed when more is known, nil if those of the ranges that
// begin at starts are known or nobody waits any more. first: nobody has waited before.
func (p *Partition) await(starts []uint64) (told <-chan struct{}, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &p.doubts
	if d.waived || !slices.ContainsFunc(starts, func(start uint64) bool { return !d.learned[start] }) {
		return nil, false
	}
	if d.changed == nil {
		d.changed = make(chan struct{})
	}
	first, d.awaited = !d.awaited, true
	return d.changed, first
}

// waive has no producer wait any more in this epoch; failed: who was asked has not answered.
func (p *Partition) waive(failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubts.waived = true
	p.doubts.failed = p.doubts.failed || failed
	p.doubts.change()
}

// urgency says whether a producer waits for what is in doubt, and whether asking has failed before.
func (p *Partition) urgency() (awaited, failed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doubts.awaited && !p.doubts.waived, p.doubts.failed
}

// learned notes that what is sent again of a range is known here.
func (p *Partition) learned(start uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubts.learned == nil {
		p.doubts.learned = map[uint64]bool{}
	}
	p.doubts.learned[start] = true
	p.doubts.change()
}

// isSettled reports whether a range was told of, when as much could come back behind its doubt.
func (p *Partition) isSettled(start, left uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	then, settled := p.doubts.settled[start]
	return settled && then == left
}

// settled notes that a range was told of, and how much may come back behind its doubt.
func (p *Partition) settled(start, left uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.doubts.settled == nil {
		p.doubts.settled = map[uint64]uint64{}
	}
	p.doubts.settled[start] = left
}

// settleDoubt asks a store what a range holds, learns it, and says what was stored
// again since. The range can be read all the time, so that what it holds counts as
// stored as soon as it is known: nothing of it is stored again after that, and what
// was is looked for with the door open. Cut short at any step it is done again.
func (h *History) settleDoubt(ctx context.Context, p *Partition, rg *state.Range, by state.Owner) error {
	m := h.cfg.Meta.View().Partition(p.id.Topic, p.id.Partition)
	if m == nil || m.Epoch != p.epoch {
		return nil
	}
	left := unseen(m, rg.Doubt)
	t := tail{ans: &reportAnswer{End: rg.End, Proven: true}, parts: []span{{rg.Start, rg.End}}, from: by, at: by.Store}
	if err := h.learn(ctx, p, rg, &t); err != nil {
		p.waive(true)
		return err
	}
	p.learned(rg.Start)
	h.cfg.At("doubt.learned")
	again := &repeats{sent: t.sent}
	if len(t.sent) > 0 {
		if _, err := h.scan(ctx, p, rg.Doubt, again); err != nil {
			return err
		}
	}
	h.cfg.At("doubt.scanned")
	c := &state.RestoreRange{From: rg.Start, End: rg.End, To: rg.End, Superseded: again.offsets()}
	if !by.IsZero() {
		c.Stores = []state.StoreID{by.Store}
	}
	if err := h.restore(ctx, p, c); err != nil {
		return err
	}
	p.settled(rg.Start, left)
	if n := count(again.offsets()); n > 0 {
		h.cfg.Log.Info("messages were stored again that lie elsewhere", "partition", p.name(), "from", rg.Start, "to", rg.End,
			"at", h.tellerName(by), "sent_again", n)
	}
	return nil
}

// tellerName is what a person calls who told.
func (h *History) tellerName(by state.Owner) string {
	if by.IsZero() {
		return "the cold tier"
	}
	return "broker " + h.cfg.Peers.Name(by.Store)
}

// learn takes over who has stored what in a range that can be read.
func (h *History) learn(ctx context.Context, p *Partition, rg *state.Range, t *tail) error {
	h.cfg.At("doubt.ask")
	switch {
	case t.from.IsZero():
		var err error
		if t.ans.Sessions, err = h.cfg.Cold.Producers(ctx, p.id, rg.End); err != nil {
			return err
		}
	case t.from.Store != h.cfg.Self().Store:
		ans, err := h.report(ctx, p, rg.Start, rg, t.from)
		if err != nil {
			return err
		}
		t.ans.Sessions = ans.Sessions
	}
	if err := h.index(ctx, p, rg, t); err != nil {
		return err
	}
	if len(t.sent) == 0 {
		return nil
	}
	if err := h.stage(p, rg, *t); err != nil {
		return err
	}
	h.cfg.At("doubt.staged")
	release, err := p.served.Hold()
	if err != nil {
		return err
	}
	defer release()
	if err := p.log.MergeSessions(t.ans.Sessions); err != nil {
		return fmt.Errorf("take over the producers of [%d, %d): %w", rg.Start, rg.End, err)
	}
	return nil
}

// index notes the batches of a range's parts and what their producers have stored
// by them: read where they lie here, else by the table that came from there.
func (h *History) index(ctx context.Context, p *Partition, rg *state.Range, t *tail) error {
	t.sent = sentIndex{}
	producers := storage.Sessions{}
	if t.from.Store != h.cfg.Self().Store {
		err := producers.Take(t.ans.Sessions, func(base uint64) bool {
			return slices.ContainsFunc(t.parts, func(w span) bool { return w.from <= base && base < w.to })
		})
		if err != nil {
			return fmt.Errorf("learn who stored what in [%d, %d): %w", rg.Start, rg.End, err)
		}
		t.sent.addTable(&producers)
	} else {
		for _, w := range t.parts {
			read := func() error { return readOwn(ctx, p.stream(w.from), w, t.sent, &producers) }
			if rg.Status == state.RangeOrphaned {
				sealed := read
				read = func() error { return h.whileSealed(p, w, rg.End, sealed) }
			}
			if err := read(); err != nil {
				return err
			}
		}
	}
	t.ans.Sessions = producers.Encode(rg.End)
	return nil
}
