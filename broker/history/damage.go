package history

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// mostDamages bounds what is remembered of one partition: a rotten disk has more
// to tell than anybody reads, and verification finds it again.
const mostDamages = 1000

// damages are the ranges of a partition that cannot be read: those recovery
// found, and those that a reader or a verification met since.
type damages struct {
	mu   sync.Mutex
	list []storage.Damage // guarded by mu
}

// found remembers damage and says whether it is news.
func (d *damages) found(x storage.Damage) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.list {
		if x.From < d.list[i].To && d.list[i].From < x.To {
			return false
		}
	}
	if len(d.list) == mostDamages {
		return false
	}
	d.list = append(d.list, x)
	return true
}

// has reports whether an offset is known to be damaged.
func (d *damages) has(offset uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.list, func(x storage.Damage) bool { return x.From <= offset && offset < x.To })
}

// OrphanStatus is what readers are told of an ORPHANED offset: that it is damage
// of this disk, if it is, and not that a broker may come back with it.
func (p *Partition) OrphanStatus(offset uint64) string {
	if p.damaged.has(offset) {
		return "damaged"
	}
	return "orphaned"
}

// all returns what is known, in the order it was found. The list is the caller's.
func (d *damages) all() []storage.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// Damage returns the damage that is known, in the order it was found. The list is
// the caller's.
func (p *Partition) Damage() []storage.Damage { return p.damaged.all() }

// KnownDamage returns the damage that is ORPHANED by now: the log has nothing
// there any more and does not read it again.
func (p *Partition) KnownDamage() []storage.Damage {
	return slices.DeleteFunc(p.damaged.all(), func(d storage.Damage) bool {
		status, _, _, known := p.GapAt(d.From, d.To)
		return !known || status != state.RangeOrphaned
	})
}

// SawDamage remembers damage that was met while the partition is served, for
// describe and health, tells the log once, and has it committed.
func (p *Partition) SawDamage(x storage.Damage) {
	if p.damaged.found(x) {
		p.h.cfg.Log.Error("messages are damaged on disk; the rest is served", "partition", p.name(),
			"from", x.From, "to", x.To, "file", x.File, "at", x.At, "err", x.Err)
		notify(p.h.damage.wake)
	}
}

// The pauses between attempts to commit damage.
const (
	damageRetry    = time.Second
	damageRetryMax = time.Minute
)

// damageKeeper commits damage as ORPHANED (R10), so that describe after a
// restart and other brokers know of it. It compares what is known here with
// what the metadata say and proposes the difference: nobody who reads waits
// for it, and what failed or has an unknown outcome is simply still different.
type damageKeeper struct {
	h    *History
	wake chan struct{}
}

// run reconciles whenever damage was met, and again while something is left. It returns when ctx ends.
func (k *damageKeeper) run(ctx context.Context) {
	timer := time.NewTimer(0) // recovery may have found what could not be committed then
	defer timer.Stop()
	pause := damageRetry
	for {
		select {
		case <-k.wake:
			pause = damageRetry
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		timer.Stop()
		if k.reconcile(ctx) {
			timer.Reset(pause)
			pause = min(2*pause, damageRetryMax)
		}
	}
}

// reconcile commits what is missing and reports whether something is left to be tried again.
func (k *damageKeeper) reconcile(ctx context.Context) (left bool) {
	var floors []state.PartitionUpdate
	var marks []state.RangeMark
	view := k.h.cfg.Meta.View()
	for _, p := range k.h.cfg.Serving() {
		list := p.damaged.all()
		m := view.Partition(p.id.Topic, p.id.Partition)
		if len(list) == 0 || m == nil || m.Epoch != p.epoch {
			continue // of another epoch: whoever opened that one has the say
		}
		floor, n := p.floor(), len(marks)
		for _, d := range list {
			if d.To > floor {
				left = left || len(unmarked(m, d)) > 0 // not synced yet, under wal.sync: interval
				continue
			}
			marks = append(marks, unmarked(m, d)...)
		}
		if len(marks) > n && m.Floor < floor {
			floors = append(floors, state.PartitionUpdate{Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, Floor: floor})
		}
	}
	if len(marks) == 0 {
		return left
	}
	// What is marked of the open range must lie below the floor that the metadata know.
	errs, err := k.h.cfg.Meta.DecideEach(ctx, &state.UpdatePartitions{Entries: floors}, len(floors))
	if err == nil {
		var more []error
		more, err = k.h.cfg.Meta.DecideEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
		errs = append(errs, more...)
	}
	if err = errors.Join(append(errs, err)...); err != nil && ctx.Err() == nil {
		k.h.cfg.Log.Warn("damage not recorded in the metadata, trying again", "ranges", len(marks), "err", err)
	}
	return left || err != nil
}

// unmarked returns what of damaged offsets the metadata do not call ORPHANED or LOST yet.
func unmarked(m *state.Partition, d storage.Damage) []state.RangeMark {
	var out []state.RangeMark
	for i := range m.Ranges {
		r := &m.Ranges[i]
		from, to := max(d.From, r.Start), d.To
		switch r.Status {
		case state.RangeSealed:
			to = min(to, r.End)
		case state.RangeOpen:
		default:
			continue
		}
		if from < to {
			out = append(out, state.RangeMark{
				Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, From: from, To: to, Status: state.RangeOrphaned,
			})
		}
	}
	return out
}

// MarkDamage records the damage that recovery found in partitions before anybody
// is served. What cannot be recorded now is tried again while they are served.
func (h *History) MarkDamage(ctx context.Context, found map[storage.PartitionID][]storage.Damage) {
	view := h.cfg.Meta.View()
	var marks []state.RangeMark
	for id, list := range found {
		m := view.Partition(id.Topic, id.Partition)
		if m == nil {
			continue
		}
		for _, d := range list {
			marks = append(marks, unmarked(m, d)...)
		}
	}
	errs, err := h.cfg.Meta.DecideEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
	if err = errors.Join(append(errs, err)...); err != nil {
		h.cfg.Log.Error("damage not recorded in the metadata", "err", err)
	}
}
