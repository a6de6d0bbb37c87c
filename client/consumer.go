package client

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/danubemq/danube/client/internal/acks"
	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// Consumer receives the messages of a subscription, over all partitions of its
// topic. What is received and not acknowledged comes again: after the ack
// timeout, after a reconnect, or to another consumer after Close. Safe for
// concurrent use.
type Consumer struct {
	c        *Client
	cfg      ConsumerConfig
	topic    string
	reliable bool
	wg       sync.WaitGroup
	ctx      context.Context // ends with the consumer; bounds the mending that no caller waits for
	end      context.CancelFunc
	wake     chan struct{} // of capacity one: a message is there
	over     chan struct{} // closed with err set

	mu      sync.Mutex // guards what follows, the streams too
	streams []*stream
	ready   []*stream // with something to hand out, next first
	waiting int       // callers in Receive that wait
	err     error     // why nothing is received any more
	odd     error     // to be returned by Receive once
	closing bool
}

// Consumer attaches a consumer to a subscription of a topic, named NAME or
// /NAMESPACE/NAME, or of one partition of it, NAME:N. What can be tried again
// is, until ctx ends or the configured timeout is over.
func (c *Client) Consumer(ctx context.Context, topic string, cfg ConsumerConfig) (*Consumer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	full, info, partitions, err := c.partitions(ctx, topic, nil)
	if err != nil {
		return nil, err
	}
	if cfg.From.Kind == protocol.AtOffset && len(partitions) > 1 {
		return nil, errors.New("consume: a start offset needs one partition: name the topic as NAME:N")
	}
	k := &Consumer{
		c: c, cfg: cfg, topic: full, reliable: info.Reliable,
		wake: make(chan struct{}, 1), over: make(chan struct{}),
	}
	k.ctx, k.end = context.WithCancel(c.life)
	for _, n := range partitions {
		k.streams = append(k.streams, newStream(k, n))
	}
	if err := k.attachAll(ctx); err != nil {
		k.abandon()
		return nil, err
	}
	if err := c.adopt(k); err != nil {
		k.abandon()
		return nil, err
	}
	return k, nil
}

// attachAll subscribes to every partition.
func (k *Consumer) attachAll(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(k.streams))
	slots := make(chan struct{}, 32) // a broker bounds the requests under way
	for i, s := range k.streams {
		wg.Go(func() { // returns when the stream is attached, refused, or ctx ends
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = k.c.persist(ctx, s.op("subscribe to"), func(ctx context.Context) error { return s.attach(ctx, nil) })
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Topic is the full name of the topic.
func (k *Consumer) Topic() string { return k.topic }

// Subscribed is what the broker said when the consumer was last attached to
// each partition: where the subscription stood, and whether that made it.
func (k *Consumer) Subscribed() []protocol.SubscribeOK {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]protocol.SubscribeOK, len(k.streams))
	for i, s := range k.streams {
		all[i] = s.info
	}
	return all
}

// Receive returns the next message, waiting for one until ctx ends. An error
// that is not ctx's is final, ErrClosed or why the broker ended the consumer
// (another of the same name took over, the subscription or topic was deleted),
// but for one: a delivery that arrived damaged is reported once, and comes again.
func (k *Consumer) Receive(ctx context.Context) (Message, error) {
	var m Message
	for {
		k.mu.Lock()
		if err := k.fault(); err != nil {
			k.mu.Unlock()
			return Message{}, err
		}
		if k.next(&m) {
			if k.waiting > 0 && len(k.ready) > 0 {
				notify(k.wake)
			}
			k.mu.Unlock()
			return m, nil
		}
		k.waiting++
		k.mu.Unlock()
		var err error
		select {
		case <-k.wake:
		case <-k.over:
		case <-ctx.Done():
			err = retry.Stopped(ctx, "receive from "+k.topic, nil)
		}
		k.mu.Lock()
		k.waiting--
		k.mu.Unlock()
		if err != nil {
			return Message{}, err
		}
	}
}

// fault is what Receive returns instead of a message. The caller holds k.mu.
func (k *Consumer) fault() error {
	if k.err != nil {
		return k.err
	}
	err := k.odd
	k.odd = nil
	return err
}

// next hands out the next message that is there. The caller holds k.mu.
func (k *Consumer) next(m *Message) bool {
	for len(k.ready) > 0 {
		s := k.ready[0]
		got := s.next(m)
		if got && s.box.Begun() {
			return true // the next of the same batch comes next
		}
		k.ready = append(k.ready[:0], k.ready[1:]...)
		if s.listed = s.box.Some(); s.listed {
			k.ready = append(k.ready, s)
		}
		if got {
			return true
		}
	}
	return false
}

// notify wakes whoever waits on ch, a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Messages iterates over what Receive returns. It ends with the error that
// ended it, that of ctx included.
func (k *Consumer) Messages(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		for {
			m, err := k.Receive(ctx)
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// usable returns the stream of m if it can be settled. The caller holds k.mu.
func (k *Consumer) usable(m *Message) (*stream, error) {
	switch s := m.from; {
	case s == nil || s.k != k:
		return nil, errors.New("the message is not of this consumer")
	case k.closing:
		return nil, ErrClosed
	case k.err != nil:
		return nil, k.err
	case m.generation != s.generation:
		return nil, wireError(s.op("acknowledge on"), protocol.Errorf(protocol.CodeStaleGeneration,
			"the subscription was moved since offset %d was received", m.Offset))
	default:
		return s, nil
	}
}

// Ack acknowledges m. It is sent within a few milliseconds, committed by the
// broker within its commit interval, and never asked for again by this
// Consumer; a crash of the broker before the commit may bring m to another
// one. Use AckConfirmed to know. Acknowledging twice is no error.
func (k *Consumer) Ack(m Message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.usable(&m)
	if err != nil || !k.reliable {
		return err
	}
	s.book.Ack(m.Offset)
	s.owe(s.box.Attempt())
	return nil
}

// AckUpTo acknowledges m and every message of its partition below it that this
// Consumer received.
func (k *Consumer) AckUpTo(m Message) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.usable(&m)
	if err != nil || !k.reliable {
		return err
	}
	s.book.AckBelow(m.Offset + 1)
	s.owe(s.box.Attempt())
	return nil
}

// AckConfirmed acknowledges messages and returns when that is committed. A
// message that is this consumer's no more, because its ack timeout passed or it
// was given back, is an error with code STALE. When the partition is handed over
// meanwhile the new owner is asked, until ctx ends, or it has been there for a
// second and has not delivered them again. After that and any other error it is
// not known whether the acknowledgement is committed; the messages are still not
// handed out by this Consumer again.
func (k *Consumer) AckConfirmed(ctx context.Context, messages ...Message) error {
	k.mu.Lock()
	sets := map[*stream]*acks.Set{}
	for i := range messages {
		s, err := k.usable(&messages[i])
		if err != nil {
			k.mu.Unlock()
			return err
		}
		if sets[s] == nil {
			sets[s] = new(acks.Set)
		}
		sets[s].Add(messages[i].Offset, messages[i].Offset+1)
	}
	k.mu.Unlock()
	if !k.reliable {
		return nil
	}
	var errs []error
	for s, set := range sets {
		errs = append(errs, s.confirm(ctx, set))
	}
	return errors.Join(errs...)
}

// Nack gives m back: it is delivered again after delay, or after the
// subscription's backoff if that is 0, here or to another consumer. The reason
// goes with it where it ends as a dead letter.
func (k *Consumer) Nack(m Message, delay time.Duration, reason string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	s, err := k.usable(&m)
	if err != nil || !k.reliable {
		return err
	}
	if s.book.Nack(m.Offset) && s.conn != nil {
		n := protocol.Nack{
			Ranges:  protocol.Ranges{Handle: s.handle, Generation: s.generation, Ranges: []protocol.Range{{From: m.Offset, To: m.Offset + 1}}},
			DelayMS: delay.Milliseconds(), Reason: reason,
		}
		if delay > 0 && n.DelayMS == 0 {
			n.DelayMS = 1
		}
		s.conn.post(protocol.TypeNack, &n, nil)
	}
	return nil
}

// Seek moves the subscription, on every partition of this consumer and for all
// its consumers. Messages received before cannot be acknowledged any more.
func (k *Consumer) Seek(ctx context.Context, to protocol.Position) error {
	if to.Kind == protocol.AtOffset && len(k.streams) > 1 {
		return errors.New("seek: an offset needs one partition: consume NAME:N")
	}
	for _, s := range k.streams {
		if err := k.c.persist(ctx, s.op("seek on"), func(ctx context.Context) error { return s.seek(ctx, to) }); err != nil {
			return err
		}
	}
	return nil
}

// fail ends the consumer for good.
func (k *Consumer) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.err = err
		close(k.over)
	}
}

// Close sends what was acknowledged, waits until that is committed, and gives
// back what was received and not acknowledged. The error says that something
// acknowledged is not known to be committed, because ctx ended or the broker is
// away; it may be delivered again.
func (k *Consumer) Close(ctx context.Context) error {
	k.mu.Lock()
	if k.closing {
		k.mu.Unlock()
		return nil
	}
	k.closing = true
	ended := k.err
	k.mu.Unlock()
	k.fail(ErrClosed)
	var errs []error
	if ended == nil {
		errs = make([]error, len(k.streams))
		var wg sync.WaitGroup
		slots := make(chan struct{}, 32)
		for i, s := range k.streams {
			wg.Go(func() { // returns when the stream is closed or ctx ends
				slots <- struct{}{}
				defer func() { <-slots }()
				errs[i] = s.close(ctx)
			})
		}
		wg.Wait()
	}
	k.stop()
	return errors.Join(errs...)
}

// abandon closes the consumer at once.
func (k *Consumer) abandon() {
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	k.fail(ErrClosed)
	for _, s := range k.streams {
		s.leave()
	}
	k.stop()
}

// stop ends what the consumer has running.
func (k *Consumer) stop() {
	k.mu.Lock()
	k.end() // under the lock: nothing is begun afterwards that wg would have to wait for
	for _, s := range k.streams {
		s.timer.Stop()
	}
	k.mu.Unlock()
	k.wg.Wait()
	k.c.release(k)
}
