package bench

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

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// Drain is what to read: a topic from its beginning, with a subscription made for it.
type Drain struct {
	Topic     string // full name
	Type      protocol.SubscriptionType
	Count     int64 // messages; 0: what is there when it begins
	Consumers int   // each on a connection of its own
}

// ShortError says that a topic does not hold what is to be read.
type ShortError struct {
	Topic string
	Holds int64 // messages
}

func (e *ShortError) Error() string { return fmt.Sprintf("%s holds %s", e.Topic, messages(e.Holds)) }

// Reading is a drain whose subscription exists.
type Reading struct {
	Drain
	admin  *client.Client
	around Surroundings
	sub    string
	tally  *tally
}

// Open makes the subscription over c and finds out what there is to read. A *ShortError: too little.
func (d Drain) Open(ctx context.Context, c *client.Client, around Surroundings) (*Reading, error) {
	r := &Reading{Drain: d, admin: c, around: around, sub: subscription(rand.Uint64())}
	arg := protocol.SubCreate{Topic: d.Topic, Subscription: r.sub, Type: d.Type, Start: protocol.Position{Kind: protocol.Earliest}}
	if err := c.Admin().SubscriptionCreate(ctx, arg); err != nil {
		return nil, err
	}
	s, err := c.Admin().SubscriptionDescribe(ctx, protocol.SubArgs{Topic: d.Topic, Subscription: r.sub})
	if err != nil {
		return nil, err
	}
	r.tally = &tally{table: crc32.MakeTable(crc32.Castagnoli), strict: d.Consumers == 1, around: around}
	lag := int64(0)
	for _, p := range s.Partitions {
		lag += int64(p.Lag)
		r.tally.seen = append(r.tally.seen, partitionSeen{base: p.Cursor})
	}
	if r.Count == 0 {
		r.Count = lag
	}
	if lag == 0 || r.Count > lag {
		return nil, errors.Join(&ShortError{d.Topic, lag}, deleteSubscription(ctx, c, d.Topic, r.sub))
	}
	return r, nil
}

// Run reads everything and deletes the subscription. It is called once.
func (r *Reading) Run(ctx context.Context) (Result, error) {
	result, err := r.drain(ctx)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return result, errors.Join(err, deleteSubscription(end, r.admin, r.Topic, r.sub))
}

// subscription is the name of the subscription of a run.
func subscription(run uint64) string { return fmt.Sprintf("%s%016x", ownPrefix, run) }

// ownPrefix begins the names of the subscriptions of runs.
const ownPrefix = "bench-"

// deleteSubscription removes the subscription of a run. That of a topic that is not reliable went with its consumer.
func deleteSubscription(ctx context.Context, c *client.Client, topic, sub string) error {
	err := c.Admin().SubscriptionDelete(ctx, protocol.SubArgs{Topic: topic, Subscription: sub, Force: true})
	if errors.Is(err, &protocol.Error{Code: protocol.CodeNoSuchSub}) {
		return nil
	}
	return err
}

// drain runs the consumers until all was read.
func (r *Reading) drain(ctx context.Context) (Result, error) {
	t := r.tally
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	t.left.Store(r.Count)
	t.full = func() { stop(errEnough) }
	var progress atomic.Int64
	done := r.around.watch(&progress, r.Count, "consume")
	defer done()
	clients := make([]*client.Client, r.Consumers)
	consumers := make([]*client.Consumer, r.Consumers)
	for i := range clients {
		var err error
		if clients[i], err = r.around.Dial(ctx); err != nil {
			return Result{}, err
		}
		defer clients[i].Close()
		if consumers[i], err = clients[i].Consumer(ctx, r.Topic, client.ConsumerConfig{Subscription: r.sub, Type: r.Type, Existing: true}); err != nil {
			return Result{}, err
		}
	}
	start := time.Now()
	var wg sync.WaitGroup
	shares := make([]drainShare, r.Consumers)
	for i, c := range consumers {
		shares[i].times = newHistogram()
		wg.Go(func() { shares[i].err = shares[i].run(ctx, c, t, &progress) }) // returns when all of it came
	}
	wg.Wait()
	took := time.Since(start)
	total, bytes, received := newHistogram(), int64(0), int64(0)
	var errs []error
	for i := range shares {
		total.Merge(shares[i].times)
		bytes += shares[i].bytes
		received += shares[i].messages
		if !errors.Is(shares[i].err, errEnough) {
			errs = append(errs, shares[i].err)
		}
	}
	result := measured(total, received, 0, took)
	result.Bytes, result.Errors = bytes, t.errors
	return result, errors.Join(errs...)
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
	around Surroundings
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
		t.around.say("danube: "+format, args...)
	}
}
