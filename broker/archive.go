package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// archive is what this store holds of partitions that it does not serve. Their
// logs are opened when another broker asks and closed when nobody has for a while.
type archive struct {
	b    *Broker
	mu   sync.Mutex // guards logs
	logs map[partitionKey]*archived
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

func newArchive(b *Broker) *archive { return &archive{b: b, logs: map[partitionKey]*archived{}} }

func (a *archive) at(key partitionKey) *archived {
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
	x := a.at(partitionKey{f.ID.Topic, f.ID.Partition})
	x.mu.Lock()
	defer x.mu.Unlock()
	if err := x.close(); err != nil {
		return nil, storage.Recovery{}, err
	}
	return a.b.store.Log(ctx, f)
}

// remove deletes the files of a partition.
func (a *archive) remove(key partitionKey) error {
	x := a.at(key)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.log = nil // Delete closes it
	return a.b.store.Delete(storage.PartitionID{Topic: key.topic, Partition: key.n})
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
func (a *archive) sweep(now time.Time) {
	a.mu.Lock()
	all := make(map[partitionKey]*archived, len(a.logs))
	for key, x := range a.logs {
		all[key] = x
	}
	a.mu.Unlock()
	for key, x := range all {
		x.mu.Lock()
		if x.log != nil && (now.IsZero() || now.UnixNano()-x.read.Load() > int64(archiveIdle)) {
			if err := x.close(); err != nil {
				a.b.log.Error("archived log not closed", "topic", key.topic, "partition", key.n, "err", err)
			}
		}
		x.mu.Unlock()
	}
}

// use calls do with a log that has the range, opened with f, which names it,
// unless it is open with what covers it.
func (a *archive) use(ctx context.Context, f *storage.Facts, want *storage.Range, do func(*archived) error) error {
	x := a.at(partitionKey{f.ID.Topic, f.ID.Partition})
	x.mu.RLock()
	for !x.covers(want) {
		x.mu.RUnlock()
		if err := x.open(ctx, a.b, f, want); err != nil {
			return err
		}
		x.mu.RLock()
	}
	log := x.log
	x.read.Store(a.b.cfg.Now().UnixNano())
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
func (x *archived) open(ctx context.Context, b *Broker, f *storage.Facts, want *storage.Range) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.covers(want) {
		return nil
	}
	if err := x.close(); err != nil {
		return err
	}
	log, found, err := b.store.Log(ctx, *f)
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

// archiveFacts are what this store holds of a partition that others serve: the
// sealed ranges that list it, and rg. An ORPHANED or LOST one is opened as it was
// when this store wrote it: where it ends, recovery finds out (R10). What nobody
// may read lies in none of them.
func archiveFacts(t *state.Topic, m *state.Partition, rg *state.Range, self state.StoreID) (*storage.Facts, *storage.Range) {
	f := &storage.Facts{ID: storage.PartitionID{Topic: m.Topic, Partition: m.Number}, Topic: t.Name, LogStart: rg.Start, Floor: rg.Start}
	want := storageRange(rg)
	if want.Status = storage.RangeSealed; rg.Status != state.RangeSealed && (rg.Tail || rg.Status == state.RangeLost) {
		want.Open, want.Status = true, storage.RangeOpen
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		switch {
		case r.Start == rg.Start:
			f.Ranges = append(f.Ranges, want)
			if want.Open {
				return f, &want // nothing lies behind an open one
			}
		case r.Status == state.RangeSealed && slices.Contains(r.Stores, self):
			f.Ranges = append(f.Ranges, storageRange(r))
			f.LogStart = min(f.LogStart, r.Start)
		}
	}
	return f, &want
}

// storageRange is a range as the store takes it.
func storageRange(r *state.Range) storage.Range {
	out := storage.Range{Start: r.Start, End: r.End, Open: r.Status == state.RangeOpen, Status: storage.Status(r.Status)}
	for _, e := range r.Epochs {
		out.Epochs = append(out.Epochs, storage.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	return out
}

// fetchArg asks a store for batches that it holds.
type fetchArg struct {
	partitionArg
	From     uint64 `msgpack:"f"`
	To       uint64 `msgpack:"to"`
	Max      int    `msgpack:"m"` // bytes; at least one batch comes
	Index    uint64 `msgpack:"i"` // of the metadata that say so
	Returned bool   `msgpack:"r,omitempty"`
}

// damagedCode marks the answer that what is asked for is damaged here.
const damagedCode = "damaged"

// damagedError tells another broker of damage.
type damagedError struct{ *storage.Damage }

func (e damagedError) Code() string  { return damagedCode }
func (e damagedError) Error() string { return fmt.Sprintf("%d %d %q", e.From, e.To, e.Damage.Error()) }

// catchUp is how long a request waits until this broker has applied what the
// caller knows, and until a partition is closed that it serves no more.
const catchUp = time.Second

// serveFetch answers what lies here, and nothing that the metadata do not list
// for this store (R19): a store may hold batches that were never acknowledged.
func (b *Broker) serveFetch(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
	q := new(fetchArg)
	if b.owner.Load() == nil {
		return nil, peerError{protocol.Errorf(protocol.CodeNotReady, "the broker is starting")}
	}
	if err := protocol.DecodeBody(body, q); err != nil {
		return nil, peerError{b.wireError(err)}
	}
	data, err := b.readHeld(ctx, q)
	if d, is := errors.AsType[*storage.Damage](err); is {
		return nil, damagedError{d}
	}
	if err != nil {
		return nil, peerError{b.wireError(err)}
	}
	return data, nil
}

// held returns the range of an offset as this broker knows it, once it knows
// what the caller does. It must list this store, and be sealed, unless returned.
func (b *Broker) held(ctx context.Context, q *fetchArg) (*state.Topic, *state.Partition, *state.Range, error) {
	key, err := q.key()
	if err != nil {
		return nil, nil, nil, err
	}
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := b.meta.WaitIndex(wait, q.Index); err != nil {
		return nil, nil, nil, protocol.Errorf(protocol.CodeNotReady, "this broker has not applied index %d of the metadata", q.Index)
	}
	view := b.meta.View()
	t, m := view.TopicByID(key.topic), view.Partition(key.topic, key.n)
	if t == nil || m == nil || t.Deleted() {
		return nil, nil, nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", key.topic)
	}
	rg := m.Range(q.From)
	switch {
	case rg == nil || rg.Status == state.RangeOpen, (rg.Status == state.RangeSealed) == q.Returned:
		return nil, nil, nil, errStale
	case !slices.Contains(rg.Stores, b.self().Store):
		return nil, nil, nil, protocol.Errorf(protocol.CodePending, "offset %d of %s:%d is not listed for this store", q.From, t.Name, m.Number)
	}
	return t, m, rg, nil
}

// readHeld reads a page of a range that lists this store.
func (b *Broker) readHeld(ctx context.Context, q *fetchArg) ([]byte, error) {
	t, m, rg, err := b.held(ctx, q)
	if err != nil {
		return nil, err
	}
	to := min(q.To, rg.End)
	limit := min(max(q.Max, 1), pageBytes)
	var data []byte
	err = b.withHeld(ctx, t, m, rg, func(log *storage.Log, found *storage.Recovery) error {
		if found != nil {
			to = min(to, found.End)
		}
		var err error
		data, err = readPage(log, q.From, to, limit)
		return err
	})
	return data, err
}

// withHeld calls do with a log that has the range: the one that is served, else
// the archive's, with what its recovery found. One that is about to be closed is
// waited for.
func (b *Broker) withHeld(ctx context.Context, t *state.Topic, m *state.Partition, rg *state.Range, do func(*storage.Log, *storage.Recovery) error) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	f, want := archiveFacts(t, m, rg, b.self().Store)
	for {
		var err error
		if p := b.served(partitionKey{m.Topic, m.Number}); p != nil && p.log != nil && rg.Status == state.RangeSealed {
			err = do(p.log, nil)
		} else if p != nil && p.log != nil {
			err = b.notWhileServed(p, rg)
		} else {
			err = b.archive.use(ctx, f, want, func(x *archived) error {
				return do(x.log, &x.found)
			})
		}
		if err == nil || !errors.Is(err, storage.ErrClosed) && !errors.Is(err, storage.ErrOpen) && !errors.Is(err, errServed) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeNotReady, "%s:%d is being opened or closed here: %v", t.Name, m.Number, err)
		}
	}
}

// errServed: nobody is told where an epoch ended that is still being served (R15).
var errServed = errors.New("its epoch is still served here")

func (b *Broker) notWhileServed(p *partition, rg *state.Range) error {
	return fmt.Errorf("%s, offset %d: %w", p.name(), rg.Start, errServed)
}

// readPage reads whole batches from the one that holds from on, none beyond to.
func readPage(log *storage.Log, from, to uint64, limit int) ([]byte, error) {
	r := log.Reader(from)
	defer r.Close()
	var data []byte
	for at := from; at < to && len(data) < limit; {
		view, err := r.Next(limit - len(data))
		if err != nil {
			if len(data) > 0 {
				break
			}
			return nil, err
		}
		if len(data) > 0 && len(data)+len(view.Data) > limit || view.End > to {
			view.Release()
			break
		}
		data = append(data, view.Data...)
		at = view.End
		view.Release()
	}
	if len(data) == 0 {
		return nil, protocol.Errorf(protocol.CodePending, "no whole batch lies in offsets %d to %d", from, to)
	}
	return data, nil
}
