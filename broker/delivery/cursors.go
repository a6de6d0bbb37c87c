package delivery

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// cursorKeeper commits what changed in cursors: all subscriptions of the broker
// in one command an interval, at once when an acknowledgement is to be confirmed.
type cursorKeeper struct {
	c    *Carrier
	wake chan struct{}
	now  chan struct{} // somebody waits for a commit

	round sync.Mutex // one commit at a time
	mu    sync.Mutex // guards what follows
	dirty []*Subscription
	begun uint64 // commits that have begun
}

// deltaLimit bounds what one subscription puts into one round.
const deltaLimit = 20_000

func newCursorKeeper(c *Carrier) *cursorKeeper {
	return &cursorKeeper{c: c, wake: make(chan struct{}, 1), now: make(chan struct{}, 1)}
}

// add lists a subscription whose cursor changed; the subscription sees to it
// that it is listed once.
func (k *cursorKeeper) add(s *Subscription) {
	k.mu.Lock()
	k.dirty = append(k.dirty, s)
	k.mu.Unlock()
	notify(k.wake)
}

// hurry asks for a commit without waiting for the interval.
func (k *cursorKeeper) hurry() { notify(k.now) }

// run commits until ctx ends, then once more.
func (k *cursorKeeper) run(ctx context.Context) {
	timer := time.NewTimer(k.c.cfg.CursorInterval)
	defer timer.Stop()
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		timer.Reset(k.c.cfg.CursorInterval)
		select {
		case <-timer.C:
		case <-k.now:
		case <-ctx.Done():
			return
		}
		k.commit(ctx)
	}
}

// round is one subscription's part of a commit.
type round struct {
	s        *Subscription
	confirms []confirm
	delta    *dispatch.Delta
	first    int    // its entry in the command, -1 for none
	epoch    uint64 // under which it was proposed
}

// flush is commit for many who call it side by side: a commit that began after
// the call does for all of them.
func (k *cursorKeeper) flush(ctx context.Context) {
	k.mu.Lock()
	before := k.begun
	k.mu.Unlock()
	k.round.Lock()
	defer k.round.Unlock()
	k.mu.Lock()
	done := k.begun > before
	k.mu.Unlock()
	if !done {
		k.commitRound(ctx)
	}
}

// settleRounds bounds the commits of one settle: large cursors go in parts.
const settleRounds = 20

// settle commits until unsettled says that nothing is left, or ctx ends. It asks
// between commits: one that is out has taken its subscriptions off the list and
// has not stored them yet.
func (k *cursorKeeper) settle(ctx context.Context, unsettled func() bool) {
	for i, left := 0, true; left && i < settleRounds && ctx.Err() == nil; i++ {
		k.round.Lock()
		if left = unsettled(); left {
			k.commitRound(ctx)
		}
		k.round.Unlock()
	}
}

// commit takes the deltas of all that changed and commits them. What changed
// before the call is committed when it returns, or listed to be tried again.
func (k *cursorKeeper) commit(ctx context.Context) {
	k.round.Lock()
	defer k.round.Unlock()
	k.commitRound(ctx)
}

// commitRound is commit for a caller that holds round.
func (k *cursorKeeper) commitRound(ctx context.Context) {
	k.mu.Lock()
	dirty := k.dirty
	k.dirty = nil
	k.begun++
	k.mu.Unlock()
	rounds := make([]round, 0, len(dirty))
	var entries []state.CursorDelta
	for _, s := range dirty {
		r := s.takeRound()
		if r.delta != nil {
			r.first = len(entries)
			r.epoch = s.part.Owner.CursorEpoch()
			entries = append(entries, cursorDelta(s, r.epoch, r.delta))
		}
		rounds = append(rounds, r)
	}
	var errs []error
	err := error(ErrNoLease)
	if k.c.cfg.Leased() || len(entries) == 0 {
		errs, err = k.c.cfg.Meta.DecideEach(ctx, &state.MoveCursors{Entries: entries}, len(entries))
	}
	if err != nil && ctx.Err() == nil {
		k.c.cfg.Log.Warn("cursors not committed, trying again", "subscriptions", len(entries), "err", err)
	}
	for _, r := range rounds {
		failed := err
		if failed == nil && r.first >= 0 {
			failed = errs[r.first]
		}
		r.s.roundDone(r, failed)
	}
}

// takeRound takes what is to be committed of a subscription.
func (s *Subscription) takeRound() round {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirty = false
	r := round{s: s, confirms: s.confirms, first: -1}
	s.confirms = nil
	d := new(dispatch.Delta)
	if s.d.TakeDelta(d, deltaLimit) {
		r.delta = d
	}
	return r
}

// roundDone ends a round: the confirmed are answered, what failed comes again.
func (s *Subscription) roundDone(r round, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := false
	if r.delta != nil {
		// A refused entry is of an epoch or generation that is over: nothing of it is to be kept, unless the epoch
		// was handed over in between, and what was acknowledged goes on under the next.
		refused := errors.Is(err, state.ErrStaleEpoch) && !s.part.Owner.HandsOver(r.epoch) || errors.Is(err, state.ErrStaleGeneration) || errors.Is(err, state.ErrNotFound)
		if err == nil || refused {
			s.d.DeltaCommitted()
		} else {
			s.d.DeltaFailed()
			again = true
		}
		again = again || r.delta.More
	}
	if again {
		s.confirms = append(r.confirms, s.confirms...)
		r.confirms = nil
		s.changedQuietly()
	}
	for _, w := range r.confirms {
		if err != nil {
			w.out.Frame(protocol.TypeError, w.id, s.c.cfg.Coded(err))
			continue
		}
		w.out.Frame(protocol.TypeAckOK, w.id, &protocol.AckOK{Stale: w.stale})
	}
}

// cursorDelta is a delta as the metadata takes it.
func cursorDelta(s *Subscription, epoch uint64, d *dispatch.Delta) state.CursorDelta {
	out := state.CursorDelta{
		Subscription: s.ID, Partition: s.part.Number, Epoch: epoch, Generation: d.Generation, Prefix: d.Prefix,
	}
	for _, r := range d.Acked {
		out.Acked = append(out.Acked, state.OffsetRange{Start: r.Start, End: r.End})
	}
	out.Acked = state.Joined(out.Acked)
	for _, r := range d.Redeliveries {
		for o := r.Start; o < r.End; o++ {
			out.Counts = append(out.Counts, state.OffsetNumber{Offset: o, Number: uint64(r.Next - 1)})
			out.Due = append(out.Due, state.OffsetNumber{Offset: o, Number: uint64(time.Duration(r.Due).Milliseconds())})
		}
	}
	return out
}

// dispatchCursor is the cursor of partition n of a subscription as dispatch takes it.
func dispatchCursor(m *state.Subscription, n uint32) dispatch.Cursor {
	from := &m.Cursors[n]
	c := dispatch.Cursor{Generation: from.Generation, Prefix: from.Prefix}
	for _, r := range from.Acked {
		c.Acked = append(c.Acked, dispatch.Range{Start: r.Start, End: r.End})
	}
	for _, e := range from.Counts {
		r := dispatch.Redelivery{
			Range: dispatch.Range{Start: e.Offset, End: e.Offset + 1}, Next: uint32(min(e.Number, 1<<16)) + 1,
			Due: (time.Duration(from.Due.Get(e.Offset)) * time.Millisecond).Nanoseconds(),
		}
		if k := len(c.Redeliveries); k > 0 {
			if last := &c.Redeliveries[k-1]; last.End == r.Start && last.Next == r.Next && last.Due == r.Due {
				last.End = r.End
				continue
			}
		}
		c.Redeliveries = append(c.Redeliveries, r)
	}
	return c
}

// dispatchConfig is a subscription's policy as dispatch takes it. The defaults are the protocol's: what clients are shown holds.
func dispatchConfig(m *state.Subscription) dispatch.Config {
	o, d := &m.Options, protocol.SubOptions{}.WithDefaults()
	or := func(v time.Duration, ms int64) time.Duration { return cmp.Or(v, time.Duration(ms)*time.Millisecond) }
	cfg := dispatch.Config{
		Policy: dispatch.Policy(m.Type), MaxUnacked: cmp.Or(int(o.MaxUnacked), d.MaxUnacked), AckTimeout: or(o.AckTimeout, d.AckTimeoutMS),
		BackoffBase: or(o.BackoffBase, d.BackoffMS), BackoffMax: or(o.BackoffCap, d.BackoffCapMS),
		MaxRedeliveries: cmp.Or(int(o.MaxRedelivery), d.MaxRedeliver), Poison: dispatch.Poison(o.Poison),
	}
	cfg.FixedBackoff = o.BackoffBase != 0 && o.BackoffCap == o.BackoffBase
	return cfg
}
