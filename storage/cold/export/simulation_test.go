package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/wal"
)

// simulation is a broker that is killed again and again: at any step, with or without a loss of power, while uploads
// hang, answers get lost and commits are refused. Disk, bucket and catalogs outlive it.
type simulation struct {
	t     *testing.T
	rnd   *rand.Rand // of the test's own goroutine
	fsys  *disk.Memory
	world *world
	parts []*history
	life  uint64
	calm  bool // no faults
	felt  map[string]int
}

// history is what is known of a partition for ever.
type history struct {
	id      ID
	object  bool
	acked   []string // by offset
	extents []wal.Extent
	seq     uint64
	mu      sync.Mutex
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := &simulation{t: t, rnd: rand.New(rand.NewPCG(seed, 5)), fsys: disk.NewMemory(seed), felt: make(map[string]int)}
	b := newBucket(t)
	s.world = &world{t: t, bucket: b, meta: &catalogs{t: t, bucket: b, parts: make(map[ID]*catalog)}}
	for n := range 6 {
		s.parts = append(s.parts, &history{id: named(n), object: n < 2})
	}
	if err := s.fsys.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	if err := s.fsys.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	return s
}

// faults are those of one life, decided by its own random numbers because many goroutines ask.
type faults struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	sick byte // the topic whose uploads hang, 0: none
	dead atomic.Bool
	felt map[string]int
}

func (f *faults) one(of int, name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rnd.IntN(of) != 0 {
		return false
	}
	f.felt[name]++
	return true
}

func (f *faults) note(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.felt[name]++
}

// upload is what the bucket does with what is sent to it.
func (f *faults) upload(b *bucket) func(context.Context, string, []byte) error {
	return func(ctx context.Context, key string, data []byte) error {
		name, err := keys.ParseSegment(key)
		switch {
		case f.dead.Load():
			return errLost
		case err == nil && name.Topic[0] == f.sick && f.sick != 0, f.one(12, "hanging put"):
			<-ctx.Done()
			if f.one(2, "put that appears later") {
				return errors.Join(ctx.Err(), ignoreExists(b.keep(key, data)))
			}
			return ctx.Err()
		case f.one(8, "lost put"):
			return errLost
		case f.one(8, "lost answer of a put"):
			if err := b.keep(key, data); err != nil {
				return err
			}
			return errLost
		case f.one(15, "denied put"):
			return &said{status: 403}
		}
		wait(time.Duration(20) * time.Millisecond)
		return nil
	}
}

func ignoreExists(error) error { return nil }

// answer is what becomes of a proposal. After the kill it may still be applied: it was on its way.
func (f *faults) answer(m *catalogs) func(Entry) (before, after error) {
	return func(e Entry) (before, after error) {
		switch {
		case f.one(8, "lost proposal"):
			return errLost, nil
		case f.one(8, "lost answer of a commit"):
			return nil, errLost
		case f.one(20, "newer epoch"):
			m.of(e.ID).epoch++
		}
		return nil, nil
	}
}

// run is one life: it ends at a random step, or after a while.
func (s *simulation) run() {
	s.life++
	w, t := s.world, s.t
	f := &faults{rnd: rand.New(rand.NewPCG(s.rnd.Uint64(), s.life)), felt: s.felt}
	if s.rnd.IntN(2) == 0 && !s.calm {
		f.sick = byte(2 + s.rnd.IntN(4))
	}
	w.bucket.script(nil)
	w.meta.script(nil)
	if !s.calm {
		w.bucket.script(f.upload(w.bucket))
		w.meta.script(f.answer(w.meta))
	}
	s.open()
	kill := make(chan struct{})
	steps := []string{"export.begin", "export.cut", "export.stored", "export.committed"}
	last := steps[s.life%uint64(len(steps))]
	fuse := int64(1 + s.rnd.IntN([]int{15, 150}[s.life/4%2]))
	ctx, cancel := context.WithCancel(t.Context())
	at := func(step string) {
		if s.calm || step != last || atomic.AddInt64(&fuse, -1) != 0 {
			return
		}
		f.note("killed at " + step)
		f.dead.Store(true)
		close(kill)
		<-ctx.Done() // the process does not get any further
	}
	w.start(func(c *Config) {
		c.At, c.Slots = at, 3
		c.Self.Incarnation = s.life
		c.Commit = func(ctx context.Context, entries []Entry) []error {
			if f.dead.Load() {
				return nil
			}
			return w.meta.commit(ctx, entries)
		}
	})
	var work, producers sync.WaitGroup
	for n := range s.parts {
		rnd := rand.New(rand.NewPCG(s.rnd.Uint64(), 1))
		producers.Go(func() { s.produce(ctx, n, rnd) })
		work.Go(func() { s.release(ctx, n, f) })
	}
	limit := time.Duration(1+s.rnd.IntN(200)) * time.Second
	select {
	case <-kill:
	case <-time.After(limit):
	}
	if s.calm {
		s.finish()
		producers.Wait()
		s.finish()
		if x := w.export.Stats(); x.Kept != 0 || x.Failing != 0 || x.Waiting != 0 {
			t.Errorf("in the end: %+v", x)
		}
	}
	f.dead.Store(true)
	power := s.rnd.IntN(2) == 0
	switch {
	case s.calm:
	case power:
		s.fsys = s.fsys.PowerLoss()
	default:
		s.fsys = s.fsys.Kill()
	}
	cancel()
	w.stop()
	producers.Wait()
	work.Wait()
	err := w.tier.Close()
	if s.calm && err != nil {
		t.Error(err)
	}
}

// open recovers the logs as a broker would by what the metadata say, and begins an epoch of each.
func (s *simulation) open() {
	w, t := s.world, s.t
	tier, err := wal.Open(t.Context(), wal.Config{
		FS: s.fsys, Dir: "/data", Store: [16]byte{7}, SegmentBytes: 8 << 10, MemoryBytes: 128 << 10, Files: 8, JournalBytes: 64 << 10,
	})
	if err != nil {
		t.Fatalf("life %d: %v", s.life, err)
	}
	w.tier, w.parts = tier, nil
	for n, h := range s.parts {
		covered := []wal.Offsets{{From: 0, To: w.meta.end(h.id)}}
		log, found, err := tier.Log(t.Context(), wal.Opening{
			ID: wal.ID{Topic: h.id.Topic, Partition: h.id.Partition}, Topic: "/default/t", Extents: h.extents, Cold: covered,
			Floor: uint64(len(h.acked)),
		})
		if err != nil {
			t.Fatalf("life %d: %v", s.life, err)
		}
		if found.Class == wal.Damaged || found.End < uint64(len(h.acked)) || !found.Proven {
			t.Fatalf("life %d, partition %d: %+v, acknowledged up to %d, the catalog at %d", s.life, n, found, len(h.acked), covered[0].To)
		}
		h.adopt(t, log, covered[0].To)
		epoch := s.life
		if k := len(h.extents); k > 0 {
			h.extents[k-1].End = found.End
			if h.extents[k-1].Start == found.End {
				h.extents = h.extents[:k-1]
			}
		}
		if err := log.Begin(epoch, found.End, 1<<40); err != nil {
			t.Fatal(err)
		}
		h.extents = append(h.extents, wal.Extent{Epoch: epoch, Start: found.End, End: ^uint64(0)})
		if _, _, err := log.OpenSession(uint64(s.life), 1, 0); err != nil {
			t.Fatal(err)
		}
		h.seq = 0
		w.meta.mu.Lock()
		c := w.meta.of(h.id)
		c.epoch = max(c.epoch+1, epoch)
		w.meta.mu.Unlock()
		w.parts = append(w.parts, &partition{id: h.id, log: log, meta: w.meta, object: h.object})
	}
}

// adopt reads all of a log: each message is the one that was acknowledged, or lies in the cold tier. What there is
// above the acknowledged end was never said not to be stored.
func (h *history) adopt(t *testing.T, log *wal.Log, covered uint64) {
	r := log.Reader(0)
	defer r.Close()
	for {
		v, err := r.Next(1 << 20)
		if errors.Is(err, wal.ErrEnd) {
			return
		}
		if c, ok := errors.AsType[*wal.InCold](err); ok && c.To <= min(covered, uint64(len(h.acked))) {
			r.Seek(c.To)
			continue
		}
		if err != nil {
			t.Fatalf("at %d, covered up to %d: %v", r.Offset(), covered, err)
		}
		for i, text := range messages(t, v.Data) {
			switch n := int(v.Base) + i; {
			case n == len(h.acked):
				h.acked = append(h.acked, text)
			case n > len(h.acked) || h.acked[n] != text:
				t.Fatalf("offset %d is another message", n)
			}
		}
		v.Release()
	}
}

// messages are the payloads of batches that lie back to back.
func messages(t *testing.T, data []byte) (out []string) {
	d := batch.NewDecoder(segment.Limits())
	for len(data) > 0 {
		b, err := batch.Check(data, segment.Limits())
		if err == nil && !b.Control() {
			err = d.Reset(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		data = data[len(b):]
		var m batch.Message
		for !b.Control() {
			ok, err := d.Next(&m)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			out = append(out, string(m.Payload))
		}
	}
	return out
}

// produce appends until the process ends.
func (s *simulation) produce(ctx context.Context, n int, rnd *rand.Rand) {
	h, p, e := s.parts[n], s.world.parts[n], s.world.export
	var builder batch.Builder
	for i := 0; ctx.Err() == nil && (i < 300 || !s.calm); i++ {
		payload := fmt.Sprintf("%d/%d/%d:%s", n, s.life, h.seq, strings.Repeat("y", rnd.IntN(1500)))
		builder.Add(&batch.Message{Payload: []byte(payload)})
		b, err := builder.AppendTo(nil, batch.None, batch.Identity{Producer: s.life, Session: 1, Sequence: h.seq})
		if err != nil {
			s.t.Error(err)
			return
		}
		pending, err := p.log.Append(b)
		if err == nil {
			err = pending.Wait()
		}
		if err != nil {
			return // killed
		}
		h.mu.Lock()
		if pending.Base != uint64(len(h.acked)) {
			s.t.Errorf("partition %d: offset %d follows %d", n, pending.Base, len(h.acked))
		}
		h.acked = append(h.acked, payload)
		h.mu.Unlock()
		h.seq++
		e.Changed(h.id)
		select {
		case <-time.After(time.Duration(rnd.IntN(3000)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// release gives up locally what the catalog has, as it is applied.
func (s *simulation) release(ctx context.Context, n int, f *faults) {
	p := s.world.parts[n]
	for ctx.Err() == nil {
		end := s.world.meta.end(p.id)
		p.log.Covered([]wal.Offsets{{From: 0, To: end}})
		freed, err := p.log.Release(end)
		if err != nil && ctx.Err() == nil && s.calm {
			s.t.Errorf("partition %d: %v", n, err)
		}
		if freed > 0 {
			f.note("given up here")
		}
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
		}
	}
}

// finish exports all that there is.
func (s *simulation) finish() {
	for n := range s.world.parts {
		if err := s.world.urgent(n); err != nil {
			s.t.Errorf("partition %d: %v", n, err)
		}
	}
}

// check holds catalogs, objects and log against what was acknowledged.
func (s *simulation) check() {
	for n, h := range s.parts {
		var got []string
		for _, x := range s.world.meta.list(h.id) {
			if x.Start != uint64(len(got)) {
				s.t.Fatalf("partition %d: the catalog goes on at %d behind %d", n, x.Start, len(got))
			}
			data := s.world.meta.bytes(&x)
			if data == nil {
				s.t.Fatalf("partition %d: %s does not have offsets %d to %d", n, x.Object.Key(), x.Start, x.End)
			}
			f, err := segment.ReadFooter(bytes.NewReader(data), int64(len(data)))
			if err != nil {
				s.t.Fatal(err)
			}
			_, head, err := segment.ReadHeader(bytes.NewReader(data))
			if err != nil {
				s.t.Fatal(err)
			}
			got = append(got, messages(s.t, data[head:f.DataEnd])...)
			for _, e := range x.Epochs {
				if want := epochOf(h.extents, e.Start); e.Epoch != want {
					s.t.Errorf("partition %d: offset %d is exported with epoch %d, it has %d", n, e.Start, e.Epoch, want)
				}
			}
		}
		for i, text := range got {
			if i < len(h.acked) && text != h.acked[i] {
				s.t.Fatalf("partition %d: offset %d is another message in the cold tier", n, i)
			}
		}
		if s.calm && len(got) < len(h.acked) {
			s.t.Errorf("partition %d: %d of %d are in the catalog", n, len(got), len(h.acked))
		}
	}
}

func epochOf(list []wal.Extent, offset uint64) uint64 {
	for _, x := range list {
		if x.Start <= offset && offset < x.End {
			return x.Epoch
		}
	}
	return 0
}

// Whatever happens to it, the catalogs never have a hole or a wrong byte, no acknowledged message is ever missing from
// disk and cold tier, and in the end everything is exported.
func TestSimulation(t *testing.T) {
	felt := make(map[string]int)
	for seed := range uint64(2) {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(t, seed)
			s.felt = felt
			for range 8 {
				s.run()
				if s.check(); t.Failed() {
					t.Fatalf("seed %d, life %d", seed, s.life)
				}
			}
			s.calm = true
			s.run()
			s.check()
			if err := s.world.bucket.store.Close(); err != nil {
				t.Error(err)
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
	for _, fault := range []string{
		"hanging put", "put that appears later", "lost put", "lost answer of a put", "denied put", "lost proposal", "lost answer of a commit", "newer epoch", "given up here",
		"killed at export.begin", "killed at export.cut", "killed at export.stored", "killed at export.committed",
	} {
		if felt[fault] == 0 {
			t.Errorf("nobody felt: %s", fault)
		}
	}
	t.Log(felt)
}
