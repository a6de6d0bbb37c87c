// Package intake takes over the history of a partition from another store (R16):
// batches with their offsets, epochs and bytes as they are, into segment files of
// this store, beside, below or without a log that is open. A file gets its name
// when it is whole and synced, so that nobody ever meets half of one.
package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
)

// Suffix ends the name of a copied segment that is not whole yet.
const Suffix = ".copy"

// Span is a run of offsets that one epoch gave and this store holds: whole,
// checked and synced.
type Span struct{ Epoch, Start, End uint64 }

// Config of a copy. All of it is required.
type Config struct {
	Home         hotdir.Dir
	ID           hotdir.ID
	Store        [16]byte // that takes over
	SegmentBytes int64    // size at which a file is closed

	// Header is the header of a new file.
	Header func(base, epoch uint64) ([]byte, error)
	// Own is the epoch of the log that is open beside the copy; false: none is open.
	Own func() (epoch uint64, open bool)
	// Failed is told of an error of the disk that is no failed sync, and returns
	// what the caller is told.
	Failed func(error) error
	// Final is told of an error after which nothing more may be believed (R20).
	Final func(error)
	// Named is told of each file that got its name.
	Named func(Segment)
}

// Segment is a file of which all is synced.
type Segment struct {
	Name        string
	Base, Epoch uint64
	Footer      *segment.Footer
}

// Copy takes over the history of a partition. Not safe for concurrent use.
type Copy struct {
	config Config
	have   []Span // in the order of offsets, then of epochs
	table  sessions.Table
	named  []copied // the files of the partition, sorted as their names
	now    *copying // nil between two files
}

// Open begins a copy, or goes on where an earlier one stopped. One copy of a
// partition at a time.
func Open(ctx context.Context, config Config) (*Copy, error) {
	c := &Copy{config: config}
	err := c.look(ctx)
	if err == nil {
		err = c.takeOver()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// dir is where the files lie.
func (c *Copy) dir() string { return c.config.Home.Partition(c.config.ID) }

// place is what a file has to be.
func (c *Copy) place(name string, me copied) recovery.Place {
	return recovery.Place{Store: c.config.Store, ID: c.config.ID, Name: name, Base: me.base, Epoch: me.epoch}
}

// copied names a segment file.
type copied struct{ base, epoch uint64 }

// copying is the file that is being written.
type copying struct {
	handle  disk.File
	name    string // that it gets; with Suffix until then
	base    uint64
	epoch   uint64
	size    int64
	end     uint64
	summary *segment.Summary
}

// Have lists what the store holds of the partition, its own files included, in
// the order of offsets: what need not be copied. The slice is the caller's.
func (c *Copy) Have() []Span { return slices.Clone(c.have) }

// Append takes whole batches back to back, as a Reader of the source gave them,
// in the order of offsets within an epoch. What the store holds already, and
// marks, are passed over; a hole and another epoch begin a new file. Of a batch
// that is wrong, or falls partly into what is held, nothing is stored, but
// everything in front of it is. What did not find
// space is sent again, with all that [Copy.Have] does not list after the next Commit.
func (c *Copy) Append(batches []byte) error {
	from, at := 0, 0
	for at < len(batches) {
		b, err := batch.Check(batches[at:], segment.Limits())
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
	return f.epoch == b.Epoch() && f.end == b.Base() && f.size+int64(waiting+len(b)) <= c.config.SegmentBytes
}

// begin closes the present file and makes the one that begins with b.
func (c *Copy) begin(b batch.Batch) error {
	if err := c.Commit(); err != nil {
		return err
	}
	if own, open := c.config.Own(); open && own == b.Epoch() {
		return fmt.Errorf("copy offset %d: this store writes epoch %d itself", b.Base(), own)
	}
	fsys := c.config.Home.FS
	me := copied{b.Base(), b.Epoch()}
	name := path.Join(c.dir(), segment.FormatName(me.base, me.epoch))
	if _, err := fsys.Stat(name); err == nil && !c.tableAlone(name, me) {
		return fmt.Errorf("copy offset %d: segment %s is there and does not hold it", me.base, name)
	}
	header, err := c.config.Header(me.base, me.epoch)
	if err != nil {
		return err
	}
	if err := c.config.Home.MakeDurable(c.config.ID); err != nil {
		return c.config.Failed(err)
	}
	f := &copying{name: name, base: me.base, epoch: me.epoch, end: me.base, summary: segment.NewSummary(header, me.base)}
	if f.handle, err = fsys.Open(name+Suffix, disk.Exclusive); err != nil {
		return fmt.Errorf("create segment: %w", err)
	}
	c.now = f
	if _, err := f.handle.WriteAt(header, 0); err != nil {
		return c.config.Failed(errors.Join(err, c.abandon()))
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
		if disk.NoSpace(err) {
			err = errors.Join(err, f.handle.Truncate(f.size))
		}
		return c.config.Failed(fmt.Errorf("write %s: %w", f.name, err))
	}
	f.size += int64(len(run))
	for ; len(run) > 0; run = run[run.Len():] {
		f.summary.Add(run)
		c.table.Record(run)
	}
	return nil
}

// Commit makes what was appended durable and known: it is in Have, and the file
// has its name. It writes the footer, syncs, and names.
func (c *Copy) Commit() error {
	f, fsys := c.now, c.config.Home.FS
	if f == nil {
		return nil
	}
	footer := f.summary.Footer()
	if footer.Batches == 0 {
		return c.abandon()
	}
	if _, err := f.handle.WriteAt(footer.Append(nil, c.table.Stored(f.end)), f.size); err != nil {
		if disk.NoSpace(err) {
			err = errors.Join(err, f.handle.Truncate(f.size))
		}
		return c.config.Failed(fmt.Errorf("seal %s: %w", f.name, err))
	}
	c.now = nil
	err := errors.Join(f.handle.Datasync(), f.handle.Close())
	if err == nil {
		if err := fsys.Rename(f.name+Suffix, f.name); err != nil {
			return c.config.Failed(fmt.Errorf("name %s: %w", f.name, err))
		}
		err = fsys.SyncDir(path.Dir(f.name))
	}
	if err != nil {
		err = fmt.Errorf("finish %s: %w", f.name, err)
		c.config.Final(err) // also for want of space: a failed sync is final (R20)
		return err
	}
	c.add(Span{f.epoch, f.base, f.end}, copied{f.base, f.epoch})
	c.config.Named(Segment{Name: f.name, Base: f.base, Epoch: f.epoch, Footer: footer})
	return nil
}

// abandon gives up a file that holds nothing.
func (c *Copy) abandon() error {
	f := c.now
	c.now = nil
	err := errors.Join(f.handle.Close(), c.config.Home.FS.Remove(f.name+Suffix))
	if err != nil {
		return fmt.Errorf("give up %s: %w", f.name, err)
	}
	return nil
}

// Close ends the copy. What was not committed is left for the next one to find.
func (c *Copy) Close() error {
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
	i, found := slices.BinarySearchFunc(c.named, name, func(a, b copied) int {
		return cmp.Or(cmp.Compare(a.base, b.base), cmp.Compare(a.epoch, b.epoch))
	})
	if !found {
		c.named = slices.Insert(c.named, i, name)
	}
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
