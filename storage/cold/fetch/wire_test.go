package fetch

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/drivers"
)

// overS3 gives a world the objects of another: on a real server behind a proxy.
func (w *world) overS3() *objects.Proxy {
	t := w.t.(*testing.T)
	t.Helper()
	server := objects.StartS3(t)
	server.SetEnv(t)
	p := objects.StartProxy(t, server)
	store, err := cold.Open(t.Context(), cold.Config{
		URL: server.URL(p.Addr), Drivers: drivers.Open, Attempt: 600 * time.Millisecond,
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	})
	if err != nil {
		t.Fatal(err)
	}
	for key, data := range w.bucket.objects {
		if _, err := store.Put(t.Context(), key, cold.Bytes(data)); err != nil {
			t.Fatal(err)
		}
	}
	tier, err := Open(Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(tier.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	w.store, w.part = store, tier.Partition(testID(), w.catalog)
	return p
}

// TestOverTheWire hurts a real server's answers in every way that a proxy knows.
func TestOverTheWire(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(6, 15, 100_000)
	p := w.overS3()
	get := objects.On("GET", "segment")
	for name, test := range map[string]struct {
		fault objects.Fault
		least time.Duration // that it takes
	}{
		"whole":            {objects.Fault{}, 0},
		"delayed":          {objects.Fault{Delay: 30 * time.Millisecond}, 30 * time.Millisecond},
		"silent":           {objects.Fault{Silent: true, Skip: 1, Times: 1}, 500 * time.Millisecond},
		"silent half-way":  {objects.Fault{Mute: 100_000, Skip: 2, Times: 1}, 500 * time.Millisecond},
		"lost":             {objects.Fault{Lost: true, Times: 2}, 0},
		"cut short":        {objects.Fault{LostAfter: 70_000, Times: 4}, 0},
		"throttled":        {objects.Fault{Share: 0.4, Status: 503, Code: "SlowDown"}, 0},
		"refused at times": {objects.Fault{Share: 0.4, Status: 500, Code: "InternalError"}, 0},
		"slow":             {objects.Fault{BytesPerSecond: 20 << 20, Together: true}, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			test.fault.Match = get
			defer p.Add(test.fault)()
			tier, err := Open(Config{Store: w.store})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			r := tier.Partition(testID(), w.catalog).Reader(0)
			w.readTo(r, w.next, 1<<20)
			if took := time.Since(began); took < test.least {
				t.Errorf("nobody felt it: %v", took)
			}
			r.Close()
			if err := tier.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A store that refuses says so, retriably; nobody waits for the answer to another's
// read; and an object that compaction replaced is read where it is now.
func TestOverTheWireRefusedAndReplaced(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(6, 15, 100_000)
	p := w.overS3()
	remove := p.Add(objects.Fault{Match: objects.On("GET", "segment"), Status: 403, Code: "AccessDenied"})
	r := w.part.Reader(0)
	defer r.Close()
	_, err := r.Next(t.Context(), 1)
	if e, ok := errors.AsType[*cold.Error](err); !ok || e.Cause != cold.Denied || !e.Cause.Retriable() {
		t.Fatal(err)
	}
	remove()
	w.nextFrom(r)

	hang := p.Add(objects.Fault{Match: objects.On("GET", "segment-5"), Silent: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	hung := w.part.Reader(w.catalog.pieces[5].Start)
	_, err = hung.Next(ctx, 1)
	wantErr(t, err, context.DeadlineExceeded)
	w.readTo(r, w.catalog.pieces[2].Start, 1<<20)
	began := time.Now()
	hung.Close()
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("closing took %v", took)
	}
	hang()

	data, merged := w.sealed("merged", w.truth...)
	if _, err := w.store.Put(t.Context(), merged.Key, cold.Bytes(data)); err != nil {
		t.Fatal(err)
	}
	for _, old := range w.catalog.pieces {
		if err := w.store.Delete(t.Context(), old.Key); err != nil {
			t.Fatal(err)
		}
	}
	w.catalog.change(func() { w.catalog.pieces = []Piece{merged} })
	w.readTo(r, w.next, 1<<20)
	if p.Count("GET", "merged") == 0 {
		t.Error("nothing was read from the new object")
	}
}
