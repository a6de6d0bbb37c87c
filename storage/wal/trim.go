package wal

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/journal"
	"github.com/danubemq/danube/storage/segment"
)

// Trim makes to the lowest offset kept, once that was decided elsewhere (R13),
// and deletes the segment files that lie wholly below it. A reader below to
// gets *Trimmed from now on. A to that lies inside or behind the file that is
// written to closes it, so that its space comes back, now or with a later Trim.
func (l *Log) Trim(to uint64) error {
	l.learnEnds(to)
	l.mu.Lock()
	to = min(to, l.ends.committed)
	if l.door.closed {
		l.mu.Unlock()
		return ErrClosed
	}
	l.ends.start = max(l.ends.start, to)
	l.overtake()
	var gone []*file
	n := len(l.files.list)
	for i, f := range l.files.list {
		if f == l.files.current || i+1 < n && f.followed(l.files.list[i+1]) > l.ends.start {
			break
		}
		if i+1 == n && (!f.known || f.end > l.ends.start) {
			break
		}
		gone = append(gone, f)
	}
	l.files.list = slices.Delete(l.files.list, 0, len(gone))
	below := l.ends.start
	if len(l.files.list) > 0 {
		below = l.files.list[0].Base
	}
	l.mu.Unlock()
	if len(gone) == 0 {
		return nil
	}
	return l.tier.remove(l.id, below, gone)
}

// learnEnds reads how files end that others at or below an offset follow, where that
// was not asked for yet: what follows may be a producer table in the midst of the
// file. One that cannot be read goes with what follows it.
func (l *Log) learnEnds(to uint64) {
	l.mu.Lock()
	var unknown []*file
	for i, f := range l.files.list {
		if l.door.closed || i+1 == len(l.files.list) || l.files.list[i+1].Base > to {
			break
		}
		if !f.known {
			unknown = append(unknown, f)
		}
	}
	l.mu.Unlock()
	for _, f := range unknown {
		if _, err := f.load(to); err != nil {
			l.tier.config.Log.Debug("how a file ends that is given up cannot be read", "file", f.Handle.Name, "err", err)
		}
	}
}

// overtake has the commit loop close the current file if the start of the log
// has passed its first offset, and waits for that. l.mu is held.
func (l *Log) overtake() {
	f := &l.files
	if f.current == nil || f.current.size == 0 || f.current.Base >= l.ends.start {
		return
	}
	f.overtaken.Store(true)
	if !l.queued {
		l.queued = true
		l.mu.Unlock()
		l.tier.enqueue(l)
		l.mu.Lock()
	}
	for f.overtaken.Load() && !l.door.closed && l.door.err == nil {
		l.wake.Wait()
	}
}

// leaveBehind closes a current file that the start of its log has passed. The
// next batch makes another. It is the commit loop's.
func (t *Tier) leaveBehind(l *Log) error {
	if !l.files.overtaken.Load() {
		return nil
	}
	l.mu.Lock()
	f := l.files.current
	l.mu.Unlock()
	if f != nil {
		if err := t.dropAhead(f); err != nil {
			return err
		}
		if err := t.roll(f); err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.files.current = nil
	l.files.overtaken.Store(false)
	l.notify()
	l.mu.Unlock()
	return nil
}

// remove deletes files. The journal is told first: what it still covers of them
// must not come back with the next recovery.
func (t *Tier) remove(id ID, below uint64, gone []*file) error {
	if err := t.tombstone(id, below); err != nil {
		return err
	}
	t.config.At("trim")
	var err error
	for _, f := range gone {
		f.Gone.Store(true)
		t.mu.Lock()
		delete(t.checkpoint.files, f)
		f.since = 0
		t.mu.Unlock()
		err = errors.Join(err, t.cache.Drop(&f.Handle))
		for _, name := range []string{f.Handle.Name, segment.HintName(f.Handle.Name)} {
			if e := t.config.FS.Remove(name); e != nil && !isNotExist(e) {
				err = errors.Join(err, fmt.Errorf("remove segment: %w", e))
			}
		}
	}
	return err
}

// tombstone notes in the journal that the files of a partition below an offset
// were given up.
func (t *Tier) tombstone(id ID, below uint64) error {
	t.mu.Lock()
	j := t.checkpoint.journal
	t.mu.Unlock()
	if j == nil {
		return nil
	}
	if err := j.Forget(id, below); err != nil {
		if !errors.Is(err, journal.ErrSpace) {
			t.poison(err) // no news when the tier failed before
		}
		return err
	}
	t.mu.Lock()
	t.checkpointDue()
	t.mu.Unlock()
	return nil
}

// Delete removes everything the tier holds of a partition, whether it was opened
// or not. Its Log, if there is one, is closed; a Close that came first is waited for.
func (t *Tier) Delete(id ID) error {
	t.mu.Lock()
	l := t.logs[id]
	t.mu.Unlock()
	if l != nil {
		// Neither a Close nor the commit loop may come to a file that is gone: it would fail the whole tier.
		l.retired.once.Do(l.close)
		t.leave(l)
	}
	t.mu.Lock()
	delete(t.logs, id)
	delete(t.run.clean, id)
	delete(t.run.shut, id)
	t.mu.Unlock()
	var gone []*file
	if l != nil {
		l.mu.Lock()
		gone = l.files.list
		l.files.list, l.files.current = nil, nil
		l.mu.Unlock()
		t.mu.Lock()
		l.idle.Unlink()
		t.mu.Unlock()
	}
	if err := t.remove(id, math.MaxUint64, gone); err != nil {
		return err
	}
	dir := t.dir(id)
	if err := disk.RemoveAll(t.config.FS, dir); err != nil {
		return fmt.Errorf("delete partition: %w", err)
	}
	if list, err := t.config.FS.ReadDir(path.Dir(dir)); err == nil && len(list) == 0 {
		if err := t.config.FS.Remove(path.Dir(dir)); err != nil && !isNotExist(err) {
			return fmt.Errorf("delete partition: %w", err)
		}
	}
	return nil
}

// close waits until nothing of the log is on its way, and shuts its door.
func (l *Log) close() {
	l.mu.Lock()
	l.door.closed = true
	l.notify()
	for l.tail.Pending() > 0 && l.door.err == nil {
		l.wake.Wait()
	}
	for l.tail.Drop(true) {
	}
	l.mu.Unlock()
}
