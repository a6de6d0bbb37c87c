package broker

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

// fetch answers a plain read beside the connection's reader.
func (c *conn) fetch(f protocol.Frame) error {
	q := new(protocol.Fetch)
	if err := q.Decode(f.Header); err != nil {
		return protocol.Errorf(protocol.CodeBadFrame, "fetch: %v", err)
	}
	run := func() {
		ok, view, err := c.b.fetch(c.ctx, q)
		if err != nil {
			c.refuse(f.ID, err)
			return
		}
		c.out.FrameWithView(protocol.TypeFetchOK, f.ID, ok, view.Data, view)
	}
	if q.WaitMS > 0 {
		select {
		case c.waits <- struct{}{}:
			c.holding(c.waits, run)
			return nil
		default:
			q.WaitMS = 0 // a connection that only waits must not keep its other requests from being read
		}
	}
	c.beside(run)
	return nil
}

// fetch reads batches from a position, waiting at the end of the log if asked to.
func (b *Broker) fetch(ctx context.Context, q *protocol.Fetch) (*protocol.FetchOK, storage.View, error) {
	p, err := b.serving(ctx, q.Topic, q.Partition, q.Epoch)
	if err != nil {
		return nil, storage.View{}, err
	}
	if p.log == nil {
		return nil, storage.View{}, protocol.Errorf(protocol.CodeNotReliable, "%s is not reliable and keeps no messages to read back; subscribe to it", p.topic)
	}
	from, err := p.resolve(q.From)
	if err != nil {
		return nil, storage.View{}, err
	}
	r := p.past.Reader(ctx, from)
	r.Once = true
	defer r.Close()
	wake := make(chan struct{}, 1)
	defer p.log.Watch(wake)()
	timer := time.NewTimer(min(time.Duration(q.WaitMS)*time.Millisecond, maxFetchWait))
	defer timer.Stop()
	ok := &protocol.FetchOK{Epoch: p.epoch, From: from, To: from, Next: from}
	for stale := 0; ; {
		view, err := r.Next(min(max(q.MaxBytes, 1), maxFetchBytes))
		ok.LogStart, ok.Committed = p.log.Start(), p.log.Committed()
		switch {
		case err == nil:
			return ok, p.withoutRepeats(ok, view), nil
		case !errors.Is(err, storage.ErrEnd):
			out := ok
			if !errors.Is(err, history.ErrStale) {
				out, err = b.fetchGap(p, ok, err)
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
func (p *partition) withoutRepeats(ok *protocol.FetchOK, view storage.View) storage.View {
	ok.To, ok.Next = view.End, view.End
	m := p.b.meta.View().Partition(p.key.topic, p.key.n)
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
func (b *Broker) fetchGap(p *partition, ok *protocol.FetchOK, err error) (*protocol.FetchOK, error) {
	var gap *storage.Gap
	if damaged, is := errors.AsType[*storage.Damage](err); is {
		p.past.SawDamage(*damaged)
		ok.Next, ok.GapStatus = damaged.To, "damaged"
		return ok, nil
	}
	if !errors.As(err, &gap) {
		return nil, err
	}
	status, to, accepted, known := p.past.GapAt(gap.From, gap.To)
	if !known {
		return nil, history.ErrStale
	}
	ok.Next, ok.GapStatus = to, "none"
	switch status {
	case state.RangeOrphaned:
		if away := b.mayReturn(p, gap.From, to); away != nil && !accepted {
			return nil, away
		}
		ok.GapStatus = p.past.OrphanStatus(gap.From)
	case state.RangeLost:
		ok.GapStatus = "lost"
	}
	return ok, nil
}

// mayReturn says which brokers may come back with an ORPHANED offset, while a
// reader is to wait for them: it is told of the gap once that took GapWait from
// when the first reader came to it.
func (b *Broker) mayReturn(p *partition, offset, to uint64) error {
	view := b.meta.View()
	m := view.Partition(p.key.topic, p.key.n)
	if m == nil {
		return nil
	}
	rg := m.Range(offset)
	if rg == nil || rg.Status != state.RangeOrphaned || slices.Contains(rg.Stores, b.self().Store) && !rg.Tail {
		return nil
	}
	now := b.cfg.Now()
	if now.Sub(p.past.CameTo(rg.Start, now)) >= b.cfg.GapWait {
		return nil
	}
	away := &history.AwayError{From: offset, To: to, Err: errors.New("they may come back with it")}
	for _, id := range rg.Stores {
		away.Brokers = append(away.Brokers, b.brokerName(id))
	}
	return away
}
