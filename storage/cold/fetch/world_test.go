package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// errNoObject is what the bucket says of an object that is not there.
var errNoObject = errors.New("no such object")

// request is a ranged read that came to a bucket.
type request struct {
	key    string
	off, n int64
}

// bucket holds objects in memory and hurts reads as it is told to.
type bucket struct {
	driver.Bucket
	// before is called for each read, without a lock; its error is the answer.
	before func(ctx context.Context, r request) error
	// body makes other bytes of an answer.
	body func(r request, data []byte) io.Reader

	mu       sync.Mutex
	objects  map[string][]byte
	requests []request
}

func (b *bucket) NewRangeReader(ctx context.Context, key string, off, n int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	r := request{key, off, n}
	b.mu.Lock()
	data, ok := b.objects[key]
	b.requests = append(b.requests, r)
	before, body := b.before, b.body
	b.mu.Unlock()
	if before != nil {
		if err := before(ctx, r); err != nil {
			return nil, err
		}
	}
	if !ok {
		return nil, errNoObject
	}
	part := data[min(off, int64(len(data))):min(off+n, int64(len(data)))]
	out := &answer{Reader: bytes.NewReader(part), size: int64(len(data))}
	if body != nil {
		out.Reader = body(r, part)
	}
	return out, nil
}

func (b *bucket) ErrorCode(err error) gcerrors.ErrorCode {
	if errors.Is(err, errNoObject) {
		return gcerrors.NotFound
	}
	return gcerrors.Unknown
}

func (b *bucket) As(any) bool             { return false }
func (b *bucket) ErrorAs(error, any) bool { return false }
func (b *bucket) Close() error            { return nil }

// asked lists the requests so far, and forgets them.
func (b *bucket) asked() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.requests
	b.requests = nil
	return r
}

func (b *bucket) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

type answer struct {
	io.Reader
	size int64
}

func (a *answer) Close() error                         { return nil }
func (a *answer) As(any) bool                          { return false }
func (a *answer) Attributes() *driver.ReaderAttributes { return &driver.ReaderAttributes{Size: a.size} }

// listing is a catalog. It names what a test puts there.
type listing struct {
	mu      sync.Mutex
	version uint64
	pieces  []Piece
	err     error
	looked  int
}

func (l *listing) At(offset uint64) (Piece, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looked++
	for _, p := range l.pieces {
		if p.Start <= offset && offset < p.End {
			return p, l.version, l.err
		}
	}
	return Piece{}, l.version, errors.Join(l.err, ErrUncovered)
}

func (l *listing) AtTime(ms int64) (Piece, uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pieces {
		if p.LastTime >= ms {
			return p, l.version, l.err
		}
	}
	return Piece{}, l.version, errors.Join(l.err, ErrUncovered)
}

func (l *listing) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.version++
}

// world is a partition with a cold tier, and all that is true of it.
type world struct {
	t       testing.TB
	bucket  *bucket
	store   *cold.Store
	tier    *Tier
	catalog *listing
	part    *Partition
	rnd     *rand.Rand
	noise   *rand.ChaCha8
	truth   []batch.Batch // in the order of offsets
	next    uint64
	epoch   uint64
}

func testID() ID { return ID{Topic: [16]byte{1, 2, 3}, Partition: 4} }

// newWorld opens a tier over an empty bucket; cfg.Store is made here.
func newWorld(t testing.TB, cfg Config) *world {
	t.Helper()
	w := &world{t: t, bucket: &bucket{objects: map[string][]byte{}}, catalog: &listing{version: 1}, rnd: rand.New(rand.NewPCG(1, 2)), noise: rand.NewChaCha8([32]byte{1}), epoch: 7}
	store, err := cold.Open(t.Context(), cold.Config{
		URL: "test://place",
		Drivers: func(context.Context, *url.URL, cold.Hooks) (*cold.Bucket, error) {
			return &cold.Bucket{Blob: blob.NewBucket(w.bucket)}, nil
		},
		Wait:     func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		Attempts: 8,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.store = store
	cfg.Store = store
	if w.tier, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	w.part = w.tier.Partition(testID(), w.catalog)
	t.Cleanup(func() {
		if err := w.tier.Close(); err != nil {
			t.Error(err)
		}
		if n := w.tier.Used(); n != 0 {
			t.Errorf("%d bytes are held after all is closed", n)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// batch makes the next batch, about size bytes of it.
func (w *world) batch(count, size int) batch.Batch {
	w.t.Helper()
	var b batch.Builder
	for range count {
		payload := make([]byte, size/count)
		_, _ = w.noise.Read(payload) // never fails
		b.Add(&batch.Message{Payload: payload})
	}
	data, err := b.AppendTo(nil, batch.None, batch.Identity{Producer: 9, Session: 1, Sequence: w.next})
	if err != nil {
		w.t.Fatal(err)
	}
	return w.stamp(data)
}

func (w *world) stamp(data batch.Batch) batch.Batch {
	data.Stamp(batch.Stamp{Base: w.next, Epoch: w.epoch, AppendTime: timeOf(w.next), Synced: w.next})
	w.next = data.End()
	return data
}

// timeOf is when the message with an offset was appended.
func timeOf(offset uint64) int64 { return 1_700_000_000_000 + 10*int64(offset) }

// sealed is a segment as bytes, and its piece.
func (w *world) sealed(key string, batches ...batch.Batch) ([]byte, Piece) {
	w.t.Helper()
	first := slices.IndexFunc(batches, func(b batch.Batch) bool { return !b.Control() })
	h := segment.Header{TopicID: testID().Topic, Partition: testID().Partition, Topic: "/default/t", FirstEpoch: batches[first].Epoch(), Epoch: w.epoch, Base: batches[first].Base()}
	data, err := h.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := segment.NewSummary(data, h.Base)
	for _, b := range batches {
		data = append(data, b...)
		sum.Add(b)
	}
	f := sum.Footer()
	data = f.Append(data, nil)
	return data, Piece{
		Key: key, Bytes: int64(len(data)), Start: f.First, End: f.End, Epochs: slices.Clone(sum.Epochs()),
		CRC: segment.Sum(data), FirstTime: f.FirstTime, LastTime: f.LastTime,
	}
}

// export seals batches into an object that the catalog lists, and counts them among
// what is true.
func (w *world) export(key string, batches ...batch.Batch) Piece {
	w.t.Helper()
	data, p := w.sealed(key, batches...)
	w.bucket.set(func() { w.bucket.objects[key] = data })
	w.catalog.change(func() { w.catalog.pieces = append(w.catalog.pieces, p) })
	for _, b := range batches {
		if !b.Control() {
			w.truth = append(w.truth, b)
		}
	}
	return p
}

// fill exports segments of n batches each.
func (w *world) fill(segments, n, size int) {
	w.t.Helper()
	for i := range segments {
		var list []batch.Batch
		for range n {
			list = append(list, w.batch(2, size))
		}
		w.export(fmt.Sprintf("segment-%d", i), list...)
	}
}

// at is the place in the truth of the batch that holds an offset.
func (w *world) at(offset uint64) int {
	return sort.Search(len(w.truth), func(i int) bool { return w.truth[i].End() > offset })
}

// same fails unless a view is what is true from an offset on, and returns its end.
func (w *world) same(v memory.View, from uint64) uint64 {
	w.t.Helper()
	i := w.at(from)
	if i == len(w.truth) || v.Base != w.truth[i].Base() {
		w.t.Fatalf("offset %d: a view of offsets %d to %d", from, v.Base, v.End)
	}
	for rest := v.Data; len(rest) > 0; i++ {
		if i == len(w.truth) || len(rest) < len(w.truth[i]) || !bytes.Equal(rest[:len(w.truth[i])], w.truth[i]) {
			w.t.Fatalf("offset %d: other bytes than were written", from)
		}
		rest, from = rest[len(w.truth[i]):], w.truth[i].End()
	}
	if v.End != from {
		w.t.Fatalf("a view ends at %d, its batches at %d", v.End, from)
	}
	return from
}

// readTo reads up to an offset and holds everything against the truth.
func (w *world) readTo(r *Reader, to uint64, most int) {
	w.t.Helper()
	for r.Offset() < to {
		from := r.Offset()
		v, err := r.Next(w.t.Context(), most)
		if err != nil {
			w.t.Fatalf("offset %d: %v", from, err)
		}
		end := w.same(v, from)
		if r.Offset() != end {
			w.t.Fatalf("the reader is at %d behind a view that ends at %d", r.Offset(), end)
		}
		if len(v.Data) > most && end != w.truth[w.at(from)].End() {
			w.t.Fatalf("%d bytes of several batches where %d were asked for", len(v.Data), most)
		}
		v.Release()
	}
}

// next reads once, and holds what comes against the truth.
func (w *world) nextFrom(r *Reader) {
	w.t.Helper()
	w.readTo(r, r.Offset()+1, 1)
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// fill1 exports one segment of n batches.
func (w *world) fill1(key string, n, size int) {
	w.t.Helper()
	var list []batch.Batch
	for range n {
		list = append(list, w.batch(1+w.rnd.IntN(3), size))
	}
	w.export(key, list...)
}

// exportPayloads exports a segment of n batches of one message with the same payload.
func (w *world) exportPayloads(key string, n int, payload []byte) {
	w.t.Helper()
	var list []batch.Batch
	for range n {
		var b batch.Builder
		b.Add(&batch.Message{Payload: payload})
		data, err := b.AppendTo(nil, batch.None, batch.Identity{Producer: 9, Session: 1, Sequence: w.next})
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, w.stamp(data))
	}
	w.export(key, list...)
}
