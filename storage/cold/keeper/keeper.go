package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/disk"
)

// Keeper keeps the cold tier in order. It is safe for concurrent use.
type Keeper struct {
	cfg   Config
	m     *metrics
	pace  *pace
	files atomic.Uint64 // temporary files made

	mu      sync.Mutex
	owed    map[catalog.Name]bool // made, perhaps uploaded, and in no catalog: to be condemned
	damaged map[place]problem     // not read again for a while
}

// place is where in an object a segment lies: of a cut, the others may be sound.
type place struct {
	object   catalog.Object
	position int64
}

type problem struct {
	err  error
	seen time.Time
}

// Open makes a Keeper and empties its folder. It does nothing by itself.
func Open(cfg Config) (*Keeper, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := disk.RemoveAll(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("empty folder for merges: %w", err)
	}
	if err := disk.MkdirAll(cfg.FS, cfg.Dir); err != nil {
		return nil, fmt.Errorf("make folder for merges: %w", err)
	}
	k := &Keeper{cfg: cfg, pace: newPace(cfg.Clock, cfg.Rate), owed: map[catalog.Name]bool{}, damaged: map[place]problem{}}
	if k.m, err = newMetrics(cfg.Metrics, k); err != nil {
		return nil, fmt.Errorf("register metrics of upkeep: %w", err)
	}
	return k, nil
}

// Close takes the metrics back. Run must have returned.
func (k *Keeper) Close() error {
	k.m.all.Unregister(k.cfg.Metrics)
	return nil
}

// Run does what is to be done until ctx ends. What fails is tried again in the next pass; the error is ctx's.
func (k *Keeper) Run(ctx context.Context) error {
	var collected time.Time
	var sweeps sweeps
	for ctx.Err() == nil {
		k.report("compact", k.Compact(ctx))
		if now := k.cfg.Clock.Now(); k.cfg.Collects() {
			if now.Sub(collected) >= k.cfg.CollectEvery {
				collected = now
				k.report("collect garbage", k.Collect(ctx))
			}
			if sweeps.due(&k.cfg, now) {
				_, err := k.Sweep(ctx)
				k.report("look for abandoned objects", err)
			}
		}
		if err := k.cfg.Clock.Wait(ctx, k.cfg.Every); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// sweeps is when Run looks for abandoned objects: now and then, and some time after a run has ended, because what it left
// nobody can tell of any more. That a Keeper begins counts as such an end: it may be the next run of a broker, or lead
// the cluster because of a loss.
type sweeps struct {
	last time.Time
	runs map[uint64]bool // that were alive; nil: before the first look
	ends []time.Time     // when it was seen that a run had ended, those that no look has followed yet
}

// due says whether it is time, and takes it that Run then looks.
func (s *sweeps) due(c *Config, now time.Time) bool {
	alive := map[uint64]bool{}
	for run := range c.View().Runs {
		alive[run] = true
	}
	ended := s.runs == nil
	for run := range s.runs {
		ended = ended || !alive[run]
	}
	s.runs = alive
	if ended {
		s.ends = append(s.ends, now)
	}
	followed := 0
	for followed < len(s.ends) && now.Sub(s.ends[followed]) >= c.AfterRun {
		followed++
	}
	if s.ends = s.ends[followed:]; followed == 0 && now.Sub(s.last) < c.AuditEvery {
		return false
	}
	s.last = now
	return true
}

// report logs what a pass could not do.
func (k *Keeper) report(what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		k.cfg.Log.Warn("upkeep of the cold tier failed, it is tried again", "what", what, "err", err)
	}
}

// Pause stops merges, at their next read or write, until Resume. Garbage is collected all the same.
func (k *Keeper) Pause() { k.pace.pause(true) }

// Resume is the reverse of Pause.
func (k *Keeper) Resume() { k.pace.pause(false) }

// Compact merges and pages once what is worth it among this broker's partitions, and waits for that. A partition that
// fails holds up no other; the errors are joined.
func (k *Keeper) Compact(ctx context.Context) error {
	errs := []error{k.settle(ctx)}
	now := k.cfg.Clock.Now().UnixMilli()
	var merges []upkeep.Merge
	var mine []id
	for p := range k.cfg.View().Partitions {
		if p.Mine && p.Catalog != nil {
			merges = append(merges, k.cfg.Limits.Merges(p, now, k.isDamaged)...)
			mine = append(mine, idOf(p))
		}
	}
	errs = append(errs, k.work(ctx, k.cfg.Limits.Jobs(merges)))
	for _, id := range mine {
		if ctx.Err() != nil {
			break
		}
		// As it stands after the merges, or the page would list what they replaced.
		if p, ok := k.cfg.View().Find(id.topic, id.number); ok && p.Mine {
			errs = append(errs, k.fold(ctx, p, k.cfg.Limits.Merges(p, now, k.isDamaged)))
		}
	}
	return errors.Join(append(errs, ctx.Err())...)
}

type id struct {
	topic  [16]byte
	number uint32
}

func idOf(p upkeep.Partition) id { return id{p.Topic, p.Number} }

// work runs jobs, Slots at once.
func (k *Keeper) work(ctx context.Context, jobs []upkeep.Job) error {
	errs := make([]error, len(jobs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(k.cfg.Slots, len(jobs)) {
		// Returns when no job is left, or the one it has ends after ctx.
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(jobs) {
					return
				}
				errs[i] = k.merge(ctx, jobs[i])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// owe notes an object that is about to be uploaded.
func (k *Keeper) owe(n catalog.Name) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.owed[n] = false
}

// giveUp says of an object that is still owed that whoever made it has ended: it is to be condemned.
func (k *Keeper) giveUp(n catalog.Name) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.owed[n]; ok {
		k.owed[n] = true
	}
}

// paid says that an object is in a catalog, or condemned.
func (k *Keeper) paid(n catalog.Name) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.owed, n)
}

// debts are the objects that were given up.
func (k *Keeper) debts() (names []catalog.Name) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, over := range k.owed {
		if over {
			names = append(names, n)
		}
	}
	slices.SortFunc(names, catalog.Name.Compare)
	return names
}

// blame notes a segment that cannot be used, if that is what an error says.
func (k *Keeper) blame(s catalog.Segment, err error) {
	_, damage := errors.AsType[*Damage](err)
	if !damage && !errors.Is(err, cold.Corrupt) && !errors.Is(err, cold.NotFound) {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.damaged[place{s.Object, s.Position}] = problem{err, k.cfg.Clock.Now()}
}

// isDamaged tells whether a segment is left alone. It is looked at again after AuditEvery.
func (k *Keeper) isDamaged(s catalog.Segment) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at := place{s.Object, s.Position}
	p, ok := k.damaged[at]
	if ok && k.cfg.Clock.Now().Sub(p.seen) >= k.cfg.AuditEvery {
		delete(k.damaged, at)
		return false
	}
	return ok
}

// Problems returns what was found damaged or missing of late.
func (k *Keeper) Problems() []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var out []error
	for _, p := range k.damaged {
		out = append(out, p.err)
	}
	return out
}

const (
	firstPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
)

// again calls do until it says that it is done or ctx ends. Between calls it pauses, longer each time.
func (k *Keeper) again(ctx context.Context, do func() (done bool, err error)) error {
	for pause := firstPause; ; pause = min(2*pause, mostPause) {
		done, err := do()
		if done || ctx.Err() != nil {
			return err
		}
		k.cfg.Log.Debug("upkeep of the cold tier waits", "err", err, "pause", pause)
		if k.cfg.Clock.Wait(ctx, pause) != nil {
			return err
		}
	}
}

// propose has a command judged: nil, or ErrRefused, or ctx has ended and nobody knows (R5).
func (k *Keeper) propose(ctx context.Context, command func() error) error {
	return k.again(ctx, func() (bool, error) {
		err := command()
		return err == nil || errors.Is(err, ErrRefused), err
	})
}

// proposeAll is propose for a batched command over n entries: call is given the indexes that were not judged yet.
func (k *Keeper) proposeAll(ctx context.Context, n int, call func(open []int) []error) []error {
	errs := make([]error, n)
	open := make([]int, n)
	for i := range open {
		open[i] = i
	}
	_ = k.again(ctx, func() (bool, error) {
		if len(open) == 0 {
			return true, nil
		}
		var left []int
		var why error
		got := call(open)
		for j, i := range open {
			if errs[i] = got[j]; got[j] != nil && !errors.Is(got[j], ErrRefused) {
				left, why = append(left, i), got[j]
			}
		}
		open = left
		return len(open) == 0, why
	})
	return errs
}
