package wal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
)

// ErrSessions says that a producer table that was handed over is damaged, or
// belongs to another place of the log. Nothing was taken over.
var ErrSessions = errors.New("producer table does not fit the log")

// Pause shuts the door for a planned move (R16) and waits until everything that
// was appended is settled: end is then the exact end of the log, and synced.
// Reads go on. [Log.Resume] opens the door again, under the same epoch.
func (l *Log) Pause() (end uint64, err error) {
	l.mu.Lock()
	l.door.paused = true
	l.notify()
	for l.tail.Pending() > 0 && l.door.err == nil {
		l.wake.Wait()
	}
	end, err = l.ends.next, l.door.err
	synced := l.ends.synced == l.ends.committed
	l.mu.Unlock()
	if err != nil || synced {
		return end, err
	}
	if err := l.tier.settleLog(l); err != nil {
		l.tier.poison(err)
		return end, err
	}
	return end, nil
}

// Resume ends a pause.
func (l *Log) Resume() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.door.err != nil:
		return l.door.err
	case l.door.closed:
		return ErrClosed
	}
	l.door.paused = false
	return nil
}

// Anchor makes the directories of a log durable, so that what is written there
// next need not wait for them.
func (l *Log) Anchor() error {
	if l.files.anchored.Load() {
		return nil
	}
	t := l.tier
	if err := t.home().MakeDurable(l.id); err != nil {
		if !isNoSpace(err) && !isNotExist(err) {
			t.poison(err)
		}
		return fmt.Errorf("anchor partition %s: %w", l.id, err)
	}
	l.files.anchored.Store(true)
	return nil
}

// Extend moves the end of a log that was not begun up to end: the epoch that
// another store writes has gone on since this one opened its log. list are the
// extents by now.
func (l *Log) Extend(list []Extent, end uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.door.err != nil:
		return l.door.err
	case l.door.closed:
		return ErrClosed
	case l.door.open:
		return errors.New("extend: the log is open for writing")
	case end < l.ends.next:
		return fmt.Errorf("extend to %d: the log ends at %d", end, l.ends.next)
	case end > l.ends.next && (len(list) == 0 || !list[len(list)-1].Away || list[len(list)-1].End != end):
		return fmt.Errorf("extend to %d: no other store has what lies behind %d", end, l.ends.next)
	}
	l.extents = slices.Clone(list)
	l.ends.next, l.ends.committed, l.ends.synced = end, end, end
	return nil
}

// Sessions is the producer table of a log that is paused or closed, to be handed
// to the next owner (R17). It is a segment footer without messages: it names the
// end of the log and carries a CRC.
func (l *Log) Sessions() ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.door.paused && !l.door.closed || l.tail.Pending() > 0 {
		return nil, errors.New("export producers: the log is open for writing")
	}
	return l.producers.Encode(l.ends.next), nil
}

// ImportSessions takes over what [Log.Sessions] of the owner before returned,
// for a log that ends where that one ended and was not begun yet. The table is
// durable when it returns nil: it lies in the footer of a segment without
// messages behind the last epoch. Doing it again does it once. What this store
// knows of its own earlier epochs it goes on knowing: the owner before may have
// taken over without it. Of a sequence that was stored twice the owner's place counts.
func (l *Log) ImportSessions(b []byte) error {
	table, of, err := sessions.Decode(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSessions, err)
	}
	var all sessions.Table
	newest := all.Load(table)
	places, err := l.inherit(&all, table.Len(), of)
	if err != nil {
		return err
	}
	for i, x := range places {
		if err = l.keepSessions(x.Epoch, x.End, all.Stored(of)); !errors.Is(err, errTaken) || i == len(places)-1 {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("import producers: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers = all
	l.ends.lastTime = max(l.ends.lastTime, newest)
	return nil
}

// inherit adds what the log knows to the table of the owner before, of which so
// many sessions and an end are known, and says behind which extents the whole
// finds its place.
func (l *Log) inherit(all *sessions.Table, known int, of uint64) ([]Extent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := l.ends.next
	switch {
	case l.door.err != nil:
		return nil, l.door.err
	case l.door.closed:
		return nil, ErrClosed
	case l.door.open:
		return nil, errors.New("import producers: the log is open for writing")
	case of != end:
		return nil, fmt.Errorf("%w: it is of end %d, the log ends at %d", ErrSessions, of, end)
	case known > 0 && len(l.extents) == 0:
		return nil, fmt.Errorf("%w: the log never had an epoch", ErrSessions)
	}
	all.MergeTable(&l.producers)
	return l.extents.Behind(end), nil
}

// StageSessions makes the producer table of a store that came back durable,
// before the metadata take back what it holds of an epoch up to end, which was
// copied (R15): a log that is opened when they have knows it, also if it was
// killed before [Log.MergeSessions]; one that is opened while they have not does not.
// A table that was imported there stays, and of a sequence in both its place counts;
// so do messages of this store's own, and then nothing is staged.
func (l *Log) StageSessions(b []byte, epoch, end uint64) error {
	table, _, err := sessions.Decode(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSessions, err)
	}
	l.mu.Lock()
	err = l.door.err
	if err == nil && l.door.closed {
		err = ErrClosed
	}
	l.mu.Unlock()
	if err == nil {
		err = l.keepSessions(epoch, end, l.withStaged(table, epoch, end))
	}
	if err != nil && !errors.Is(err, errTaken) {
		return fmt.Errorf("stage producers: %w", err)
	}
	return nil
}

// withStaged adds to a table what one says that lies behind an epoch already.
func (l *Log) withStaged(table *segment.Producers, epoch, end uint64) *segment.Producers {
	old, err := disk.ReadFile(l.tier.config.FS, path.Join(l.dir(), segment.FormatName(end, epoch)))
	if err != nil {
		return table
	}
	footer, err := segment.ReadFooter(bytes.NewReader(old), int64(len(old)))
	if err != nil || footer.Batches > 0 {
		return table
	}
	there, err := footer.Producers()
	if err != nil {
		return table
	}
	var all sessions.Table
	all.Load(there)
	all.Merge(table)
	return all.Stored(math.MaxUint64)
}

// MergeSessions adds the producer table of a store that came back to that of the
// log, which is paused (R15): from now on a batch that it holds is known here. It
// is durable when it returns nil, with the file that was being written, which is
// closed for it. Doing it again does it once.
func (l *Log) MergeSessions(b []byte) error {
	table, _, err := sessions.Decode(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSessions, err)
	}
	t := l.tier
	l.mu.Lock()
	switch {
	case l.door.err != nil:
		err = l.door.err
	case l.door.closed:
		err = ErrClosed
	case !l.door.paused || l.tail.Pending() > 0:
		err = errors.New("merge producers: the log is not paused")
	default:
		l.producers.Merge(table)
		l.unmarked = false // nobody writes behind the last batch of the file meanwhile
	}
	l.mu.Unlock()
	if err != nil {
		return err
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return ErrClosed
	}
	t.work.Add(1)
	t.mu.Unlock()
	defer t.work.Done()
	t.leave(l)
	if err := t.finish(l); err != nil {
		t.poison(err)
		return err
	}
	return nil
}

// errTaken says that a segment has the name that a producer table would have.
var errTaken = errors.New("segment is there and holds something else")

// keepSessions writes the segment without messages that carries a table, and
// makes it known. l.mu is not held: a disk that fails closes the door of every log.
func (l *Log) keepSessions(epoch, end uint64, table *segment.Producers) error {
	t := l.tier
	name := path.Join(l.dir(), segment.FormatName(end, epoch))
	if old, err := disk.ReadFile(t.config.FS, name); err == nil {
		footer, err := segment.ReadFooter(bytes.NewReader(old), int64(len(old)))
		if err != nil || footer.Batches > 0 {
			return fmt.Errorf("%s: %w", name, errTaken)
		}
	}
	header, err := t.copyHeader(l.id, l.topic, end, epoch)
	if err != nil {
		return err
	}
	footer := segment.NewSummary(header, end).Footer()
	if err := l.Anchor(); err != nil {
		return err
	}
	if err := disk.WriteFileAtomic(t.config.FS, name, footer.Append(header, table)); err != nil {
		if !isNoSpace(err) {
			t.poison(err)
		}
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files.insert(copiedFile(l, name, end, epoch, footer))
	return nil
}

// copyHeader is the header of a file that is not the log's own writing.
func (t *Tier) copyHeader(id ID, topic string, base, epoch uint64) ([]byte, error) {
	cluster, _ := t.config.Header()
	h := segment.Header{
		Cluster: cluster, Store: t.config.Store, TopicID: id.Topic, Topic: topic, History: uint16(epoch >> 48),
		Partition: id.Partition, Epoch: epoch, FirstEpoch: epoch, Base: base, Created: t.config.Now().UnixMilli(), Copied: true,
	}
	return h.Append(nil)
}

// copiedFile is a sealed and synced file as a log knows it.
func copiedFile(l *Log, name string, base, epoch uint64, footer *segment.Footer) *file {
	f := l.file(name, base, epoch)
	f.known, f.size, f.end, f.sealed, f.table = true, footer.DataEnd, footer.End, true, footer.Batches == 0
	f.Adopt(footer)
	f.anchored.Store(true)
	return f
}

// insert puts a file in its place. One that is there already stays, but for a
// producer table that x holds too: that is returned.
func (f *files) insert(x *file) (old *file) {
	i, found := slices.BinarySearchFunc(f.list, x, func(a, b *file) int {
		return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Epoch, b.Epoch))
	})
	switch {
	case !found:
		f.list = slices.Insert(f.list, i, x)
	case f.list[i].table && !x.table:
		old, f.list[i] = f.list[i], x
	}
	return old
}
