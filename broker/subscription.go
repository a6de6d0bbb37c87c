package broker

import (
	"math"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// subscription is a subscription on one partition while somebody uses it: the
// shell around dispatch. Its goroutine lives while consumers are attached; it
// reads the log by offset and hands out what dispatch says. Acknowledgements
// go to dispatch on the goroutine of the connection they came by.
type subscription struct {
	b    *Broker
	part *partition
	id   uint64 // in the metadata
	name string
	typ  protocol.SubscriptionType
	wake chan struct{}
	// maxUnacked is the window, for SUBSCRIBE_OK.
	maxUnacked int

	mu        sync.Mutex // guards what follows
	d         *dispatch.Subscription
	consumers map[dispatch.ConsumerID]*consumer
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

// consumer is a consumer of a subscription on one partition over one connection.
type consumer struct {
	c      *conn
	sub    *subscription // nil of a non-reliable topic
	live   *liveConsumer // of a non-reliable topic
	id     dispatch.ConsumerID
	handle uint32
	name   string
	paused bool // its connection is behind; guarded by the subscription

	answered bool            // its client knows the handle; guarded by the subscription
	ended    *protocol.Error // the broker ended it before that; guarded by the subscription
}

// confirm is an acknowledgement whose sender waits for the commit.
type confirm struct {
	c     *conn
	id    uint64
	stale uint64
}

// newSubscription makes the shell from what the metadata says.
func newSubscription(p *partition, m *state.Subscription) (*subscription, error) {
	d, err := dispatch.New(dispatchConfig(m), dispatchCursor(m, p.key.n))
	if err != nil {
		return nil, err
	}
	return &subscription{
		b: p.b, part: p, id: m.ID, name: m.Name, typ: protocol.SubscriptionType(m.Type),
		wake: make(chan struct{}, 1), maxUnacked: int(m.Options.MaxUnacked), d: d, consumers: map[dispatch.ConsumerID]*consumer{},
	}, nil
}

// join attaches a consumer and starts the goroutine if it is the first.
func (s *subscription) join(cons *consumer, q *protocol.Subscribe) (*protocol.SubscribeOK, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, s.why
	}
	s.lastID++
	cons.id = s.lastID
	old, err := s.d.Join(dispatch.Consumer{ID: cons.id, Name: q.Consumer, Priority: q.Priority, Filters: q.Filters}, s.now())
	if err != nil {
		return nil, err
	}
	if o := s.consumers[old]; o != nil {
		s.b.log.Info("consumer taken over by one of the same name", "consumer", o.name, "subscription", s.name, "partition", s.part.name(),
			"from", o.c.nc.RemoteAddr().String(), "to", cons.c.nc.RemoteAddr().String())
		s.detach(o, replaced(o.name, s.name))
	}
	if err := s.d.Grant(cons.id, q.Credit); err != nil {
		return nil, err
	}
	s.consumers[cons.id] = cons
	s.changed()
	return &protocol.SubscribeOK{
		Epoch: s.part.epoch, Type: s.typ, Cursor: s.d.Cursor().Prefix, Generation: s.d.Generation(),
	}, nil
}

// replaced tells a consumer that its session goes on elsewhere.
func replaced(name, subscription string) *protocol.Error {
	return protocol.Errorf(protocol.CodeConsumerReplaced, "another consumer that is named %q took over its session on subscription %s", name, subscription)
}

// begin lets deliveries flow to a consumer whose handle its client knows now,
// or tells the client that the consumer is over already.
func (s *subscription) begin(o *consumer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o.answered = true
	if o.ended != nil {
		o.c.out.Frame(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: o.handle, Err: *o.ended})
	}
	if !s.running && !s.closed && len(s.consumers) > 0 {
		s.running = true
		s.b.wg.Go(s.run)
	}
	notify(s.wake)
}

// detach takes out a consumer the broker ends and tells its client why, behind
// the answer that names the handle. The caller holds mu.
func (s *subscription) detach(o *consumer, why *protocol.Error) {
	delete(s.consumers, o.id)
	o.c.dropConsumer(o.handle)
	if !o.answered {
		o.ended = why
		return
	}
	o.c.out.Frame(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: o.handle, Err: *why})
}

// leave ends a consumer; what it held is given back. Clean: its client closed in order.
func (o *consumer) leave(clean bool) {
	if o.live != nil {
		o.live.leave()
		return
	}
	s := o.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.consumers[o.id] != o {
		return
	}
	delete(s.consumers, o.id)
	if err := s.d.Leave(o.id, clean, s.now()); err != nil {
		s.b.log.Error("consumer not known to its subscription", "subscription", s.name, "partition", s.part.name(), "err", err)
	}
	s.changed()
}

// close ends the subscription here: its consumers are told why.
func (s *subscription) close(why *protocol.Error) {
	s.end(why)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.consumers {
		s.detach(o, s.why)
	}
	s.changed()
}

// end stops deliveries and acknowledgements; consumers are told by close.
func (s *subscription) end(why *protocol.Error) {
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
func (s *subscription) changed() {
	if !s.dirty {
		s.dirty = true
		s.b.cursors.add(s)
	}
	notify(s.wake)
}

func (s *subscription) now() int64 { return s.b.cfg.Now().UnixNano() }

// settle carries out what a client says of messages it holds.
func (s *subscription) settle(do func(*dispatch.Subscription, int64) (dispatch.Settled, error)) (dispatch.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return dispatch.Settled{}, s.why
	}
	res, err := do(s.d, s.now())
	s.b.metrics.staleAcks.Add(float64(res.Stale))
	s.changed()
	return res, err
}

// confirm answers an acknowledgement once what was acknowledged is committed.
func (s *subscription) confirm(w confirm) {
	s.mu.Lock()
	s.confirms = append(s.confirms, w)
	s.changed()
	s.mu.Unlock()
	s.b.cursors.hurry()
}

// run is the goroutine that delivers. It returns when no consumer is left.
func (s *subscription) run() {
	l := newLoop(s)
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
		if full := o.c.out.Full(s.wake); full != o.paused {
			o.paused = full
			s.d.Pause(o.id, full)
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
			s.b.log.Warn("messages dropped after their last redelivery", "subscription", s.name, "partition", s.part.name(),
				"from", p.Start, "to", p.End, "deliveries", p.Deliveries)
		}
	}
}

// wait sleeps until something happens or until, in Unix ns, has come.
func (l *loop) wait(until int64) {
	if until == math.MaxInt64 {
		select {
		case <-l.s.wake:
		case <-l.s.b.ctx.Done():
			l.s.close(errShuttingDown)
		}
		return
	}
	l.timer.Reset(max(0, time.Duration(until-l.s.now())))
	select {
	case <-l.s.wake:
	case <-l.timer.C:
	case <-l.s.b.ctx.Done():
		l.s.close(errShuttingDown)
	}
	l.timer.Stop()
}

// send frames one delivery of a batch for its consumer.
func (l *loop) send(b batch.Batch, d dispatch.Delivery, o *consumer) error {
	l.head = protocol.Deliver{
		Handle: o.handle, Generation: d.Generation, First: d.Start, Count: uint32(d.End - d.Start),
		Attempt: d.Attempt, Late: d.Late,
	}
	l.s.b.metrics.delivered(int(d.End-d.Start), d.Attempt > 1)
	if whole := d.Start <= b.Base() && d.End >= b.End(); whole {
		l.view.Retain()
		if !o.c.out.Deliver(&l.head, b, l.view) {
			l.view.Release()
		}
	} else {
		part, err := l.parts.Append(nil, b, int(d.Start-b.Base()), int(d.End-d.Start))
		if err != nil {
			return err
		}
		o.c.out.Deliver(&l.head, part, noView)
	}
	o.c.out.Flush()
	return nil
}
