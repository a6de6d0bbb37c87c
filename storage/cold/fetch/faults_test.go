package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// hangs has reads of objects that match wait for their context.
func hangs(part string) func(context.Context, request) error {
	return func(ctx context.Context, r request) error {
		if !strings.Contains(r.key, part) {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// A40, A25: an object that hangs holds up its own readers no longer than they ask
// for, others not at all, and nobody who closes.
func TestHangingObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Bytes: 4 << 20})
		w.fill(20, 3, 200_000)
		w.bucket.before = hangs("segment-7")
		began := time.Now()
		hung := make([]*Reader, 30) // more than all the memory there is
		for i := range hung {
			hung[i] = w.part.Reader(w.catalog.pieces[7].Start)
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, err := hung[i].Next(ctx, 1)
			wantErr(t, err, context.DeadlineExceeded)
			cancel()
		}
		if took := time.Since(began); took != 30*200*time.Millisecond {
			t.Errorf("30 reads of 200 ms took %v", took)
		}
		began = time.Now()
		for _, from := range []int{0, 8} {
			r := w.part.Reader(w.catalog.pieces[from].Start)
			w.readTo(r, w.catalog.pieces[from+6].End, 1<<20)
			r.Close()
		}
		for _, r := range hung {
			r.Close()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("others, and closing, took %v", took)
		}
		synctest.Wait() // what nobody wants has ended
		w.tier.cache.mu.Lock()
		defer w.tier.cache.mu.Unlock()
		if n := len(w.tier.cache.running); n > 0 {
			t.Errorf("%d requests go on", n)
		}
	})
}

// A read that a deadline cut short goes on beside: the next one finds what came
// meanwhile, however short its patience is.
func TestPatienceAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.fill(1, 2, 3_000_000)
		w.bucket.body = func(_ request, data []byte) io.Reader {
			return &dripping{data: data, every: 100 * time.Millisecond, piece: 64 << 10}
		}
		r := w.part.Reader(0)
		defer r.Close()
		tries := 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			v, err := r.Next(ctx, 1)
			cancel()
			if err == nil {
				w.same(v, 0)
				v.Release()
				break
			}
			wantErr(t, err, context.DeadlineExceeded)
			if tries++; tries > 200 {
				t.Fatal("gets nowhere")
			}
		}
		if tries < 20 {
			t.Errorf("3 MB came in %d times 50 ms", tries)
		}
	})
}

// dripping gives a piece after each while.
type dripping struct {
	data  []byte
	every time.Duration
	piece int
}

func (d *dripping) Read(p []byte) (int, error) {
	if len(d.data) == 0 {
		return 0, io.EOF
	}
	<-time.After(d.every)
	n := copy(p, d.data[:min(d.piece, len(d.data))])
	d.data = d.data[n:]
	return n, nil
}

// Readers of the same range share what is asked for.
func TestReadersShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.fill(3, 100, 50_000)
		w.bucket.before = func(context.Context, request) error { <-time.After(20 * time.Millisecond); return nil }
		alone := w.part.Reader(0)
		w.readTo(alone, w.next, 1<<20)
		alone.Close()
		want, size := sum(w.bucket.asked())
		if err := w.tier.Close(); err != nil {
			t.Fatal(err)
		}
		var err error
		if w.tier, err = Open(Config{Store: w.store}); err != nil {
			t.Fatal(err)
		}
		w.part = w.tier.Partition(testID(), w.catalog)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				r := w.part.Reader(0)
				defer r.Close()
				w.readTo(r, w.next, 1<<20)
			})
		}
		wg.Wait()
		got, bytes := sum(w.bucket.asked())
		if got > 2*want || bytes > size {
			t.Errorf("ten readers made %d requests of %d bytes, one makes %d of %d", got, bytes, want, size)
		}
	})
}

// sum is how many requests there are, and for how many bytes.
func sum(list []request) (n int, size int64) {
	for _, r := range list {
		size += r.n
	}
	return len(list), size
}

// compact replaces all objects by one.
func (w *world) compact(key string) {
	data, p := w.sealed(key, w.truth...)
	w.bucket.set(func() {
		clear(w.bucket.objects)
		w.bucket.objects[key] = data
	})
	w.catalog.change(func() { w.catalog.pieces = []Piece{p} })
}

// A45: compaction replaces objects under a reader and collects them: it goes on in
// the new one, without a gap and without an error.
func TestCompactionUnderAReader(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(40, 4, 300_000)
	r := w.part.Reader(0)
	defer r.Close()
	w.readTo(r, w.catalog.pieces[10].Start+2, 1)
	w.compact("merged")
	w.readTo(r, w.next, 1<<20)
	merged := 0
	for _, q := range w.bucket.asked() {
		if q.key == "merged" {
			merged++
		}
	}
	if merged < 2 {
		t.Errorf("%d requests for the new object", merged)
	}
}

// The same with what was read ahead, and with time: what a reader has it need not have again.
func TestOldVersionIsReadToItsEnd(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(2, 4, 10_000)
	r := w.part.Reader(0)
	defer r.Close()
	w.nextFrom(r)
	w.compact("merged")
	w.bucket.asked()
	w.readTo(r, w.truth[3].End(), 1)
	if got := w.bucket.asked(); len(got) != 0 {
		t.Errorf("asked for %v", got)
	}
}

// R19: an object that is gone is looked up again in a newer version. If that names it
// still, the error names it, once for each try, and nothing is passed over.
func TestMissingObject(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(3, 2, 1000)
	lost := w.bucket.objects["segment-1"]
	w.bucket.set(func() { delete(w.bucket.objects, "segment-1") })
	r := w.part.Reader(0)
	defer r.Close()
	w.readTo(r, w.catalog.pieces[1].Start, 1)
	w.bucket.asked()
	for range 3 {
		before := w.catalog.looked
		_, err := r.Next(t.Context(), 1)
		m, ok := errors.AsType[*Missing](err)
		if !ok || m.Key != "segment-1" || m.Version != w.catalog.version || m.Offset != r.Offset() || !errors.Is(err, cold.NotFound) {
			t.Fatalf("%v", err)
		}
		if w.catalog.looked == before {
			t.Error("it was not looked up again")
		}
	}
	tries := slices.DeleteFunc(w.bucket.asked(), func(q request) bool { return q.key != "segment-1" }) // others are read ahead
	if len(tries) != 3 {
		t.Errorf("three tries made %d requests", len(tries))
	}
	w.bucket.set(func() { w.bucket.objects["segment-1"] = lost })
	w.readTo(r, w.next, 1)
}

// Two catalogs that disagree for ever do not keep a reader for ever.
func TestMissingObjectsWithoutEnd(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(1, 2, 1000)
	w.bucket.set(func() { clear(w.bucket.objects) })
	n := 0
	w.bucket.before = func(context.Context, request) error {
		w.catalog.change(func() { n++; w.catalog.pieces[0].Key = fmt.Sprint("other-", n) })
		return nil
	}
	_, err := w.part.Reader(0).Next(t.Context(), 1)
	if _, ok := errors.AsType[*Missing](err); !ok || n > 2*maxMoves {
		t.Errorf("after %d objects: %v", n, err)
	}
}

// A33: retention has moved on. What the catalog says of it reaches the caller.
func TestRetentionUnderAReader(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(5, 2, 1000)
	r := w.part.Reader(0)
	defer r.Close()
	w.nextFrom(r)
	trimmed := errors.New("the log starts at offset 16")
	w.bucket.set(func() { clear(w.bucket.objects) })
	w.catalog.change(func() { w.catalog.pieces, w.catalog.err = nil, trimmed })
	w.readTo(r, w.truth[1].End(), 1) // it was read already
	_, err := r.Next(t.Context(), 1)
	wantErr(t, err, trimmed)
}

// A35: that the catalog is not loaded yet is no end and no gap.
func TestCatalogNotLoaded(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(1, 2, 1000)
	loading := errors.New("not loaded yet")
	w.catalog.err = loading
	r := w.part.Reader(0)
	defer r.Close()
	_, err := r.Next(t.Context(), 1)
	wantErr(t, err, loading)
	w.catalog.err = nil
	w.readTo(r, w.next, 1)
}

// A connection that breaks in the middle costs what was not read yet; an object that
// is shorter than the catalog says is damaged, and what lies in it is read.
func TestTruncation(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(1, 20, 100_000)
	var breaks atomic.Int32
	w.bucket.body = func(_ request, data []byte) io.Reader {
		if breaks.Add(1) <= 5 {
			return bytes.NewReader(data[:len(data)/3])
		}
		return bytes.NewReader(data)
	}
	r := w.part.Reader(0)
	w.readTo(r, w.next, 1)
	r.Close()

	w.bucket.body = nil
	w.compact("cut")
	whole := w.bucket.objects["cut"]
	w.bucket.objects["cut"] = whole[:len(whole)/2]
	r = w.part.Reader(0)
	defer r.Close()
	for {
		from := r.Offset()
		v, err := r.Next(t.Context(), 1)
		if err == nil {
			w.same(v, from)
			v.Release()
			continue
		}
		d, ok := errors.AsType[*recovery.Damage](err)
		if !ok || d.From != from || d.To != w.next || d.File != "cut" || !errors.Is(err, cold.Corrupt) {
			t.Fatal(err)
		}
		break
	}
	if r.Offset() == 0 {
		t.Error("nothing of it was read")
	}
}

// What comes is held against its CRC. Bytes hurt on their way are read again.
func TestHurtOnTheWay(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(2, 20, 100_000)
	var mu sync.Mutex
	hurt := map[string]bool{}
	w.bucket.body = func(r request, data []byte) io.Reader {
		mu.Lock()
		defer mu.Unlock()
		data = bytes.Clone(data)
		for at := int64(150_000); at < r.off+int64(len(data)); at += 300_000 { // each of these bytes once
			if name := fmt.Sprint(r.key, at); at >= r.off && !hurt[name] {
				hurt[name] = true
				data[at-r.off] ^= 4
			}
		}
		return bytes.NewReader(data)
	}
	r := w.part.Reader(0)
	defer r.Close()
	w.readTo(r, w.next, 1)
	if len(hurt) < 10 {
		t.Errorf("%d bytes were hurt", len(hurt))
	}
}

// A10, A2: one flipped bit costs one batch, with exact bounds, wherever it is; the
// header and the footer cost none.
func TestFlippedBits(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(1, 40, 60_000)
	whole := w.bucket.objects["segment-0"]
	var places []int
	for at := int(105); at < len(whole); at += len(whole) / 23 {
		places = append(places, at)
	}
	places = append(places, 0, 9, 50, len(whole)-1, len(whole)-30)
	for _, at := range places {
		data := bytes.Clone(whole)
		data[at] ^= 16
		key := fmt.Sprint("hurt-", at)
		w.bucket.set(func() { w.bucket.objects[key] = data })
		w.catalog.change(func() { w.catalog.pieces[0].Key = key })
		lost := w.readAround(0)
		if lost > 2 || lost > 0 && at < 104 {
			t.Errorf("byte %d costs %d batches", at, lost)
		}
		w.readAround(w.next / 2)
	}
}

// readAround reads from an offset to the end, steps over damage, and returns how
// many batches that cost.
func (w *world) readAround(from uint64) (lost int) {
	w.t.Helper()
	r := w.part.Reader(from)
	defer r.Close()
	for r.Offset() < w.next {
		at := r.Offset()
		v, err := r.Next(w.t.Context(), 1)
		if err == nil {
			w.same(v, at)
			v.Release()
			continue
		}
		d, ok := errors.AsType[*recovery.Damage](err)
		if !ok || d.From != at || d.To <= at || d.To > w.next {
			w.t.Fatalf("offset %d: %v", at, err)
		}
		lost += w.at(d.To-1) - w.at(at) + 1
		r.Seek(d.To)
	}
	return lost
}

// R19: a batch of another epoch does not exist, whatever object it lies in.
func TestOtherEpochsDoNotExist(t *testing.T) {
	w := newWorld(t, Config{})
	good := []batch.Batch{w.batch(2, 1000), w.batch(2, 1000)}
	w.next, w.epoch = good[1].Base(), 6
	stale := w.batch(2, 1000)
	w.epoch = 7
	data, p := w.sealed("both", good[0], stale, good[1])
	p.Epochs, p.End = p.Epochs[:1], good[1].End()
	w.bucket.objects["both"] = data
	w.catalog.pieces = []Piece{p}
	w.truth = good
	r := w.part.Reader(0)
	w.readTo(r, good[1].End(), 1<<20)
	r.Close()

	data, p = w.sealed("stale", good[0], stale)
	p.Epochs = p.Epochs[:1]
	w.bucket.objects["stale"] = data
	w.catalog.pieces = []Piece{p}
	r = w.part.Reader(0)
	defer r.Close()
	w.nextFrom(r)
	_, err := r.Next(t.Context(), 1)
	d, ok := errors.AsType[*recovery.Damage](err)
	if !ok || d.From != stale.Base() || d.To != stale.End() || d.File != "stale" {
		t.Errorf("a batch of another epoch: %v", err)
	}
}

// A segment of another partition is never served.
func TestForeignSegment(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(1, 5, 1000)
	r := w.tier.Partition(ID{Topic: testID().Topic, Partition: 5}, w.catalog).Reader(0)
	defer r.Close()
	_, err := r.Next(t.Context(), 1)
	if d, ok := errors.AsType[*recovery.Damage](err); !ok || d.To != w.next || !errors.Is(err, errForeign) {
		t.Error(err)
	}
}

// What a newer binary wrote is no damage that anybody may step over.
func TestNewerFormat(t *testing.T) {
	w := newWorld(t, Config{})
	b := w.batch(2, 1000)
	b[62]++ // the version
	data, p := w.sealed("newer", w.stampOver(b))
	w.bucket.objects["newer"] = data
	w.catalog.pieces = []Piece{p}
	r := w.part.Reader(0)
	defer r.Close()
	_, err := r.Next(t.Context(), 1)
	wantErr(t, err, batch.ErrVersion)
	if _, ok := errors.AsType[*recovery.Damage](err); ok {
		t.Error("it is called damage")
	}
}

// stampOver stamps a batch anew where it is.
func (w *world) stampOver(b batch.Batch) batch.Batch {
	b.Stamp(batch.Stamp{Base: b.Base(), Epoch: b.Epoch(), AppendTime: b.AppendTime(), Synced: b.Base()})
	return b
}

// A29: a store that throttles or fails costs time and then an error that says so; the
// reader goes on where it was, and what failed ahead of time is not held against it.
func TestStoreFails(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(3, 30, 100_000)
	throttled := errors.New("slow down")
	var fail atomic.Bool
	w.bucket.before = func(_ context.Context, r request) error {
		if fail.Load() && r.off > 0 {
			return throttled
		}
		return nil
	}
	r := w.part.Reader(0)
	defer r.Close()
	w.nextFrom(r)
	fail.Store(true)
	for {
		from := r.Offset()
		v, err := r.Next(t.Context(), 1)
		if err == nil {
			w.same(v, from)
			v.Release()
			continue
		}
		e, ok := errors.AsType[*cold.Error](err)
		if !ok || !e.Cause.Retriable() || e.Attempts != 8 || r.Offset() != from || !strings.Contains(err.Error(), fmt.Sprint("offset ", from)) {
			t.Fatal(err)
		}
		break
	}
	fail.Store(false)
	w.readTo(r, w.next, 1<<20)
}

// What failed while it was read ahead is nobody's error: it is asked for again when a
// reader comes to it.
func TestOldFailureIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.fill(1, 120, 100_000)
		var fail atomic.Bool
		failed := 0
		w.bucket.before = func(_ context.Context, r request) error {
			if fail.Load() {
				failed++
				return io.ErrUnexpectedEOF
			}
			return nil
		}
		r := w.part.Reader(0)
		defer r.Close()
		w.readTo(r, 20, 1)
		fail.Store(true)
		for failed == 0 && r.Offset() < w.next {
			w.nextFrom(r)
			synctest.Wait()
		}
		if failed == 0 {
			t.Fatal("nothing was read ahead")
		}
		fail.Store(false)
		w.readTo(r, w.next, 1)
	})
}

// A footer that is damaged is done without.
func TestDamagedFooter(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(1, 60, 100_000)
	data := w.bucket.objects["segment-0"]
	data[len(data)-20] ^= 1
	r := w.part.Reader(w.next / 2)
	defer r.Close()
	w.readTo(r, w.next, 1<<20)
	if _, err := segment.ReadFooter(bytes.NewReader(data), int64(len(data))); err == nil {
		t.Error("the footer is whole")
	}
}

// Who reads when the tier is closed is told so, at once.
func TestCloseUnderAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.fill(2, 10, 100_000)
		w.bucket.before = hangs("segment-1")
		r := w.part.Reader(w.catalog.pieces[1].Start)
		var err error
		var wg sync.WaitGroup
		wg.Go(func() { _, err = r.Next(t.Context(), 1) })
		synctest.Wait()
		if e := w.tier.Close(); e != nil {
			t.Fatal(e)
		}
		wg.Wait()
		wantErr(t, err, ErrClosed)
		_, err = r.Next(t.Context(), 1)
		wantErr(t, err, ErrClosed)
		r.Close()
		_, err = w.part.Reader(3).Next(t.Context(), 1)
		wantErr(t, err, ErrClosed)
	})
}
