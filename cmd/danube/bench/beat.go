package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

const (
	// Messages sent before the first that is measured: connections and buffers are then as they stay.
	latencyWarmup = 200
	// How long after the last message one that is missing is waited for.
	latencyGrace = 10 * time.Second
)

// Beat is a steady stream: a message each Interval.
type Beat struct {
	Topic    string
	Size     int // bytes of a message, at least StampSize
	Interval time.Duration
	Count    int64 // messages that are measured
}

// beat is a Beat that runs.
type beat struct {
	Beat
	run    uint64
	around Surroundings
}

// Run publishes over one client and receives over the other, and measures from the time a message was due until a consumer
// has it.
func (b Beat) Run(ctx context.Context, sending, receiving *client.Client, around Surroundings) (Result, error) {
	if err := unused(ctx, receiving, b.Topic); err != nil {
		return Result{}, err
	}
	p, err := sending.Producer(ctx, b.Topic, client.ProducerConfig{Create: &protocol.TopicConfig{Partitions: 1}})
	if err != nil {
		return Result{}, err
	}
	one := beat{b, rand.Uint64(), around}
	sub := subscription(one.run)
	c, err := receiving.Consumer(ctx, b.Topic, client.ConsumerConfig{Subscription: sub})
	if err != nil {
		return Result{}, err
	}
	result, err := one.both(ctx, p, c)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, closeErr := p.Close(end)
	return result, errors.Join(err, closeErr, c.Close(end), deleteSubscription(end, receiving, p.Topic(), sub))
}

// both sends and receives at once and returns what was measured.
func (b beat) both(ctx context.Context, p *client.Producer, c *client.Consumer) (Result, error) {
	total := latencyWarmup + b.Count
	start := time.Now().Add(50 * time.Millisecond)
	limit, cancel := context.WithDeadline(ctx, start.Add(time.Duration(total)*b.Interval+latencyGrace))
	defer cancel()
	var seen atomic.Int64
	stop := b.around.watch(&seen, total, "latency")
	defer stop()
	times := newHistogram()
	check := newChecker(b.run, b.around)
	var took time.Duration
	var sendErr, receiveErr error
	var failed atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { took, receiveErr = b.receive(limit, c, check, times, beatClock{start, &seen}) })
	wg.Go(func() { sendErr = b.send(limit, p, start, &failed) })
	wg.Wait()
	if err := errors.Join(sendErr, context.Cause(ctx)); err != nil {
		return Result{}, err
	}
	if receiveErr != nil && !errors.Is(receiveErr, context.DeadlineExceeded) {
		return Result{}, receiveErr
	}
	if missing := total - seen.Load(); missing > 0 {
		check.findf("%s were not delivered", messages(missing))
		check.errors += missing - 1
	}
	r := measured(times, times.TotalCount(), int64(b.Size), took)
	r.Errors = check.errors + failed.Load()
	return r, nil
}

// beatClock is when a run began and how far it is.
type beatClock struct {
	start time.Time
	seen  *atomic.Int64
}

// receive takes deliveries until all of the run came. It returns the time from the first due time measured to the last delivery.
func (b beat) receive(ctx context.Context, c *client.Consumer, check *checker, times *hdrhistogram.Histogram, clock beatClock) (time.Duration, error) {
	begin := latencyWarmup * b.Interval
	last := begin
	for clock.seen.Load() < latencyWarmup+b.Count {
		m, err := c.Receive(ctx)
		if err != nil {
			return last - begin, err
		}
		now := time.Since(clock.start)
		s, _ := readStamp(check.table, m.Payload) // the checker below judges it
		if s.run == b.run {
			clock.seen.Add(1)
			if s.seq >= latencyWarmup {
				record(times, now-time.Duration(s.seq)*b.Interval)
				last = now
			}
		}
		check.message(&m)
		if err := c.Ack(m); err != nil {
			return last - begin, err
		}
	}
	return last - begin, nil
}

// send hands each message over when it is due, or at once when that has passed.
func (b beat) send(ctx context.Context, p *client.Producer, start time.Time, failed *atomic.Int64) error {
	metronome := newMetronome()
	defer metronome.stop()
	stamps := newStamper(b.run, 0, b.Size)
	done := func(_ client.Result, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	var m client.Message
	for n := int64(0); n < latencyWarmup+b.Count; n++ {
		due := start.Add(time.Duration(n) * b.Interval)
		for wait := time.Until(due); wait > 0; wait = time.Until(due) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			metronome.wait(wait)
		}
		m.Payload = stamps.next()
		if err := p.SendAsync(ctx, m, done); err != nil {
			return err
		}
	}
	return nil
}
