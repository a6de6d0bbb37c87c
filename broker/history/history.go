package history

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold/fetch"
)

// Config says what a history is made of. All fields but Cold are required.
type Config struct {
	Store *storage.Store
	Meta  *meta.Node
	Peers *calls.Peers
	// Self is this store in its present run.
	Self func() state.Owner
	// Served returns the partition that is being served here, nil for none.
	Served func(storage.PartitionID) *Partition
	// Serving returns all of them.
	Serving func() []*Partition
	// Cold is the cold tier; nil: there is none.
	Cold *Cold
	// CopyDelay is after how long history on another broker is copied here,
	// unless somebody waits for it.
	CopyDelay time.Duration
	Now       func() time.Time
	At        func(step string) // called at named steps
	Log       *slog.Logger
}

// Cold is the cold tier as readers and owners use it. Both functions are required.
type Cold struct {
	// Part returns a partition of it.
	Part func(storage.PartitionID) *fetch.Partition
	// Producers is what it knows of who has stored what up to an offset that the
	// catalog covers, as [storage.Log.Sessions] tells it.
	Producers func(ctx context.Context, id storage.PartitionID, end uint64) ([]byte, error)
}

// part is a partition of the cold tier, nil if there is none.
func (h *History) part(id storage.PartitionID) *fetch.Partition {
	if h.cfg.Cold == nil {
		return nil
	}
	return h.cfg.Cold.Part(id)
}

// History brings the history of the partitions that this broker serves to this
// store, takes back what was ORPHANED, and gives others what lies here. Safe for
// concurrent use.
type History struct {
	cfg     Config
	archive *archive
	damage  *damageKeeper
	wake    chan struct{}
	copies  chan struct{} // held by those that copy
	returns chan struct{} // held by those that take back
	pace    pacer

	mu     sync.Mutex // guards what follows
	busy   map[storage.PartitionID]bool
	retry  map[storage.PartitionID]time.Time
	over   []*Partition // of which something was brought, or is waited for: to be looked at again
	judged map[judgement]bool
}

// judgement says that a run of a store has given all it has of a range.
type judgement struct {
	id    storage.PartitionID
	start uint64
	by    state.Owner
}

// Open makes a history that answers; Run has it act.
func Open(cfg Config) *History {
	h := &History{
		cfg: cfg, archive: newArchive(cfg.Store, cfg.Now), wake: make(chan struct{}, 1),
		copies: make(chan struct{}, copiesAtOnce), returns: make(chan struct{}, returnsAtOnce),
		busy: map[storage.PartitionID]bool{}, retry: map[storage.PartitionID]time.Time{}, judged: map[judgement]bool{},
	}
	h.damage = &damageKeeper{h: h, wake: make(chan struct{}, 1)}
	return h
}

// Run brings history here and commits damage until ctx ends.
func (h *History) Run(ctx context.Context) {
	var keeper sync.WaitGroup
	defer keeper.Wait()
	keeper.Go(func() { h.damage.run(ctx) }) // returns when ctx ends
	h.bring(ctx)
}

// Close closes the logs of partitions that others serve. Nobody may ask for them
// any more.
func (h *History) Close() error { return h.archive.sweep(time.Time{}) }

// Own opens the log of a partition for the one who serves it, which closes it.
// Its errors are those of [storage.Store.Log].
func (h *History) Own(ctx context.Context, f storage.Facts) (*storage.Log, storage.Recovery, error) {
	return h.archive.own(ctx, f)
}

// Remove deletes the files of a partition that is not served.
func (h *History) Remove(id storage.PartitionID) error { return h.archive.remove(id) }

// Keep has nothing brought here for a partition until release is called. free is
// false while something is: then nothing is kept.
func (h *History) Keep(id storage.PartitionID) (release func(), free bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.busy[id] {
		return nil, false
	}
	h.busy[id] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.busy, id)
	}, true
}

// notify wakes whoever waits at a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
