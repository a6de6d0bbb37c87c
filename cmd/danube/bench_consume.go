package main

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// benchDrain is what bench consume was asked for.
type benchDrain struct {
	topic     string // full name
	kind      protocol.SubscriptionType
	count     int64
	consumers int
	sub       string
}

func (a *app) benchConsume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read a topic from its beginning with acknowledgements",
		Long: "A subscription is made for the run and deleted at its end. The time ends when the last acknowledgement is\n" +
			"stored. Offsets are checked to come once and, with one consumer, in order; messages of bench produce by\n" +
			"their CRC too. The times are how long the application waited for each message.",
		Args: wantArgs("TOPIC"),
	}
	fs := cmd.Flags()
	count := addCount(fs, "count", 0, "stop after so many; 0 reads what is there")
	kind := addChoice(cmd, "type", "exclusive", "type of the subscription", subscriptionTypes()...)
	consumers := addCount(fs, "consumers", 1, "consumers, each on a connection of its own")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		if *consumers < 1 || *consumers > 10_000 {
			return usagef("--consumers %d: is not between 1 and 10000", *consumers)
		}
		if *consumers > 1 && kind.value == "exclusive" {
			return usagef("--consumers %d: an exclusive subscription has one; --type shared has many", *consumers)
		}
		d := benchDrain{topic: name, kind: parseSubscriptionType(kind.value), count: *count, consumers: int(*consumers),
			sub: fmt.Sprintf("bench-%016x", rand.Uint64())}
		return a.runBenchConsume(cmd.Context(), d, output.value == "json")
	}
	return cmd
}

func (a *app) runBenchConsume(ctx context.Context, d benchDrain, asJSON bool) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	tally, err := a.beginDrain(ctx, c, &d)
	if err != nil {
		return explained(failed(err, "bench consume"), d.topic)
	}
	result, err := a.drainAll(ctx, d, tally)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err = errors.Join(err, a.deleteSubscription(end, c, d.topic, d.sub)); err != nil {
		return failed(err, "bench consume")
	}
	return a.printBench(result, "how long each message was waited for", asJSON)
}

// beginDrain makes the subscription and finds out what there is to read.
func (a *app) beginDrain(ctx context.Context, c *client.Client, d *benchDrain) (*tally, error) {
	arg := protocol.SubCreate{Topic: d.topic, Subscription: d.sub, Type: d.kind, Start: protocol.Position{Kind: protocol.Earliest}}
	if err := c.Admin().SubscriptionCreate(ctx, arg); err != nil {
		return nil, err
	}
	s, err := c.Admin().SubscriptionDescribe(ctx, protocol.SubArgs{Topic: d.topic, Subscription: d.sub})
	if err != nil {
		return nil, err
	}
	t := &tally{table: crc32.MakeTable(crc32.Castagnoli), strict: d.consumers == 1, app: a}
	lag := int64(0)
	for _, p := range s.Partitions {
		lag += int64(p.Lag)
		t.seen = append(t.seen, partitionSeen{base: p.Cursor})
	}
	if d.count == 0 {
		d.count = lag
	}
	if lag == 0 || d.count > lag {
		return nil, withHint(errors.Join(fmt.Errorf("%s holds %s", d.topic, plural(lag, "message")), a.deleteSubscription(ctx, c, d.topic, d.sub)),
			"danube bench produce %s adds some", d.topic)
	}
	return t, nil
}

// deleteSubscription removes the subscription of a run. That of a topic that is not reliable went with its consumer.
func (a *app) deleteSubscription(ctx context.Context, c *client.Client, topic, sub string) error {
	err := c.Admin().SubscriptionDelete(ctx, protocol.SubArgs{Topic: topic, Subscription: sub, Force: true})
	if errors.Is(err, &protocol.Error{Code: protocol.CodeNoSuchSub}) {
		return nil
	}
	return err
}

// drainAll runs the consumers until all was read.
func (a *app) drainAll(ctx context.Context, d benchDrain, t *tally) (benchResult, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	t.left.Store(d.count)
	t.full = func() { stop(errEnough) }
	var progress atomic.Int64
	done := a.watch(&progress, d.count, "consume")
	defer done()
	clients := make([]*client.Client, d.consumers)
	consumers := make([]*client.Consumer, d.consumers)
	for i := range clients {
		var err error
		if clients[i], err = a.dial(ctx); err != nil {
			return benchResult{}, err
		}
		defer clients[i].Close()
		if consumers[i], err = clients[i].Consumer(ctx, d.topic, client.ConsumerConfig{Subscription: d.sub, Type: d.kind, Existing: true}); err != nil {
			return benchResult{}, err
		}
	}
	start := time.Now()
	var wg sync.WaitGroup
	shares := make([]drainShare, d.consumers)
	for i, c := range consumers {
		shares[i].times = newHistogram()
		wg.Go(func() { shares[i].err = shares[i].run(ctx, c, t, &progress) }) // returns when all of it came
	}
	wg.Wait()
	took := time.Since(start)
	total, bytes, messages := newHistogram(), int64(0), int64(0)
	var errs []error
	for i := range shares {
		total.Merge(shares[i].times)
		bytes += shares[i].bytes
		messages += shares[i].messages
		if !errors.Is(shares[i].err, errEnough) {
			errs = append(errs, shares[i].err)
		}
	}
	r := measured(total, messages, 0, took)
	r.Bytes, r.Errors = bytes, t.errors
	return r, errors.Join(errs...)
}

// errEnough is the cause that ends the consumers.
var errEnough = errors.New("all messages came")

// drainShare is what one consumer did.
type drainShare struct {
	times           *hdrhistogram.Histogram
	messages, bytes int64
	err             error
}

// run receives and acknowledges until the tally is full; then it waits until its acknowledgements are stored.
func (s *drainShare) run(ctx context.Context, c *client.Consumer, t *tally, progress *atomic.Int64) error {
	before := time.Now()
	var last client.Message
	for {
		m, err := c.Receive(ctx)
		if err != nil {
			break
		}
		now := time.Now()
		record(s.times, now.Sub(before))
		before = now
		s.messages++
		s.bytes += int64(len(m.Payload))
		t.message(&m)
		if err := c.Ack(m); err != nil {
			return err
		}
		if last = m; s.messages&1023 == 0 {
			progress.Add(1024)
		}
		if t.left.Add(-1) <= 0 {
			t.full()
			break
		}
	}
	if s.messages > 0 && errors.Is(context.Cause(ctx), errEnough) {
		if err := c.AckConfirmed(context.WithoutCancel(ctx), last); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// tally checks that every offset comes once, over all consumers.
type tally struct {
	app    *app
	table  *crc32.Table
	strict bool // one consumer: in order
	left   atomic.Int64
	full   func()

	mu     sync.Mutex // guards what follows
	seen   []partitionSeen
	errors int64
}

// partitionSeen is a bit for each offset from base on.
type partitionSeen struct {
	base uint64
	next uint64
	bits []uint64
}

func (t *tally) message(m *client.Message) {
	_, err := readStamp(t.table, m.Payload)
	t.mu.Lock()
	defer t.mu.Unlock()
	for m.Partition >= len(t.seen) {
		t.seen = append(t.seen, partitionSeen{base: m.Offset})
	}
	p := &t.seen[m.Partition]
	if m.Offset < p.base {
		t.findf("%s:%d offset %d lies before the subscription", m.Topic, m.Partition, m.Offset)
		return
	}
	word, bit := (m.Offset-p.base)/64, uint64(1)<<((m.Offset-p.base)%64)
	for uint64(len(p.bits)) <= word {
		p.bits = append(p.bits, 0)
	}
	switch again := p.bits[word]&bit != 0; {
	case again && m.Deliveries <= 1:
		t.findf("%s:%d offset %d came twice", m.Topic, m.Partition, m.Offset)
	case t.strict && m.Offset < p.next && !again:
		t.findf("%s:%d offset %d came too late", m.Topic, m.Partition, m.Offset)
	case err != nil && !errors.Is(err, errNotStamped):
		t.findf("%s:%d offset %d: %v", m.Topic, m.Partition, m.Offset, err)
	}
	p.bits[word] |= bit
	p.next = m.Offset + 1
}

func (t *tally) findf(format string, args ...any) {
	if t.errors++; t.errors <= findingsShown {
		t.app.noticef("danube: "+format, args...)
	}
}
