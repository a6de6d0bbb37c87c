package depot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/herald"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/export"
	"github.com/danubemq/danube/storage/cold/fetch"
	"github.com/danubemq/danube/storage/cold/keeper"
	"github.com/danubemq/danube/storage/cold/plan"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/disk"
)

// Config says what a depot is made of. All fields are required.
type Config struct {
	Store   *cold.Store // the caller closes it, after the depot
	Meta    *meta.Node
	Self    func() state.Owner        // this store in its present run
	Leased  func() bool               // whether this broker may act as an owner (R8)
	Moved   func(storage.PartitionID) // a catalog has moved, as applied here: whoever serves the partition should look
	Alone   bool                      // no other broker writes into the store
	Tested  bool                      // the self-test was passed
	Limits  Limits
	FS      disk.FS
	Dir     string // the depot's own
	Now     func() time.Time
	At      func(step string) // called at named steps
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Limits say how much of what the cold tier has is kept on the disk, and in memory.
type Limits struct {
	Memory     int64         // bytes for what is read
	SegmentAge time.Duration // how old a message may become before it is exported
	LocalAge   time.Duration // after which what is covered is freed; 0: no bound
	LocalBytes int64         // of all logs above which what is covered is freed; 0: no bound
	Upkeep     upkeep.Limits // of merges, pages and garbage

	UpkeepEvery, CollectEvery time.Duration // between two looks for the first two, and for the last; 0: the keeper's default
	AuditEvery, AfterRun      time.Duration // from a look for abandoned objects, or the end of a run, to the next one; 0: the keeper's default
}

// Depot brings what this broker serves into the cold tier and gives it back. Safe
// for concurrent use.
type Depot struct {
	cfg    Config
	tier   *fetch.Tier
	herald *herald.Herald
	kick   chan struct{} // a catalog has moved; of capacity one
	grown  chan struct{} // a log of level object has moved; of capacity one
	renew  chan struct{} // the broker has begun another run; of capacity one

	mu      sync.Mutex // guards what follows
	sources map[storage.PartitionID]*source
	export  *export.Exporter // nil: none is at work
	keeper  *keeper.Keeper   // nil: none is at work
	tested  bool
	why     error // the self-test was not passed, because
	taken   error // the bucket is another cluster's, or was rebuilt elsewhere
}

// Open makes a depot from which can be read; Run does the rest.
func Open(cfg Config) (*Depot, error) {
	d := &Depot{
		cfg: cfg, kick: make(chan struct{}, 1), grown: make(chan struct{}, 1), renew: make(chan struct{}, 1),
		sources: map[storage.PartitionID]*source{}, tested: cfg.Tested,
	}
	var err error
	d.tier, err = fetch.Open(fetch.Config{Store: cfg.Store, Bytes: cfg.Limits.Memory, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics})
	if err != nil {
		return nil, fmt.Errorf("open the cold tier for reading: %w", err)
	}
	d.herald, err = herald.New(herald.Config{
		Store: cfg.Store, View: cfg.Meta.View, Leading: d.leads, Self: cfg.Self().Store, Seen: d.seen, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		return nil, errors.Join(err, d.tier.Close())
	}
	return d, nil
}

func (d *Depot) leads() bool {
	_, leads := d.cfg.Meta.Leading()
	return leads
}

// seen hears whose the bucket is. Into one that is not this cluster's nothing is exported but what somebody waits for.
func (d *Depot) seen(problem error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.taken = problem
	if d.export != nil {
		d.obey(d.export)
	}
}

// obey has an exporter pause or go on. d.mu is held.
func (d *Depot) obey(e *export.Exporter) {
	if d.taken != nil {
		e.Pause()
	} else {
		e.Resume()
	}
}

// Close ends reading. Run must have returned.
func (d *Depot) Close() error { return d.tier.Close() }

// The pauses between two attempts to pass the self-test.
const (
	testRetry    = time.Second
	testRetryMax = 30 * time.Second
)

// Run exports, keeps the store in order and frees what the catalog covers, until
// ctx ends.
func (d *Depot) Run(ctx context.Context) {
	var freeing sync.WaitGroup
	defer freeing.Wait()
	freeing.Go(func() { d.free(ctx) }) // both return when ctx ends
	freeing.Go(func() { d.watch(ctx) })
	d.pass(ctx)
	freeing.Go(func() { d.herald.Run(ctx) }) // returns when ctx ends
	for ctx.Err() == nil {
		if err := d.work(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Log.Error("cold tier not served, trying again", "err", err)
			calls.Pause(ctx, testRetry)
		}
	}
}

// pass takes the self-test until it is passed or ctx ends: nobody writes before.
func (d *Depot) pass(ctx context.Context) {
	for pause := testRetry; ctx.Err() == nil; pause = min(2*pause, testRetryMax) {
		d.mu.Lock()
		tested := d.tested
		d.mu.Unlock()
		if tested {
			return
		}
		err := d.cfg.Store.Check(ctx)
		if errors.Is(err, cold.ErrConditions) && d.cfg.Alone {
			d.cfg.Log.Warn("the store of the cold tier does not honour conditional writes: no second broker may use it", "store", d.cfg.Store, "err", err)
			err = nil
		}
		d.mu.Lock()
		d.tested, d.why = err == nil, err
		d.mu.Unlock()
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			d.cfg.Log.Warn("nothing is written to the cold tier yet, trying again", "err", err)
		}
		calls.Pause(ctx, pause)
	}
}

// work exports and keeps in the name of the present run, until the broker begins
// another or ctx ends.
func (d *Depot) work(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	self := d.cfg.Self()
	e, err := export.Open(export.Config{
		Store: d.cfg.Store, Commit: d.commit(self), Plan: plan.Config{SegmentAge: d.cfg.Limits.SegmentAge},
		Self: export.Self{
			Cluster: func() [16]byte { return d.cfg.Meta.View().Cluster().ID }, Store: self.Store, Incarnation: self.Incarnation,
		},
		Now: d.cfg.Now, At: d.cfg.At, Log: d.cfg.Log, Metrics: d.cfg.Metrics,
	})
	if err != nil {
		return err
	}
	k, err := d.openKeeper(self)
	if err != nil {
		cancel()
		return errors.Join(err, e.Run(ctx)) // which ends at once, and takes its metrics back
	}
	d.mu.Lock()
	d.export, d.keeper = e, k
	d.obey(e)
	for _, s := range d.sources {
		e.Add(s)
	}
	d.mu.Unlock()
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) }) // both return when ctx ends, and say no more
	running.Go(func() { _ = k.Run(ctx) })
	select {
	case <-d.renew:
	case <-ctx.Done():
	}
	cancel()
	running.Wait()
	d.mu.Lock()
	d.export, d.keeper = nil, nil
	d.mu.Unlock()
	return k.Close()
}

// Renew says that the broker has begun another run: objects are made in its name from now on.
func (d *Depot) Renew() { notify(d.renew) }

// Add begins to export a partition that begins to be served under an epoch.
func (d *Depot) Add(id storage.PartitionID, epoch uint64, log *storage.Log) {
	s := &source{d: d, id: id, epoch: epoch, log: log}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.sources[id]; old != nil {
		old.leave()
	}
	d.sources[id] = s
	d.follow(s)
	if d.export != nil {
		d.export.Add(s)
	}
}

// Remove ends the export of a partition that is served no more under an epoch.
func (d *Depot) Remove(id storage.PartitionID, epoch uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.sources[id]
	if s == nil || s.epoch != epoch {
		return
	}
	delete(d.sources, id)
	s.leave()
	if d.export != nil {
		d.export.Remove(export.ID{Topic: id.Topic, Partition: id.Partition})
	}
}

// Changed says that the catalog of a partition, or its state, has changed.
func (d *Depot) Changed(id storage.PartitionID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.sources[id]; s != nil {
		d.follow(s)
	}
	if d.export != nil {
		d.export.Changed(export.ID{Topic: id.Topic, Partition: id.Partition})
	}
	notify(d.kick)
}

// errIdle says that nothing is exported now.
var errIdle = errors.New("the cold tier takes nothing yet")

// Urgent exports a partition before all others and returns nil once its catalog,
// as applied here, has reached offset to (R16).
func (d *Depot) Urgent(ctx context.Context, id storage.PartitionID, to uint64) error {
	d.mu.Lock()
	e, why := d.export, d.why
	d.mu.Unlock()
	if e == nil {
		return errors.Join(errIdle, why)
	}
	return e.Urgent(ctx, export.ID{Topic: id.Topic, Partition: id.Partition}, to)
}

// Degraded says in a line what is wrong with the cold tier, "" when nothing is.
func (d *Depot) Degraded() string {
	d.mu.Lock()
	e, k, tested, why, taken := d.export, d.keeper, d.tested, d.why, d.taken
	d.mu.Unlock()
	switch {
	case taken != nil:
		return "cold tier: nothing is exported: " + taken.Error()
	case !tested && why != nil:
		return "cold tier: nothing is exported: " + why.Error()
	case !tested:
		return "cold tier: nothing is exported until the self-test of " + d.cfg.Store.String() + " is passed"
	case e == nil:
		return ""
	}
	if text := e.Stats().Degraded; text != "" {
		return text
	}
	if list := k.Problems(); len(list) > 0 {
		return fmt.Sprintf("cold tier: %d objects are damaged or missing: %v; see cluster audit", len(list), list[0])
	}
	return ""
}

// dir is a folder of the depot's own.
func (d *Depot) dir(name string) string { return filepath.Join(d.cfg.Dir, name) }

// notify wakes whoever waits at a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
