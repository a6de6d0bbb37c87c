package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// archive is what this store holds of partitions that it does not serve. Their
// logs are opened when another broker asks and closed when nobody has for a while.
type archive struct {
	store *storage.Store
	now   func() time.Time
	mu    sync.Mutex // guards logs
	logs  map[storage.PartitionID]*archived
}

// archived is the place of one partition in the archive. Its lock is held, for
// reading, while a page is read; whoever opens the partition to serve it holds it.
type archived struct {
	read  atomic.Int64 // when somebody last did, Unix ns
	mu    sync.RWMutex // guards what follows
	log   *storage.Log // nil: not open
	facts storage.Facts
	found storage.Recovery
}

// archiveIdle is how long a log stays open that nobody reads.
const archiveIdle = 30 * time.Second

func newArchive(store *storage.Store, now func() time.Time) *archive {
	return &archive{store: store, now: now, logs: map[storage.PartitionID]*archived{}}
}

func (a *archive) at(key storage.PartitionID) *archived {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := a.logs[key]
	if x == nil {
		x = &archived{}
		a.logs[key] = x
	}
	return x
}

// own opens the log of a partition for the one who serves it, and closes the
// archive's first: a partition is open once.
func (a *archive) own(ctx context.Context, f storage.Facts) (*storage.Log, storage.Recovery, error) {
	x := a.at(f.ID)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.close(); err != nil {
		return nil, storage.Recovery{}, err
	}
	return a.store.Log(ctx, f)
}

// remove deletes the files of a partition.
func (a *archive) remove(key storage.PartitionID) error {
	x := a.at(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log = nil // Delete closes it
	return a.store.Delete(key)
}

func (x *archived) close() error {
	log := x.log
	x.log = nil
	if log == nil {
		return nil
	}
	return log.Close()
}

// sweep closes what nobody has read for a while; now zero: everything.
func (a *archive) sweep(now time.Time) error {
	a.mu.Lock()
	all := make(map[storage.PartitionID]*archived, len(a.logs))
	for key, x := range a.logs {
		all[key] = x
	}
	a.mu.Unlock()
	var errs []error
	for key, x := range all {
		x.mu.Lock()
		if x.log != nil && (now.IsZero() || now.UnixNano()-x.read.Load() > int64(archiveIdle)) {
			if err := x.close(); err != nil {
				errs = append(errs, fmt.Errorf("close the archived log of partition %d of topic %s: %w", key.Partition, state.TopicID(key.Topic), err))
			}
		}
		x.mu.Unlock()
	}
	return errors.Join(errs...)
}

// use calls do with a log that has the range, opened with f, which names it,
// unless it is open with what covers it.
func (a *archive) use(ctx context.Context, f *storage.Facts, want *storage.Range, do func(*archived) error) error {
	x := a.at(f.ID)
	x.mu.RLock()
	for !x.covers(want) {
		x.mu.RUnlock()
		if err := x.open(ctx, a.store, f, want); err != nil {
			return err
		}
		x.mu.RLock()
	}
	log := x.log
	x.read.Store(a.now().UnixNano())
	err := do(x)
	x.mu.RUnlock()
	if errors.Is(err, storage.ErrClosed) { // with the files it read
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.log == log {
			x.log = nil
		}
	}
	return err
}

// open opens the log anew. Nothing is appended to it, now or later: its door is
// shut, so that it can tell the producers it knows.
func (x *archived) open(ctx context.Context, store *storage.Store, f *storage.Facts, want *storage.Range) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.covers(want) {
		return nil
	}
	if err := x.close(); err != nil {
		return err
	}
	log, found, err := store.Log(ctx, *f)
	if err != nil {
		return err
	}
	if _, err := log.Pause(); err != nil {
		return errors.Join(err, log.Close())
	}
	x.log, x.found, x.facts = log, found, *f
	return nil
}

// covers reports whether the log is open and has the range. The caller holds mu.
func (x *archived) covers(want *storage.Range) bool {
	return x.log != nil && slices.ContainsFunc(x.facts.Ranges, func(r storage.Range) bool {
		if r.Open || want.Open {
			return r.Open == want.Open && r.Start == want.Start && slices.Equal(r.Epochs, want.Epochs)
		}
		return r.Start <= want.Start && want.End <= r.End && !slices.ContainsFunc(want.Epochs, func(e storage.EpochStart) bool {
			return epochOf(&r, e.Start) != e.Epoch
		})
	})
}

// epochOf is the epoch that gives offset n of a range its value.
func epochOf(r *storage.Range, n uint64) (epoch uint64) {
	for _, e := range r.Epochs {
		if e.Start <= n {
			epoch = e.Epoch
		}
	}
	return epoch
}
