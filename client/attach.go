package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/client/internal/acks"
	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// errDetached: the connection of a stream is lost and not found again yet.
var errDetached = errors.New("the consumer is not attached at the moment")

// attach subscribes at whoever owns the partition, or at whom to names. A
// subscription that was there once is not made again: it would begin somewhere
// else without a word.
func (s *stream) attach(ctx context.Context, to *protocol.Error) error {
	k := s.k
	c, epoch, err := k.c.owner(ctx, k.topic, s.partition, to)
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
		s.book = acks.Book{} // the subscription was moved meanwhile: nothing from before counts
	}
	s.book.Resume(ok.Cursor)
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
	s.mend(nil, protocol.LookUp)
}

// unhook forgets the attachment. What was delivered and not handed out will
// come again. The caller holds k.mu.
func (s *stream) unhook() {
	s.conn = nil
	s.empty(false)
	s.book.Lose()
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
		s.mend(why, meaning.Action)
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

// mend starts the goroutine that attaches the stream again; why is what the
// broker said that ended it, nil for nothing. The caller holds k.mu.
func (s *stream) mend(why error, action protocol.Action) {
	if s.k.ctx.Err() != nil || s.k.err != nil && !s.k.closing { // one that closes may have acknowledgements to be confirmed
		return
	}
	known := s.info.Epoch
	to := directed(why, known)
	s.k.wg.Go(func() { s.reattach(s.k.ctx, to, known, action) })
}

// reattach attaches the stream again, however long it takes, at first to whom to
// names if that is not nil. It returns when it is attached, refused for good, or
// ctx ends.
func (s *stream) reattach(ctx context.Context, to *protocol.Error, known uint64, action protocol.Action) {
	k := s.k
	for {
		k.mu.Lock()
		wait := retry.Backoff(s.fails)
		s.fails++
		k.mu.Unlock()
		if action == protocol.Wait {
			wait = max(wait, retry.First)
		}
		if to != nil {
			wait, known = 0, to.Epoch
		}
		if retry.Pause(ctx, wait) != nil {
			return
		}
		err := s.attach(ctx, to)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case !retry.Verdict(err).Retriable:
			k.fail(err)
			return
		}
		action, to = retry.Verdict(err).Action, directed(err, known)
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
		return retry.Lost("the owner", errDetached)
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
	rest := s.book.Unconfirmed()
	to := s.at()
	to.late = s.book.Late()
	n := uint64(0)
	for _, r := range rest {
		n += r.To - r.From
	}
	k.mu.Unlock()
	last := commitment{s: s, from: to, ranges: rest}
	err := k.c.persist(ctx, s.op("close"), func(ctx context.Context) error {
		_, err := last.try(ctx)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %d acknowledgements are not known to be committed: %w", s.op("close"), n, err)
	}
	k.mu.Lock()
	c, handle := s.conn, s.handle
	s.conn = nil
	k.mu.Unlock()
	if c == nil {
		return nil
	}
	err = c.call(ctx, protocol.TypeCloseConsumer, &protocol.Handle{Handle: handle}, nil, &call{op: s.op("close"), want: protocol.TypeClosed})
	c.dropStream(handle)
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

// attachment is one subscribing, by which messages were delivered.
type attachment struct {
	conn       *conn
	handle     uint32
	generation uint64
	late       bool // what is meant was delivered by one before it
}

// at returns the current one. The caller holds k.mu.
func (s *stream) at() attachment {
	return attachment{conn: s.conn, handle: s.handle, generation: s.generation}
}

// confirm acknowledges the messages of set and waits until that is committed.
func (s *stream) confirm(ctx context.Context, set *acks.Set) error {
	s.k.mu.Lock()
	to := s.at()
	to.late = s.book.Confirming(set)
	s.k.mu.Unlock()
	c := commitment{s: s, from: to, ranges: set.Ranges()}
	return s.k.c.insist(ctx, s.op("acknowledge on"), func(ctx context.Context) error {
		stale, err := c.try(ctx)
		if err == nil && stale > 0 {
			err = s.stale("%d of %d messages are no longer this consumer's", stale, set.Len())
		}
		return err
	})
}

// stale is the error of an acknowledgement that comes too late.
func (s *stream) stale(format string, args ...any) error {
	return wireError(s.op("acknowledge on"), protocol.Errorf(protocol.CodeStaleGeneration, format, args...))
}

// commitment is the acknowledgement of ranges that were delivered by way of an attachment, until it is committed.
type commitment struct {
	s      *stream
	from   attachment
	ranges []protocol.Range
	since  time.Time // when a new owner was first found not to have delivered them again
}

// comeAgain is how long a commitment waits for a new owner to deliver its messages again. They come within much less,
// or not at all: to another consumer, or behind messages for which there is room only when the application, which waits
// here, takes some.
const comeAgain = time.Second

// try tries once to have the ranges acknowledged and committed by whoever owns the partition now, and returns how many
// messages of them are not this consumer's any more. A new owner knows them as its own once it has delivered them
// again; until then they are to be tried again, for a while.
func (a *commitment) try(ctx context.Context) (stale uint64, err error) {
	if len(a.ranges) == 0 {
		return 0, nil
	}
	s, from, k := a.s, a.from, a.s.k
	k.mu.Lock()
	now, ended, closing := s.at(), k.err, k.closing
	k.mu.Unlock()
	switch {
	case ended != nil && !closing:
		return 0, ended
	case k.ctx.Err() != nil:
		return 0, ErrClosed
	case now.generation != from.generation:
		return 0, s.stale("the subscription was moved meanwhile")
	case now.conn == nil:
		return 0, retry.Lost("the owner", errDetached)
	}
	stale, err = s.ask(ctx, now, a.ranges)
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		if do := e.Code.Meaning().Action; do == protocol.LookUp || do == protocol.Reopen {
			s.detached(now.conn, now.handle, e) // the broker says so itself as well, or not
		}
	}
	if err != nil || stale == 0 || !from.late && now == from {
		return stale, err
	}
	switch {
	case a.since.IsZero():
		a.since = time.Now()
	case time.Since(a.since) >= comeAgain:
		return stale, fmt.Errorf("%s: the partition was handed over, and its new owner has not delivered %s again; they may come again",
			s.op("acknowledge on"), counted(int(stale), "message"))
	}
	return stale, retry.Lost(now.conn.address, s.stale("%d messages have not come again yet", stale))
}

// ask has ranges acknowledged and committed, and returns how many messages of them are not this consumer's.
func (s *stream) ask(ctx context.Context, to attachment, ranges []protocol.Range) (stale uint64, err error) {
	for len(ranges) > 0 {
		n := min(len(ranges), rangesMost)
		a := &protocol.Ack{Confirm: true, Ranges: protocol.Ranges{Handle: to.handle, Generation: to.generation, Ranges: ranges[:n]}}
		var ok protocol.AckOK
		err := to.conn.call(ctx, protocol.TypeAck, a, nil, &call{
			op: s.op("acknowledge on"), about: place{s.k.topic, s.partition}, want: protocol.TypeAckOK,
			decode: func(f protocol.Frame) error { return ok.Decode(f.Header) },
		})
		if err != nil {
			return stale, err
		}
		stale, ranges = stale+ok.Stale, ranges[n:]
	}
	return stale, nil
}
