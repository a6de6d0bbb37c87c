package keeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

const (
	// collectMost bounds the objects of one pass, and nameMost the names of one command.
	collectMost = 10_000
	nameMost    = 1000
	deleters    = 8
)

// Collect condemns what deleted topics have, deletes the garbage whose grace is over and has it forgotten. What cannot be
// deleted stays garbage and is tried again by the next pass; it holds up nothing else.
func (k *Keeper) Collect(ctx context.Context) error {
	now := k.cfg.Clock.Now().UnixMilli()
	errs := []error{k.settle(ctx)}
	view := k.cfg.View()
	for t := range view.Deleted {
		if err := k.propose(ctx, func() error { return k.cfg.Commands.CondemnTopic(ctx, now, t) }); err != nil {
			errs = append(errs, fmt.Errorf("condemn what deleted topic %x has: %w", t.Topic, err))
		}
	}
	d := k.cfg.Limits.Dispose(view, now, collectMost)
	k.m.waiting.Set(float64(d.Waiting))
	names, err := k.dispose(ctx, d.Delete)
	errs = append(errs, err, k.forget(ctx, append(names, d.Forget...)), ctx.Err())
	return errors.Join(errs...)
}

// dispose deletes garbage, several at once, and returns what is deleted.
func (k *Keeper) dispose(ctx context.Context, list []catalog.Garbage) ([]catalog.Name, error) {
	errs := make([]error, len(list))
	gone := make([]bool, len(list))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(deleters, len(list)) {
		// Returns when nothing is left, or the deletion it is at ends after ctx.
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				gone[i], errs[i] = k.disposeOne(ctx, list[i])
			}
		})
	}
	wg.Wait()
	var names []catalog.Name
	for i := range list {
		if gone[i] {
			names = append(names, list[i].Name)
		}
	}
	return names, errors.Join(errs...)
}

// disposeOne deletes an object, and before that condemns what it lists if it is a page: nobody could read it later.
func (k *Keeper) disposeOne(ctx context.Context, g catalog.Garbage) (bool, error) {
	if g.Page != nil {
		content, err := k.content(ctx, g.Name, *g.Page)
		if err == nil {
			err = k.propose(ctx, func() error { return k.cfg.Commands.CondemnPage(ctx, g.Name, content) })
		}
		if err != nil {
			k.m.failed("condemn", err)
			return false, fmt.Errorf("condemn what %v lists: %w", g.Name, err)
		}
		k.cfg.At(stepCondemned)
	}
	return k.remove(ctx, g.Name)
}

// remove deletes an object if the newest version of the state still says that it may be (R12, R22).
func (k *Keeper) remove(ctx context.Context, n catalog.Name) (bool, error) {
	view := k.cfg.View()
	g := view.GarbageOf(n)
	if g == nil || g.Since > k.cfg.Clock.Now().Add(-k.cfg.Limits.Grace).UnixMilli() || view.Auditing || view.Named(n) {
		return false, nil
	}
	if err := k.cfg.Store.Delete(ctx, keys.Of(n)); err != nil {
		k.m.failed("delete", err)
		return false, err
	}
	k.m.deleted.WithLabelValues(g.Reason.String()).Inc()
	k.cfg.At(stepDeleted)
	return true, nil
}

// forget says what was deleted. A refusal is not repeated: what is still garbage is deleted again by the next pass.
func (k *Keeper) forget(ctx context.Context, names []catalog.Name) error {
	var errs []error
	for len(names) > 0 && ctx.Err() == nil {
		n := min(len(names), nameMost)
		part := names[:n]
		errs = append(errs, k.proposeAll(ctx, n, func(open []int) []error {
			return k.cfg.Commands.Forget(ctx, chosen(part, open))
		})...)
		k.cfg.At(stepForgotten)
		names = names[n:]
	}
	return errors.Join(errs...)
}

// settle condemns what this run made and no catalog has.
func (k *Keeper) settle(ctx context.Context) error {
	var errs []error
	for _, n := range k.debts() {
		if ctx.Err() != nil {
			break
		}
		if err := k.condemn(ctx, n, true); err != nil {
			if !k.forgiven(ctx, n) {
				errs = append(errs, fmt.Errorf("condemn %v: %w", n, err))
				continue
			}
		}
		k.paid(n)
		k.cfg.At(stepCondemned)
	}
	return errors.Join(errs...)
}

// forgiven says whether an object of this run needs no condemning, though that was refused: a catalog has it after all (a
// swap of which nobody knew), or the run is over, and an audit will find it.
func (k *Keeper) forgiven(ctx context.Context, n catalog.Name) bool {
	view := k.cfg.View()
	if view.Named(n) || view.GarbageOf(n) != nil || view.Run(k.cfg.Self.Incarnation) != catalog.Alive {
		return true
	}
	p, ok := view.Find(n.Topic, n.Partition)
	if !ok {
		return false
	}
	lists, _, err := k.lists(ctx, p, &n)
	if err != nil {
		return false
	}
	_, listed := upkeep.NamedBy(p, lists)[n]
	return listed
}

// condemn has an object condemned that no catalog names, with the pages that might list it as proof that they do not.
func (k *Keeper) condemn(ctx context.Context, n catalog.Name, own bool) error {
	c := Condemnation{Own: own, Names: []catalog.Name{n}}
	return k.propose(ctx, func() error {
		c.At, c.Pages = k.cfg.Clock.Now().UnixMilli(), nil
		if p, ok := k.cfg.View().Find(n.Topic, n.Partition); ok && n.Object.Kind == catalog.Own {
			_, contents, err := k.lists(ctx, p, &n)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrRefused, err)
			}
			c.Pages = contents
		}
		return k.cfg.Commands.Condemn(ctx, c)[0]
	})
}

// condemnAll has objects condemned whose runs are over, many in one command where no page has to be read for them.
func (k *Keeper) condemnAll(ctx context.Context, names []catalog.Name) error {
	var errs []error
	var plain []catalog.Name
	view := k.cfg.View()
	for _, n := range names {
		if p, ok := view.Find(n.Topic, n.Partition); n.Object.Kind != catalog.Own || !ok || len(p.Catalog.Pages()) == 0 {
			plain = append(plain, n)
			continue
		}
		if ctx.Err() == nil && !k.cfg.View().Auditing {
			errs = append(errs, k.condemn(ctx, n, false))
			k.cfg.At(stepCondemned)
		}
	}
	for part := range slices.Chunk(plain, nameMost) {
		if ctx.Err() != nil || k.cfg.View().Auditing {
			break
		}
		errs = append(errs, k.proposeAll(ctx, len(part), func(open []int) []error {
			return k.cfg.Commands.Condemn(ctx, Condemnation{At: k.cfg.Clock.Now().UnixMilli(), Names: chosen(part, open)})
		})...)
		k.cfg.At(stepCondemned)
	}
	return errors.Join(errs...)
}

func chosen(names []catalog.Name, indexes []int) []catalog.Name {
	out := make([]catalog.Name, 0, len(indexes))
	for _, i := range indexes {
		out = append(out, names[i])
	}
	return out
}

// lists reads the pages of a partition, those that overlap the offsets of only if it is not nil.
func (k *Keeper) lists(ctx context.Context, p upkeep.Partition, only *catalog.Name) (catalog.Lists, [][]byte, error) {
	lists := catalog.Lists{}
	var contents [][]byte
	var errs []error
	for _, page := range p.Catalog.Pages() {
		if only != nil && (only.End <= page.Start || page.End <= only.Start) {
			continue
		}
		name := pageName(p, page)
		b, err := k.content(ctx, name, page)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		c, _ := catalog.DecodePage(b) // content has done it before
		lists[name], contents = c.Segments, append(contents, b)
	}
	return lists, contents, errors.Join(errs...)
}
