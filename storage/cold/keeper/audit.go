package keeper

import (
	"context"
	"errors"
	"slices"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

// Report counts what an audit found, by verdict.
type Report map[upkeep.Verdict]Tally

// Tally counts objects and their bytes; of missing ones, the bytes they should have.
type Tally struct {
	Objects, Bytes int64
}

// Audit compares the store with the catalogs, both ways, and changes nothing. found is called for everything that is not
// sound, in no order that matters; it may be nil. An error means that not all was looked at.
func (k *Keeper) Audit(ctx context.Context, found func(upkeep.Finding)) (Report, error) {
	a := audit{k: k, report: Report{}, visited: map[id]bool{}, found: found}
	if found == nil {
		a.found = func(upkeep.Finding) {}
	}
	return a.report, a.run(ctx)
}

// Sweep is an audit that does something about what it finds: objects of runs that are over are condemned, and what was
// deleted and came back is deleted again. Nothing is deleted that the state has not condemned (R12), nor anything condemned
// while an audit is open that an operator has to end (R22).
func (k *Keeper) Sweep(ctx context.Context) (Report, error) {
	var abandoned, returned []catalog.Name
	report, err := k.Audit(ctx, func(f upkeep.Finding) {
		switch f.Verdict {
		case upkeep.Abandoned:
			abandoned = append(abandoned, f.Name)
		case upkeep.Returned:
			returned = append(returned, f.Name)
		}
	})
	errs := []error{err}
	errs = append(errs, k.condemnAll(ctx, abandoned))
	for _, n := range returned {
		if ctx.Err() == nil {
			_, err := k.remove(ctx, n)
			errs = append(errs, err)
		}
	}
	return report, errors.Join(append(errs, ctx.Err())...)
}

// audit is one pass over a listing, which comes in the order of keys: the cuts side by side, and the objects of each
// partition.
type audit struct {
	k       *Keeper
	report  Report
	found   func(upkeep.Finding)
	visited map[id]bool

	group  group
	listed []upkeep.Object
	errs   []error
}

// group is what a run of a listing belongs to: a partition, all cuts, or no catalog at all.
type group struct {
	kind catalog.Kind // Own: a partition's, segments and pages; Cut; zero: neither
	part id
}

func groupOf(key string) group {
	n, ok := keys.NameOf(key)
	switch {
	case !ok:
		return group{}
	case n.Object.Kind == catalog.Cut:
		return group{kind: catalog.Cut}
	}
	return group{catalog.Own, id{n.Topic, n.Partition}}
}

func (a *audit) run(ctx context.Context) error {
	var next []byte
	cuts := false
	for {
		page, err := a.k.cfg.Store.List(ctx, "", next)
		if err != nil {
			return errors.Join(append(a.errs, err)...)
		}
		for _, o := range page.Objects {
			if g := groupOf(o.Key); g != a.group {
				cuts = cuts || a.group.kind == catalog.Cut
				a.judge(ctx)
				a.group = g
			}
			a.listed = append(a.listed, upkeep.Object{Key: o.Key, Size: o.Size})
		}
		if next = page.Next; len(next) == 0 {
			break
		}
	}
	cuts = cuts || a.group.kind == catalog.Cut
	a.judge(ctx)
	if !cuts {
		a.group = group{kind: catalog.Cut}
		a.judge(ctx)
	}
	// What has a catalog and nothing at all in the store.
	for p := range a.k.cfg.View().Partitions {
		if !a.visited[idOf(p)] && p.Catalog != nil {
			a.group = group{catalog.Own, idOf(p)}
			a.judge(ctx)
		}
	}
	return errors.Join(append(a.errs, ctx.Err())...)
}

// judge ends a group. The version of the state is newer than its listing: what was committed meanwhile is known.
func (a *audit) judge(ctx context.Context) {
	view := a.k.cfg.View()
	named, whole := a.named(ctx, view)
	seen := make(map[catalog.Name]bool, len(a.listed))
	for _, o := range a.listed {
		f := named.Judge(view, o, whole)
		seen[f.Name] = true
		a.add(f)
	}
	for n, want := range named {
		if !seen[n] {
			a.miss(ctx, n, want)
		}
	}
	a.listed = a.listed[:0]
}

// named returns what catalogs name of the group, and whether all pages were read.
func (a *audit) named(ctx context.Context, view upkeep.View) (upkeep.Named, bool) {
	switch a.group.kind {
	case catalog.Cut:
		return upkeep.NamedCuts(view.Partitions), true
	case catalog.Own:
		a.visited[a.group.part] = true
		p, ok := view.Find(a.group.part.topic, a.group.part.number)
		if !ok {
			return nil, true
		}
		lists, _, err := a.k.lists(ctx, p, nil)
		if err != nil {
			a.errs = append(a.errs, err)
		}
		return upkeep.NamedBy(p, lists), err == nil
	}
	return nil, true
}

// miss looks for an object that was not listed: it may have come since, or have been given up.
func (a *audit) miss(ctx context.Context, n catalog.Name, want int64) {
	key := keys.Of(n)
	info, err := a.k.cfg.Store.Stat(ctx, key)
	if err != nil && !errors.Is(err, cold.NotFound) {
		a.errs = append(a.errs, err)
		return
	}
	view := a.k.cfg.View()
	if err == nil {
		a.add(upkeep.Named{n: want}.Judge(view, upkeep.Object{Key: key, Size: info.Size}, true))
		return
	}
	if view.GarbageOf(n) == nil && (view.Named(n) || a.listedNow(ctx, view, n)) {
		a.add(upkeep.Finding{Key: key, Name: n, Verdict: upkeep.Missing, Want: want})
	}
}

// listedNow says whether a page of the newest version lists a segment.
func (a *audit) listedNow(ctx context.Context, view upkeep.View, n catalog.Name) bool {
	p, ok := view.Find(n.Topic, n.Partition)
	if !ok || n.Object.Kind != catalog.Own {
		return false
	}
	lists, _, err := a.k.lists(ctx, p, &n)
	if err != nil {
		a.errs = append(a.errs, err)
	}
	for _, list := range lists {
		if slices.ContainsFunc(list, func(s catalog.Segment) bool { return s.Object == n.Object && s.Start == n.Start }) {
			return true
		}
	}
	return false
}

func (a *audit) add(f upkeep.Finding) {
	t := a.report[f.Verdict]
	t.Objects++
	t.Bytes += max(f.Size, f.Want)
	a.report[f.Verdict] = t
	if !f.Verdict.Sound() {
		a.found(f)
	}
}
