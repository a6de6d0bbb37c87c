package export

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/excerpt"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is an error of a server that gives a reason.
type said struct{ status int }

func (e *said) Error() string { return fmt.Sprintf("status %d", e.status) }

// errLost is the end of a request without an answer.
var errLost = errors.New("connection reset")

// bucket is a store in memory whose uploads do what a test wants.
type bucket struct {
	blob  *blob.Bucket
	store *cold.Store

	mu      sync.Mutex
	upload  func(ctx context.Context, key string, data []byte) error // nil: keep it
	uploads map[string][][]byte                                      // every body that was sent, by key
	order   []string                                                 // keys, as they were sent first
}

func newBucket(t *testing.T) *bucket {
	b := &bucket{blob: memblob.OpenBucket(nil), uploads: make(map[string][][]byte)}
	b.open(t)
	return b
}

// open makes the store above it.
func (b *bucket) open(t *testing.T) {
	t.Helper()
	s, err := cold.Open(t.Context(), cold.Config{
		URL: "test://bucket",
		Drivers: func(context.Context, *url.URL, cold.Hooks) (*cold.Bucket, error) {
			return &cold.Bucket{Blob: b.blob, Upload: b.put, Answer: func(err error) (int, string) {
				if s, ok := errors.AsType[*said](err); ok {
					return s.status, ""
				}
				switch gcerrors.Code(err) {
				case gcerrors.FailedPrecondition:
					return 412, ""
				case gcerrors.NotFound:
					return 404, ""
				}
				return 0, ""
			}}, nil
		},
		Attempt: 5 * time.Second, Call: 12 * time.Second, Attempts: 2, Jitter: func() float64 { return 0 },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.store = s
}

func (b *bucket) put(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	if b.uploads[key] == nil {
		b.order = append(b.order, key)
	}
	b.uploads[key] = append(b.uploads[key], data)
	upload := b.upload
	b.mu.Unlock()
	if upload != nil {
		if err := upload(ctx, key, data); err != nil {
			return nil, err
		}
	}
	sum := md5.Sum(data)
	return sum[:], b.keep(key, data)
}

// keep stores an object if there is none.
func (b *bucket) keep(key string, data []byte) error {
	return b.blob.WriteAll(context.Background(), key, data, &blob.WriterOptions{IfNotExist: true})
}

func (b *bucket) script(upload func(ctx context.Context, key string, data []byte) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upload = upload
}

// keys are those of all bodies that were sent, as they were sent first.
func (b *bucket) keys() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.order)
}

// catalogs are the catalogs of a cluster and the rules by which they take segments (R11).
type catalogs struct {
	t      *testing.T
	bucket *bucket

	mu     sync.Mutex
	parts  map[ID]*catalog
	answer func(Entry) (before, after error) // what is lost or refused on the way there, and back
	calls  int
}

type catalog struct {
	epoch    uint64
	segments []Segment
}

func (c *catalog) end() uint64 {
	if n := len(c.segments); n > 0 {
		return c.segments[n-1].End
	}
	return 0
}

// of is the catalog of a partition. m.mu is held.
func (m *catalogs) of(id ID) *catalog {
	c := m.parts[id]
	if c == nil {
		c = &catalog{epoch: 1}
		m.parts[id] = c
	}
	return c
}

func (m *catalogs) list(id ID) []Segment {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.of(id).segments)
}

func (m *catalogs) end(id ID) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(id).end()
}

func (m *catalogs) setEpoch(id ID, epoch uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(id).epoch = epoch
}

func (m *catalogs) script(answer func(Entry) (before, after error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// commit is Config.Commit.
func (m *catalogs) commit(ctx context.Context, entries []Entry) []error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	out := make([]error, len(entries))
	for i, e := range entries {
		var before, after error
		if m.answer != nil {
			before, after = m.answer(e)
		}
		if out[i] = before; before == nil {
			if out[i] = m.apply(e); out[i] == nil {
				out[i] = after
			}
		}
	}
	return out
}

// apply judges one entry. m.mu is held.
func (m *catalogs) apply(e Entry) error {
	c := m.of(e.ID)
	if slices.ContainsFunc(c.segments, func(s Segment) bool { return s.Object == e.Segment.Object && s.Start == e.Segment.Start }) {
		return nil
	}
	switch {
	case e.Epoch != c.epoch:
		return fmt.Errorf("%w: epoch %d, it is at %d", ErrRefused, e.Epoch, c.epoch)
	case e.Segment.Start != c.end() || e.Segment.End <= e.Segment.Start:
		return fmt.Errorf("%w: offsets %d to %d behind %d", ErrRefused, e.Segment.Start, e.Segment.End, c.end())
	}
	m.check(e)
	c.segments = append(c.segments, e.Segment)
	return nil
}

// check holds an entry against the object that it names: the catalog is the truth, so it must be one (I11).
func (m *catalogs) check(e Entry) {
	s := &e.Segment
	data := m.bytes(s)
	if data == nil {
		m.t.Errorf("offsets %d to %d of %x are committed, and %s does not have them", s.Start, s.End, e.ID.Topic[:1], s.Object.Key())
		return
	}
	report, err := segment.Verify(bytes.NewReader(data), s.Bytes)
	if err != nil || len(report.Problems) > 0 || report.Footer == nil {
		m.t.Errorf("%s: %v, %v", s.Object.Key(), report.Problems, err)
		return
	}
	f := report.Footer
	if f.End != s.End || f.First > s.Start || f.Messages != s.Messages || f.Batches != s.Batches || f.FirstTime != s.FirstTime || f.LastTime != s.LastTime ||
		len(s.Epochs) != 1 || s.Epochs[0] != (segment.EpochStart{Epoch: f.Epochs[0].Epoch, Start: s.Start}) || report.Header.TopicID != e.ID.Topic {
		m.t.Errorf("the catalog has %+v, the segment %+v", s, f)
	}
}

// bytes are those of a segment in its object, nil unless they are what the catalog says.
func (m *catalogs) bytes(s *Segment) []byte {
	all, err := m.bucket.blob.ReadAll(context.Background(), s.Object.Key())
	if err != nil || int64(len(all)) < s.Position+s.Bytes {
		return nil
	}
	data := all[s.Position : s.Position+s.Bytes]
	if segment.Sum(data) != s.CRC || segment.WholeCRC(data) != batch.Checksum(data) {
		return nil
	}
	return data
}

// partition is a log and its catalog as a source.
type partition struct {
	id     ID
	log    *wal.Log
	meta   *catalogs
	object bool
	send   func(n, size int) error

	mu   sync.Mutex
	fail error // of Facts
}

func (p *partition) ID() ID { return p.id }

func (p *partition) Facts() (Facts, error) {
	p.mu.Lock()
	err := p.fail
	p.mu.Unlock()
	if err != nil {
		return Facts{}, err
	}
	p.meta.mu.Lock()
	c := p.meta.of(p.id)
	next, epoch := c.end(), c.epoch
	p.meta.mu.Unlock()
	b, err := p.log.Backlog(next)
	if err != nil {
		return Facts{}, err
	}
	return Facts{
		Epoch: epoch, Next: next, End: b.End, Bytes: b.Bytes, Oldest: time.UnixMilli(b.Oldest), Sealed: b.Sealed, SealedBytes: b.SealedBytes,
		Object: p.object,
	}, nil
}

func (p *partition) Cut(ctx context.Context, from, to uint64, most int64) (*excerpt.Segment, error) {
	return p.log.Cut(ctx, from, to, most)
}

// world is one process: a log, an exporter, and what outlives them.
type world struct {
	t      *testing.T
	fsys   *disk.Memory
	tier   *wal.Tier
	bucket *bucket
	meta   *catalogs
	parts  []*partition
	export *Exporter
	stop   func()
}

func named(n int) ID { return ID{Topic: [16]byte{byte(n), 1}, Partition: uint32(n)} }

// newWorld starts a process with so many partitions, of which the first few are of level object.
func newWorld(t *testing.T, parts, object int, change func(*Config)) *world {
	w := &world{t: t, fsys: disk.NewMemory(1), bucket: newBucket(t)}
	w.meta = &catalogs{t: t, bucket: w.bucket, parts: make(map[ID]*catalog)}
	if err := w.fsys.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	tier, err := wal.Open(t.Context(), wal.Config{FS: w.fsys, Dir: "/data", Store: [16]byte{7}, SegmentBytes: 16 << 10, MemoryBytes: 1 << 20, JournalBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	w.tier = tier
	for n := range parts {
		w.parts = append(w.parts, w.partition(n, n < object))
	}
	w.start(change)
	return w
}

func (w *world) partition(n int, object bool) *partition {
	id := named(n)
	log, _, err := w.tier.Log(w.t.Context(), wal.Opening{ID: wal.ID{Topic: id.Topic, Partition: id.Partition}, Topic: "/default/t"})
	if err == nil {
		err = log.Begin(1, 0, 1<<40)
	}
	if err == nil {
		_, _, err = log.OpenSession(1, 1, 0)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	var builder batch.Builder
	seq := uint64(0)
	p := &partition{id: id, log: log, meta: w.meta, object: object}
	p.send = func(count, size int) error {
		for range count {
			builder.Add(&batch.Message{Payload: fmt.Appendf(nil, "%d/%d:%s", n, seq, strings.Repeat("x", size))})
			b, err := builder.AppendTo(nil, batch.None, batch.Identity{Producer: 1, Session: 1, Sequence: seq})
			if err != nil {
				return err
			}
			pending, err := log.Append(b)
			if err == nil {
				err = pending.Wait()
			}
			if err != nil {
				return err
			}
			seq++
		}
		if w.export != nil {
			w.export.Changed(id)
		}
		return nil
	}
	return p
}

func (w *world) start(change func(*Config)) {
	w.t.Helper()
	cfg := Config{
		Store: w.bucket.store, Commit: w.meta.commit, Self: Self{Store: [16]byte{7}, Incarnation: 1, Cluster: func() [16]byte { return [16]byte{9} }},
		Slots: 4,
	}
	if change != nil {
		change(&cfg)
	}
	e, err := Open(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	w.export = e
	for _, p := range w.parts {
		e.Add(p)
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) close() {
	w.stop()
	if err := w.tier.Close(); err != nil {
		w.t.Error(err)
	}
	if err := w.bucket.store.Close(); err != nil {
		w.t.Error(err)
	}
}

// must sends messages of a size.
func (w *world) must(part, count, size int) {
	w.t.Helper()
	if err := w.parts[part].send(count, size); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) end(part int) uint64 { return w.meta.end(named(part)) }

// urgent exports what a partition has.
func (w *world) urgent(part int) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Hour)
	defer cancel()
	return w.export.Urgent(ctx, named(part), w.parts[part].log.Committed())
}

// wait lets time pass.
func wait(d time.Duration) { <-time.After(d) }

// payloads are the messages that a catalog names, in the order of their offsets, which must have no hole.
func (w *world) payloads(part int) (out []string) {
	w.t.Helper()
	d := batch.NewDecoder(segment.Limits())
	next := uint64(0)
	for _, s := range w.meta.list(named(part)) {
		if s.Start != next {
			w.t.Fatalf("the catalog goes on at %d behind %d", s.Start, next)
		}
		next = s.End
		data := w.meta.bytes(&s)
		header, size, err := segment.ReadHeader(bytes.NewReader(data))
		if err != nil {
			w.t.Fatal(err)
		}
		scan := segment.NewScanner(bytes.NewReader(data), int64(len(data)), header.Origin(size))
		for {
			x, err := scan.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				w.t.Fatal(err)
			}
			if x.Kind != segment.Whole || x.Batch.Control() {
				continue
			}
			if err := d.Reset(x.Batch); err != nil {
				w.t.Fatal(err)
			}
			var m batch.Message
			for {
				ok, err := d.Next(&m)
				if err != nil {
					w.t.Fatal(err)
				}
				if !ok {
					break
				}
				text, _, _ := strings.Cut(string(m.Payload), ":")
				out = append(out, text)
			}
		}
	}
	return out
}

// checkAll fails unless the catalogs name every message once, in order.
func (w *world) checkAll() {
	w.t.Helper()
	for n, p := range w.parts {
		got := w.payloads(n)
		if uint64(len(got)) != p.log.Committed() {
			w.t.Errorf("partition %d: %d of %d messages are in the catalog", n, len(got), p.log.Committed())
		}
		for i, text := range got {
			if text != fmt.Sprintf("%d/%d", n, i) {
				w.t.Errorf("partition %d: message %d is %s", n, i, text)
				break
			}
		}
	}
}
