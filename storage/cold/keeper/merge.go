package keeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/segment"
)

// output is one merge under way.
type output struct {
	merge upkeep.Merge
	next  int // index of the input that is read
	walk  *walker
	table *segment.Producers // of the last input that was read
	spool *spool
	made  catalog.Segment // what takes the place of the inputs
	err   error           // why nothing comes of it

	open func(h segment.Header) (*spool, error)
}

func (o *output) input() catalog.Segment { return o.merge.Inputs[o.next] }

// place returns where in its object the next input lies.
func (o *output) place() (from, to int64) {
	s := o.input()
	return s.Position, s.Position + s.Bytes
}

// begin makes ready for the next input.
func (o *output) begin(key string) {
	o.walk = &walker{key: key, segment: o.input(), part: &o.merge.Partition, head: o.first, each: func(b batch.Batch) error { return o.spool.add(b) }}
}

// first opens the file when the header of the first input is known: it has the topic's name, and the first epoch, which the
// ranges forget once the log's start has passed it.
func (o *output) first(h segment.Header) (err error) {
	if o.spool == nil {
		o.spool, err = o.open(h)
	}
	return err
}

// take takes what b, which was read at a position of the object, has of the next input.
func (o *output) take(b []byte, at int64, err error) {
	from, to := o.place()
	if to <= at {
		return
	}
	if err != nil {
		o.err = err
		return
	}
	end := at + int64(len(b))
	if a, z := max(from, at), min(to, end); a < z {
		o.err = o.walk.write(b[a-at : z-at])
	}
	if o.err == nil && to <= end {
		o.finishInput()
	}
}

// finishInput checks the end of the input, and keeps nothing of it but the producer table of the last.
func (o *output) finishInput() {
	f, err := o.walk.finish()
	if err == nil && o.next == len(o.merge.Inputs)-1 {
		o.table, err = f.Producers()
	}
	o.walk, o.err = nil, err
}

// merge carries a job out: read, write, put, read back, swap. A merge that fails leaves the others of its job alone.
func (k *Keeper) merge(ctx context.Context, job upkeep.Job) error {
	outs := make([]*output, len(job.Merges))
	for i, m := range job.Merges {
		outs[i] = &output{merge: m, open: func(h segment.Header) (*spool, error) { return k.spool(m, h) }}
	}
	err := k.read(ctx, outs)
	var files []error
	for _, o := range outs {
		if err == nil && o.err == nil {
			o.err = k.upload(ctx, o)
		}
		if o.spool != nil {
			files = append(files, o.spool.remove())
		}
	}
	if err = errors.Join(err, ctx.Err()); err == nil {
		k.swap(ctx, outs)
	}
	for _, o := range outs {
		k.giveUp(o.name())
	}
	if err != nil {
		return err
	}
	errs := append(files, k.settle(ctx))
	for _, o := range outs {
		if o.err != nil {
			k.m.failed("merge", o.err)
			errs = append(errs, fmt.Errorf("merge [%d, %d) of %x:%d: %w", o.merge.Start(), o.merge.End(), o.merge.Partition.Topic, o.merge.Partition.Number, o.err))
		}
	}
	return errors.Join(errs...)
}

// spool begins the file of a merge, given the header of its first input.
func (k *Keeper) spool(m upkeep.Merge, first segment.Header) (*spool, error) {
	first.Cluster, first.Store, first.History, first.Copied = k.cfg.Self.Cluster, k.cfg.Self.Store, k.cfg.Self.History, false
	first.Epoch, first.Created = m.Partition.EpochOf(m.End()-1), k.cfg.Clock.Now().UnixMilli()
	return newSpool(k.cfg.FS, path.Join(k.cfg.Dir, strconv.FormatUint(k.files.Add(1), 10)), first)
}

// upload seals the file, puts it and reads it back.
func (k *Keeper) upload(ctx context.Context, o *output) error {
	if err := o.spool.seal(o.table); err != nil {
		return err
	}
	p, last := &o.merge.Partition, o.merge.Inputs[len(o.merge.Inputs)-1]
	o.made = catalog.Segment{
		Start: o.merge.Start(), End: o.merge.End(), Bytes: o.spool.at, CRC: o.spool.last,
		FirstTime: o.merge.Inputs[0].FirstTime, LastTime: last.LastTime,
		Object: catalog.Object{Kind: catalog.Own, Epoch: p.EpochOf(o.merge.End() - 1), Incarnation: k.cfg.Self.Incarnation, Unique: unique()},
	}
	name := o.name()
	k.cfg.At(stepMerged)
	k.owe(name)
	key := keys.Of(name)
	if err := k.put(ctx, key, o.spool.body(), func() bool { return k.wanted(o) }); err != nil {
		return err
	}
	k.cfg.At(stepStored)
	if err := k.check(ctx, key, o.made, p); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	k.cfg.At(stepChecked)
	return nil
}

func (o *output) name() catalog.Name {
	return catalog.NewName(o.merge.Partition.Topic, o.merge.Partition.Number, o.made.Object, o.made.Start, o.made.End)
}

// errUnwanted says that a merge lost its inputs to another, or its partition.
var errUnwanted = errors.New("what was to be replaced is not there any more")

// put puts an object until the store has it, under the same key with the same bytes (R5), or nobody wants it any more.
func (k *Keeper) put(ctx context.Context, key string, body cold.Body, wanted func() bool) error {
	if err := k.pace.take(ctx, body.Size); err != nil {
		return err
	}
	return k.again(ctx, func() (bool, error) {
		_, err := k.cfg.Store.Put(ctx, key, body)
		k.m.moved(err, "written", body.Size)
		if e, ok := errors.AsType[*cold.Error](err); err == nil || !ok || !e.Cause.Retriable() {
			return true, err
		}
		if !wanted() {
			return true, errUnwanted
		}
		return false, err
	})
}

// wanted says whether the inputs still stand in the catalog of a partition that is this broker's.
func (k *Keeper) wanted(o *output) bool {
	was := &o.merge.Partition
	p, ok := k.cfg.View().Find(was.Topic, was.Number)
	if !ok || !p.Mine || p.Epoch != was.Epoch {
		return false
	}
	_, err := p.Catalog.Inputs(inputs(o.merge.Inputs))
	return err == nil
}

func inputs(list []catalog.Segment) (out []catalog.Input) {
	for _, s := range list {
		out = append(out, catalog.Input{Start: s.Start, Object: s.Object})
	}
	return out
}

// check reads a segment back from the store: every CRC, every offset, every epoch (R12).
func (k *Keeper) check(ctx context.Context, key string, s catalog.Segment, p *upkeep.Partition) error {
	w := &walker{key: key, segment: s, part: p, head: func(segment.Header) error { return nil }, each: func(batch.Batch) error { return nil }}
	buf := make([]byte, min(chunk, s.Bytes))
	for at := int64(0); at < s.Bytes; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), s.Bytes-at)]
		if err := k.pace.take(ctx, int64(len(b))); err != nil {
			return err
		}
		err := k.cfg.Store.ReadAt(ctx, key, b, at)
		k.m.moved(err, "read", int64(len(b)))
		if err != nil {
			return err
		}
		if err := w.write(b); err != nil {
			return err
		}
	}
	_, err := w.finish()
	return err
}

// swap proposes what was made of all outputs that came so far, in one command.
func (k *Keeper) swap(ctx context.Context, outs []*output) {
	ready := slices.DeleteFunc(slices.Clone(outs), func(o *output) bool { return o.err != nil })
	if len(ready) == 0 {
		return
	}
	at := k.cfg.Clock.Now().UnixMilli()
	errs := k.proposeAll(ctx, len(ready), func(open []int) []error {
		var swaps []Swap
		for _, i := range open {
			p := &ready[i].merge.Partition
			swaps = append(swaps, Swap{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, Inputs: inputs(ready[i].merge.Inputs), Output: ready[i].made})
		}
		return k.cfg.Commands.Swap(ctx, at, swaps)
	})
	k.cfg.At(stepSwapped)
	for i, o := range ready {
		if o.err = errs[i]; o.err == nil {
			k.paid(o.name())
			k.m.merged(len(o.merge.Inputs), o.made.Bytes)
		}
	}
}
