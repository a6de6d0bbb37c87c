package gather

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
)

// Found is what lies in a store.
type Found struct {
	Segments  []Segment       // by key and position
	Manifests []keys.Manifest // the newest first
	Histories []uint16        // that rebuilds have begun
	Problems  []Problem       // by key
	Others    []string        // keys that are none of ours
	Objects   int             // segments and cuts
	Bytes     int64           // of these
}

// parallel is how many objects are read at once. A read is two small requests, and waits for both.
const parallel = 32

// Bucket lists the store and reads what its segments say of themselves. It calls progress, unless nil, with the number of
// objects that were read. Errors: those of the store, and of what a newer release wrote.
func Bucket(ctx context.Context, store *cold.Store, progress func(objects int)) (*Found, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	b := &bucket{store: store, progress: progress}
	work := make(chan object)
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() { // returns when there is no more work
			for o := range work {
				if err := b.read(ctx, o); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := b.list(ctx, work)
	close(work)
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", store, err)
	}
	f := &b.found
	slices.SortFunc(f.Segments, func(x, y Segment) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Catalog.Position, y.Catalog.Position))
	})
	slices.SortFunc(f.Problems, func(x, y Problem) int { return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.At, y.At)) })
	slices.SortFunc(f.Manifests, func(x, y keys.Manifest) int {
		return cmp.Or(cmp.Compare(y.History, x.History), cmp.Compare(y.Index, x.Index))
	})
	return f, nil
}

// bucket is a store while it is read.
type bucket struct {
	store    *cold.Store
	progress func(int)

	mu    sync.Mutex // guards what follows
	found Found
}

// list hands out the objects that are to be read.
func (b *bucket) list(ctx context.Context, work chan<- object) error {
	for next := []byte(nil); ; {
		page, err := b.store.List(ctx, "", next)
		if err != nil {
			return err
		}
		for _, info := range page.Objects {
			switch KindOf(info.Key) {
			case Whole, Cut:
				name, _ := keys.NameOf(info.Key) // it has a kind
				select {
				case work <- object{b.store, info, name}:
				case <-ctx.Done():
					return ctx.Err()
				}
			default:
				b.note(info.Key)
			}
		}
		if next = page.Next; len(next) == 0 {
			return nil
		}
	}
}

// note takes down an object that is not read.
func (b *bucket) note(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m, err := keys.ParseManifest(key); err == nil {
		b.found.Manifests = append(b.found.Manifests, m)
	} else if n, err := keys.ParseHistory(key); err == nil {
		b.found.Histories = append(b.found.Histories, n)
	} else if KindOf(key) == Other {
		b.found.Others = append(b.found.Others, key)
	}
}

func (b *bucket) read(ctx context.Context, o object) error {
	list, problems, err := o.segments(ctx)
	if err != nil {
		if errors.Is(err, cold.NotFound) {
			return fmt.Errorf("an object was deleted while it was read, so somebody is at work there: %w", err)
		}
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.found.Segments = append(b.found.Segments, list...)
	b.found.Problems = append(b.found.Problems, problems...)
	b.found.Objects++
	b.found.Bytes += o.info.Size
	if b.progress != nil {
		b.progress(b.found.Objects)
	}
	return nil
}

// Read returns all of an object that is no longer than most bytes.
func Read(ctx context.Context, store *cold.Store, key string, most int64) ([]byte, error) {
	info, err := store.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	if info.Size > most {
		return nil, fmt.Errorf("read %s: %d bytes, at most %d are expected", key, info.Size, most)
	}
	b := make([]byte, info.Size)
	return b, store.ReadAt(ctx, key, b, 0)
}
