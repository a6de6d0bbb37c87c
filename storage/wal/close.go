package wal

import (
	"errors"
	"fmt"
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
		err = errors.Join(err, j.file.Close())
	}
	t.metrics.unregister(t.config.Metrics)
	return err
}

// stop seals and syncs what was written and leaves the marker.
func (t *Tier) stop(logs []*Log) error {
	entries := make(map[ID]markerEntry)
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
	for id, e := range t.run.clean { // not opened in this run
		if _, ok := entries[id]; !ok && t.logs[id] == nil {
			entries[id] = e
		}
	}
	if err := t.writeMarker(entries); err != nil && !isNoSpace(err) {
		return fmt.Errorf("write clean marker: %w", err)
	}
	return nil
}

// lastFile says where a log that is at rest ends, if its last file is sealed.
func (l *Log) lastFile() (markerEntry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.files.list)
	if n == 0 {
		return markerEntry{}, false
	}
	f := l.files.list[n-1]
	return markerEntry{base: f.base, epoch: f.epoch, size: f.size, end: f.end}, f.known && f.sealed
}

// shut gives back the memory and the open files of a log.
func (l *Log) shut() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.door.closed = true
	for _, c := range l.tail.chunks {
		c.release()
	}
	l.tail = tail{}
	var err error
	for _, f := range l.files.list {
		err = errors.Join(err, l.tier.cache.drop(&f.handle))
	}
	l.notify()
	return err
}
