package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// Producer sends messages to a topic, over all its partitions: those with a key
// to the partition of the key, the others to the partitions in turn, a batch
// each. The order of sending is the order of offsets within a partition. Safe
// for concurrent use.
type Producer struct {
	c       *Client
	cfg     ProducerConfig
	topic   string
	created bool
	id      uint64
	session uint32
	largest int // bytes a message may have
	wg      sync.WaitGroup
	ctx     context.Context // ends with the producer; bounds the mending that no caller waits for
	end     context.CancelFunc
	sweeper *time.Timer
	waiters sync.Pool // of Send

	mu   sync.Mutex // guards what follows, the lanes too
	cond sync.Cond  // room was made, or messages were settled
	st   producerState
}

// producerState is what the mutex of a Producer guards, beside its lanes.
type producerState struct {
	lanes    []*lane
	turn     int // lane of the messages without a key
	bytes    int // of messages without an outcome
	waiting  int // callers that wait on cond
	calling  int // batches whose callbacks are being called
	closed   bool
	spare    []*flight        // settled, to be used again
	builders []*batch.Builder // empty, to be used again
	failed   int              // messages without a callback that failed
	err      error            // why the first of them did
}

// makeAgain is how often a producer looks for its topic again after one that is to be made was deleted under it.
const makeAgain = 5

// Producer opens a producer on a topic, named NAME or /NAMESPACE/NAME, or on
// one partition of it, NAME:N. What can be tried again is, until ctx ends or
// the configured timeout is over.
func (c *Client) Producer(ctx context.Context, topic string, cfg ProducerConfig) (*Producer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	for fails := 1; ; fails++ {
		full, info, partitions, err := c.partitions(ctx, topic, cfg.Create)
		if err != nil {
			return nil, err
		}
		p := c.newProducer(cfg, full, info.Created, partitions)
		if err = p.begin(ctx); err == nil {
			return p, nil
		}
		p.abandon()
		// The broker that was asked may not have heard yet that the topic it knows was deleted. Once it has it makes another.
		deleted := errors.Is(err, protocol.Errorf(protocol.CodeNoSuchTopic, ""))
		if !deleted || cfg.Create == nil || fails > makeAgain || retry.Pause(ctx, retry.Backoff(fails)) != nil {
			return nil, err
		}
	}
}

// newProducer returns a producer on partitions of a topic whose lanes are not open yet.
func (c *Client) newProducer(cfg ProducerConfig, topic string, created bool, partitions []int) *Producer {
	p := &Producer{c: c, cfg: cfg, topic: topic, created: created, id: rand.Uint64(), session: rand.Uint32()}
	if cfg.Name != "" {
		p.id = protocol.ProducerID(cfg.Name)
	}
	p.cond.L = &p.mu
	p.ctx, p.end = context.WithCancel(c.life)
	for _, n := range partitions {
		p.st.lanes = append(p.st.lanes, &lane{p: p, partition: n, state: laneMending, open: p.builder()})
	}
	return p
}

// begin opens the lanes, and lets the client end the producer with itself.
func (p *Producer) begin(ctx context.Context) error {
	if err := p.attachAll(ctx); err != nil {
		return err
	}
	if err := p.c.adopt(p); err != nil {
		return err
	}
	if p.cfg.SendTimeout > 0 {
		p.mu.Lock()
		p.sweeper = time.AfterFunc(p.cfg.SendTimeout/4+time.Millisecond, p.sweep)
		p.mu.Unlock()
	}
	return nil
}

// attachAll opens the session on every partition.
func (p *Producer) attachAll(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(p.st.lanes))
	slots := make(chan struct{}, 32) // a broker bounds the requests under way
	for i, l := range p.st.lanes {
		wg.Go(func() { // returns when the lane is open, refused, or ctx ends
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = p.c.persist(ctx, fmt.Sprintf("open producer on %s:%d", p.topic, l.partition), func(ctx context.Context) error { return l.attach(ctx, nil) })
		})
	}
	wg.Wait()
	for i, l := range p.st.lanes {
		if errs[i] != nil {
			return errs[i]
		}
		p.mu.Lock()
		if l.conn != nil {
			p.largest = min(l.conn.sock.Limits.Message, l.conn.sock.Limits.Batch-256)
		}
		p.mu.Unlock()
	}
	return nil
}

// Topic is the full name of the topic.
func (p *Producer) Topic() string { return p.topic }

// Partitions is how many partitions the producer sends to.
func (p *Producer) Partitions() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.st.lanes)
}

// Created reports whether opening the producer made the topic.
func (p *Producer) Created() bool { return p.created }

// Send sends m and waits for its outcome. When ctx ends before, the message may
// be stored all the same: the error is an [*UnknownError].
func (p *Producer) Send(ctx context.Context, m Message) (Result, error) {
	w, ok := p.waiters.Get().(*waiter)
	if !ok {
		w = newWaiter()
	}
	if err := p.SendAsync(ctx, m, w.fn); err != nil {
		p.waiters.Put(w)
		return Result{}, err
	}
	select {
	case <-w.done:
		res, err := w.res, w.err
		p.waiters.Put(w)
		return res, err
	case <-ctx.Done():
		// w is left to the callback that is still to come.
		return Result{}, &UnknownError{Count: 1, Err: retry.Stopped(ctx, "send to "+p.topic, p.Trouble())}
	}
}

// waiter is how Send waits for its callback.
type waiter struct {
	res  Result
	err  error
	done chan struct{} // of capacity one
	fn   func(Result, error)
}

func newWaiter() *waiter {
	w := &waiter{done: make(chan struct{}, 1)}
	w.fn = func(r Result, err error) {
		w.res, w.err = r, err
		w.done <- struct{}{}
	}
	return w
}

// Trouble is what keeps messages of the producer from being stored at the moment
// and is being tried again, or nil.
func (p *Producer) Trouble() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.st.lanes {
		if l.cause != nil {
			return l.cause
		}
	}
	return nil
}

// SendAsync copies m into a batch and returns; done, if not nil, is called once
// with the outcome. An error means that the message was not taken and done is
// never called: the producer is closed, the message too large, or ctx ended
// while ProducerConfig.MaxPending bytes were waiting. Of messages without
// callback Flush and Close report the failures.
//
// done runs on the goroutine that reads the connection, in the order of the
// partition's offsets. It must not block, nor call Close or Flush or SendAsync
// of a producer that may be full.
func (p *Producer) SendAsync(ctx context.Context, m Message, done func(Result, error)) error {
	size := m.encoded()
	if size > p.largest {
		return fmt.Errorf("send to %s: %w", p.topic, protocol.Errorf(protocol.CodeTooLarge, "message of %d bytes, at most %d", size, p.largest))
	}
	b := batch.Message{Key: m.Key, Payload: m.Payload, Properties: m.Properties, Schema: m.Schema}
	if !m.PublishTime.IsZero() {
		b.PublishTime = m.PublishTime.UnixMilli()
	}
	if !m.DeliverAt.IsZero() {
		b.DeliverAt = m.DeliverAt.UnixMilli()
	}
	p.mu.Lock()
	if p.st.bytes+size > p.cfg.MaxPending || p.st.closed {
		if err := p.admit(ctx, size); err != nil {
			p.mu.Unlock()
			return err
		}
	}
	p.st.bytes += size
	l := p.route(m.Key)
	if l.state == laneFenced {
		p.st.bytes -= size
		err := l.cause
		p.mu.Unlock()
		return err
	}
	l.kick(l.add(&b, size, done))
	p.mu.Unlock()
	return nil
}

// admit waits until there is room for size bytes more. The caller holds p.mu.
func (p *Producer) admit(ctx context.Context, size int) error {
	err := p.wait(ctx, func() bool {
		return p.st.closed || p.st.bytes+size <= p.cfg.MaxPending || p.st.bytes == 0
	})
	switch {
	case p.st.closed:
		return fmt.Errorf("send to %s: %w", p.topic, ErrClosed)
	case err == nil:
		return nil
	}
	var cause error
	for _, l := range p.st.lanes {
		cause = errors.Join(cause, l.cause)
	}
	return retry.Stopped(ctx, fmt.Sprintf("send to %s: %d bytes wait for their outcome", p.topic, p.st.bytes), cause)
}

// wait blocks until ok or the end of ctx. The caller holds p.mu.
func (p *Producer) wait(ctx context.Context, ok func() bool) error {
	if ok() {
		return nil
	}
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cond.Broadcast()
	})
	defer stop()
	p.st.waiting++
	defer func() { p.st.waiting-- }()
	for !ok() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.cond.Wait()
	}
	return nil
}

// route chooses the lane of a message. The caller holds p.mu.
func (p *Producer) route(key []byte) *lane {
	lanes := p.st.lanes
	switch {
	case len(lanes) == 1:
		return lanes[0]
	case len(key) > 0:
		return lanes[protocol.PartitionOf(key, len(lanes))]
	}
	return lanes[p.st.turn]
}

// sealed moves the messages without a key on to the next lane, one that is open
// if there is one. The caller holds p.mu.
func (p *Producer) sealed(l *lane) {
	lanes := p.st.lanes
	if lanes[p.st.turn] != l {
		return
	}
	n := len(lanes)
	next := (p.st.turn + 1) % n
	for i := range n {
		if at := (next + i) % n; lanes[at].state == laneOpen {
			next = at
			break
		}
	}
	p.st.turn = next
}

// Flush sends what is gathered and waits until every message sent before it has
// its outcome. It reports the failures of messages without callback since the
// last Flush, or that ctx ended first.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	targets := make([]uint64, len(p.st.lanes))
	for i, l := range p.st.lanes {
		targets[i] = l.next()
		l.flushTo = max(l.flushTo, targets[i])
		l.kick(now)
	}
	err := p.wait(ctx, func() bool {
		for i, l := range p.st.lanes {
			if l.lowest() < targets[i] {
				return false
			}
		}
		return true
	})
	if err != nil {
		var cause error
		for _, l := range p.st.lanes {
			cause = errors.Join(cause, l.cause)
		}
		return retry.Stopped(ctx, "flush "+p.topic, cause)
	}
	return p.failures()
}

// failures reports what failed without anyone being told. The caller holds p.mu.
func (p *Producer) failures() error {
	n, err := p.st.failed, p.st.err
	p.st.failed, p.st.err = 0, nil
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%s to %s failed, the first: %w", counted(n, "message"), p.topic, err)
}

// Close takes no more messages, waits for the outcome of those sent, and closes
// the session. When ctx ends first it gives up: unknown is how many messages
// were under way, stored or not; those that were never written to a broker fail
// with ErrClosed. err is nil only when every message has an outcome and none
// without a callback failed.
func (p *Producer) Close(ctx context.Context) (unknown int, err error) {
	p.mu.Lock()
	if p.st.closed {
		p.mu.Unlock()
		return 0, nil
	}
	p.st.closed = true
	p.cond.Broadcast()
	p.mu.Unlock()
	err = p.Flush(ctx)
	unknown, dropped := p.drop(ErrClosed)
	switch {
	case unknown > 0:
		err = &UnknownError{Count: unknown, Err: err}
	case dropped > 0:
		err = fmt.Errorf("not stored, %s: %w", counted(dropped, "message"), err)
	}
	p.goodbye(ctx)
	p.stop()
	return unknown, err
}

// abandon closes the producer at once.
func (p *Producer) abandon() {
	p.mu.Lock()
	p.st.closed = true
	p.cond.Broadcast()
	p.mu.Unlock()
	p.drop(ErrClosed)
	for _, l := range p.st.lanes {
		l.leave()
	}
	p.stop()
}

// stop ends what the producer has running.
func (p *Producer) stop() {
	p.mu.Lock()
	p.end() // under the lock: nothing is begun afterwards that wg would have to wait for
	if p.sweeper != nil {
		p.sweeper.Stop()
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.c.release(p)
}

// goodbye closes the sessions that stand.
func (p *Producer) goodbye(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range p.st.lanes {
		p.mu.Lock()
		conn, handle, open := l.conn, l.handle, l.state == laneOpen
		p.mu.Unlock()
		if !open {
			continue
		}
		conn.forget(handle)
		wg.Go(func() { // returns when the broker has answered, or ctx ends
			// A broker that does not answer finds out by the end of the connection.
			_ = conn.call(ctx, protocol.TypeCloseProducer, &protocol.Handle{Handle: handle}, nil, &call{op: "close producer", want: protocol.TypeClosed})
		})
	}
	wg.Wait()
}
