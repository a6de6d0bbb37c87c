package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// fanout is a partition of a non-reliable topic: what is published goes to the
// consumers that are attached, at once, and is kept nowhere. A consumer that
// does not read loses its own messages and costs nobody else any.
type fanout struct {
	b    *Broker
	mu   sync.Mutex // guards what follows
	at   uint64     // offset of the next message, from zero at each start of the broker
	subs []*liveSub
	over *protocol.Error // not served any more, because

	scratch storage.Scratch  // what is on its way to consumers; nothing while there are none
	head    protocol.Deliver // of the batch at hand; a local would move to the heap
}

// liveSub is a subscription of a non-reliable topic: consumers in turn.
type liveSub struct {
	name string
	typ  protocol.SubscriptionType
	all  []*liveConsumer
	turn int
}

// liveConsumer is a consumer of a non-reliable topic.
type liveConsumer struct {
	c      *conn
	f      *fanout
	handle uint32
	name   string
	lost   uint64 // messages it did not get; guarded by the fanout

	answered bool            // its client knows the handle; guarded by the fanout
	ended    *protocol.Error // the broker ended it before that; guarded by the fanout
}

// next is the offset the next message gets.
func (f *fanout) next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// attached counts the consumers.
func (f *fanout) attached() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subs {
		n += len(s.all)
	}
	return n
}

// publish hands a batch to one consumer of each subscription. The batch is
// copied once for all of them, into memory that goes back when all have it.
func (f *fanout) publish(b batch.Batch) (base uint64, at int64, over *protocol.Error) {
	at = f.b.cfg.Now().UnixMilli()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		return 0, 0, f.over
	}
	base = f.at
	f.at += uint64(b.Count())
	if len(f.subs) == 0 {
		return base, at, nil
	}
	view := f.scratch.Hold(b)
	defer view.Release()
	own := batch.Batch(view.Data)
	own.Stamp(batch.Stamp{Base: base, AppendTime: at, Synced: base})
	f.head = protocol.Deliver{First: base, Count: uint32(b.Count()), Attempt: 1}
	for _, s := range f.subs {
		f.b.metrics.delivered(b.Count(), false)
		s.turn++
		o := s.all[s.turn%len(s.all)]
		f.head.Handle = o.handle
		view.Retain()
		if o.c.out.Full(nil) || !o.c.out.Deliver(&f.head, own, view) {
			view.Release()
			o.lost += uint64(b.Count())
			f.b.metrics.liveDropped.Add(float64(b.Count()))
			continue
		}
		o.c.out.Flush()
	}
	return base, at, nil
}

// grant does nothing: what a live consumer does not take in time is lost, credit or not.
func (o *liveConsumer) grant(uint32) {}

// subscribeLive attaches a consumer to a non-reliable topic.
func (c *conn) subscribeLive(p *partition, q *protocol.Subscribe) (protocol.Header, error) {
	if q.Type != protocol.Exclusive && q.Type != protocol.Shared {
		return nil, protocol.Errorf(protocol.CodeUnsupported, "subscriptions of type %v are not supported yet by this version", q.Type)
	}
	o := &liveConsumer{c: c, f: p.live, name: q.Consumer}
	cons := &consumer{c: c, live: o, name: q.Consumer}
	if !c.addConsumer(cons) {
		return nil, context.Cause(c.ctx)
	}
	o.handle = cons.handle
	if err := p.live.join(o, q); err != nil {
		c.dropConsumer(cons.handle)
		return nil, err
	}
	if c.over() {
		o.leave() // the connection took its consumers out before this one had joined
		return nil, context.Cause(c.ctx)
	}
	return answered{&protocol.SubscribeOK{Handle: cons.handle, Epoch: p.epoch, Type: q.Type, Cursor: p.live.next()}, o.begin}, nil
}

// begin says that the client knows the handle, or tells it that the consumer is over already.
func (o *liveConsumer) begin() {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	o.answered = true
	if o.ended != nil {
		o.detach(o.ended)
	}
}

// detach tells the client why its consumer is over, behind the answer that
// names the handle. The caller holds the fanout's mu.
func (o *liveConsumer) detach(why *protocol.Error) {
	o.c.dropConsumer(o.handle)
	if !o.answered {
		o.ended = why
		return
	}
	o.c.out.Frame(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: o.handle, Err: *why})
}

// close ends the fanout: its consumers are told why.
func (f *fanout) close(why *protocol.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = why
	for _, s := range f.subs {
		for _, o := range s.all {
			o.detach(why)
		}
	}
	f.subs = nil
	f.scratch.Release()
}

func (f *fanout) join(o *liveConsumer, q *protocol.Subscribe) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over != nil {
		return f.over
	}
	for _, s := range f.subs {
		if s.name != q.Subscription {
			continue
		}
		old := s.named(o.name)
		switch {
		case s.typ != q.Type:
			return protocol.Errorf(protocol.CodeWrongType, "subscription %s is %v, not %v", s.name, s.typ, q.Type)
		case old >= 0: // its session goes on here: the old connection may be dead and nobody knows yet
			s.all[old].detach(replaced(o.name, s.name))
			s.all[old] = o
			return nil
		case s.typ == protocol.Exclusive:
			return protocol.Errorf(protocol.CodeConsumerBusy, "subscription %s is exclusive and has a consumer", s.name)
		default:
			s.all = append(s.all, o)
			return nil
		}
	}
	f.subs = append(f.subs, &liveSub{name: q.Subscription, typ: q.Type, all: []*liveConsumer{o}})
	return nil
}

// named returns the place of the consumer with a name, -1 for none. Without a name nobody is anybody's successor.
func (s *liveSub) named(name string) int {
	return slices.IndexFunc(s.all, func(o *liveConsumer) bool { return name != "" && o.name == name })
}

// leave takes a consumer out; a subscription without consumers is gone.
func (o *liveConsumer) leave() {
	f := o.f
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, s := range f.subs {
		for j, x := range s.all {
			if x != o {
				continue
			}
			s.all = append(s.all[:j:j], s.all[j+1:]...)
			if len(s.all) == 0 {
				f.subs = append(f.subs[:i:i], f.subs[i+1:]...)
			}
			if len(f.subs) == 0 {
				f.scratch.Release()
			}
			return
		}
	}
}
