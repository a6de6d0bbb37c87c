package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

const (
	// Messages sent before the first that is measured: connections and buffers are then as they stay.
	latencyWarmup = 200
	// How long after the last message one that is missing is waited for.
	latencyGrace = 10 * time.Second
)

// benchBeat is what bench latency was asked for.
type benchBeat struct {
	topic    string
	size     int
	interval time.Duration
	count    int64 // measured
	run      uint64
}

func (a *app) benchLatency() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latency TOPIC",
		Short: "Publish at a steady rate and measure until delivery",
		Long: "Every message has a time at which it is due; the time until a consumer has it counts from then, also when\n" +
			"sending it was late, so that a stall is not hidden by what was not sent during it.",
		Args: wantArgs("TOPIC"),
	}
	fs := cmd.Flags()
	size := addSize(fs, "size", 1<<10, "size of a message")
	rate := addCount(fs, "rate", 1000, "messages a second")
	duration := addDuration(fs, "duration", 10*time.Second, "for how long")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *size < stampSize || *size > int64(messageLimit()):
			return usagef("--size %d: is not between %d and %d", *size, stampSize, messageLimit())
		case *rate < 1 || *rate > 10_000_000:
			return usagef("--rate %d: is not between 1 and 10000000", *rate)
		case *duration < 10*time.Millisecond:
			return usagef("--duration %v: is less than 10ms", *duration)
		}
		if _, err := topicName(args[0]); err != nil {
			return err
		}
		b := benchBeat{topic: args[0], size: int(*size), interval: time.Second / time.Duration(*rate), run: rand.Uint64()}
		b.count = int64(*duration / b.interval)
		return a.runBenchLatency(cmd.Context(), b, output.value == "json")
	}
	return cmd
}

func (a *app) runBenchLatency(ctx context.Context, b benchBeat, asJSON bool) error {
	sending, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer sending.Close()
	receiving, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer receiving.Close()
	p, err := sending.Producer(ctx, b.topic, client.ProducerConfig{Create: &protocol.TopicConfig{Partitions: 1}})
	if err != nil {
		return failed(err, "bench latency")
	}
	sub := fmt.Sprintf("bench-%016x", b.run)
	c, err := receiving.Consumer(ctx, b.topic, client.ConsumerConfig{Subscription: sub})
	if err != nil {
		return failed(err, "bench latency")
	}
	result, err := a.beat(ctx, b, p, c)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, closeErr := p.Close(end)
	err = errors.Join(err, closeErr, c.Close(end), a.deleteSubscription(end, receiving, p.Topic(), sub))
	if err != nil {
		return failed(err, "bench latency")
	}
	return a.printBench(result, "from the time a message was due until the consumer had it", asJSON)
}

// beat sends and receives at once and returns what was measured.
func (a *app) beat(ctx context.Context, b benchBeat, p *client.Producer, c *client.Consumer) (benchResult, error) {
	total := latencyWarmup + b.count
	start := time.Now().Add(50 * time.Millisecond)
	limit, cancel := context.WithDeadline(ctx, start.Add(time.Duration(total)*b.interval+latencyGrace))
	defer cancel()
	var seen atomic.Int64
	stop := a.watch(&seen, total, "latency")
	defer stop()
	times := newHistogram()
	check := a.newChecker(b.run)
	var took time.Duration
	var sendErr, receiveErr error
	var failed atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() { took, receiveErr = b.receive(limit, c, check, times, beatClock{start, &seen}) })
	wg.Go(func() { sendErr = b.send(limit, p, start, &failed) })
	wg.Wait()
	if err := errors.Join(sendErr, context.Cause(ctx)); err != nil {
		return benchResult{}, err
	}
	if receiveErr != nil && !errors.Is(receiveErr, context.DeadlineExceeded) {
		return benchResult{}, receiveErr
	}
	if missing := total - seen.Load(); missing > 0 {
		check.findf("%s were not delivered", plural(missing, "message"))
		check.errors += missing - 1
	}
	r := measured(times, times.TotalCount(), int64(b.size), took)
	r.Errors = check.errors + failed.Load()
	return r, nil
}

// beatClock is when a run began and how far it is.
type beatClock struct {
	start time.Time
	seen  *atomic.Int64
}

// receive takes deliveries until all of the run came. It returns the time from the first due time measured to the last delivery.
func (b benchBeat) receive(ctx context.Context, c *client.Consumer, check *checker, times *hdrhistogram.Histogram, clock beatClock) (time.Duration, error) {
	begin := latencyWarmup * b.interval
	last := begin
	for clock.seen.Load() < latencyWarmup+b.count {
		m, err := c.Receive(ctx)
		if err != nil {
			return last - begin, err
		}
		now := time.Since(clock.start)
		s, _ := readStamp(check.table, m.Payload) // the checker below judges it
		if s.run == b.run {
			clock.seen.Add(1)
			if s.seq >= latencyWarmup {
				record(times, now-time.Duration(s.seq)*b.interval)
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
func (b benchBeat) send(ctx context.Context, p *client.Producer, start time.Time, failed *atomic.Int64) error {
	metronome := newMetronome()
	defer metronome.stop()
	stamps := newStamper(b.run, 0, b.size)
	done := func(_ client.Result, err error) {
		if err != nil {
			failed.Add(1)
		}
	}
	var m client.Message
	for n := int64(0); n < latencyWarmup+b.count; n++ {
		due := start.Add(time.Duration(n) * b.interval)
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
