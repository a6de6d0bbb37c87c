package client

import (
	"bytes"

	"github.com/danubemq/danube/client/internal/acks"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// fakeTopic is a topic of the fake. The fake's mutex guards all of it.
type fakeTopic struct {
	reliable bool
	parts    []*fakePart
}

// fakePart is a partition: its log, producer table and subscriptions.
type fakePart struct {
	f           *fake
	log         []batch.Batch
	start, next uint64
	gaps        map[uint64]uint64
	again       map[uint64]bool // the gap that begins here is superseded rather than lost
	sessions    map[[2]uint64]*fakeSession
	subs        map[string]*fakeSub
}

// fakeSession is the dedup state of one producer and session (R17).
type fakeSession struct {
	part   *fakePart
	expect uint64
	stored map[uint64]batch.Batch // by sequence
	broken bool                   // an unknown outcome was answered: nothing is taken before a re-open
	owner  uint32                 // handle that may produce
	conn   *fakeConn
}

// fakeSub is a subscription.
type fakeSub struct {
	part       *fakePart
	acked      acks.Set
	committed  acks.Set // what would survive a crash
	cursor     uint64
	generation uint64
	tries      map[uint64]uint32
	on         *fakeConsumer
}

// fakeConsumer is the consumer attached to a subscription.
type fakeConsumer struct {
	c      *fakeConn
	sub    *fakeSub
	handle uint32
	name   string
	credit int
	at     uint64 // next offset to deliver
	held   acks.Set
}

// topic returns a topic by its full name, and makes it if it is not there.
func (f *fake) topic(name string, partitions int) *fakeTopic {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.makeTopic(name, partitions)
}

func (f *fake) makeTopic(name string, partitions int) *fakeTopic {
	t := f.topics[name]
	if t == nil {
		t = &fakeTopic{reliable: true}
		for range partitions {
			t.parts = append(t.parts, &fakePart{
				f: f, gaps: map[uint64]uint64{}, sessions: map[[2]uint64]*fakeSession{}, subs: map[string]*fakeSub{},
			})
		}
		f.topics[name] = t
	}
	return t
}

// payloads is everything a partition holds, in order.
func (p *fakePart) payloads() []string {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	var all []string
	d := batch.NewDecoder(batch.Limits{})
	for _, b := range p.log {
		if err := d.Reset(b); err != nil {
			p.f.tb.Error(err)
		}
		var m batch.Message
		for {
			ok, err := d.Next(&m)
			if err != nil {
				p.f.tb.Error(err)
			}
			if !ok || err != nil {
				break
			}
			all = append(all, string(m.Payload))
		}
	}
	return all
}

func (c *fakeConn) openProducer(fr protocol.Frame) {
	var q protocol.OpenProducer
	c.decode(fr, &q)
	f := c.f
	f.mu.Lock()
	p := f.topics[q.Topic].parts[q.Partition]
	key := [2]uint64{q.Producer, uint64(q.Session)}
	s := p.sessions[key]
	if s == nil {
		s = &fakeSession{part: p, stored: map[uint64]batch.Batch{}}
		p.sessions[key] = s
	}
	c.handles++
	s.expect, s.owner, s.conn, s.broken = q.Lowest, c.handles, c, false
	c.prods[c.handles] = s
	ok := protocol.OpenProducerOK{Handle: c.handles, Epoch: 1}
	f.mu.Unlock()
	c.send(protocol.TypeOpenProducerOK, fr.ID, &ok, nil)
}

// produce stores a batch and answers.
func (c *fakeConn) produce(fr protocol.Frame) {
	ok, refusal := c.store(fr)
	if refusal != nil {
		c.refuse(fr.ID, refusal)
		return
	}
	c.send(protocol.TypeProduceOK, fr.ID, ok, nil)
	var q protocol.Produce
	c.decode(fr, &q)
	c.f.mu.Lock()
	part := c.prods[q.Handle].part
	c.f.mu.Unlock()
	part.pump()
}

// store is produce without the answer.
func (c *fakeConn) store(fr protocol.Frame) (*protocol.ProduceOK, *protocol.Error) {
	var q protocol.Produce
	c.decode(fr, &q)
	f := c.f
	f.mu.Lock()
	defer f.mu.Unlock()
	s := c.prods[q.Handle]
	if s == nil || s.owner != q.Handle || s.conn != c {
		return nil, protocol.Errorf(protocol.CodeBadHandle, "no producer %d", q.Handle)
	}
	b, err := batch.Check(fr.Body, batch.Limits{})
	if err == nil {
		err = b.CheckTable(batch.Limits{})
	}
	if err != nil {
		return nil, protocol.Errorf(protocol.CodeCorruptBatch, "%v", err)
	}
	switch {
	case s.broken:
		return nil, protocol.Errorf(protocol.CodeBadSequence, "an outcome is unknown")
	case b.Sequence() != s.expect:
		return nil, &protocol.Error{Code: protocol.CodeBadSequence, Want: s.expect}
	}
	s.expect = b.Sequence() + uint64(b.Count())
	if old := s.stored[b.Sequence()]; old != nil {
		if !bytes.Equal(old.Body(), b.Body()) || old.Count() != b.Count() {
			f.tb.Error("a batch was re-sent with other bytes")
		}
		return &protocol.ProduceOK{Base: old.Base(), AppendTime: old.AppendTime(), Duplicate: true}, nil
	}
	own := s.part.append(b)
	s.stored[b.Sequence()] = own
	return &protocol.ProduceOK{Base: own.Base(), AppendTime: own.AppendTime()}, nil
}

// append stores a batch. The caller holds the fake's mutex.
func (p *fakePart) append(b batch.Batch) batch.Batch {
	own := bytes.Clone(b)
	batch.Batch(own).Stamp(batch.Stamp{Base: p.next, Epoch: 1, AppendTime: 1_700_000_000_000})
	p.log = append(p.log, own)
	p.next += uint64(b.Count())
	return own
}

// put stores messages without a producer.
func (p *fakePart) put(payloads ...string) {
	p.f.mu.Lock()
	p.append(encode(p.f.tb, batch.Identity{}, payloads...))
	p.f.mu.Unlock()
	p.pump()
}

func (c *fakeConn) subscribe(fr protocol.Frame) {
	var q protocol.Subscribe
	c.decode(fr, &q)
	f := c.f
	f.mu.Lock()
	p := f.topics[q.Topic].parts[q.Partition]
	s := p.subs[q.Subscription]
	created := s == nil
	if created {
		if q.Existing {
			f.mu.Unlock()
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeNoSuchSub, "no subscription %s", q.Subscription))
			return
		}
		s = &fakeSub{part: p, generation: 1, tries: map[uint64]uint32{}}
		switch q.Start.Kind {
		case protocol.Latest:
			s.cursor = p.next
		case protocol.AtOffset:
			s.cursor = q.Start.Offset
		}
		p.subs[q.Subscription] = s
	}
	if old := s.on; old != nil {
		if old.name != q.Consumer {
			f.mu.Unlock()
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeConsumerBusy, "%s is there", old.name))
			return
		}
		delete(old.c.subs, old.handle)
		go old.c.send(protocol.TypeUnsubscribed, 0, &protocol.Detached{Handle: old.handle, Err: protocol.Error{Code: protocol.CodeConsumerReplaced}}, nil)
	}
	c.handles++
	s.on = &fakeConsumer{c: c, sub: s, handle: c.handles, name: q.Consumer, credit: int(q.Credit), at: s.cursor}
	c.subs[c.handles] = s.on
	ok := protocol.SubscribeOK{Handle: c.handles, Epoch: 1, Created: created, Type: q.Type, Cursor: s.cursor, Generation: s.generation, MaxUnacked: 1000}
	f.mu.Unlock()
	c.send(protocol.TypeSubscribeOK, fr.ID, &ok, nil)
	p.pump()
}

// leave takes a consumer off. The caller holds the fake's mutex.
func (s *fakeSub) leave(on *fakeConsumer) {
	if s.on == on {
		s.on = nil
	}
}

// pump delivers what credit allows.
func (p *fakePart) pump() {
	p.f.mu.Lock()
	var out []func()
	for _, s := range p.subs {
		if s.on == nil {
			continue
		}
		for _, b := range p.log {
			out = append(out, s.on.offer(b)...)
		}
	}
	p.f.mu.Unlock()
	for _, do := range out {
		do()
	}
}

// offer delivers the runs of a batch that are not acknowledged.
func (o *fakeConsumer) offer(b batch.Batch) (out []func()) {
	s := o.sub
	for o.at >= b.Base() && o.at < b.End() && o.credit > 0 {
		if s.acked.Has(o.at) {
			o.at++
			continue
		}
		from := o.at
		for o.at < b.End() && o.credit > 0 && !s.acked.Has(o.at) && s.tries[o.at] == s.tries[from] {
			o.at++
			o.credit--
		}
		for i := from; i < o.at; i++ {
			s.tries[i]++
		}
		o.held.Add(from, o.at)
		d := protocol.Deliver{Handle: o.handle, Generation: s.generation, First: from, Count: uint32(o.at - from), Attempt: s.tries[from]}
		out = append(out, func() { o.c.send(protocol.TypeDeliver, 0, &d, b) })
	}
	return out
}

// consumerFrame deals with what a consumer sends.
func (c *fakeConn) consumerFrame(fr protocol.Frame) {
	var h protocol.Handle
	c.decode(fr, &h)
	c.f.mu.Lock()
	o := c.subs[h.Handle]
	c.f.mu.Unlock()
	if o == nil {
		if fr.ID != 0 {
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeBadHandle, "no consumer %d", h.Handle))
		}
		return
	}
	switch fr.Type {
	case protocol.TypeCredit:
		var q protocol.Credit
		c.decode(fr, &q)
		c.f.mu.Lock()
		o.credit += int(q.Messages)
		c.f.mu.Unlock()
	case protocol.TypeAck:
		o.ack(fr)
	case protocol.TypeNack:
		var q protocol.Nack
		c.decode(fr, &q)
		c.f.mu.Lock()
		for _, r := range q.Ranges.Ranges {
			o.at = min(o.at, r.From)
		}
		c.f.mu.Unlock()
	case protocol.TypeSeek:
		var q protocol.Seek
		c.decode(fr, &q)
		c.f.mu.Lock()
		s := o.sub
		s.generation++
		s.acked, s.cursor = acks.Set{}, q.To.Offset
		if q.To.Kind == protocol.Latest {
			s.cursor = s.part.next
		}
		o.at = s.cursor
		ok := protocol.SeekOK{Cursor: s.cursor, Generation: s.generation}
		c.f.mu.Unlock()
		c.send(protocol.TypeSeekOK, fr.ID, &ok, nil)
	case protocol.TypeCloseConsumer:
		c.f.mu.Lock()
		o.sub.leave(o)
		delete(c.subs, h.Handle)
		c.f.mu.Unlock()
		c.send(protocol.TypeClosed, fr.ID, nil, nil)
		return
	}
	o.sub.part.pump()
}

func (o *fakeConsumer) ack(fr protocol.Frame) {
	var q protocol.Ack
	o.c.decode(fr, &q)
	o.c.f.mu.Lock()
	var ok protocol.AckOK
	for _, r := range q.Ranges.Ranges {
		for i := r.From; i < r.To; i++ {
			if !o.held.Remove(i) && !o.sub.acked.Has(i) {
				ok.Stale++
				continue
			}
			o.sub.acked.Add(i, i+1)
		}
	}
	if q.Confirm {
		o.sub.committed = acks.Set{}
		o.sub.committed.Join(&o.sub.acked)
	}
	o.c.f.mu.Unlock()
	if q.Confirm {
		o.c.send(protocol.TypeAckOK, fr.ID, &ok, nil)
	}
}

// crash loses what was acknowledged and not committed, and every connection.
func (f *fake) crash() {
	f.mu.Lock()
	for _, t := range f.topics {
		for _, p := range t.parts {
			for _, s := range p.subs {
				s.acked = acks.Set{}
				s.acked.Join(&s.committed)
				s.on = nil
			}
		}
	}
	f.mu.Unlock()
	f.hangUp(false)
}

// handOver leaves the partition without its consumers, as a new owner finds it. Theirs are not told.
func (p *fakePart) handOver() {
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	for _, s := range p.subs {
		delete(s.on.c.subs, s.on.handle)
		s.on = nil
	}
}
