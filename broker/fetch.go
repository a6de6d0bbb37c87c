package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

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
		c.out.frameWithView(protocol.TypeFetchOK, f.ID, ok, view.Data, view)
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
		return nil, noView, err
	}
	if p.log == nil {
		return nil, noView, protocol.Errorf(protocol.CodeNotReliable, "%s is not reliable and keeps no messages to read back; subscribe to it", p.topic)
	}
	from, err := p.resolve(q.From)
	if err != nil {
		return nil, noView, err
	}
	if end := p.log.Committed(); from > end {
		return nil, noView, &protocol.Error{Code: protocol.CodeAboveEnd, Want: end,
			Text: fmt.Sprintf("offset %d lies beyond the end of %s, whose next offset is %d", from, p.name(), end)}
	}
	r := p.log.Reader(from)
	defer r.Close()
	wake := make(chan struct{}, 1)
	defer p.log.Watch(wake)()
	timer := time.NewTimer(min(time.Duration(q.WaitMS)*time.Millisecond, maxFetchWait))
	defer timer.Stop()
	ok := &protocol.FetchOK{Epoch: p.epoch, From: from, To: from, Next: from}
	for {
		view, err := r.Next(min(max(q.MaxBytes, 1), maxFetchBytes))
		ok.LogStart, ok.Committed = p.log.Start(), p.log.Committed()
		if err == nil {
			ok.To, ok.Next = view.End, view.End
			return ok, view, nil
		}
		if !errors.Is(err, storage.ErrEnd) {
			return b.fetchGap(p, ok, err)
		}
		select {
		case <-wake:
		case <-timer.C:
			return ok, noView, nil
		case <-ctx.Done():
			return nil, noView, context.Cause(ctx)
		}
	}
}

// fetchGap answers a read of offsets that no batch holds.
func (b *Broker) fetchGap(p *partition, ok *protocol.FetchOK, err error) (*protocol.FetchOK, storage.View, error) {
	var gap *storage.Gap
	if damaged, is := errors.AsType[*storage.Damage](err); is {
		p.sawDamage(*damaged)
		ok.Next, ok.GapStatus = damaged.To, "damaged"
		return ok, noView, nil
	}
	if !errors.As(err, &gap) {
		return nil, noView, err
	}
	ok.Next = gap.To
	switch b.rangeStatus(p, gap.From) {
	case state.RangeOrphaned:
		ok.GapStatus = "orphaned"
	case state.RangeLost:
		ok.GapStatus = "lost"
	default:
		ok.GapStatus = "none"
	}
	return ok, noView, nil
}
