package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// mend starts the goroutine that opens the session again.
func (l *lane) mend(action protocol.Action) {
	if l.p.ctx.Err() != nil || l.p.st.closed && l.lowest() == l.next() {
		// Nothing is left to be sent, now or later.
		l.state = laneDown
		return
	}
	l.state = laneMending
	l.p.wg.Go(func() { l.reopen(l.p.ctx, action) })
}

// reopen opens the session again, however long it takes. It returns when the
// session stands, is refused for good, or ctx ends.
func (l *lane) reopen(ctx context.Context, action protocol.Action) {
	l.p.mu.Lock()
	known := l.epoch
	to := directed(l.cause, known)
	l.p.mu.Unlock()
	for {
		l.p.mu.Lock()
		wait := retry.Backoff(l.fails)
		if action == protocol.Wait {
			wait = max(wait, retry.First)
		}
		l.fails++
		l.p.mu.Unlock()
		if to != nil {
			wait, known = 0, to.Epoch
		}
		if retry.Pause(ctx, wait) != nil {
			return
		}
		err := l.attach(ctx, to)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !retry.Verdict(err).Retriable:
			l.giveUp(err)
			return
		}
		l.p.mu.Lock()
		l.cause = err
		l.p.mu.Unlock()
		action, to = protocol.LookUp, directed(err, known)
	}
}

// attach opens the session on whoever owns the partition, or on whom to names.
func (l *lane) attach(ctx context.Context, to *protocol.Error) error {
	p := l.p
	c, epoch, err := p.c.owner(ctx, p.topic, l.partition, to)
	if err != nil {
		return err
	}
	l.leave()
	p.mu.Lock()
	q := &protocol.OpenProducer{
		Topic: p.topic, Partition: l.partition, Epoch: epoch, Name: p.cfg.Name,
		Producer: p.id, Session: p.session, Lowest: l.resume(), Exclusive: p.cfg.Exclusive,
	}
	p.mu.Unlock()
	return c.call(ctx, protocol.TypeOpenProducer, q, nil, &call{
		op: fmt.Sprintf("open producer on %s:%d", p.topic, l.partition), want: protocol.TypeOpenProducerOK,
		decode: func(f protocol.Frame) error {
			var ok protocol.OpenProducerOK
			if err := ok.Decode(f.Header); err != nil {
				return err
			}
			l.opened(c, &ok)
			return nil
		},
	})
}

// leave takes the lane off the session it had. An exclusive producer does not
// close that one, or another could come between.
func (l *lane) leave() {
	l.p.mu.Lock()
	c, handle := l.conn, l.handle
	l.conn = nil
	if l.state == laneOpen {
		l.state = laneDown
	}
	l.p.mu.Unlock()
	if c == nil {
		return
	}
	c.forget(handle)
	if !l.p.cfg.Exclusive {
		c.post(protocol.TypeCloseProducer, &protocol.Handle{Handle: handle}, &call{want: protocol.TypeClosed})
	}
}

// forget ends that answers for a producer's handle go to its lane.
func (c *conn) forget(handle uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.peers.lanes, handle&^(1<<31))
}

// opened begins a session, with all that has no outcome to be sent again. It
// runs on the reading goroutine of c.
func (l *lane) opened(c *conn, ok *protocol.OpenProducerOK) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if l.p.st.closed && l.p.ctx.Err() != nil {
		return
	}
	l.flights = slices.DeleteFunc(l.flights, func(f *flight) bool {
		done := f.settled
		if done {
			l.p.recycle(f)
		}
		return done
	})
	l.conn, l.handle, l.epoch, l.state = c, ok.Handle&^(1<<31), ok.Epoch, laneOpen
	l.sent, l.flying, l.first, l.queued = 0, 0, 0, false
	c.mu.Lock()
	if c.peers.lanes != nil {
		c.peers.lanes[l.handle] = l
	}
	c.mu.Unlock()
	l.kick(time.Now())
}

// giveUp ends every message of the lane with err, as an *UnknownError those
// that an attempt may have stored. The next message tries a new session, unless
// another producer took over.
func (l *lane) giveUp(err error) {
	l.p.mu.Lock()
	l.state, l.cause = laneDown, err
	if hasCode(err, protocol.CodeProducerFenced, protocol.CodeProducerBusy) {
		l.state = laneFenced
	}
	l.p.mu.Unlock()
	l.fail(err)
}

// fail settles every message of the lane that has no outcome. It returns how
// many may be stored and how many are not.
func (l *lane) fail(err error) (unknown, dropped int) {
	p := l.p
	p.mu.Lock()
	if l.filling != nil {
		l.seal()
	}
	var victims []*flight
	for _, f := range l.flights {
		if f.claimed {
			continue
		}
		f.claimed = true
		p.st.calling++
		victims = append(victims, f)
		if f.doubt || f.inflight {
			unknown += len(f.done)
		} else {
			dropped += len(f.done)
		}
	}
	p.mu.Unlock()
	for _, f := range victims {
		l.conclude(f, err)
	}
	return unknown, dropped
}

// conclude ends the messages of f, which the caller has claimed.
func (l *lane) conclude(f *flight, err error) {
	p := l.p
	p.mu.Lock()
	if f.doubt || f.inflight {
		err = &UnknownError{Count: len(f.done), Err: err}
	}
	p.mu.Unlock()
	f.call(l.partition, nil, err)
	p.mu.Lock()
	l.settle(f, err)
	p.st.calling--
	l.tidy()
	p.mu.Unlock()
}

// drop settles what has no outcome when the producer closes.
func (p *Producer) drop(err error) (unknown, dropped int) {
	for _, l := range p.st.lanes {
		u, d := l.fail(err)
		unknown, dropped = unknown+u, dropped+d
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// Callbacks under way on other goroutines end first; they do not block.
	p.st.waiting++
	for p.st.calling > 0 {
		p.cond.Wait()
	}
	p.st.waiting--
	return unknown, dropped
}

// sweep ends the messages that are older than ProducerConfig.SendTimeout. It is a timer.
func (p *Producer) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	old := time.Now().Add(-p.cfg.SendTimeout)
	for _, l := range p.st.lanes {
		l.expire(old)
	}
	p.sweeper.Reset(p.cfg.SendTimeout/4 + time.Millisecond)
}

// expire ends the batches begun before old. The caller holds p.mu, which is
// given up while callbacks run.
func (l *lane) expire(old time.Time) {
	p := l.p
	if l.filling != nil && l.filling.since.Before(old) {
		l.seal()
	}
	var victims []*flight
	for _, f := range l.flights {
		if !f.claimed && f.since.Before(old) {
			f.claimed = true
			p.st.calling++
			victims = append(victims, f)
		}
	}
	if len(victims) == 0 {
		return
	}
	last := l.cause
	p.mu.Unlock()
	err := retry.TimedOut(fmt.Sprintf("send to %s within %v", p.topic, p.cfg.SendTimeout), context.DeadlineExceeded, last)
	for _, f := range victims {
		l.conclude(f, err)
	}
	p.mu.Lock()
}
