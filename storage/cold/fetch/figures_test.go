//go:build figures

package fetch

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gocloud.dev/blob"

	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/drivers"
)

// slack is what the bounds below are multiplied by on a slow or shared machine.
func slack(t testing.TB) float64 {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("FIGURES_SLACK"))
	if err != nil || n < 1 {
		return 1
	}
	return float64(n)
}

// TestFigureColdRead reads a topic of 1 GiB in segments of 16 MiB over a way of
// 200 MB/s with 20 ms to the first byte, and so does the blob library alone with as
// many requests at once. The reader checks every byte; it is to be 85 % as fast, with
// at most 1.2 requests for 8 MiB.
func TestFigureColdRead(t *testing.T) {
	const segments, batches, size, parallel = 64, 16, 1_048_000, 4
	server := objects.StartS3(t)
	server.SetEnv(t)
	p := objects.StartProxy(t, server)
	w := newWorld(t, Config{})
	store, err := cold.Open(t.Context(), cold.Config{URL: server.URL(p.Addr), Drivers: drivers.Open})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	total := int64(0)
	for i := range segments {
		key := fmt.Sprint("segment-", i)
		w.quick(key, batches, size)
		w.truth = nil // nobody compares
		data := w.bucket.objects[key]
		delete(w.bucket.objects, key)
		if _, err := store.Put(t.Context(), key, cold.Bytes(data)); err != nil {
			t.Fatal(err)
		}
		total += int64(len(data))
	}
	p.Add(objects.Fault{Match: objects.On("GET", ""), Delay: 20 * time.Millisecond, BytesPerSecond: 200e6, Together: true})
	var alone, ours time.Duration
	requests := 0
	for range 2 {
		alone += library(t, server.URL(p.Addr), w.catalog.pieces, parallel)
		before := p.Count("GET", "")
		ours += readerAlone(t, store, w, parallel)
		requests += p.Count("GET", "") - before
	}
	share := alone.Seconds() / ours.Seconds()
	each := float64(requests) / 2 / (float64(total) / maxRequest)
	t.Logf("%d MB: library alone %.0f MB/s, reader %.0f MB/s, %.1f %%; %.2f requests for 8 MiB",
		total/1e6, 2*float64(total)/1e6/alone.Seconds(), 2*float64(total)/1e6/ours.Seconds(), 100*share, each)
	if share < 0.85/slack(t) || each > 1.2 {
		t.Error("wanted: 85 % of its speed and at most 1.2 requests for 8 MiB")
	}
}

// library reads all objects with the blob library alone, some ranges at once, as a
// program would that only wants their bytes.
func library(t *testing.T, place string, pieces []Piece, parallel int) time.Duration {
	t.Helper()
	u, err := url.Parse(place)
	if err != nil {
		t.Fatal(err)
	}
	b, err := drivers.Open(t.Context(), u, cold.Hooks{})
	if err != nil {
		t.Fatal(err)
	}
	type part struct {
		key    string
		off, n int64
	}
	var parts []part
	for _, p := range pieces {
		for off := int64(0); off < p.Bytes; off += maxRequest {
			if rest := p.Bytes - off; rest > restSize {
				parts = append(parts, part{p.Key, off, min(maxRequest, rest)})
			}
		}
	}
	began := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			buf := make([]byte, maxRequest)
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				if err := readPart(t.Context(), b.Blob, parts[i].key, parts[i].off, buf[:parts[i].n]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := b.Blob.Close(); err != nil {
		t.Error(err)
	}
	b.Close()
	return took
}

func readPart(ctx context.Context, b *blob.Bucket, key string, off int64, p []byte) error {
	r, err := b.NewRangeReader(ctx, key, off, int64(len(p)), nil)
	if err != nil {
		return err
	}
	if _, err = io.ReadFull(r, p); err != nil {
		return err
	}
	return r.Close()
}

// readerAlone reads all with a reader of a tier of its own.
func readerAlone(t *testing.T, store *cold.Store, w *world, parallel int) time.Duration {
	t.Helper()
	tier, err := Open(Config{Store: store, Parallel: parallel})
	if err != nil {
		t.Fatal(err)
	}
	r := tier.Partition(testID(), w.catalog).Reader(0)
	began := time.Now()
	for r.Offset() < w.next {
		v, err := r.Next(t.Context(), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}
	took := time.Since(began)
	r.Close()
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
	return took
}
