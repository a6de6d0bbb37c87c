package delivery

import (
	"slices"
	"sync"

	"github.com/danubemq/danube/broker/outbox"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// Live is a partition of a non-reliable topic: what is published goes to the
// consumers that are attached, at once, and is kept nowhere. A consumer that
// does not read loses its own messages and costs nobody else any.
type Live struct {
	c    *Carrier
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
	all  []*LiveConsumer
	turn int
}

// LiveConsumer is a consumer of a non-reliable topic.
type LiveConsumer struct {
	Handle uint32 // by which its client knows it; set before Join

	client Client
	out    *outbox.Outbox
	f      *Live
	name   string
	lost   uint64 // messages it did not get; guarded by the Live

	answered bool            // its client knows the handle; guarded by the Live
	ended    *protocol.Error // the broker ended it before that; guarded by the Live
}

// Live makes the partition of a non-reliable topic whose first offset is at. What
// is on its way to consumers lies in scratch.
func (c *Carrier) Live(at uint64, scratch storage.Scratch) *Live {
	return &Live{c: c, at: at, scratch: scratch}
}

// Consumer makes a consumer that is to join.
func (f *Live) Consumer(client Client, name string) *LiveConsumer {
	return &LiveConsumer{client: client, out: client.Out(), f: f, name: name}
}

// Next is the offset the next message gets.
func (f *Live) Next() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

// Attached counts the consumers.
func (f *Live) Attached() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subs {
		n += len(s.all)
	}
	return n
}

// Publish hands a batch to one consumer of each subscription. The batch is
// copied once for all of them, into memory that goes back when all have it.
func (f *Live) Publish(b batch.Batch) (base uint64, at int64, over *protocol.Error) {
	at = f.c.cfg.Now().UnixMilli()
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
		f.c.cfg.Metrics.delivered(b.Count(), false)
		s.turn++
		o := s.all[s.turn%len(s.all)]
		f.head.Handle = o.Handle
		view.Retain()
		if o.out.Full(nil) || !o.out.Deliver(&f.head, own, view) {
			view.Release()
			o.lost += uint64(b.Count())
			f.c.cfg.Metrics.LiveDropped.Add(float64(b.Count()))
			continue
		}
		o.out.Flush()
	}
	return base, at, nil
}

// Begin says that the client knows the handle, or tells it that the consumer is over already.
func (o *LiveConsumer) Begin() {
	o.f.mu.Lock()
	defer o.f.mu.Unlock()
	o.answered = true
	if o.ended != nil {
		o.detach(o.ended)
	}
}

// detach tells the client why its consumer is over, behind the answer that
// names the handle. The caller holds the Live's mu.
func (o *LiveConsumer) detach(why *protocol.Error) {
	o.client.Drop(o.Handle)
	if !o.answered {
		o.ended = why
		return
	}
	o.out.Frame(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: o.Handle, Err: *why})
}

// Close ends the Live: its consumers are told why.
func (f *Live) Close(why *protocol.Error) {
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

func (f *Live) Join(o *LiveConsumer, q *protocol.Subscribe) error {
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
	f.subs = append(f.subs, &liveSub{name: q.Subscription, typ: q.Type, all: []*LiveConsumer{o}})
	return nil
}

// named returns the place of the consumer with a name, -1 for none. Without a name nobody is anybody's successor.
func (s *liveSub) named(name string) int {
	return slices.IndexFunc(s.all, func(o *LiveConsumer) bool { return name != "" && o.name == name })
}

// Leave takes a consumer out; a subscription without consumers is gone.
func (o *LiveConsumer) Leave() {
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
