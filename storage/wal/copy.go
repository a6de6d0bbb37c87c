package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
)

// copySuffix ends the name of a copied segment that is not whole yet.
const copySuffix = ".copy"

// Span is a run of offsets that one epoch gave and this store holds: whole,
// checked and synced.
type Span struct{ Epoch, Start, End uint64 }

// Copy takes over the history of a partition from another store (R16): batches
// with their offsets, epochs and bytes as they are, into segment files of this
// store, beside, below or without a log that is open. A file gets its name when
// it is whole and synced, so that nobody ever meets half of one. Not safe for
// concurrent use.
type Copy struct {
	tier  *Tier
	id    ID
	topic string
	have  []Span // in the order of offsets, then of epochs
	table sessions.Table
	named []copied // the files of the partition, sorted as their names
	now   *copying // nil between two files
}

// copied names a segment file.
type copied struct{ base, epoch uint64 }

// copying is the file that is being written.
type copying struct {
	handle  disk.File
	name    string // that it gets; with copySuffix until then
	base    uint64
	epoch   uint64
	size    int64
	end     uint64
	summary *segment.Summary
}

// Copy begins to copy a partition, or goes on where an earlier copy stopped. One
// copy of a partition at a time; a Log of it may be open.
func (t *Tier) Copy(ctx context.Context, id ID, topic string) (*Copy, error) {
	c := &Copy{tier: t, id: id, topic: topic}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer t.work.Done()
	t.mu.Lock()
	if t.copies[id] != nil {
		t.mu.Unlock()
		return nil, fmt.Errorf("copy partition %s: it is being copied", id)
	}
	t.copies[id] = c
	j := t.checkpoint.journal
	t.mu.Unlock()
	err := ctx.Err()
	if err == nil && j != nil {
		// What it says of files that were given up must not be lost once others have their names.
		if err = j.Sync(); err != nil {
			t.poison(err)
		}
	}
	if err == nil {
		err = c.look(ctx)
	}
	if err == nil {
		err = c.takeOver()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy partition %s: %w", id, err), c.Close())
	}
	return c, nil
}

// enter holds the tier open; t.work.Done ends it.
func (c *Copy) enter() error {
	t := c.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return t.err
	case t.closed:
		return ErrClosed
	}
	t.work.Add(1)
	return nil
}

// Have lists what the store holds of the partition, its own files included, in
// the order of offsets: what need not be copied. The slice is the caller's.
func (c *Copy) Have() []Span { return slices.Clone(c.have) }

// Append takes whole batches back to back, as a Reader of the source gave them,
// in the order of offsets within an epoch. What the store holds already, and
// marks, are passed over; a hole and another epoch begin a new file. Of a batch
// that is wrong, or falls partly into what is held, nothing is stored, but
// everything in front of it is. ErrFull is retriable, with all that [Copy.Have]
// does not list after the next Commit.
func (c *Copy) Append(batches []byte) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.tier.work.Done()
	if err := c.tier.space.check(); err != nil {
		return err
	}
	from, at := 0, 0
	for at < len(batches) {
		b, err := batch.Check(batches[at:], limits)
		known := false
		if err == nil {
			known, err = c.knows(b)
		}
		if err != nil {
			return errors.Join(c.write(batches[from:at]), fmt.Errorf("copy batch at byte %d: %w", at, err))
		}
		end := at + len(b)
		if known || b.Control() {
			if err := c.write(batches[from:at]); err != nil {
				return err
			}
			from, at = end, end
			continue
		}
		if c.now == nil || !c.follows(b, at-from) {
			if err := c.write(batches[from:at]); err != nil {
				return err
			}
			from = at
			if err := c.begin(b); err != nil {
				return err
			}
		}
		c.now.end = b.End()
		at = end
	}
	return c.write(batches[from:at])
}

// knows reports that a batch is held already, whole.
func (c *Copy) knows(b batch.Batch) (bool, error) {
	held := c.have
	if f := c.now; f != nil {
		held = append(held[:len(held):len(held)], Span{f.epoch, f.base, f.end})
	}
	for _, s := range held {
		switch {
		case s.Epoch != b.Epoch() || b.End() <= s.Start || b.Base() >= s.End:
		case s.Start <= b.Base() && b.End() <= s.End:
			return true, nil
		default:
			return false, fmt.Errorf("offsets %d to %d overlap %d to %d, which are held", b.Base(), b.End(), s.Start, s.End)
		}
	}
	return false, nil
}

// follows reports that a batch belongs behind what the present file holds and
// the waiting bytes that are about to be written to it.
func (c *Copy) follows(b batch.Batch, waiting int) bool {
	f := c.now
	return f.epoch == b.Epoch() && f.end == b.Base() && f.size+int64(waiting+len(b)) <= c.tier.config.SegmentBytes
}

// begin closes the present file and makes the one that begins with b.
func (c *Copy) begin(b batch.Batch) error {
	t := c.tier
	if err := c.seal(); err != nil {
		return err
	}
	t.mu.Lock()
	l := t.logs[c.id]
	t.mu.Unlock()
	if l != nil {
		l.mu.Lock()
		own := l.door.epoch
		l.mu.Unlock()
		if own == b.Epoch() {
			return fmt.Errorf("copy offset %d: this store writes epoch %d itself", b.Base(), own)
		}
	}
	me := copied{b.Base(), b.Epoch()}
	name := path.Join(t.dir(c.id), segment.FormatName(me.base, me.epoch))
	if _, err := t.config.FS.Stat(name); err == nil {
		return fmt.Errorf("copy offset %d: segment %s is there and does not hold it", me.base, name)
	}
	header, err := t.copyHeader(c.id, c.topic, me.base, me.epoch)
	if err != nil {
		return err
	}
	if err := disk.MkdirAll(t.config.FS, t.dir(c.id)); err != nil {
		return c.failed(err)
	}
	f := &copying{name: name, base: me.base, epoch: me.epoch, end: me.base, summary: segment.NewSummary(header, me.base)}
	if f.handle, err = t.config.FS.Open(name+copySuffix, disk.Exclusive); err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	c.now = f
	if _, err := f.handle.WriteAt(header, 0); err != nil {
		return c.failed(errors.Join(err, c.abandon()))
	}
	f.size = int64(len(header))
	c.table = c.tableBefore(me)
	return nil
}

// write puts a run of batches behind the present file.
func (c *Copy) write(run batch.Batch) error {
	if len(run) == 0 {
		return nil
	}
	f := c.now
	if _, err := f.handle.WriteAt(run, f.size); err != nil {
		f.end = f.summary.Facts().End
		if isNoSpace(err) {
			err = errors.Join(err, f.handle.Truncate(f.size))
		}
		return c.failed(fmt.Errorf("write %s: %w", f.name, err))
	}
	f.size += int64(len(run))
	for ; len(run) > 0; run = run[run.Len():] {
		f.summary.Add(run)
		c.table.Record(run)
	}
	return nil
}

// failed sorts errors of the disk: no space before a sync is retriable, all else
// is final (R20).
func (c *Copy) failed(err error) error {
	if isNoSpace(err) {
		c.tier.space.ranOut(err)
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	c.tier.poison(err)
	return err
}

// Commit makes what was appended durable and known: it is in Have, and an open
// Log of the partition reads it from now on.
func (c *Copy) Commit() error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.tier.work.Done()
	return c.seal()
}

// seal finishes the present file, if there is one: footer, sync, name.
func (c *Copy) seal() error {
	f, t := c.now, c.tier
	if f == nil {
		return nil
	}
	footer := f.summary.Footer()
	if footer.Batches == 0 {
		return c.abandon()
	}
	if _, err := f.handle.WriteAt(footer.Append(nil, c.table.Stored(f.end)), f.size); err != nil {
		if isNoSpace(err) {
			err = errors.Join(err, f.handle.Truncate(f.size))
		}
		return c.failed(fmt.Errorf("seal %s: %w", f.name, err))
	}
	c.now = nil
	err := errors.Join(f.handle.Datasync(), f.handle.Close())
	if err == nil {
		if err := t.config.FS.Rename(f.name+copySuffix, f.name); err != nil {
			return c.failed(fmt.Errorf("name %s: %w", f.name, err))
		}
		err = t.config.FS.SyncDir(path.Dir(f.name))
	}
	if err != nil {
		err = fmt.Errorf("finish %s: %w", f.name, err)
		t.poison(err) // also for want of space: a failed sync is final (R20)
		return err
	}
	t.metrics.files.Inc()
	c.add(Span{f.epoch, f.base, f.end}, copied{f.base, f.epoch})
	t.mu.Lock()
	l := t.logs[c.id]
	t.mu.Unlock()
	if l != nil { // one that opens later finds the file by its name
		l.mu.Lock()
		if !l.door.closed {
			l.files.insert(copiedFile(l, f.name, f.base, f.epoch, footer))
		}
		l.mu.Unlock()
	}
	return nil
}

// abandon gives up a file that holds nothing.
func (c *Copy) abandon() error {
	f := c.now
	c.now = nil
	err := errors.Join(f.handle.Close(), c.tier.config.FS.Remove(f.name+copySuffix))
	if err != nil {
		return fmt.Errorf("give up %s: %w", f.name, err)
	}
	return nil
}

// Close ends the copy. What was not committed is left for the next one to find.
func (c *Copy) Close() error {
	c.tier.mu.Lock()
	if c.tier.copies[c.id] == c {
		delete(c.tier.copies, c.id)
	}
	c.tier.mu.Unlock()
	if c.now == nil {
		return nil
	}
	f := c.now
	c.now = nil
	if err := f.handle.Close(); err != nil {
		return fmt.Errorf("close %s: %w", f.name, err)
	}
	return nil
}

// add notes a file and what it holds.
func (c *Copy) add(s Span, name copied) {
	i, _ := slices.BinarySearchFunc(c.named, name, func(a, b copied) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(a.epoch, b.epoch))
	})
	c.named = slices.Insert(c.named, i, name)
	if s.End > s.Start {
		c.have = join(append(c.have, s))
	}
}

// join sorts spans and makes one of those of an epoch that touch.
func join(list []Span) []Span {
	slices.SortFunc(list, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Start, b.Start))
	})
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].Epoch == s.Epoch && out[n-1].End >= s.Start {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b Span) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Epoch, b.Epoch))
	})
	return out
}
