package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

const (
	copiesAtOnce  = 2
	returnsAtOnce = 4
	copyRate      = 64 << 20 // bytes a second, of all copies together
	copyCommit    = 64 << 20 // bytes after which a copy is made known
	copyEntries   = 256      // ranges after which it is
	copyRetry     = 5 * time.Second
)

// lacks reports whether a range of m is sealed and lies only in other stores, the
// cold tier not counted.
func lacks(m *state.Partition, r *state.Range, self state.StoreID) bool {
	return r.Status == state.RangeSealed && !slices.Contains(r.Stores, self) && !m.Catalog.Covers(max(r.Start, m.LogStart), r.End)
}

// copyDue reports whether history of a partition is to be copied here now.
func (h *History) copyDue(view *state.View, p *Partition, m *state.Partition, now time.Time) bool {
	self := h.cfg.Self().Store
	if !slices.ContainsFunc(m.Ranges, func(r state.Range) bool { return lacks(m, &r, self) }) {
		return false
	}
	if h.cfg.Cold != nil {
		return true // it is exported from here, and what lies behind it waits for that
	}
	return p.urgent.Load() || now.Sub(p.since) >= h.cfg.CopyDelay || h.leaving(view, m)
}

// handedOver reports whether the store that has the newest history goes on: it
// gave the partition away because somebody wished so, not because it stops.
func handedOver(view *state.View, m *state.Partition, self state.StoreID) bool {
	for _, rg := range slices.Backward(m.Ranges) {
		if lacks(m, &rg, self) {
			return slices.ContainsFunc(rg.Stores, func(id state.StoreID) bool {
				s := view.Store(id)
				return s != nil && !s.Clean && s.Status != state.StoreLost && s.Status != state.StoreRemoved
			})
		}
	}
	return false
}

// leaving reports whether a store that is being drained holds history that is not here.
func (h *History) leaving(view *state.View, m *state.Partition) bool {
	self := h.cfg.Self().Store
	for i := range m.Ranges {
		if !lacks(m, &m.Ranges[i], self) {
			continue
		}
		for _, id := range m.Ranges[i].Stores {
			if s := view.Store(id); s != nil && (s.Status == state.StoreDraining || s.Status == state.StoreDrained) {
				return true
			}
		}
	}
	return false
}

// copyHistory copies what other stores hold of a partition into this one, makes
// that known, and strikes them: they delete theirs once they have applied it (R16).
func (h *History) copyHistory(ctx context.Context, p *Partition) error {
	c, err := h.cfg.Store.Copy(ctx, p.id, p.topic)
	if err != nil {
		return err
	}
	job := &copyJob{h: h, p: p, c: c}
	err = job.run(ctx)
	return errors.Join(err, c.Close())
}

// copyJob copies the history of one partition.
type copyJob struct {
	h       *History
	p       *Partition
	c       *storage.Copy
	bytes   int64 // since the last commit
	entries []state.RangeCopy
}

func (j *copyJob) run(ctx context.Context) error {
	self := j.h.cfg.Self()
	m := j.h.cfg.Meta.View().Partition(j.p.id.Topic, j.p.id.Partition)
	if m == nil || m.Epoch != j.p.epoch {
		return nil
	}
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if !lacks(m, rg, self.Store) {
			continue
		}
		for _, w := range uncovered(m, rg) {
			if err := j.copyRange(ctx, m, rg, w); err != nil {
				return errors.Join(err, j.flush(ctx))
			}
		}
	}
	return j.flush(ctx)
}

// copyRange copies a part of a range, but for what an earlier copy brought.
func (j *copyJob) copyRange(ctx context.Context, m *state.Partition, rg *state.Range, w span) error {
	known := w.from
	note := func(to uint64) {
		if known < to {
			j.entries = append(j.entries, state.RangeCopy{
				Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, From: known, To: to, Add: j.h.cfg.Self().Store, Drop: rg.Stores,
			})
			known = to
		}
	}
	have := j.c.Have()
	for at := w.from; ; {
		var until uint64
		if at, until = missing(have, rg, at); at >= w.to {
			break
		}
		got, err := j.page(ctx, at, min(until, w.to))
		if err != nil {
			note(at)
			return fmt.Errorf("copy [%d, %d): %w", at, w.to, err)
		}
		have = extended(have, storage.Span{Epoch: rg.Epoch(at), Start: at, End: got.end})
		at = got.end
		if j.bytes += int64(len(got.data)); j.bytes >= copyCommit {
			note(at)
			if err := j.flush(ctx); err != nil {
				return err
			}
		}
	}
	note(w.to)
	if len(j.entries) >= copyEntries {
		return j.flush(ctx)
	}
	return nil
}

// page fetches a page and appends it to the copy.
func (j *copyJob) page(ctx context.Context, from, to uint64) (page, error) {
	if j.p.served.Over() {
		return page{}, errMovedOn
	}
	got, err := j.h.fetchPage(ctx, j.p.id, from, to, false)
	if d, is := errors.AsType[*storage.Damage](err); is {
		j.p.SawDamage(*d)
	}
	if err != nil {
		return got, err
	}
	if err := j.c.Append(got.data); err != nil {
		return got, err
	}
	return got, j.h.pace.take(ctx, len(got.data))
}

// extended adds a span, to the last one where it follows that.
func extended(have []storage.Span, s storage.Span) []storage.Span {
	if n := len(have); n > 0 && have[n-1].Epoch == s.Epoch && have[n-1].End == s.Start {
		have[n-1].End = s.End
		return have
	}
	return append(have, s)
}

// errMovedOn ends a copy whose partition this broker serves no more.
var errMovedOn = errors.New("the partition is served elsewhere now")

// missing returns the first offset from at on of a range that is not held under
// the epoch that gives it its value, and up to where it is missing.
func missing(have []storage.Span, rg *state.Range, at uint64) (from, until uint64) {
	for at < rg.End {
		epoch, end := rg.Epoch(at), nextEpoch(rg, at)
		next := at
		until = end
		for _, s := range have {
			if s.Epoch != epoch {
				continue
			}
			if s.Start <= at && at < s.End {
				next = min(s.End, end)
			} else if s.Start > at {
				until = min(until, s.Start)
			}
		}
		if next == at {
			return at, until
		}
		at = next
	}
	return rg.End, rg.End
}

// flush makes what was copied durable, and then known.
func (j *copyJob) flush(ctx context.Context) error {
	entries := j.entries
	j.entries, j.bytes = nil, 0
	if err := j.c.Commit(); err != nil {
		return err
	}
	have := j.c.Have()
	whole := entries[:0]
	for _, e := range entries {
		if rg := rangeOf(j.h.cfg.Meta.View(), j.p, e.From, e.To); rg != nil {
			if at, _ := missing(have, rg, e.From); at >= e.To { // nothing is listed that is not here, whole and synced
				whole = append(whole, e)
			}
		}
	}
	if len(whole) == 0 {
		return nil
	}
	errs, err := j.h.cfg.Meta.DecideEach(ctx, &state.CopyRanges{Entries: whole}, len(whole))
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("record the copy of %s: %w", j.p.name(), err)
	}
	return nil
}

// rangeOf returns the sealed range that has [from, to), nil if none has.
func rangeOf(view *state.View, p *Partition, from, to uint64) *state.Range {
	m := view.Partition(p.id.Topic, p.id.Partition)
	if m == nil || m.Epoch != p.epoch {
		return nil
	}
	if rg := m.Range(from); rg != nil && rg.Status == state.RangeSealed && to <= rg.End {
		return rg
	}
	return nil
}

// strikes are what stores need not keep any more: the catalog has all of it, so that
// nobody copies it (R16). Others delete theirs once they have applied that. This one
// keeps, as its log's, the newest ranges that it has without one between that it has
// not; what lies below is a piece of history like that of others, and would keep the
// ranges around it apart for as long as this store has it.
func strikes(m *state.Partition, self state.StoreID) (out []state.RangeCopy) {
	own := true // the log, as far as it was looked at
	for i := range slices.Backward(m.Ranges) {
		r := &m.Ranges[i]
		own = own && slices.Contains(r.Stores, self)
		from := max(r.Start, m.LogStart)
		if own || r.Status != state.RangeSealed || len(r.Stores) == 0 || !m.Catalog.Covers(from, r.End) {
			continue
		}
		out = append(out, state.RangeCopy{Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, From: from, To: r.End, Drop: r.Stores})
	}
	slices.Reverse(out)
	return out
}

// strike commits that.
func (h *History) strike(ctx context.Context, p *Partition) error {
	m := h.cfg.Meta.View().Partition(p.id.Topic, p.id.Partition)
	if m == nil || m.Epoch != p.epoch {
		return nil
	}
	entries := strikes(m, h.cfg.Self().Store)
	errs, err := h.cfg.Meta.DecideEach(ctx, &state.CopyRanges{Entries: entries}, len(entries))
	if err = errors.Join(append(errs, err)...); err != nil {
		return fmt.Errorf("strike what the cold tier has of %s: %w", p.name(), err)
	}
	return nil
}

// pacer spreads bytes over time.
type pacer struct {
	mu   sync.Mutex
	next time.Time // when what was taken so far is paid for
}

// take waits until n more bytes may have been moved.
func (p *pacer) take(ctx context.Context, n int) error {
	now := time.Now()
	p.mu.Lock()
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(n) * time.Second / copyRate)
	pause := p.next.Sub(now)
	p.mu.Unlock()
	if pause < 10*time.Millisecond {
		return ctx.Err()
	}
	calls.Pause(ctx, pause)
	return ctx.Err()
}
