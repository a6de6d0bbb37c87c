package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"
)

// driver is one client process of NATS: what it is asked for.
type driver struct {
	url, stream         string
	size, window, conns int
	count               int64
	rate                int
	duration            time.Duration
}

// runDrive is `benchpeers drive WORK …`: one run of the peer, in a process of its own, printed as JSON.
func runDrive(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("drive: say which work")
	}
	d := driver{}
	flags := flag.NewFlagSet("drive", flag.ContinueOnError)
	flags.StringVar(&d.url, "url", nats.DefaultURL, "server")
	flags.StringVar(&d.stream, "stream", "bench", "stream and subject")
	flags.IntVar(&d.size, "size", 1024, "bytes of a message")
	flags.IntVar(&d.window, "window", 4000, "messages in flight on a connection; of fast: messages to an acknowledgement")
	flags.IntVar(&d.conns, "connections", 1, "connections")
	flags.Int64Var(&d.count, "count", 1_000_000, "messages in all")
	flags.IntVar(&d.rate, "rate", 1000, "messages a second")
	flags.DurationVar(&d.duration, "duration", 10*time.Second, "for how long")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	works := map[string]func(context.Context) (result, error){
		"async": d.async, "fast": d.fast, "sync": d.sync, "consume": d.consume, "latency": d.latency,
		"core-rate": d.coreRate, "core-latency": d.coreLatency, "delete": d.delete,
	}
	work := works[args[0]]
	if work == nil {
		return fmt.Errorf("drive: unknown work %q", args[0])
	}
	r, err := work(ctx)
	if err != nil {
		return fmt.Errorf("drive %s: %w", args[0], err)
	}
	return json.NewEncoder(out).Encode(r)
}

// connect opens a connection that does not hide a lost server behind reconnects.
func (d driver) connect() (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(d.url, nats.NoReconnect())
	if err != nil {
		return nil, nil, fmt.Errorf("connect: %w", err)
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(d.window), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		nc.Close()
		return nil, nil, fmt.Errorf("open jetstream: %w", err)
	}
	return nc, js, nil
}

// makeStream makes the stream as it comes: file storage, one replica; batches are allowed, as fast ingest wants.
func (d driver) makeStream(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: d.stream, Subjects: []string{d.stream}, Storage: jetstream.FileStorage, AllowBatchPublish: true,
	})
	if err != nil {
		return fmt.Errorf("make stream: %w", err)
	}
	return nil
}

// async publishes on one connection with the client's asynchronous publish, window messages in flight.
func (d driver) async(ctx context.Context) (result, error) {
	nc, js, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	if err := d.makeStream(ctx, js); err != nil {
		return result{}, err
	}
	var times []time.Duration
	var watched jetstream.PubAckFuture
	var since time.Time
	start := time.Now()
	for i := range d.count {
		b := make([]byte, d.size)
		stamp(b, i, 0)
		future, err := js.PublishAsync(d.stream, b)
		if err != nil {
			return result{}, fmt.Errorf("publish: %w", err)
		}
		if watched == nil { // one at a time is timed
			watched, since = future, time.Now()
			continue
		}
		select {
		case <-watched.Ok():
			times = append(times, time.Since(since))
			watched = nil
		case err := <-watched.Err():
			return result{}, fmt.Errorf("await ack: %w", err)
		default:
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return result{}, ctx.Err()
	}
	took := time.Since(start)
	return summarise(d.count, int64(d.size), took, times), d.stored(ctx, js, d.count)
}

// fast publishes with the fast ingest of recent servers, which acknowledges every window messages and answers for all
// at the end.
func (d driver) fast(ctx context.Context) (result, error) {
	nc, js, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	if err := d.makeStream(ctx, js); err != nil {
		return result{}, err
	}
	var failed atomic.Value
	fp, err := jetstreamext.NewFastPublisher(js,
		jetstreamext.FastPublishFlowControl{Flow: uint16(d.window), MaxOutstandingAcks: 3, AckTimeout: time.Minute},
		jetstreamext.WithFastPublisherErrorHandler(func(err error) { failed.Store(err) }))
	if err != nil {
		return result{}, fmt.Errorf("open fast publisher: %w", err)
	}
	start := time.Now()
	for i := range d.count {
		b := make([]byte, d.size)
		stamp(b, i, 0)
		if i == d.count-1 {
			if _, err := fp.Commit(ctx, d.stream, b); err != nil {
				return result{}, fmt.Errorf("commit: %w", err)
			}
			break
		}
		if _, err := fp.Add(d.stream, b); err != nil {
			return result{}, fmt.Errorf("add: %w", err)
		}
	}
	took := time.Since(start)
	if err, ok := failed.Load().(error); ok {
		return result{}, fmt.Errorf("fast publish: %w", err)
	}
	return summarise(d.count, int64(d.size), took, nil), d.stored(ctx, js, d.count)
}

// sync publishes on all connections, one message in flight on each.
func (d driver) sync(ctx context.Context) (result, error) {
	nc, js, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	if err := d.makeStream(ctx, js); err != nil {
		return result{}, err
	}
	var wg sync.WaitGroup
	errs, times := make([]error, d.conns), make([][]time.Duration, d.conns)
	each := d.count / int64(d.conns)
	start := time.Now()
	for i := range d.conns {
		wg.Go(func() { times[i], errs[i] = d.syncOne(ctx, each) })
	}
	wg.Wait()
	took := time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return result{}, err
	}
	var all []time.Duration
	for _, t := range times {
		all = append(all, t...)
	}
	return summarise(each*int64(d.conns), int64(d.size), took, all), d.stored(ctx, js, each*int64(d.conns))
}

func (d driver) syncOne(ctx context.Context, count int64) ([]time.Duration, error) {
	nc, js, err := d.connect()
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	times := make([]time.Duration, 0, count)
	for i := range count {
		b := make([]byte, d.size)
		stamp(b, i, 0)
		since := time.Now()
		if _, err := js.Publish(ctx, d.stream, b); err != nil {
			return nil, fmt.Errorf("publish: %w", err)
		}
		times = append(times, time.Since(since))
	}
	return times, nil
}

// stored asks the server whether it holds what was published.
func (d driver) stored(ctx context.Context, js jetstream.JetStream, count int64) error {
	s, err := js.Stream(ctx, d.stream)
	if err != nil {
		return fmt.Errorf("look up stream: %w", err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		return fmt.Errorf("describe stream: %w", err)
	}
	if info.State.Msgs != uint64(count) {
		return fmt.Errorf("the stream holds %d messages, published were %d", info.State.Msgs, count)
	}
	return nil
}

func (d driver) delete(ctx context.Context) (result, error) {
	nc, js, err := d.connect()
	if err != nil {
		return result{}, err
	}
	defer nc.Close()
	if err := js.DeleteStream(ctx, d.stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return result{}, fmt.Errorf("delete stream: %w", err)
	}
	return result{}, nil
}
