package depot

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/cold/keeper"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

// openKeeper makes the keeper of a run: of what this broker owns, and on the leader
// of the garbage of all.
func (d *Depot) openKeeper(self state.Owner) (*keeper.Keeper, error) {
	c := d.cfg.Meta.View().Cluster()
	return keeper.Open(keeper.Config{
		Store: d.cfg.Store, View: func() upkeep.View { return upkeepView(d.cfg.Meta.View(), self) }, Commands: d.commands(self),
		Self:   keeper.Self{Cluster: c.ID, Store: self.Store, Incarnation: self.Incarnation, History: c.History},
		Limits: d.cfg.Limits.Upkeep, Every: d.cfg.Limits.UpkeepEvery, CollectEvery: d.cfg.Limits.CollectEvery,
		AuditEvery: d.cfg.Limits.AuditEvery, AfterRun: d.cfg.Limits.AfterRun,
		Collects: func() bool { return d.leads() && d.herald.Mine() }, // what was rebuilt elsewhere must lose nothing
		FS:       d.cfg.FS, Dir: d.dir("merge"), At: d.cfg.At, Clock: keeper.Clock{Now: d.cfg.Now}, Log: d.cfg.Log, Metrics: d.cfg.Metrics,
	})
}

// upkeepView is a version of the metadata as upkeep takes it, for a run.
func upkeepView(v *state.View, self state.Owner) upkeep.View {
	return upkeep.View{
		Partitions: func(yield func(upkeep.Partition) bool) {
			for t := range allTopics(v) {
				for m := range v.Partitions(t.ID) {
					if !yield(upkept(t, m, self)) {
						return
					}
				}
			}
		},
		Find: func(topic [16]byte, n uint32) (upkeep.Partition, bool) {
			t, m := v.TopicByID(topic), v.Partition(topic, n)
			if t == nil || m == nil {
				return upkeep.Partition{}, false
			}
			return upkept(t, m, self), true
		},
		Deleted: func(yield func(upkeep.Tombstone) bool) {
			for t := range v.Tombstones() {
				x := upkeep.Tombstone{Topic: t.ID}
				for m := range v.Partitions(t.ID) {
					if m.Catalog != nil {
						x.Partitions = append(x.Partitions, m.Number)
					}
				}
				if len(x.Partitions) > 0 && !yield(x) {
					return
				}
			}
		},
		Garbage: v.Garbage(), GarbageOf: v.GarbageOf, Named: v.Named, Auditing: v.Auditing(),
		Run: v.Run, Runs: v.Runs(),
	}
}

// allTopics yields the topics and the tombstones.
func allTopics(v *state.View) iter.Seq[*state.Topic] {
	return func(yield func(*state.Topic) bool) {
		for t := range v.Topics("") {
			if !yield(t) {
				return
			}
		}
		for t := range v.Tombstones() {
			if !yield(t) {
				return
			}
		}
	}
}

func upkept(t *state.Topic, m *state.Partition, self state.Owner) upkeep.Partition {
	p := upkeep.Partition{
		Topic: m.Topic, Number: m.Number, Epoch: m.Epoch, Mine: m.Owner == self && m.State != state.Opening && !t.Deleted(),
		LogStart: m.LogStart, Catalog: m.Catalog,
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		x := upkeep.Range{Start: r.Start, End: r.End}
		if r.Status == state.RangeOpen {
			x.End = m.Ceiling
		}
		for _, e := range r.Epochs {
			x.Epochs = append(x.Epochs, upkeep.Epoch{Epoch: e.Epoch, Start: e.Start})
		}
		p.Ranges = append(p.Ranges, x)
	}
	return p
}

// commands propose in the name of a run, or of nobody.
func (d *Depot) commands(self state.Owner) keeper.Commands {
	return keeper.Commands{
		Swap: func(ctx context.Context, at int64, swaps []keeper.Swap) []error {
			c := &state.SwapSegments{Owner: self, At: at}
			for _, s := range swaps {
				c.Entries = append(c.Entries, state.SegmentSwap{
					Topic: s.Topic, Partition: s.Partition, Epoch: s.Epoch, Inputs: s.Inputs, Outputs: []catalog.Segment{s.Output},
				})
			}
			return d.judged(ctx, c, len(swaps), true)
		},
		Page: func(ctx context.Context, p keeper.Paging) error {
			return d.judgedOne(ctx, &state.PageCatalog{Owner: self, Topic: p.Topic, Partition: p.Partition, Epoch: p.Epoch, Page: p.Page}, true)
		},
		Unpage: func(ctx context.Context, u keeper.Unpaging) error {
			return d.judgedOne(ctx, &state.UnpageCatalog{
				Owner: self, Topic: u.Topic, Partition: u.Partition, Epoch: u.Epoch, Start: u.Page.Start, Object: u.Page.Object, Content: u.Content, At: u.At,
			}, true)
		},
		CondemnPage: func(ctx context.Context, page catalog.Name, content []byte) error {
			return d.judgedOne(ctx, &state.CondemnPage{Page: page, Content: content}, false)
		},
		CondemnTopic: func(ctx context.Context, at int64, t upkeep.Tombstone) error {
			return errors.Join(d.judged(ctx, &state.CondemnTopic{ID: t.Topic, At: at, Partitions: t.Partitions}, len(t.Partitions), false)...)
		},
		Condemn: func(ctx context.Context, c keeper.Condemnation) []error {
			x := &state.CondemnObjects{At: c.At, Names: c.Names, Pages: c.Pages}
			if c.Own {
				x.Owner = self
			}
			return d.judged(ctx, x, len(c.Names), false)
		},
		Forget: func(ctx context.Context, names []catalog.Name) []error {
			return d.judged(ctx, &state.ForgetObjects{Names: names}, len(names), false)
		},
	}
}

// judged commits a batched command, and marks refusals. What an owner decides it
// decides with a lease (R8).
func (d *Depot) judged(ctx context.Context, c state.Command, n int, owner bool) []error {
	var errs []error
	err := errNoLease
	if !owner || d.cfg.Leased() {
		errs, err = d.each(ctx, c, n)
	}
	if err != nil {
		errs = make([]error, n)
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	for i := range errs {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("%w: %w", keeper.ErrRefused, errs[i])
		}
	}
	return errs
}

// judgedOne is judged of a command that is not batched.
func (d *Depot) judgedOne(ctx context.Context, c state.Command, owner bool) error {
	if owner && !d.cfg.Leased() {
		return errNoLease
	}
	_, err := d.cfg.Meta.Decide(ctx, c)
	if _, refused := errors.AsType[*state.Error](err); refused {
		return fmt.Errorf("%w: %w", keeper.ErrRefused, err)
	}
	return err
}

// errNoKeeper says that nothing can be audited now.
var errNoKeeper = errors.New("the cold tier is not at work yet")

// Audit compares the store with the catalogs, both ways, and changes nothing; found
// hears of everything that is not sound.
func (d *Depot) Audit(ctx context.Context, found func(upkeep.Finding)) (keeper.Report, error) {
	d.mu.Lock()
	k, why := d.keeper, d.why
	d.mu.Unlock()
	if k == nil {
		return nil, errors.Join(errNoKeeper, why)
	}
	return k.Audit(ctx, found)
}
