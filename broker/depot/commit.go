package depot

import (
	"context"
	"errors"
	"fmt"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold/export"
)

// errNoLease: what is committed without one is fenced all the same, but nobody need try (R8).
var errNoLease = errors.New("this broker has no lease")

// commit proposes what a run has exported. All of one cut goes into one command,
// unless that would be too long; each entry is judged by itself, and the answer
// comes when this broker has applied it.
func (d *Depot) commit(self state.Owner) func(context.Context, []export.Entry) []error {
	return func(ctx context.Context, entries []export.Entry) []error {
		c := &state.CommitSegments{Owner: self, Entries: make([]state.SegmentCommit, len(entries))}
		for i := range entries {
			c.Entries[i] = asCommit(&entries[i])
		}
		var errs []error
		err := errNoLease
		if d.cfg.Leased() {
			errs, err = d.each(ctx, c, len(entries))
		}
		if err != nil {
			errs = make([]error, len(entries))
			for i := range errs {
				errs[i] = err
			}
			return errs
		}
		var given []catalog.Name
		for i := range errs {
			if errs[i] == nil {
				d.cfg.Moved(storage.PartitionID{Topic: entries[i].ID.Topic, Partition: entries[i].ID.Partition})
				continue
			}
			errs[i] = fmt.Errorf("%w: %w", export.ErrRefused, errs[i])
			e := &c.Entries[i]
			given = append(given, catalog.NewName(e.Topic, e.Partition, e.Segment.Object, e.Segment.Start, e.Segment.End))
		}
		d.giveUp(ctx, self, given)
		notify(d.kick)
		return errs
	}
}

// each commits a batched command. The second error says that nobody knows what
// became of it (R5), unless it is a refusal of the whole: that is each entry's.
func (d *Depot) each(ctx context.Context, c state.Command, n int) ([]error, error) {
	errs, err := d.cfg.Meta.DecideEach(ctx, c, n)
	if refusal, is := errors.AsType[*state.Error](err); is {
		errs = make([]error, n)
		for i := range errs {
			errs[i] = refusal
		}
		err = nil
	}
	return errs, err
}

// giveUp condemns what this run has made and no catalog will name (R12). What is
// not condemned now, the audit finds once the run is over.
func (d *Depot) giveUp(ctx context.Context, self state.Owner, names []catalog.Name) {
	if len(names) == 0 {
		return
	}
	errs, err := d.each(ctx, &state.CondemnObjects{Owner: self, At: d.cfg.Now().UnixMilli(), Names: names}, len(names))
	if err = errors.Join(append(errs, err)...); err != nil {
		d.cfg.Log.Debug("objects that were refused are not condemned yet", "objects", len(names), "err", err)
	}
}

// asCommit is an entry as the metadata take it.
func asCommit(e *export.Entry) state.SegmentCommit {
	s := &e.Segment
	c := state.SegmentCommit{
		Topic: e.ID.Topic, Partition: e.ID.Partition, Epoch: e.Epoch,
		Segment: catalog.Segment{
			Start: s.Start, End: s.End, Object: asObject(s.Object), Position: s.Position, Bytes: s.Bytes, CRC: s.CRC,
			FirstTime: s.FirstTime, LastTime: s.LastTime,
		},
	}
	for _, x := range s.Epochs {
		c.Epochs = append(c.Epochs, state.EpochStart{Epoch: x.Epoch, Start: x.Start})
	}
	return c
}

func asObject(o export.Object) catalog.Object {
	if o.IsCut {
		return catalog.Object{Kind: catalog.Cut, Store: o.Cut.Store, Incarnation: o.Cut.Incarnation, Number: o.Cut.Number, Unique: o.Cut.Unique}
	}
	return catalog.Object{Kind: catalog.Own, Epoch: o.Own.Epoch, Incarnation: o.Own.Incarnation, Unique: o.Own.Unique}
}
