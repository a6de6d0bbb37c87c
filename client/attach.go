package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/protocol"
)

// errDetached: the connection of a stream is lost and not found again yet.
var errDetached = errors.New("the consumer is not attached at the moment")

// attach subscribes at whoever owns the partition. A subscription that was
// there once is not made again: it would begin somewhere else without a word.
func (s *stream) attach(ctx context.Context) error {
	k := s.k
	c, epoch, err := k.c.owner(ctx, k.topic, s.partition)
	if err != nil {
		return err
	}
	k.mu.Lock()
	existing := k.cfg.Existing || k.reliable && s.attached
	k.mu.Unlock()
	q := &protocol.Subscribe{
		Topic: k.topic, Partition: s.partition, Epoch: epoch, Subscription: k.cfg.Subscription, Consumer: k.cfg.Name,
		Type: k.cfg.Type, Start: k.cfg.From, Existing: existing, Priority: k.cfg.Priority, Filters: k.cfg.Filters,
		Credit: uint32(k.cfg.Queue), Options: k.cfg.Options,
	}
	return c.call(ctx, protocol.TypeSubscribe, q, nil, &call{
		op: s.op("subscribe to"), want: protocol.TypeSubscribeOK,
		decode: func(f protocol.Frame) error {
			var ok protocol.SubscribeOK
			if err := ok.Decode(f.Header); err != nil {
				return err
			}
			s.subscribed(c, &ok)
			return nil
		},
	})
}

// subscribed begins with a new attachment. It runs on the reading goroutine of c.
func (s *stream) subscribed(c *conn, ok *protocol.SubscribeOK) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	if s.attached && ok.Generation != s.generation {
		s.book = ackBook{} // the subscription was moved meanwhile: nothing from before counts
	}
	s.book.resume(ok.Cursor)
	s.conn, s.handle, s.generation, s.info = c, ok.Handle, ok.Generation, *ok
	s.attached, s.fails = true, 0
	s.granted, s.returned, s.asked = s.k.cfg.Queue, 0, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.peers.streams != nil {
		c.peers.streams[ok.Handle] = s
	}
}

// lost says that connection c is over; nothing reads or writes it any more.
func (s *stream) lost(c *conn, err error) {
	k := s.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if s.conn != c {
		return
	}
	s.unhook()
	s.mend(protocol.LookUp)
}

// unhook forgets the attachment. What was delivered and not handed out will
// come again. The caller holds k.mu.
func (s *stream) unhook() {
	s.conn = nil
	s.empty(false)
	s.book.lose()
}

// detached says that the broker ended the consumer with this handle.
func (s *stream) detached(c *conn, handle uint32, why *protocol.Error) {
	c.dropStream(handle)
	k := s.k
	k.mu.Lock()
	if s.conn != c || s.handle != handle {
		k.mu.Unlock()
		return
	}
	s.unhook()
	meaning := why.Code.Meaning()
	if meaning.Retriable {
		s.mend(meaning.Action)
		k.mu.Unlock()
		return
	}
	k.mu.Unlock()
	k.fail(wireError(s.op("receive from"), why))
}

// dropStream ends that frames for a consumer's handle go to its stream.
func (c *conn) dropStream(handle uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.peers.streams, handle)
}

// mend starts the goroutine that attaches the stream again. The caller holds k.mu.
func (s *stream) mend(action protocol.Action) {
	if s.k.ctx.Err() != nil || s.k.err != nil {
		return
	}
	s.k.wg.Go(func() { s.reattach(s.k.ctx, action) })
}

// reattach attaches the stream again, however long it takes. It returns when it
// is attached, refused for good, or ctx ends.
func (s *stream) reattach(ctx context.Context, action protocol.Action) {
	k := s.k
	for {
		k.mu.Lock()
		wait := backoff(s.fails)
		s.fails++
		k.mu.Unlock()
		if action == protocol.Wait {
			wait = max(wait, firstBackoff)
		}
		if pause(ctx, wait) != nil {
			return
		}
		err := s.attach(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !verdict(err).Retriable:
			k.fail(err)
			return
		}
		action = verdict(err).Action
	}
}

// seek moves the subscription on this partition.
func (s *stream) seek(ctx context.Context, to protocol.Position) error {
	k := s.k
	k.mu.Lock()
	c, handle, ended := s.conn, s.handle, k.err
	k.mu.Unlock()
	switch {
	case ended != nil:
		return ended
	case c == nil:
		return &lostError{"the owner", errDetached}
	}
	return c.call(ctx, protocol.TypeSeek, &protocol.Seek{Handle: handle, To: to}, nil, &call{
		op: s.op("seek on"), want: protocol.TypeSeekOK,
		decode: func(f protocol.Frame) error {
			var ok protocol.SeekOK
			if err := ok.Decode(f.Header); err != nil {
				return err
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			if s.conn == c && ok.Generation > s.generation {
				s.adopt(ok.Generation)
			}
			return nil
		},
	})
}

// close acknowledges what is to be, waits until that is committed, and detaches.
func (s *stream) close(ctx context.Context) error {
	k := s.k
	k.mu.Lock()
	c, handle := s.conn, s.handle
	rest := s.book.unconfirmed()
	n := uint64(0)
	for _, r := range rest {
		n += r.To - r.From
	}
	if c == nil {
		n = s.book.carried.n
	}
	ask := protocol.Ack{Ranges: protocol.Ranges{Handle: handle, Generation: s.generation}, Confirm: true}
	k.mu.Unlock()
	if c == nil {
		if n == 0 {
			return nil
		}
		return fmt.Errorf("%s: %d acknowledgements are not known to be committed: %w", s.op("close"), n, errDetached)
	}
	for len(rest) > 0 {
		ask.Ranges.Ranges = rest[:min(len(rest), rangesMost)]
		rest = rest[len(ask.Ranges.Ranges):]
		// The last answer stands for all before it; but every one is looked at.
		if err := c.call(ctx, protocol.TypeAck, &ask, nil, &call{op: s.op("acknowledge on"), want: protocol.TypeAckOK}); err != nil {
			return fmt.Errorf("%s: %d acknowledgements are not known to be committed: %w", s.op("close"), n, err)
		}
	}
	err := c.call(ctx, protocol.TypeCloseConsumer, &protocol.Handle{Handle: handle}, nil, &call{op: s.op("close"), want: protocol.TypeClosed})
	c.dropStream(handle)
	k.mu.Lock()
	s.conn = nil
	k.mu.Unlock()
	if hasCode(err, protocol.CodeBadHandle) {
		err = nil // it was ended meanwhile
	}
	return err
}

// leave detaches without waiting for anything.
func (s *stream) leave() {
	s.k.mu.Lock()
	c, handle := s.conn, s.handle
	s.conn = nil
	s.k.mu.Unlock()
	if c != nil {
		c.dropStream(handle)
		c.post(protocol.TypeCloseConsumer, &protocol.Handle{Handle: handle}, &call{want: protocol.TypeClosed})
	}
}

// confirm acknowledges the messages of set and waits until that is committed.
func (s *stream) confirm(ctx context.Context, set *rangeSet) error {
	s.k.mu.Lock()
	c := s.conn
	for _, r := range set.r {
		for o := r.From; o < r.To; o++ {
			if s.book.held.remove(o) {
				s.book.fresh.remove(o)
				s.book.sent.add(o, o+1)
			} else if s.book.old.remove(o) {
				s.book.carried.add(o, o+1)
			}
		}
	}
	a := &protocol.Ack{Confirm: true, Ranges: protocol.Ranges{Handle: s.handle, Generation: s.generation, Ranges: set.r}}
	s.k.mu.Unlock()
	if c == nil {
		return fmt.Errorf("%s: %w", s.op("acknowledge on"), errDetached)
	}
	var ok protocol.AckOK
	err := c.call(ctx, protocol.TypeAck, a, nil, &call{
		op: s.op("acknowledge on"), want: protocol.TypeAckOK,
		decode: func(f protocol.Frame) error { return ok.Decode(f.Header) },
	})
	if err == nil && ok.Stale > 0 {
		err = wireError(s.op("acknowledge on"), protocol.Errorf(protocol.CodeStaleGeneration,
			"%d of %d messages are no longer this consumer's", ok.Stale, set.n))
	}
	return err
}
