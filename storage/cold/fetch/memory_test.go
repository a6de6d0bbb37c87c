package fetch

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/segment"
)

// A38: however many readers there are, all go on, and memory stays within the budget
// and what each has to have.
func TestBudgetHolds(t *testing.T) {
	const budget, readers = 2 << 20, 24
	w := newWorld(t, Config{Bytes: budget})
	w.fill(5, 50, 60_000)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			r := w.part.Reader(w.catalog.pieces[i%5].Start)
			defer r.Close()
			w.readTo(r, w.catalog.pieces[i%5].End, 200_000)
			if used := w.tier.Used(); used > budget+readers*blockSize*2 {
				t.Errorf("%d bytes are used", used)
			}
		})
	}
	wg.Wait()
}

// A second scan of what is somewhat larger than memory finds some of it there, and
// that must not cut its requests to pieces.
func TestScansOfMoreThanMemory(t *testing.T) {
	w := newWorld(t, Config{Bytes: 12 << 20})
	for i := range 2 {
		w.quick(fmt.Sprint("segment-", i), 13, 500_000)
	}
	first := 0
	for i := range 4 {
		r := w.part.Reader(0)
		w.readTo(r, w.next, 1<<20)
		r.Close()
		n, _ := sum(w.bucket.asked())
		if i == 0 {
			first = n
		}
		if n > first+2 {
			t.Errorf("scan %d made %d requests, the first %d", i, n, first)
		}
	}
}

// A view stays what it was while its reader goes on, closes, and its block is given up.
func TestViewOutlivesItsBlock(t *testing.T) {
	w := newWorld(t, Config{Bytes: 1 << 20})
	w.fill(4, 50, 60_000)
	r := w.part.Reader(0)
	var views []memory.View
	for r.Offset() < w.next {
		v, err := r.Next(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if len(views) < 5 {
			views = append(views, v)
		} else {
			v.Release()
		}
	}
	r.Close()
	from := uint64(0)
	for _, v := range views {
		from = w.same(v, from)
		v.Release()
	}
}

// What was read ahead of readers that stand still is given to those that move; when
// they go on they read what they were going to.
func TestReadersAtRestGiveWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{Bytes: 4 << 20})
		w.fill(40, 25, 60_000)
		still := make([]*Reader, 16)
		held := func() (n int) {
			for _, r := range still {
				n += r.lane.held
			}
			return n
		}
		for i := range still {
			still[i] = w.part.Reader(w.catalog.pieces[2*i].Start)
			defer still[i].Close()
			w.readTo(still[i], w.catalog.pieces[2*i].Start+30, 1)
		}
		before := held()
		if before < 14 {
			t.Fatalf("only %d blocks are held", before)
		}
		busy := w.part.Reader(w.catalog.pieces[34].Start)
		defer busy.Close()
		w.readTo(busy, w.catalog.pieces[36].End, 1<<20)
		if held() != before {
			t.Error("gave way at once")
		}
		<-time.After(2 * stillFor)
		w.readTo(busy, w.next, 1<<20)
		if after := held(); after >= before {
			t.Errorf("hold %d blocks still", after)
		}
		for i, r := range still {
			w.readTo(r, w.catalog.pieces[2*i].End, 1<<20)
		}
	})
}

// A footer or page that several want is asked for once; the last used stay within
// their budget.
func TestNotesAreSharedAndBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{limit: 100, known: map[place]*note{}}
		defer n.close()
		loads := 0
		get := func(key string) (any, error) {
			return n.get(t.Context(), place{key: key}, func(context.Context) (any, int64, error) {
				loads++
				<-time.After(time.Second)
				return key, 40, nil
			})
		}
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if v, err := get("a"); v != "a" || err != nil {
					t.Error(v, err)
				}
			})
		}
		wg.Wait()
		if loads != 1 {
			t.Errorf("loaded %d times", loads)
		}
		for _, key := range []string{"b", "a", "c", "a"} {
			if v, err := get(key); v != key || err != nil {
				t.Error(v, err)
			}
		}
		if _, known := n.peek(place{key: "b"}); known || n.used != 80 || loads != 3 {
			t.Errorf("%d bytes after %d loads, the oldest known: %v", n.used, loads, known)
		}
	})
}

// A load that nobody waits for any more ends, and the next who asks gets another.
func TestNoteGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &notes{limit: 100, known: map[place]*note{}}
		defer n.close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := n.get(ctx, place{key: "a"}, func(ctx context.Context) (any, int64, error) {
			<-ctx.Done()
			return nil, 0, ctx.Err()
		})
		wantErr(t, err, context.DeadlineExceeded)
		v, err := n.get(t.Context(), place{key: "a"}, func(context.Context) (any, int64, error) { return 1, 1, nil })
		if v != 1 || err != nil {
			t.Error(v, err)
		}
	})
}

// link is a way to a store: so long to the first byte, and then so many bytes a
// second for all requests together.
type link struct {
	delay time.Duration
	rate  float64
	mu    sync.Mutex
	free  time.Time // when it has passed what was given to it
}

func (l *link) over(data []byte) io.Reader { return &passing{l: l, data: data} }

type passing struct {
	l    *link
	data []byte
}

func (p *passing) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.data[:min(len(p.data), 128<<10)])
	p.data = p.data[n:]
	p.l.mu.Lock()
	if now := time.Now(); p.l.free.Before(now) {
		p.l.free = now
	}
	p.l.free = p.l.free.Add(time.Duration(float64(n) / p.l.rate * float64(time.Second)))
	wait := time.Until(p.l.free)
	p.l.mu.Unlock()
	<-time.After(wait)
	return n, nil
}

// With 20 ms to the first byte and 200 MB/s a sequential reader keeps the way full
// and asks for little more than a request for each 8 MiB: time is not the machine's
// here, so that this holds on any.
func TestSequentialReadKeepsTheWayFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		const segments, batches, size = 6, 16, 1_048_000
		for i := range segments {
			w.quick(fmt.Sprint("segment-", i), batches, size)
		}
		l := &link{delay: 20 * time.Millisecond, rate: 200e6}
		w.bucket.before = func(context.Context, request) error { <-time.After(l.delay); return nil }
		w.bucket.body = func(_ request, data []byte) io.Reader { return l.over(data) }
		began := time.Now()
		r := w.part.Reader(0)
		defer r.Close()
		for r.Offset() < w.next {
			v, err := r.Next(t.Context(), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			v.Release()
		}
		took := time.Since(began)
		requests, bytes := sum(w.bucket.asked())
		best := time.Duration(float64(bytes) / l.rate * float64(time.Second))
		const beginning = 5 // requests that are smaller than they get
		if took > best*100/85 || float64(requests) > 1.2*float64(bytes)/maxRequest+beginning {
			t.Errorf("%d MB in %v, %v at best; %d requests", bytes/1e6, took, best, requests)
		}
	})
}

// quick exports a segment of n batches with bytes of no account.
func (w *world) quick(key string, n, size int) {
	payload := make([]byte, size)
	_, _ = w.noise.Read(payload) // never fails
	w.exportPayloads(key, n, payload)
}

// A slow reader is not read ahead for: after a minute at a block in five seconds no
// more than a few blocks are held.
func TestSlowReaderHoldsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		w.quick("large", 64, 524_000)
		r := w.part.Reader(0)
		defer r.Close()
		for range 20 {
			w.nextFrom(r)
			<-time.After(10 * time.Second)
		}
		if r.lane.held > 6 {
			t.Errorf("holds %d blocks", r.lane.held)
		}
	})
}

// Readers, objects and a store that do at random what they may: whatever comes is
// true, and everybody gets to the end.
func TestRandomReads(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			w := newWorld(t, Config{Bytes: int64(rnd.IntN(3)+1) << 20, NoteBytes: 10_000, Disk: t.TempDir() + "/cache", DiskBytes: int64(rnd.IntN(3)) << 20})
			for i := range 5 {
				w.fill1(fmt.Sprint("object-", i), rnd.IntN(20)+1, 10+rnd.IntN(150_000))
			}
			var mu sync.Mutex
			w.bucket.before = func(context.Context, request) error {
				mu.Lock()
				defer mu.Unlock()
				if rnd.IntN(10) == 0 {
					return io.ErrUnexpectedEOF
				}
				return nil
			}
			var wg sync.WaitGroup
			for i := range 4 {
				mine := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					r := w.part.Reader(mine.Uint64N(w.next))
					defer r.Close()
					for range 5 {
						w.readTo(r, min(r.Offset()+mine.Uint64N(60), w.next), 1+mine.IntN(300_000))
						r.Seek(mine.Uint64N(w.next))
					}
					w.readTo(r, w.next, 100_000)
				})
			}
			wg.Wait()
		})
	}
}

// The footer that is on its way when a piece was read to its end is let come.
func TestFooterOnItsWayIsLetCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Config{})
		head, _ := w.sealed("length", w.batch(1, 100_000))
		_, n, err := segment.ParseHeader(head)
		if err != nil {
			t.Fatal(err)
		}
		w.next = 0
		size, rest := 100_000, 0
		for rest != size { // a batch that fills what the header leaves of four blocks
			size = rest
			w.next = 0
			rest = size + 4*blockSize - n - len(w.batch(1, max(size, 1)))
		}
		w.next = 0
		for i := range 3 {
			w.export(fmt.Sprint("segment-", i), w.batch(1, size))
		}
		w.bucket.body = func(r request, data []byte) io.Reader {
			last := max(4*blockSize-int(r.off), 0)
			if last >= len(data) {
				return bytes.NewReader(data)
			}
			late := &dripping{data: data[last:], every: time.Second, piece: 1 << 20}
			return io.MultiReader(bytes.NewReader(data[:last]), late)
		}
		r := w.part.Reader(0)
		defer r.Close()
		w.readTo(r, w.next, 1)
		if n := testutil.ToFloat64(w.tier.m.abandoned); n != 0 {
			t.Errorf("%v requests were broken off", n)
		}
	})
}
