package wal

import (
	"errors"
	"fmt"
	"math"
	"path"
	"sort"
	"sync/atomic"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/extents"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/volume"
)

// file is one segment file of a partition.
type file struct {
	*volume.File
	log *Log

	// Guarded by the log's lock.
	size   int64  // bytes of header and batches that may be read
	end    uint64 // offset behind them
	sealed bool   // has a footer, or gets it before anything else
	table  bool   // known to hold producers and no message: no offset lies in it

	header  []byte // of a file that this run writes, until its first bytes are written
	created int64  // ms since 1970
	since   uint64 // oldest journal span that covers bytes of it, 0 for none; guarded by the tier's lock
	known   bool   // size and end were read, or are being kept
	// anchored: the directories that lead to it were synced since it was made.
	anchored atomic.Bool
}

// file is one of the log's, of which nothing is known yet.
func (l *Log) file(name string, base, epoch uint64) *file {
	return &file{File: l.tier.shelf.File(l.id, name, base, epoch), log: l}
}

// files are the segment files of a partition, in the order of offsets. Guarded
// by the log's lock, but for what only the commit loop touches.
type files struct {
	list      []*file
	epoch     uint64
	start     uint64      // first offset of the epoch
	current   *file       // what the commit loop appends to
	started   int64       // bytes of current whose write-back has begun; the commit loop's
	overtaken atomic.Bool // current is to be closed: the start of the log has passed its first offset
	anchored  atomic.Bool
	cold      extents.Set // what the cold tier has: no file of it has to be here
	place     place       // where the next cut begins
}

// begin makes the next batch start a new file: each epoch writes its own (R6).
func (f *files) begin(epoch, start uint64) {
	f.epoch, f.start, f.current = epoch, start, nil
}

// find returns the file of an epoch in which offset lies, nil when there is
// none, and the base of the epoch's next file. A producer table in the midst of an
// epoch, which a move that was taken back has left, hides nothing that was copied
// around it since.
func (f *files) find(offset, epoch uint64) (here *file, after uint64) {
	i := sort.Search(len(f.list), func(i int) bool { return f.list[i].Base > offset })
	after = math.MaxUint64
	for j := i; j < len(f.list); j++ {
		if f.list[j].Epoch == epoch && !f.list[j].table {
			after = f.list[j].Base
			break
		}
	}
	for j := i - 1; j >= 0; j-- {
		if f.list[j].Epoch == epoch && !f.list[j].table {
			return f.list[j], after
		}
	}
	return nil, after
}

// followed is the offset below which everything lies that the file holds, given the
// next one, which may be a producer table in its midst. The log's lock is held.
func (f *file) followed(next *file) uint64 {
	if f.known {
		return max(f.end, next.Base)
	}
	return next.Base
}

// prepare gives a part its open file and its place in it. It closes the file
// that is full or old and makes the next.
func (t *Tier) prepare(p *part) error {
	l := p.log
	l.mu.Lock()
	cur, epoch := l.files.current, l.files.epoch
	base := l.ends.committed
	l.mu.Unlock()
	now := t.config.Now().UnixMilli()
	if cur != nil && cur.size > 0 {
		full := cur.size+int64(p.size) > t.config.SegmentBytes
		old := now-cur.created > t.config.SegmentAge.Milliseconds()
		if full || old {
			if err := t.dropAhead(cur); err != nil {
				return err
			}
			if err := t.roll(cur); err != nil {
				return err
			}
			cur = nil
		}
	}
	if cur == nil {
		var err error
		if cur, err = t.createFile(l, base, epoch, now); err != nil {
			return err
		}
	}
	f, err := t.cache.Acquire(&cur.Handle, disk.Write)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	p.file, p.handle, p.pos = cur, f, cur.size
	if cur.size == 0 {
		p.head = len(cur.header)
		p.size += p.head
	}
	return nil
}

// roll closes a file that another one follows. Where no journal covers it, it
// is synced first, so that after a power loss only the last file can be torn.
func (t *Tier) roll(f *file) error {
	if err := t.seal(f); err != nil && !isNoSpace(err) {
		return err
	}
	if t.config.SyncInterval > 0 {
		return t.settle([]*file{f})
	}
	return nil
}

// createFile makes the next segment file of a partition. Nothing is synced
// here: until the file is anchored, the journal makes it and its header again.
func (t *Tier) createFile(l *Log, base, epoch uint64, now int64) (*file, error) {
	h := l.header(base, epoch)
	_, h.History = t.config.Header()
	h.Created = now
	header, err := h.Append(nil)
	if err != nil {
		return nil, err
	}
	f := l.file(path.Join(t.dir(l.id), segment.FormatName(base, epoch)), base, epoch)
	f.header, f.created, f.end, f.known = header, now, base, true
	f.Begin(header)
	_, err = t.cache.Acquire(&f.Handle, disk.Exclusive)
	if isNotExist(err) {
		if err = t.home().Make(l.id); err == nil {
			_, err = t.cache.Acquire(&f.Handle, disk.Exclusive)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	t.cache.Release(&f.Handle, true)
	l.mu.Lock()
	l.files.list = append(l.files.list, f)
	l.files.current, l.files.started = f, 0
	l.mu.Unlock()
	t.metrics.files.Inc()
	return f, nil
}

// seal writes the footer behind the last batch of a file. It is synced with
// the next checkpoint: a footer that gets lost costs a scan and no message.
func (t *Tier) seal(f *file) error {
	footer := f.Written()
	f.log.mu.Lock()
	table := f.log.producers.Stored(footer.End)
	size := f.size
	f.log.mu.Unlock()
	tail := footer.Append(nil, table)
	h, err := t.cache.Acquire(&f.Handle, disk.Write)
	if err != nil {
		return fmt.Errorf("seal: %w", err)
	}
	_, err = h.WriteAt(tail, size)
	t.cache.Release(&f.Handle, true)
	if err != nil {
		if isNoSpace(err) {
			t.space.RanOut(err)
			return errors.Join(err, h.Truncate(size))
		}
		return fmt.Errorf("seal %s: %w", f.Handle.Name, err)
	}
	f.log.mu.Lock()
	f.sealed, f.header = true, nil
	f.log.mu.Unlock()
	t.mu.Lock()
	t.checkpoint.add(f, t.checkpoint.use())
	t.mu.Unlock()
	return nil
}

// load reads the footer of a file that an earlier run sealed, once, and returns
// how many bytes of it are batches. after is where the next file begins.
func (f *file) load(after uint64) (int64, error) {
	f.log.mu.Lock()
	known, size := f.known, f.size
	f.log.mu.Unlock()
	if known {
		return size, nil
	}
	footer, sealed, err := f.Load()
	if err != nil {
		return 0, &Damage{From: max(f.Base, f.log.Start()), To: after, File: f.Handle.Name, Err: err}
	}
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.known, f.size, f.end, f.sealed, f.table = true, footer.DataEnd, footer.End, sealed, footer.Batches == 0
	return f.size, nil
}

// holdsNothing says whether the file is known to hold producers and no message.
func (f *file) holdsNothing() bool {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	return f.table
}
