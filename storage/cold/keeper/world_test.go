package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster's state, a bucket in memory, and what was ever written to each partition of one topic.
type world struct {
	t     testing.TB
	mu    sync.Mutex
	s     *state.State
	index uint64
	now   time.Time
	store *cold.Store
	fault func(op, key string) error // of requests to the bucket; called with mu not held
	topic state.TopicID
	parts []*written
	run   uint64 // draws nonces
	cuts  uint64
	uniq  uint64
}

// written is a partition's log as it should be read.
type written struct {
	batches []batch.Batch
	table   segment.Producers
	next    uint64
}

func newWorld(t testing.TB, parts int) *world {
	w := &world{t: t, s: state.New(), now: time.UnixMilli(1_700_000_000_000), topic: state.TopicID{7}}
	w.must(&state.InitCluster{ID: [16]byte{1}, Name: "danube"})
	o := w.register(1)
	owners := make([]state.Owner, parts)
	for i := range owners {
		owners[i] = o
		w.parts = append(w.parts, &written{})
	}
	w.must(&state.CreateTopic{ID: w.topic, Name: "/default/orders", Owners: owners, Settings: state.TopicSettings{
		Partitions: uint32(parts), Reliable: true, Durability: state.LevelObject,
	}})
	for i := range parts {
		w.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: w.topic, Partition: uint32(i), Epoch: 1, Ceiling: 900_000}}})
	}
	var err error
	w.store, err = cold.Open(t.Context(), cold.Config{URL: "test://bucket", Drivers: w.bucket, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.store.Close() })
	return w
}

// bucket is one in memory, whose writes, reads and deletions may fail.
func (w *world) bucket(context.Context, *url.URL, cold.Hooks) (*cold.Bucket, error) {
	b := memblob.OpenBucket(nil)
	return &cold.Bucket{
		Blob: b,
		Upload: func(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
			if err := w.hurt("put", key); err != nil {
				return nil, err
			}
			return nil, b.Upload(ctx, key, body, &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: absent})
		},
		Delete: func(ctx context.Context, key string) error {
			if err := w.hurt("delete", key); err != nil {
				return err
			}
			return b.Delete(ctx, key)
		},
	}, nil
}

func (w *world) hurt(op, key string) error {
	w.mu.Lock()
	f := w.fault
	w.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(op, key)
}

func (w *world) apply(c state.Command) state.Result {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.index++
	return w.s.Apply(w.index, c)
}

func (w *world) must(c state.Command) state.Result {
	w.t.Helper()
	r := w.apply(c)
	if r.Err != nil || r.Entry(0) != nil {
		w.t.Fatalf("%T: %v %v", c, r.Err, r.Entry(0))
	}
	return r
}

// register begins a run of a store.
func (w *world) register(n byte) state.Owner {
	w.run++
	id := state.StoreID{n}
	r := w.must(&state.RegisterStore{Store: id, Broker: fmt.Sprintf("n%d", n), Nonce: [16]byte{byte(w.run), byte(w.run >> 8), 1}})
	return state.Owner{Store: id, Incarnation: r.Incarnation}
}

func (w *world) frozen() *state.View {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.s.Freeze()
}

func (w *world) partition(n int) *state.Partition { return w.frozen().Partition(w.topic, uint32(n)) }

// restart ends the run of the store that owns everything, and opens all partitions in its next one.
func (w *world) restart() state.Owner {
	w.t.Helper()
	o := w.register(w.partition(0).Owner.Store[0])
	w.openAll(o, false)
	return o
}

// takeover gives everything to another store, the present owner being lost.
func (w *world) takeover(n byte) state.Owner {
	w.t.Helper()
	o := w.register(n)
	w.must(&state.LoseStore{Owner: w.partition(0).Owner})
	for i := range w.parts {
		w.must(&state.GrantPartitions{Entries: []state.PartitionGrant{{Topic: w.topic, Partition: uint32(i), Epoch: w.partition(i).Epoch, To: o}}})
	}
	w.openAll(o, true)
	return o
}

func (w *world) openAll(o state.Owner, granted bool) {
	w.t.Helper()
	for i, p := range w.parts {
		e := state.PartitionOpen{Topic: w.topic, Partition: uint32(i), Epoch: w.partition(i).Epoch, End: p.next, Tail: state.TailProven}
		if granted {
			e.End, e.Tail = w.partition(i).Takeover()
		}
		w.must(&state.OpenPartitions{Owner: o, Entries: []state.PartitionOpen{e}})
		if open := w.partition(i).OpenRange(); open != nil {
			p.next = max(p.next, open.Epochs[len(open.Epochs)-1].Start)
		}
		if q := w.partition(i); q.Ceiling < p.next+100_000 {
			w.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: w.topic, Partition: uint32(i), Epoch: q.Epoch, Ceiling: p.next + 900_000}}})
		}
	}
}

// segment makes a segment of n batches that go on where a partition ends, with size bytes of payload each.
func (w *world) segment(part, n, size int) ([]byte, catalog.Segment) {
	w.t.Helper()
	p, q := w.parts[part], w.partition(part)
	at := w.clock().UnixMilli()
	h := segment.Header{Cluster: [16]byte{1}, Store: q.Owner.Store, TopicID: w.topic, Topic: "/default/orders", Partition: uint32(part), Epoch: q.Epoch, FirstEpoch: q.Epoch, Base: p.next, Created: at}
	data, err := h.Append(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	sum := segment.NewSummary(data, p.next)
	put := func(b batch.Batch) {
		data = append(data, b...)
		sum.Add(b)
		p.table.Add(b)
		p.batches = append(p.batches, b)
		p.next = b.End()
	}
	var builder batch.Builder
	for i := range n {
		for range 1 + i%3 {
			builder.Add(&batch.Message{Key: []byte("k"), PublishTime: at, Payload: bytes.Repeat([]byte{byte(p.next), byte(part)}, size/2)})
		}
		b, err := builder.AppendTo(nil, batch.None, batch.Identity{Producer: 42, Session: 5, Sequence: p.next})
		if err != nil {
			w.t.Fatal(err)
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: p.next, Epoch: q.Epoch, AppendTime: at, Synced: p.next})
		put(b)
	}
	put(batch.AppendMark(nil, q.Epoch, p.next, at))
	data = sum.Footer().Append(data, &p.table)
	f := sum.Facts()
	return data, catalog.Segment{Start: f.First, End: f.End, Bytes: int64(len(data)), CRC: segment.Sum(data), FirstTime: f.FirstTime, LastTime: f.LastTime}
}

func (w *world) commit(part int, s catalog.Segment) {
	w.t.Helper()
	p := w.partition(part)
	w.must(&state.CommitSegments{Owner: p.Owner, Entries: []state.SegmentCommit{{
		Topic: w.topic, Partition: uint32(part), Epoch: p.Epoch, Epochs: p.Epochs(max(s.Start, p.LogStart), s.End), Segment: s,
	}}})
}

// export puts a segment of its own into the catalog of a partition.
func (w *world) export(part, batches, size int) catalog.Segment {
	w.t.Helper()
	data, s := w.segment(part, batches, size)
	w.uniq++
	p := w.partition(part)
	s.Object = catalog.Object{Kind: catalog.Own, Epoch: p.Epoch, Incarnation: p.Owner.Incarnation, Unique: w.uniq}
	if _, err := w.store.Put(w.t.Context(), keys.Of(catalog.NewName(w.topic, uint32(part), s.Object, s.Start, s.End)), cold.Bytes(data)); err != nil {
		w.t.Fatal(err)
	}
	w.commit(part, s)
	return s
}

// cut puts a segment of each partition into one object, and that into their catalogs.
func (w *world) cut(batches, size int) catalog.Object {
	w.t.Helper()
	w.cuts++
	o := w.partition(0).Owner
	object := catalog.Object{Kind: catalog.Cut, Store: o.Store, Incarnation: o.Incarnation, Number: w.cuts, Unique: 1}
	var whole []byte
	var list []catalog.Segment
	for i := range w.parts {
		data, s := w.segment(i, batches, size)
		s.Object, s.Position = object, int64(len(whole))
		whole, list = append(whole, data...), append(list, s)
	}
	whole = append(whole, "index"...)
	if _, err := w.store.Put(w.t.Context(), keys.Of(catalog.Name{Object: object}), cold.Bytes(whole)); err != nil {
		w.t.Fatal(err)
	}
	for i, s := range list {
		w.commit(i, s)
	}
	return object
}

// trim moves the log's start.
func (w *world) trim(part int, start uint64) {
	w.t.Helper()
	p := w.partition(part)
	w.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{
		Topic: w.topic, Partition: uint32(part), Epoch: p.Epoch, Floor: w.parts[part].next, LogStart: start, At: w.clock().UnixMilli(),
	}}})
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// view is what a broker gives to its Keeper.
func (w *world) view(o state.Owner) upkeep.View {
	v := w.frozen()
	part := func(p *state.Partition) upkeep.Partition {
		q := upkeep.Partition{
			Topic: p.Topic, Number: p.Number, Epoch: p.Epoch, Mine: p.Owner == o && p.State != state.Opening && !v.TopicByID(p.Topic).Deleted(), LogStart: p.LogStart, Catalog: p.Catalog,
		}
		for _, r := range p.Ranges {
			x := upkeep.Range{Start: r.Start, End: r.End}
			if r.Status == state.RangeOpen {
				x.End = p.Ceiling
			}
			for _, e := range r.Epochs {
				x.Epochs = append(x.Epochs, upkeep.Epoch{Epoch: e.Epoch, Start: e.Start})
			}
			q.Ranges = append(q.Ranges, x)
		}
		return q
	}
	return upkeep.View{
		Partitions: func(yield func(upkeep.Partition) bool) {
			for p := range v.Partitions(w.topic) {
				if !yield(part(p)) {
					return
				}
			}
		},
		Find: func(topic [16]byte, n uint32) (upkeep.Partition, bool) {
			p := v.Partition(topic, n)
			if p == nil {
				return upkeep.Partition{}, false
			}
			return part(p), true
		},
		Deleted: func(yield func(upkeep.Tombstone) bool) {
			for t := range v.Tombstones() {
				x := upkeep.Tombstone{Topic: t.ID}
				for p := range v.Partitions(t.ID) {
					if p.Catalog != nil {
						x.Partitions = append(x.Partitions, p.Number)
					}
				}
				if len(x.Partitions) > 0 && !yield(x) {
					return
				}
			}
		},
		Garbage: v.Garbage(), GarbageOf: v.GarbageOf, Named: v.Named, Auditing: v.Auditing(),
		Run: v.Run, Runs: v.Runs(),
	}
}

var errUnknown = errors.New("leadership lost")

// broker is a process that runs a Keeper.
type broker struct {
	*Keeper
	w     *world
	owner state.Owner
	dead  atomic.Bool
	calls atomic.Int64
	// lose says of the nth command whether it is lost on its way, or its answer is.
	lose func(n int64) (command, answer bool)
}

// broker starts one; at is called at each step.
func (w *world) broker(o state.Owner, at func(step string)) *broker {
	w.t.Helper()
	b := &broker{w: w, owner: o, lose: func(int64) (bool, bool) { return false, false }}
	mem := disk.NewMemory(1)
	k, err := Open(Config{
		Store: w.store, View: func() upkeep.View { return w.view(o) }, Commands: b.commands(), FS: mem, Dir: "merge", At: at, Rate: -1, Slots: 2,
		Self:   Self{Cluster: [16]byte{1}, Store: o.Store, Incarnation: o.Incarnation},
		Limits: upkeep.Limits{Most: 32 << 10, Ratio: 4, Enough: 4 << 10, Hot: 16, Grace: time.Hour},
		Clock: Clock{Now: w.clock, Wait: func(ctx context.Context, d time.Duration) error {
			w.pass(d)
			return ctx.Err()
		}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	b.Keeper = k
	return b
}

func (b *broker) one(name string, c state.Command) error { return b.each(name, 1, c)[0] }

func (b *broker) each(name string, n int, c state.Command) []error {
	errs := make([]error, n)
	lost, unheard := b.lose(b.calls.Add(1))
	var r state.Result
	if lost = lost || b.dead.Load(); !lost {
		r = b.w.apply(c)
		lost = unheard
	}
	for i := range errs {
		if lost {
			errs[i] = fmt.Errorf("%s: %w", name, errUnknown)
		} else if err := r.Entry(i); err != nil {
			errs[i] = fmt.Errorf("%w: %w", ErrRefused, err)
		}
	}
	return errs
}

func (b *broker) commands() Commands {
	return Commands{
		Swap: func(_ context.Context, at int64, swaps []Swap) []error {
			c := &state.SwapSegments{Owner: b.owner, At: at}
			for _, s := range swaps {
				c.Entries = append(c.Entries, state.SegmentSwap{Topic: s.Topic, Partition: s.Partition, Epoch: s.Epoch, Inputs: s.Inputs, Outputs: []catalog.Segment{s.Output}})
			}
			return b.each("swap", len(swaps), c)
		},
		Page: func(_ context.Context, p Paging) error {
			return b.one("page", &state.PageCatalog{Owner: b.owner, Topic: p.Topic, Partition: p.Partition, Epoch: p.Epoch, Page: p.Page})
		},
		Unpage: func(_ context.Context, u Unpaging) error {
			return b.one("unpage", &state.UnpageCatalog{
				Owner: b.owner, Topic: u.Topic, Partition: u.Partition, Epoch: u.Epoch, Start: u.Page.Start, Object: u.Page.Object, Content: u.Content, At: u.At,
			})
		},
		CondemnPage: func(_ context.Context, page catalog.Name, content []byte) error {
			return b.one("condemn page", &state.CondemnPage{Page: page, Content: content})
		},
		CondemnTopic: func(_ context.Context, at int64, t upkeep.Tombstone) error {
			return errors.Join(b.each("condemn topic", len(t.Partitions), &state.CondemnTopic{ID: t.Topic, At: at, Partitions: t.Partitions})...)
		},
		Condemn: func(_ context.Context, c Condemnation) []error {
			x := &state.CondemnObjects{At: c.At, Names: c.Names, Pages: c.Pages}
			if c.Own {
				x.Owner = b.owner
			}
			return b.each("condemn", len(c.Names), x)
		},
		Forget: func(_ context.Context, names []catalog.Name) []error {
			return b.each("forget", len(names), &state.ForgetObjects{Names: names})
		},
	}
}

// quiet runs passes until the bucket is as the catalogs say and nothing changes.
func (b *broker) quiet() {
	b.w.t.Helper()
	for range 8 {
		b.w.pass(90 * time.Minute)
		for what, err := range map[string]error{"compact": b.Compact(b.w.t.Context()), "collect": b.Collect(b.w.t.Context()), "sweep": second(b.Sweep(b.w.t.Context()))} {
			if err != nil {
				b.w.t.Fatalf("%s: %v", what, err)
			}
		}
	}
}

func second[A any](_ A, err error) error { return err }

// objects returns what lies in the bucket, without what the world put there itself.
func (w *world) objects() (all []string) {
	w.t.Helper()
	for next := []byte(nil); ; {
		page, err := w.store.List(w.t.Context(), "", next)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range page.Objects {
			all = append(all, o.Key)
		}
		if next = page.Next; len(next) == 0 {
			return all
		}
	}
}

// named returns the keys that catalogs and pages name.
func (w *world) named() (all []string) {
	w.t.Helper()
	v := w.view(state.Owner{})
	for p := range v.Partitions {
		for n := range upkeep.NamedBy(p, w.lists(p)) {
			all = append(all, keys.Of(n))
		}
	}
	for n := range upkeep.NamedCuts(v.Partitions) {
		all = append(all, keys.Of(n))
	}
	slices.Sort(all)
	return all
}

func (w *world) lists(p upkeep.Partition) catalog.Lists {
	w.t.Helper()
	lists := catalog.Lists{}
	for _, page := range p.Catalog.Pages() {
		name := catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)
		b := make([]byte, page.Size)
		if err := w.store.ReadAt(w.t.Context(), keys.Of(name), b, 0); err != nil {
			w.t.Fatalf("read page: %v", err)
		}
		c, err := catalog.DecodePage(b)
		if err != nil || !page.Holds(b) {
			w.t.Fatalf("page [%d, %d): %v", page.Start, page.End, err)
		}
		lists[name] = c.Segments
	}
	return lists
}

// clean fails unless exactly what is named lies in the bucket and no garbage is left.
func (w *world) clean() {
	w.t.Helper()
	if got, want := w.objects(), w.named(); !slices.Equal(got, want) {
		w.t.Fatalf("the bucket has\n%q\ncatalogs name\n%q", got, want)
	}
	for g := range w.view(state.Owner{}).Garbage {
		if !g.Gone {
			w.t.Fatalf("%v is still garbage", g.Name)
		}
	}
}

// readable reads every partition through its catalog from the log's start on and holds it against what was written.
func (w *world) readable() {
	w.t.Helper()
	for i, p := range w.parts {
		q, _ := w.view(state.Owner{}).Find(w.topic, uint32(i))
		list := slices.Collect(q.Catalog.All())
		for _, l := range w.lists(q) {
			list = append(list, l...)
		}
		slices.SortFunc(list, func(a, b catalog.Segment) int { return int(a.Start) - int(b.Start) })
		want := slices.DeleteFunc(slices.Clone(p.batches), func(b batch.Batch) bool { return b.Control() || b.End() <= q.LogStart })
		var last segment.Producers
		for _, s := range list {
			for _, b := range w.contents(i, s, &last) {
				if b.End() <= q.LogStart {
					continue
				}
				if len(want) == 0 || !bytes.Equal(b, want[0]) {
					w.t.Fatalf("partition %d: other bytes at [%d, %d)", i, b.Base(), b.End())
				}
				want = want[1:]
			}
		}
		if len(want) > 0 {
			w.t.Fatalf("partition %d: %d batches from %d on are missing", i, len(want), want[0].Base())
		}
		if len(list) == 0 {
			continue
		}
		if s := last.Find(42, 5); s == nil || s.Last != p.table.Find(42, 5).Last || s.Len() != p.table.Find(42, 5).Len() {
			w.t.Fatalf("partition %d: the producer table is not that of the end", i)
		}
	}
}

// contents reads a segment with the package that knows the format, independent of what is tested.
func (w *world) contents(part int, s catalog.Segment, table *segment.Producers) (out []batch.Batch) {
	w.t.Helper()
	b := make([]byte, s.Bytes)
	key := keys.Of(catalog.NewName(w.topic, uint32(part), s.Object, s.Start, s.End))
	if err := w.store.ReadAt(w.t.Context(), key, b, s.Position); err != nil {
		w.t.Fatal(err)
	}
	if segment.Sum(b) != s.CRC || segment.WholeCRC(b) != batch.Checksum(b) {
		w.t.Fatalf("%s is not what the catalog has", key)
	}
	h, n, err := segment.ReadHeader(bytes.NewReader(b))
	if err != nil {
		w.t.Fatal(err)
	}
	for scan := segment.NewScanner(bytes.NewReader(b), s.Bytes, h.Origin(n)); ; {
		st, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		switch {
		case err != nil || st.Err != nil:
			w.t.Fatalf("%s: %v %v", key, err, st.Err)
		case st.Kind == segment.Whole && !st.Batch.Control():
			out = append(out, bytes.Clone(st.Batch))
		case st.Kind == segment.Sealed:
			p, err := st.Footer.Producers()
			if err != nil {
				w.t.Fatal(err)
			}
			*table = *p
		}
	}
}
