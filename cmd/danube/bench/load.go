package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// Load is what to publish: messages of Size bytes, Count of them or as many as Duration allows.
type Load struct {
	Topic       string // with several topics the beginning of their names
	Size        int    // bytes of a message, at least StampSize
	Count       int64  // messages in all; 0: until Duration is over
	Duration    time.Duration
	Window      int64 // messages in flight on each connection, at most
	Connections int64
	Topics      int64
	Durability  string // of topics that are made
}

// Run is a load with its connections and producers.
type Run struct {
	Load
	number uint64 // in every stamp, so that runs beside each other are told apart
	around Surroundings
	conns  []*conn
	lanes  []*lane
}

// name is the name of topic i.
func (l Load) name(i int) string {
	if l.Topics == 1 {
		return l.Topic
	}
	return fmt.Sprintf("%s-%d", l.Topic, i+1)
}

// Open dials and opens the producers: as many as connections or topics, whichever are more.
func (l Load) Open(ctx context.Context, around Surroundings) (*Run, error) {
	r := &Run{Load: l, number: rand.Uint64(), around: around}
	if err := r.open(ctx); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the connections.
func (r *Run) Close() {
	for _, c := range r.conns {
		c.client.Close()
	}
}

// conn is one connection and what its acknowledgements say. Its callbacks come from one goroutine.
type conn struct {
	client *client.Client
	mu     sync.Mutex // guards times, and of the lanes what they say
	times  *hdrhistogram.Histogram
}

// lane is one producer.
type lane struct {
	conn     *conn
	topic    string
	stream   uint32
	count    int64 // to send; 0: until the time is up
	producer *client.Producer
	start    time.Time

	// guarded by conn.mu
	room  sync.Cond
	free  []*slot
	acked uint64
	spans map[int]uint64 // first offset by partition
	err   error
	kept  bool // the topic keeps messages
}

// slot is one place in the window of a lane; it serves message after message.
type slot struct {
	at   time.Duration // handed over, since start
	done func(client.Result, error)
}

func (r *Run) open(ctx context.Context) error {
	for range r.Connections {
		c, err := r.around.Dial(ctx)
		if err != nil {
			return err
		}
		r.conns = append(r.conns, &conn{client: c, times: newHistogram()})
	}
	for i := range int(r.Topics) {
		if err := unused(ctx, r.conns[0].client, r.name(i)); err != nil {
			return err
		}
	}
	n := int(max(r.Connections, r.Topics))
	share := max(1, int(r.Window*r.Connections)/n)
	create := &protocol.TopicConfig{Partitions: 1, Durability: r.Durability}
	for i := range n {
		b := &lane{conn: r.conns[i%len(r.conns)], topic: r.name(i % int(r.Topics)), stream: uint32(i), spans: map[int]uint64{}}
		b.room.L = &b.conn.mu
		b.count = r.Count / int64(n)
		if int64(i) < r.Count%int64(n) {
			b.count++
		}
		p, err := b.conn.client.Producer(ctx, b.topic, client.ProducerConfig{Create: create})
		if err != nil {
			return err
		}
		b.producer = p
		for range share {
			b.free = append(b.free, b.slot())
		}
		r.lanes = append(r.lanes, b)
	}
	return nil
}

func (b *lane) slot() *slot {
	s := &slot{}
	s.done = func(r client.Result, err error) { b.settle(s, r, err) }
	return s
}

// settle takes an acknowledgement and gives the slot back.
func (b *lane) settle(s *slot, r client.Result, err error) {
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

// Publish runs every lane and measures from the first message to the last acknowledgement. It is called once.
func (r *Run) Publish(ctx context.Context) (Result, error) {
	var handed atomic.Int64
	stop := r.around.watch(&handed, r.Count, "publish")
	start := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, len(r.lanes))
	for i, lane := range r.lanes {
		lane.start = start
		wg.Go(func() { errs[i] = lane.run(ctx, r, &handed) }) // returns when all of it is acknowledged, or failed
	}
	wg.Wait()
	took := time.Since(start)
	stop()
	if err := errors.Join(errs...); err != nil {
		return Result{}, err
	}
	total, sent := newHistogram(), int64(0)
	for _, c := range r.conns {
		total.Merge(c.times)
	}
	for _, lane := range r.lanes {
		sent += int64(lane.acked)
	}
	return measured(total, sent, int64(r.Size), took), nil
}

// run sends, never more than the window ahead, and waits for the acknowledgements.
func (b *lane) run(ctx context.Context, r *Run, handed *atomic.Int64) error {
	stamps := newStamper(r.number, b.stream, r.Size)
	window := len(b.free)
	var mine []*slot
	var m client.Message
	for n := int64(0); b.count == 0 && r.Duration > 0 || n < b.count; n++ {
		if len(mine) == 0 {
			var err error
			if mine, err = b.take(mine); err != nil {
				return err
			}
		}
		s := mine[len(mine)-1]
		if s.at = time.Since(b.start); r.Duration > 0 && s.at >= r.Duration || n&255 == 0 && ctx.Err() != nil {
			break
		}
		m.Payload = stamps.next()
		if err := b.producer.SendAsync(ctx, m, s.done); err != nil {
			return err
		}
		mine = mine[:len(mine)-1]
		if n&1023 == 1023 {
			handed.Add(1024)
		}
	}
	if err := b.producer.Flush(ctx); err != nil {
		return err
	}
	return b.await(window - len(mine))
}

// take returns the slots that are free, waiting for one.
func (b *lane) take(empty []*slot) ([]*slot, error) {
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
func (b *lane) await(slots int) error {
	b.conn.mu.Lock()
	defer b.conn.mu.Unlock()
	for len(b.free) < slots && b.err == nil {
		b.room.Wait()
	}
	return b.err
}
