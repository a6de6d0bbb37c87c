package delivery

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// Subscription is a subscription on one partition while somebody uses it: the
// shell around dispatch. Its goroutine lives while consumers are attached; it
// reads the log by offset and hands out what dispatch says. Acknowledgements
// go to dispatch on the goroutine of the connection they came by.
type Subscription struct {
	ID         uint64 // in the metadata
	Name       string
	MaxUnacked int // the window, for SUBSCRIBE_OK

	c    *Carrier
	part *Partition
	typ  protocol.SubscriptionType
	wake chan struct{}

	mu        sync.Mutex // guards what follows
	d         *dispatch.Subscription
	consumers map[dispatch.ConsumerID]*Consumer
	lastID    dispatch.ConsumerID
	running   bool
	closed    bool
	why       *protocol.Error    // closed because
	dirty     bool               // in the committer's list
	confirms  []confirm          // waiting for the delta after the one that is out
	skipped   uint64             // messages passed over: lost, damaged, trimmed
	gapSince  int64              // when it came to the gap it waits at, Unix ns; 0: none
	gap       dispatch.Range     // where that is
	away      *history.AwayError // what it waits for lies on brokers that are away; nil: nothing does
}

// Subscription makes the shell of a subscription on a partition, from what the
// metadata say of it.
func (c *Carrier) Subscription(p *Partition, m *state.Subscription) (*Subscription, error) {
	d, err := dispatch.New(dispatchConfig(m), dispatchCursor(m, p.Number))
	if err != nil {
		return nil, err
	}
	return &Subscription{
		c: c, part: p, ID: m.ID, Name: m.Name, typ: protocol.SubscriptionType(m.Type),
		wake: make(chan struct{}, 1), MaxUnacked: int(m.Options.MaxUnacked), d: d, consumers: map[dispatch.ConsumerID]*Consumer{},
	}, nil
}

// Join attaches a consumer and starts the goroutine if it is the first.
func (s *Subscription) Join(cons *Consumer, q *protocol.Subscribe) (*protocol.SubscribeOK, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.why
	}
	s.lastID++
	cons.ID = s.lastID
	old, err := s.d.Join(dispatch.Consumer{ID: cons.ID, Name: q.Consumer, Priority: q.Priority, Filters: q.Filters}, s.now())
	if err != nil {
		return nil, err
	}
	if o := s.consumers[old]; o != nil {
		s.c.cfg.Log.Info("consumer taken over by one of the same name", "consumer", o.name, "subscription", s.Name, "partition", s.part.name(),
			"from", o.client.Address(), "to", cons.client.Address())
		s.detach(o, replaced(o.name, s.Name))
	}
	if err := s.d.Grant(cons.ID, q.Credit); err != nil {
		return nil, err
	}
	// A delivery that overtakes the answer names a handle that the client does not know yet, and is lost to it.
	cons.paused = true
	s.d.Pause(cons.ID, true)
	s.consumers[cons.ID] = cons
	s.changed()
	return &protocol.SubscribeOK{
		Epoch: s.part.Epoch, Type: s.typ, Cursor: s.d.Cursor().Prefix, Generation: s.d.Generation(),
	}, nil
}

// Begin lets deliveries flow to a consumer whose handle its client knows now,
// or tells the client that the consumer is over already.
func (s *Subscription) Begin(o *Consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.answered = true
	if o.ended != nil {
		o.out.Frame(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: o.Handle, Err: *o.ended})
	}
	if !s.running && !s.closed && len(s.consumers) > 0 {
		s.running = true
		s.c.cfg.Go(s.run)
	}
	notify(s.wake)
}

// detach takes out a consumer the broker ends and tells its client why, behind
// the answer that names the handle. The caller holds mu.
func (s *Subscription) detach(o *Consumer, why *protocol.Error) {
	delete(s.consumers, o.ID)
	o.client.Drop(o.Handle)
	if !o.answered {
		o.ended = why
		return
	}
	o.out.Frame(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: o.Handle, Err: *why})
}

// Leave ends a consumer; what it held is given back. Clean: its client closed in order.
func (o *Consumer) Leave(clean bool) {
	s := o.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.consumers[o.ID] != o {
		return
	}
	delete(s.consumers, o.ID)
	if err := s.d.Leave(o.ID, clean, s.now()); err != nil {
		s.c.cfg.Log.Error("consumer not known to its subscription", "subscription", s.Name, "partition", s.part.name(), "err", err)
	}
	s.changed()
}

// Close ends the subscription here: its consumers are told why.
func (s *Subscription) Close(why *protocol.Error) {
	s.End(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.consumers {
		s.detach(o, s.why)
	}
	s.changed()
}

// End stops deliveries and acknowledgements; consumers are told by close.
func (s *Subscription) End(why *protocol.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed, s.why = true, why
	s.d.Detach(s.now())
	s.changed()
}

// changed marks the cursor dirty and wakes the goroutine. The caller holds mu.
func (s *Subscription) changed() {
	if !s.dirty {
		s.dirty = true
		s.c.cursors.add(s)
	}
	notify(s.wake)
}

func (s *Subscription) now() int64 { return s.c.cfg.Now().UnixNano() }

// Settle carries out what a client says of messages it holds.
func (s *Subscription) Settle(do func(*dispatch.Subscription, int64) (dispatch.Settled, error)) (dispatch.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settle(do)
}

// settle is Settle for a caller that holds mu.
func (s *Subscription) settle(do func(*dispatch.Subscription, int64) (dispatch.Settled, error)) (dispatch.Settled, error) {
	if s.closed {
		return dispatch.Settled{}, s.why
	}
	res, err := do(s.d, s.now())
	s.c.cfg.Metrics.StaleAcks.Add(float64(res.Stale))
	s.changed()
	return res, err
}

// Confirm is Settle for an acknowledgement, a request of a consumer's client,
// that is answered once it is committed. No commit takes the one without the
// other: an answer to what a refused commit held would be untrue (R18).
func (s *Subscription) Confirm(o *Consumer, request uint64, do func(*dispatch.Subscription, int64) (dispatch.Settled, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.settle(do)
	if err != nil {
		return err
	}
	s.confirms = append(s.confirms, confirm{out: o.out, id: request, stale: res.Stale})
	s.c.cursors.hurry()
	return nil
}

// run is the goroutine that delivers. It returns when no consumer is left.
func (s *Subscription) run(ctx context.Context) {
	l := newLoop(ctx, s)
	defer l.close()
	for {
		step, alive := l.next()
		if !alive {
			return
		}
		if step.Reason != dispatch.Ready {
			l.wait(step.Until)
			continue
		}
		l.deliver(step)
	}
}

// next asks dispatch what to do; alive is false when the goroutine is to end.
func (l *loop) next() (step dispatch.Step, alive bool) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.consumers) == 0 {
		s.running = false
		return step, false
	}
	for _, o := range s.consumers {
		if pause := !o.answered || o.out.Full(s.wake); pause != o.paused {
			o.paused = pause
			s.d.Pause(o.ID, pause)
		}
	}
	step = s.d.Next(s.now())
	l.bury()
	return step, true
}

// bury ends what the poison policy gives up. The caller holds mu.
func (l *loop) bury() {
	s := l.s
	l.poisoned = s.d.Poisoned(l.poisoned[:0])
	for _, p := range l.poisoned {
		if p.Action == dispatch.Drop {
			n := s.d.Bury(p.Range)
			s.skipped += n
			s.c.cfg.Log.Warn("messages dropped after their last redelivery", "subscription", s.Name, "partition", s.part.name(),
				"from", p.Start, "to", p.End, "deliveries", p.Deliveries)
		}
	}
}

// wait sleeps until something happens or until, in Unix ns, has come.
func (l *loop) wait(until int64) {
	if until == math.MaxInt64 {
		select {
		case <-l.s.wake:
		case <-l.ctx.Done():
			l.s.Close(errShuttingDown)
		}
		return
	}
	l.timer.Reset(max(0, time.Duration(until-l.s.now())))
	select {
	case <-l.s.wake:
	case <-l.timer.C:
	case <-l.ctx.Done():
		l.s.Close(errShuttingDown)
	}
	l.timer.Stop()
}

// send frames one delivery of a batch for its consumer.
func (l *loop) send(b batch.Batch, d dispatch.Delivery, o *Consumer) error {
	l.head = protocol.Deliver{
		Handle: o.Handle, Generation: d.Generation, First: d.Start, Count: uint32(d.End - d.Start),
		Attempt: d.Attempt, Late: d.Late,
	}
	l.s.c.cfg.Metrics.delivered(int(d.End-d.Start), d.Attempt > 1)
	if whole := d.Start <= b.Base() && d.End >= b.End(); whole {
		l.view.Retain()
		if !o.out.Deliver(&l.head, b, l.view) {
			l.view.Release()
		}
	} else {
		part, err := l.parts.Append(nil, b, int(d.Start-b.Base()), int(d.End-d.Start))
		if err != nil {
			return err
		}
		o.out.Deliver(&l.head, part, storage.View{})
	}
	o.out.Flush()
	return nil
}
