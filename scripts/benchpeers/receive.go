package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// pullSize is how many messages a pull consumer asks for ahead.
const pullSize = 10_000

// consumer makes a pull consumer that acknowledges each message and is not held up by the server's bound of those.
func (d driver) consumer(ctx context.Context, js jetstream.JetStream, from jetstream.DeliverPolicy) (jetstream.Consumer, error) {
	c, err := js.CreateOrUpdateConsumer(ctx, d.stream, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, DeliverPolicy: from, MaxAckPending: -1,
	})
	if err != nil {
		return nil, fmt.Errorf("make consumer: %w", err)
	}
	return c, nil
}

// consume reads count messages from the beginning, acknowledges each, and checks sequence and CRC.
func (d driver) consume(ctx context.Context) (result, error) {
	nc, js, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	c, err := d.consumer(ctx, js, jetstream.DeliverAllPolicy)
	if err != nil {
		return result{}, err
	}
	start := time.Now()
	messages, err := c.Messages(jetstream.PullMaxMessages(pullSize))
	if err != nil {
		return result{}, fmt.Errorf("pull: %w", err)
	}
	defer messages.Stop()
	wrong := int64(0)
	for i := range d.count {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return result{}, fmt.Errorf("receive message %d: %w", i, err)
		}
		if sequence, _, err := unstamp(m.Data()); err != nil || sequence != i {
			wrong++
		}
		if err := m.Ack(); err != nil {
			return result{}, fmt.Errorf("ack: %w", err)
		}
	}
	if err := nc.Flush(); err != nil {
		return result{}, fmt.Errorf("flush acks: %w", err)
	}
	r := summarise(d.count, int64(d.size), time.Since(start), nil)
	r.Errors = wrong
	return r, nil
}

// latency publishes at a steady rate and times each message from its due time until a pull consumer has it.
func (d driver) latency(ctx context.Context) (result, error) {
	nc, js, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	if err := d.makeStream(ctx, js); err != nil {
		return result{}, err
	}
	back, backJS, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer back.Close()
	c, err := d.consumer(ctx, backJS, jetstream.DeliverNewPolicy)
	if err != nil {
		return result{}, err
	}
	start := time.Now()
	in := newArrivals(d, start)
	consuming, err := c.Consume(func(m jetstream.Msg) {
		in.take(m.Data())
		if err := m.Ack(); err != nil {
			in.wrong++
		}
	}, jetstream.PullMaxMessages(pullSize))
	if err != nil {
		return result{}, fmt.Errorf("consume: %w", err)
	}
	defer consuming.Stop()
	err = d.pace(start, func(b []byte) error {
		_, err := js.PublishAsync(d.stream, b)
		return err
	})
	return in.result(ctx, err)
}

// coreLatency is latency without a stream.
func (d driver) coreLatency(ctx context.Context) (result, error) {
	return d.core(ctx, func(nc *nats.Conn, start time.Time) error {
		// No Flush: it waits for an answer. The client writes out by itself as soon as it can.
		return d.pace(start, func(b []byte) error { return nc.Publish(d.stream, b) })
	})
}

// coreRate publishes as fast as it goes; the rate is that of the subscriber, which counts what was dropped.
func (d driver) coreRate(ctx context.Context) (result, error) {
	d.rate, d.duration = int(d.count), time.Second // as far as counting goes
	return d.core(ctx, func(nc *nats.Conn, start time.Time) error {
		for i := range d.count {
			b := make([]byte, d.size)
			stamp(b, i, time.Since(start))
			if err := nc.Publish(d.stream, b); err != nil {
				return err
			}
		}
		return nc.Flush()
	})
}

// core subscribes on one connection and publishes on another.
func (d driver) core(ctx context.Context, publish func(*nats.Conn, time.Time) error) (result, error) {
	nc, _, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	back, _, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer back.Close()
	start := time.Now()
	in := newArrivals(d, start)
	sub, err := back.Subscribe(d.stream, func(m *nats.Msg) { in.take(m.Data) })
	if err != nil {
		return result{}, fmt.Errorf("subscribe: %w", err)
	}
	if err := errors.Join(sub.SetPendingLimits(-1, -1), back.Flush()); err != nil {
		return result{}, fmt.Errorf("subscribe: %w", err)
	}
	return in.result(ctx, publish(nc, start))
}

// arrivals collects what comes in, on one goroutine.
type arrivals struct {
	d     driver
	start time.Time
	want  int64
	times []time.Duration
	wrong int64
	done  chan struct{}
}

func newArrivals(d driver, start time.Time) *arrivals {
	want := int64(float64(d.rate) * d.duration.Seconds())
	return &arrivals{d: d, start: start, want: want, times: make([]time.Duration, 0, want), done: make(chan struct{})}
}

func (a *arrivals) take(b []byte) {
	sequence, due, err := unstamp(b)
	if err != nil || sequence != int64(len(a.times)) {
		a.wrong++
	}
	a.times = append(a.times, time.Since(a.start)-due)
	if int64(len(a.times)) == a.want {
		close(a.done)
	}
}

// result waits for the last message. The first tenth warms up.
func (a *arrivals) result(ctx context.Context, sent error) (result, error) {
	if sent != nil {
		return result{}, fmt.Errorf("publish: %w", sent)
	}
	select {
	case <-a.done:
	case <-ctx.Done():
		return result{}, fmt.Errorf("await the last message: %w", ctx.Err())
	}
	r := summarise(a.want, int64(a.d.size), time.Since(a.start), a.times[len(a.times)/10:])
	r.Errors = a.wrong
	return r, nil
}

// pace sends rate messages a second for the duration, each stamped with the moment it was due. It sleeps in the kernel
// with a small slack: the runtime's own timers are too coarse.
func (d driver) pace(start time.Time, send func([]byte) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	fineTimers()
	begin := time.Since(start) + 10*time.Millisecond
	for i := range int64(float64(d.rate) * d.duration.Seconds()) {
		due := begin + time.Duration(i)*time.Second/time.Duration(d.rate)
		if wait := due - time.Since(start); wait > 0 {
			ts := syscall.NsecToTimespec(int64(wait))
			_ = syscall.Nanosleep(&ts, nil) // an interrupted sleep sends early by what was left of it
		}
		b := make([]byte, d.size)
		stamp(b, i, due)
		if err := send(b); err != nil {
			return err
		}
	}
	return nil
}
