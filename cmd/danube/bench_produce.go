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

// benchLoad is what bench produce was asked for.
type benchLoad struct {
	topic                       string
	size, count                 *int64
	duration                    *time.Duration
	window, connections, topics *int64
	durability, output          *choice
	run                         uint64
}

func (a *app) benchProduce() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Publish as fast as it goes, then read everything back and check it",
		Long: "Times are from handing a message to the client until its acknowledgement. The topics are made when they\n" +
			"do not exist; with --topics N they are TOPIC-1 to TOPIC-N. Producers are spread over connections and topics.",
		Args: wantArgs("TOPIC"),
	}
	fs := cmd.Flags()
	l := benchLoad{
		size:        addSize(fs, "size", 1<<10, "size of a message"),
		count:       addCount(fs, "count", 0, "messages in all (1000000 without --duration)"),
		duration:    addDuration(fs, "duration", 0, "publish for so long, instead of --count"),
		window:      addCount(fs, "window", 10_000, "messages in flight on each connection, at most"),
		connections: addCount(fs, "connections", 1, "connections, each with producers of its own"),
		topics:      addCount(fs, "topics", 1, "topics"),
		durability:  addChoice(cmd, "durability", "", "of topics that are made", "local", "warm", "object"),
	}
	l.output = addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l.topic, l.run = args[0], rand.Uint64()
		switch {
		case *l.size < stampSize || *l.size > int64(messageLimit()):
			return usagef("--size %d: is not between %d and %d", *l.size, stampSize, messageLimit())
		case *l.count > 0 && *l.duration > 0:
			return usagef("bench produce: --count and --duration exclude each other")
		case *l.window < 1 || *l.connections < 1 || *l.topics < 1:
			return usagef("bench produce: --window, --connections and --topics begin at 1")
		case *l.count == 0 && *l.duration == 0:
			*l.count = 1_000_000
		}
		if _, err := topicName(l.topic); err != nil {
			return err
		}
		return a.runBenchProduce(cmd.Context(), l)
	}
	return cmd
}

// name is the name of topic i.
func (l benchLoad) name(i int) string {
	if *l.topics == 1 {
		return l.topic
	}
	return fmt.Sprintf("%s-%d", l.topic, i+1)
}

func (a *app) runBenchProduce(ctx context.Context, l benchLoad) error {
	conns, lanes, err := a.openLanes(ctx, l)
	defer func() {
		for _, c := range conns {
			c.client.Close()
		}
	}()
	if err != nil {
		return failed(err, "bench produce")
	}
	took, err := a.publish(ctx, l, lanes)
	if err != nil {
		return failed(err, "bench produce")
	}
	total := newHistogram()
	for _, c := range conns {
		total.Merge(c.times)
	}
	sent := int64(0)
	for _, lane := range lanes {
		sent += int64(lane.acked)
	}
	result := measured(total, sent, *l.size, took)
	if result.Errors, err = a.readBack(ctx, conns[0].client, l.run, lanes); err != nil {
		return failed(err, "bench produce: read back")
	}
	return a.printBench(result, "from handing over to acknowledgement", l.output.value == "json")
}

// benchConn is one connection and what its acknowledgements say. Its callbacks come from one goroutine.
type benchConn struct {
	client *client.Client
	mu     sync.Mutex // guards times, and of the lanes what they say
	times  *hdrhistogram.Histogram
}

// benchLane is one producer.
type benchLane struct {
	conn     *benchConn
	topic    string
	stream   uint32
	count    int64 // to send; 0: until the time is up
	producer *client.Producer
	start    time.Time

	// guarded by conn.mu
	room  sync.Cond
	free  []*benchSlot
	acked uint64
	spans map[int]uint64 // first offset by partition
	err   error
	kept  bool // the topic keeps messages
}

// benchSlot is one place in the window of a lane; it serves message after message.
type benchSlot struct {
	at   time.Duration // handed over, since start
	done func(client.Result, error)
}

// openLanes dials and opens the producers: as many as connections or topics, whichever are more.
func (a *app) openLanes(ctx context.Context, l benchLoad) ([]*benchConn, []*benchLane, error) {
	var conns []*benchConn
	for range *l.connections {
		c, err := a.dial(ctx)
		if err != nil {
			return conns, nil, err
		}
		conns = append(conns, &benchConn{client: c, times: newHistogram()})
	}
	n := int(max(*l.connections, *l.topics))
	share := max(1, int(*l.window**l.connections)/n)
	lanes := make([]*benchLane, n)
	settings := &protocol.TopicConfig{Partitions: 1, Durability: l.durability.value}
	for i := range lanes {
		lane := &benchLane{conn: conns[i%len(conns)], topic: l.name(i % int(*l.topics)), stream: uint32(i), spans: map[int]uint64{}}
		lane.room.L = &lane.conn.mu
		lane.count = *l.count / int64(n)
		if int64(i) < *l.count%int64(n) {
			lane.count++
		}
		p, err := lane.conn.client.Producer(ctx, lane.topic, client.ProducerConfig{Create: settings})
		if err != nil {
			return conns, nil, err
		}
		lane.producer = p
		for range share {
			lane.free = append(lane.free, lane.slot())
		}
		lanes[i] = lane
	}
	return conns, lanes, nil
}

func (b *benchLane) slot() *benchSlot {
	s := &benchSlot{}
	s.done = func(r client.Result, err error) { b.settle(s, r, err) }
	return s
}

// settle takes an acknowledgement and gives the slot back.
func (b *benchLane) settle(s *benchSlot, r client.Result, err error) {
	now := time.Since(b.start)
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	if err != nil {
		if b.err == nil {
			b.err = err
		}
	} else {
		record(b.conn.times, now-s.at)
		b.acked++
		if _, ok := b.spans[r.Partition]; !ok {
			b.spans[r.Partition] = r.Offset
			b.kept = r.Level != protocol.LevelNone
		}
	}
	if b.free = append(b.free, s); len(b.free) == 1 {
		b.room.Signal()
	}
}

// publish runs every lane and returns the time from the first message to the last acknowledgement.
func (a *app) publish(ctx context.Context, l benchLoad, lanes []*benchLane) (time.Duration, error) {
	var sent atomic.Int64
	stop := a.watch(&sent, *l.count, "publish")
	start := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(lanes))
	for i, lane := range lanes {
		lane.start = start
		wg.Go(func() { errs[i] = lane.run(ctx, l, &sent) }) // returns when all of it is acknowledged, or failed
	}
	wg.Wait()
	took := time.Since(start)
	stop()
	return took, errors.Join(errs...)
}

// run sends, never more than the window ahead, and waits for the acknowledgements.
func (b *benchLane) run(ctx context.Context, l benchLoad, sent *atomic.Int64) error {
	stamps := newStamper(l.run, b.stream, int(*l.size))
	window := len(b.free)
	var mine []*benchSlot
	var m client.Message
	for n := int64(0); b.count == 0 && *l.duration > 0 || n < b.count; n++ {
		if len(mine) == 0 {
			var err error
			if mine, err = b.take(mine); err != nil {
				return err
			}
		}
		s := mine[len(mine)-1]
		if s.at = time.Since(b.start); *l.duration > 0 && s.at >= *l.duration || n&255 == 0 && ctx.Err() != nil {
			break
		}
		m.Payload = stamps.next()
		if err := b.producer.SendAsync(ctx, m, s.done); err != nil {
			return err
		}
		mine = mine[:len(mine)-1]
		if n&1023 == 1023 {
			sent.Add(1024)
		}
	}
	if err := b.producer.Flush(ctx); err != nil {
		return err
	}
	return b.await(window - len(mine))
}

// take returns the slots that are free, waiting for one.
func (b *benchLane) take(empty []*benchSlot) ([]*benchSlot, error) {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	for len(b.free) == 0 {
		b.room.Wait()
	}
	slots := b.free
	b.free = empty
	return slots, b.err
}

// await waits until so many slots were given back: the callbacks of a flush may still run when it returns.
func (b *benchLane) await(slots int) error {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	for len(b.free) < slots && b.err == nil {
		b.room.Wait()
	}
	return b.err
}

// watch shows how far a counter is, until the function it returns is called.
func (a *app) watch(n *atomic.Int64, total int64, what string) (stop func()) {
	if total <= 0 {
		total = -1
	}
	bar := a.newProgress(total, what, false)
	if bar == nil {
		return func() {}
	}
	return every(200*time.Millisecond, func() { bar.set(n.Load()) }, bar.done)
}

// every calls do again and again until the function it returns is called, and then last.
func every(d time.Duration, do, last func()) (stop func()) {
	quit, gone := make(chan struct{}), make(chan struct{})
	// Returns when stop is called.
	go func() {
		defer close(gone)
		tick := time.NewTicker(d)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				do()
			}
		}
	}()
	return func() {
		close(quit)
		<-gone
		last()
	}
}
