package wal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/danubemq/danube/storage/hotdir"
)

// Close stops cleanly: what was appended is made durable, every file that was
// written is sealed and synced, and the clean marker says so. After a failure it
// only closes files: what is on the disk is for recovery to judge.
func (t *Tier) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.work.Wait()
		return nil
	}
	t.closed = true
	logs := make([]*Log, 0, len(t.logs))
	for _, l := range t.logs {
		logs = append(logs, l)
	}
	t.rest.timer.Stop()
	t.wake.Broadcast()
	t.mu.Unlock()
	for _, l := range logs {
		l.mu.Lock()
		l.door.closed = true
		l.notify()
		l.mu.Unlock()
	}
	t.work.Wait() // the commit loop ends when nothing is pending
	err := t.Err()
	if err == nil {
		if err = t.stop(logs); err != nil {
			t.poison(err)
		}
	}
	for _, l := range logs {
		err = errors.Join(err, l.shut())
	}
	if j := t.round.journal; j != nil {
		err = errors.Join(err, j.Close())
	}
	t.metrics.all.Unregister(t.config.Metrics)
	return err
}

// stop seals and syncs what was written and leaves the marker.
func (t *Tier) stop(logs []*Log) error {
	entries := make(map[ID]hotdir.End)
	for _, l := range logs {
		if f := l.files.current; f != nil && f.size > 0 && !f.sealed {
			if err := t.seal(f); err != nil && !isNoSpace(err) {
				return err
			}
		}
		if e, ok := l.lastFile(); ok {
			entries[l.id] = e
		}
	}
	t.config.At("close.sealed")
	if err := t.runCheckpoint(^uint64(0)); err != nil {
		return err
	}
	t.mu.Lock()
	for id, e := range t.run.clean { // not opened in this run, or closed since
		if _, ok := entries[id]; !ok && t.logs[id] == nil {
			entries[id] = e
		}
	}
	t.mu.Unlock()
	if err := t.home().WriteMarker(t.run.number, entries); err != nil && !isNoSpace(err) {
		return fmt.Errorf("write clean marker: %w", err)
	}
	return nil
}

// lastFile says where a log that is at rest ends, if its last file is sealed.
func (l *Log) lastFile() (hotdir.End, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.files.list)
	if n == 0 {
		return hotdir.End{}, false
	}
	f := l.files.list[n-1]
	return hotdir.End{Base: f.Base, Epoch: f.Epoch, Size: f.size, End: f.end}, f.known && f.sealed
}

// shut gives back the memory and the open files of a log.
func (l *Log) shut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.door.closed = true
	l.tail.Release()
	var err error
	for _, f := range l.files.list {
		err = errors.Join(err, l.tier.cache.Drop(&f.Handle))
	}
	l.notify()
	return err
}

// retired is how a log was closed, once.
type retired struct {
	once sync.Once
	err  error
}

// Close shuts the door, waits for what is on its way, seals and syncs the open
// file, and gives memory and files back. The partition can then be opened again
// with [Tier.Log]; what it held is exact and proven. A failed sync is final (R20).
func (l *Log) Close() error {
	l.retired.once.Do(func() { l.retired.err = l.retire() })
	return l.retired.err
}

func (l *Log) retire() error {
	l.close()
	t := l.tier
	t.mu.Lock()
	if t.closed || t.logs[l.id] != l { // the tier closes it, or it was deleted
		t.mu.Unlock()
		return nil
	}
	t.work.Add(1) // the tier waits with its own end
	t.mu.Unlock()
	defer t.work.Done()
	t.leave(l)
	err := t.Err()
	if err == nil {
		if err = t.finish(l); err != nil {
			t.poison(err)
		}
	}
	err = errors.Join(err, l.shut())
	last, sealed := l.lastFile()
	t.mu.Lock()
	defer t.mu.Unlock()
	l.idle.Unlink()
	delete(t.logs, l.id)
	delete(t.run.clean, l.id)
	delete(t.run.shut, l.id)
	if err == nil && sealed {
		t.run.clean[l.id] = last
	}
	if err == nil && l.door.proven {
		t.run.shut[l.id] = true
	}
	return err
}

// leave returns when the commit loop has nothing more to do with a log whose
// door is shut: neither in its queue nor in the round under way.
func (t *Tier) leave(l *Log) {
	for queued := true; queued; {
		l.mu.Lock()
		queued = l.queued && l.door.err == nil
		l.mu.Unlock()
		t.mu.Lock()
		t.commits.leaving++
		for turn := t.commits.turns; t.commits.running && t.commits.turns == turn; {
			t.wake.Wait()
		}
		t.commits.leaving--
		t.mu.Unlock()
	}
}

// finish seals the open file of a log that nobody writes to any more, and makes
// all of it durable. What the journal still covers is the same bytes in the same
// places, and harmless.
func (t *Tier) finish(l *Log) error {
	l.mu.Lock()
	f := l.files.current
	l.files.current = nil
	l.mu.Unlock()
	if f != nil && f.size > 0 && !f.sealed {
		if err := t.seal(f); err != nil && !isNoSpace(err) {
			return err
		}
	}
	return t.settleLog(l)
}

// settleLog makes durable in its own files all that was committed of a log.
func (t *Tier) settleLog(l *Log) error {
	end := l.Settled()
	var list []*file
	t.mu.Lock()
	for f := range t.checkpoint.files {
		if f.log == l {
			list = append(list, f)
		}
	}
	t.mu.Unlock()
	if len(list) > 0 {
		if err := t.settle(list); err != nil {
			return err
		}
	}
	t.mu.Lock()
	for _, f := range list {
		delete(t.checkpoint.files, f)
		f.since = 0
	}
	// A checkpoint under way may have others of its files in hand.
	for done := t.checkpoint.done; t.checkpoint.running && t.checkpoint.done == done && t.err == nil; {
		t.wake.Wait()
	}
	err := t.err
	t.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ends.synced = max(l.ends.synced, min(end, l.ends.committed))
	return err
}

// cleanEnd is where a partition ended that was closed cleanly.
func (t *Tier) cleanEnd(id ID) (hotdir.End, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m, ok := t.run.clean[id]
	return m, ok
}

// endProven says that nothing above what a partition holds was ever acknowledged (R6).
func (t *Tier) endProven(id ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.run.proven || t.run.shut[id]
}
