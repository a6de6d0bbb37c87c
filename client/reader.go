package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/danubemq/danube/client/internal/incoming"
	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// Reader reads a reliable topic from a position, without a subscription: it
// stores nothing and disturbs nobody. Not safe for concurrent use, but for Close.
type Reader struct {
	c      *Client
	cfg    ReaderConfig
	topic  string
	end    context.CancelFunc
	wg     sync.WaitGroup
	once   sync.Once
	chunks chan chunk    // what the fetching goroutines read
	over   chan struct{} // closed by Close

	cur  chunk           // being handed out
	in   *incoming.Chunk // the body of cur
	open int             // partitions whose end is not reached
}

// chunk is an answer to a fetch, or what ends a partition.
type chunk struct {
	partition int
	body      []byte // whole batches, not looked at yet
	from, to  uint64 // the offsets that are meant
	gap       *GapError
	err       error // io.EOF: the end of the partition
}

// Fetches wait so long at the end of a partition for something to come.
const fetchWait = 2 * time.Second

// fetchesMost is how many fetches a Reader has under way: a broker bounds the
// requests of a connection.
const fetchesMost = 16

// Reader opens a reader of a topic, named NAME or /NAMESPACE/NAME, or of one
// partition of it, NAME:N. Messages that are appended after it returned are
// read even from Latest.
func (c *Client) Reader(ctx context.Context, topic string, cfg ReaderConfig) (*Reader, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	full, _, partitions, err := c.partitions(ctx, topic, nil)
	if err != nil {
		return nil, err
	}
	if cfg.From.Kind == protocol.AtOffset && len(partitions) > 1 {
		return nil, errors.New("read: an offset needs one partition: name the topic as NAME:N")
	}
	r := &Reader{
		c: c, cfg: cfg, topic: full, chunks: make(chan chunk), over: make(chan struct{}),
		in: incoming.NewChunk(c.cfg.Limits), open: len(partitions),
	}
	feeds, err := r.first(ctx, partitions)
	if err != nil {
		return nil, err
	}
	if err := c.adopt(r); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(c.life)
	r.end = end
	for _, f := range feeds {
		r.wg.Go(func() { f.run(life) }) // returns at the end of the partition, or when the Reader is closed
	}
	return r, nil
}

// first resolves the position on every partition.
func (r *Reader) first(ctx context.Context, partitions []int) ([]*feed, error) {
	slots := make(chan struct{}, fetchesMost)
	wait := fetchWait
	if len(partitions) > fetchesMost {
		wait = fetchWait / 8
	}
	var wg sync.WaitGroup
	feeds, errs := make([]*feed, len(partitions)), make([]error, len(partitions))
	for i, n := range partitions {
		f := &feed{r: r, partition: n, pos: r.cfg.From, wait: wait, slots: slots}
		feeds[i] = f
		wg.Go(func() { // returns when the broker has answered, or ctx ends
			errs[i] = r.c.persist(ctx, f.op(), func(ctx context.Context) error {
				var err error
				f.ahead, err = f.fetch(ctx, 0)
				return err
			})
			f.stop = f.ahead.ok.Committed
		})
	}
	wg.Wait()
	return feeds, errors.Join(errs...)
}

// Topic is the full name of the topic.
func (r *Reader) Topic() string { return r.topic }

// Next returns the next message, waiting for one until ctx ends. A [*GapError]
// says that offsets are missing; reading goes on behind them with the next
// call. io.EOF: with ReaderConfig.ToEnd, all was read. Any other error but ctx's ends one partition.
func (r *Reader) Next(ctx context.Context) (Message, error) {
	for {
		select {
		case <-r.over:
			return Message{}, ErrClosed
		default:
		}
		m, ok, err := r.decode()
		if ok || err != nil {
			return m, err
		}
		if r.open == 0 {
			return Message{}, io.EOF
		}
		select {
		case r.cur = <-r.chunks:
			r.in.Begin(r.cur.body, r.cur.from, r.cur.to)
			r.cur.body = nil
		case <-r.over:
			return Message{}, ErrClosed
		case <-ctx.Done():
			return Message{}, retry.Stopped(ctx, "read "+r.topic, nil)
		}
		switch err := r.cur.err; {
		case err == io.EOF:
			r.open--
		case err != nil:
			r.open--
			return Message{}, err
		case r.cur.gap != nil && r.cur.gap.Status != superseded:
			return Message{}, r.cur.gap
		case r.cur.gap != nil && r.cfg.OnSuperseded != nil:
			r.cfg.OnSuperseded(*r.cur.gap)
		}
	}
}

// decode returns the next message of the current chunk, or an error if the
// chunk does not hold what it claims.
func (r *Reader) decode() (m Message, ok bool, err error) {
	d, err := r.in.Next()
	if jump, jumped := errors.AsType[*incoming.JumpError](err); jumped {
		return m, false, &GapError{Topic: r.topic, Partition: r.cur.partition, From: jump.From, To: jump.To, Status: "unexplained"}
	}
	if err != nil {
		return m, false, wireError(fmt.Sprintf("read %s:%d at offset %d", r.topic, r.cur.partition, r.in.Offset()),
			protocol.Errorf(protocol.CodeCorruptBatch, "%v", err))
	}
	if d == nil {
		return m, false, nil
	}
	m.fill(&d.Message, d.AppendTime)
	m.Topic, m.Partition = r.topic, r.cur.partition
	return m, true, nil
}

// Close ends the reader. It may be called while Next waits.
func (r *Reader) Close() {
	r.once.Do(func() {
		close(r.over)
		r.end()
		r.wg.Wait()
		r.c.release(r)
	})
}

func (r *Reader) abandon() { r.Close() }

// feed is the goroutine that reads one partition.
type feed struct {
	r         *Reader
	partition int
	pos       protocol.Position
	wait      time.Duration
	slots     chan struct{}
	ahead     fetched // the answer of the opening fetch
	stop      uint64  // with ToEnd: where to end
	conn      *conn
	epoch     uint64
}

// fetched is an answer.
type fetched struct {
	ok   protocol.FetchOK
	body []byte
}

func (f *feed) op() string { return fmt.Sprintf("read %s:%d", f.r.topic, f.partition) }

// fetch asks for what comes at the position.
func (f *feed) fetch(ctx context.Context, wait time.Duration) (res fetched, err error) {
	f.slots <- struct{}{}
	defer func() { <-f.slots }()
	r := f.r
	if f.conn == nil || !f.conn.usable() {
		if f.conn, f.epoch, err = r.c.owner(ctx, r.topic, f.partition, nil); err != nil {
			return res, err
		}
	}
	q := &protocol.Fetch{
		Topic: r.topic, Partition: f.partition, Epoch: f.epoch, From: f.pos,
		MaxBytes: r.cfg.FetchBytes, WaitMS: int(wait.Milliseconds()),
	}
	err = f.conn.call(ctx, protocol.TypeFetch, q, nil, &call{
		op: f.op(), about: place{r.topic, f.partition}, want: protocol.TypeFetchOK,
		decode: func(fr protocol.Frame) error {
			res.body = bytes.Clone(fr.Body)
			return res.ok.Decode(fr.Header)
		},
	})
	if err != nil {
		f.conn = nil
	}
	return res, err
}

// run reads the partition from the opening fetch on.
func (f *feed) run(ctx context.Context) {
	for res := f.ahead; ; {
		if !f.pass(ctx, &res) {
			return
		}
		f.pos = protocol.Position{Kind: protocol.AtOffset, Offset: max(res.ok.Next, res.ok.To)}
		if f.r.cfg.ToEnd && f.pos.Offset >= f.stop {
			f.send(ctx, chunk{err: io.EOF})
			return
		}
		f.ahead = fetched{}
		err := f.r.c.insist(ctx, f.op(), func(ctx context.Context) (err error) {
			res, err = f.fetch(ctx, f.wait)
			return err
		})
		if hasCode(err, protocol.CodeBelowLogStart) {
			res, err = f.trimmed(ctx)
		}
		if err != nil {
			f.send(ctx, chunk{err: err})
			return
		}
	}
}

// pass hands an answer to Next. False: the Reader is closed.
func (f *feed) pass(ctx context.Context, res *fetched) bool {
	ok := &res.ok
	if len(res.body) > 0 && !f.send(ctx, chunk{body: res.body, from: ok.From, to: ok.To}) {
		return false
	}
	if ok.Next <= ok.To || ok.GapStatus == "" || ok.GapStatus == "none" {
		return true // offsets that were never given out are nobody's loss
	}
	return f.send(ctx, chunk{gap: &GapError{Topic: f.r.topic, Partition: f.partition, From: ok.To, To: ok.Next, Status: ok.GapStatus}})
}

// trimmed goes on at the start of the log, which has overtaken the reader.
func (f *feed) trimmed(ctx context.Context) (res fetched, err error) {
	was := f.pos.Offset
	f.pos = protocol.Position{Kind: protocol.Earliest}
	err = f.r.c.insist(ctx, f.op(), func(ctx context.Context) error {
		res, err = f.fetch(ctx, 0)
		return err
	})
	if err == nil && res.ok.From > was {
		f.send(ctx, chunk{gap: &GapError{Topic: f.r.topic, Partition: f.partition, From: was, To: res.ok.From, Status: "trimmed"}})
	}
	return res, err
}

// send hands a chunk to Next. False: the Reader is closed.
func (f *feed) send(ctx context.Context, k chunk) bool {
	k.partition = f.partition
	select {
	case f.r.chunks <- k:
		return true
	case <-ctx.Done():
		return false
	}
}
