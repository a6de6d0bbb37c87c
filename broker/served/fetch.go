package served

import (
	"context"
	"errors"
	"slices"
	"sort"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// The most a fetch may ask for.
const (
	maxFetchBytes = 4 << 20
	maxFetchWait  = 30 * time.Second
)

// Fetch reads batches from a position, waiting at the end of the log if asked to.
func (p *Partition) Fetch(ctx context.Context, q *protocol.Fetch) (*protocol.FetchOK, storage.View, error) {
	if p.Log == nil {
		return nil, storage.View{}, protocol.Errorf(protocol.CodeNotReliable, "%s is not reliable and keeps no messages to read back; subscribe to it", p.Topic)
	}
	from, err := p.Resolve(ctx, q.From)
	if err != nil {
		return nil, storage.View{}, err
	}
	r := p.Past.Reader(ctx, from)
	r.Once = true
	defer r.Close()
	wake := make(chan struct{}, 1)
	defer p.Log.Watch(wake)()
	timer := time.NewTimer(min(time.Duration(q.WaitMS)*time.Millisecond, maxFetchWait))
	defer timer.Stop()
	ok := &protocol.FetchOK{Epoch: p.Epoch, From: from, To: from, Next: from}
	for stale := 0; ; {
		view, err := r.Next(min(max(q.MaxBytes, 1), maxFetchBytes))
		ok.LogStart, ok.Committed = p.Log.Start(), p.Log.Committed()
		switch {
		case err == nil:
			return ok, p.withoutRepeats(ok, view), nil
		case !errors.Is(err, storage.ErrEnd):
			out := ok
			if !errors.Is(err, history.ErrStale) {
				out, err = p.fetchGap(ok, err)
			}
			if !errors.Is(err, history.ErrStale) || stale == staleTries {
				return out, storage.View{}, err
			}
			stale++
			calls.Pause(ctx, staleWait)
			continue
		}
		select {
		case <-wake:
		case <-timer.C:
			return ok, storage.View{}, nil
		case <-ctx.Done():
			return nil, storage.View{}, context.Cause(ctx)
		}
	}
}

// What the log and the metadata disagree on is looked at again after a pause, so often.
const (
	staleWait  = 2 * time.Millisecond
	staleTries = 250
)

// withoutRepeats cuts an answer short of offsets that were stored again in a
// later epoch (R15): their messages are read there. At such offsets it is empty
// and goes on behind them.
func (p *Partition) withoutRepeats(ok *protocol.FetchOK, view storage.View) storage.View {
	ok.To, ok.Next = view.End, view.End
	m := p.h.cfg.Meta.View().Partition(p.Key.Topic, p.Key.N)
	if m == nil || len(m.Superseded) == 0 {
		return view
	}
	i := sort.Search(len(m.Superseded), func(i int) bool { return m.Superseded[i].End > ok.From })
	if i == len(m.Superseded) || m.Superseded[i].Start >= view.End {
		return view
	}
	if x := m.Superseded[i]; x.Start > ok.From {
		ok.To, ok.Next = x.Start, x.Start
		return view
	} else {
		view.Release()
		ok.To, ok.Next, ok.GapStatus = ok.From, x.End, "superseded"
		return storage.View{}
	}
}

// fetchGap answers a read of offsets that no batch holds.
func (p *Partition) fetchGap(ok *protocol.FetchOK, err error) (*protocol.FetchOK, error) {
	var gap *storage.Gap
	if damaged, is := errors.AsType[*storage.Damage](err); is {
		p.Past.SawDamage(*damaged)
		ok.Next, ok.GapStatus = damaged.To, "damaged"
		return ok, nil
	}
	if !errors.As(err, &gap) {
		return nil, err
	}
	status, to, accepted, known := p.Past.GapAt(gap.From, gap.To)
	if !known {
		return nil, history.ErrStale
	}
	ok.Next, ok.GapStatus = to, "none"
	switch status {
	case state.RangeOrphaned:
		if away := p.mayReturn(gap.From, to); away != nil && !accepted {
			return nil, away
		}
		ok.GapStatus = p.Past.OrphanStatus(gap.From)
	case state.RangeLost:
		ok.GapStatus = "lost"
	}
	return ok, nil
}

// mayReturn says which brokers may come back with an ORPHANED offset, while a
// reader is to wait for them: it is told of the gap once that took GapWait from
// when the first reader came to it.
func (p *Partition) mayReturn(offset, to uint64) error {
	view := p.h.cfg.Meta.View()
	m := view.Partition(p.Key.Topic, p.Key.N)
	if m == nil {
		return nil
	}
	rg := m.Range(offset)
	if rg == nil || rg.Status != state.RangeOrphaned || slices.Contains(rg.Stores, p.h.cfg.Peers.Self) && !rg.Tail {
		return nil
	}
	now := p.h.cfg.Now()
	if now.Sub(p.Past.CameTo(rg.Start, now)) >= p.h.cfg.GapWait {
		return nil
	}
	away := &history.AwayError{From: offset, To: to, Err: errors.New("they may come back with it")}
	for _, id := range rg.Stores {
		away.Brokers = append(away.Brokers, p.h.cfg.Peers.Name(id))
	}
	return away
}
