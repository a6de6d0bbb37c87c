package wal

import (
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/journal"
)

// checkpoint knows which segment files hold bytes that only the journal makes
// durable. Guarded by the tier's lock.
type checkpoint struct {
	journal *journal.Journal
	files   map[*file]struct{}
	running bool
	done    uint64 // checkpoints that have ended
	swept   bool   // files were waiting at the last sweep
}

// add notes that the journal covers bytes of f from the span with this use on.
func (c *checkpoint) add(f *file, use uint64) {
	if f.since == 0 {
		f.since = use
		c.files[f] = struct{}{}
	}
}

// use is the journal span in use, 1 without a journal.
func (c *checkpoint) use() uint64 {
	if c.journal == nil {
		return 1
	}
	return c.journal.Current()
}

// checkpointDue starts a checkpoint when the journal has come far enough, or
// when so many open files wait for one that closing others would have to sync
// them one by one. t.mu is held.
func (t *Tier) checkpointDue() {
	if len(t.checkpoint.files) > t.config.Files/2 {
		t.startCheckpoint(math.MaxUint64)
	}
	if j := t.checkpoint.journal; j != nil {
		if use := j.Due(); use > 0 {
			t.startCheckpoint(use)
		}
	}
}

// startCheckpoint syncs, beside the commit loop, the files that spans up to use
// cover. t.mu is held.
func (t *Tier) startCheckpoint(use uint64) {
	if t.checkpoint.running || t.err != nil {
		return
	}
	t.checkpoint.running = true
	t.work.Add(1)
	go func() { // returns when the files are synced
		defer t.work.Done()
		if err := t.runCheckpoint(use); err != nil {
			t.poison(err)
		}
		t.mu.Lock()
		t.checkpoint.running = false
		t.checkpoint.done++
		t.wake.Broadcast() // a log that is being closed may wait for it
		t.checkpointDue()  // the writer has gone on, and may be waiting
		t.mu.Unlock()
	}()
}

func (t *Tier) runCheckpoint(use uint64) error {
	t.mu.Lock()
	j := t.checkpoint.journal
	clean := use
	if j != nil {
		clean = min(use, j.Current()-1) // a frame of the span in use may not be noted yet
	}
	var list []*file
	for f := range t.checkpoint.files {
		if f.since <= use {
			list = append(list, f)
		}
	}
	for _, f := range list {
		delete(t.checkpoint.files, f)
		f.since = 0
	}
	t.mu.Unlock()
	ends := make(map[*Log]uint64, len(list))
	for _, f := range list {
		f.log.mu.Lock()
		ends[f.log] = max(ends[f.log], f.end)
		f.log.mu.Unlock()
	}
	t.config.At("checkpoint")
	if err := t.settle(list); err != nil {
		return err
	}
	for l, end := range ends {
		l.mu.Lock()
		l.ends.synced = max(l.ends.synced, end)
		l.mu.Unlock()
	}
	if j != nil {
		j.Clean(clean)
	}
	return nil
}

// settle syncs files, several at once, and the directories that a new one needs
// to be found: its own, and those above it when they are new too. Until then
// only the journal knows of a new file, which is enough: recovery makes it again.
func (t *Tier) settle(list []*file) error {
	if len(list) == 1 {
		if err := t.settleOne(list[0]); err != nil {
			return err
		}
	} else {
		var wg sync.WaitGroup
		var next atomic.Int64
		errs := make([]error, min(len(list), syncsAtOnce))
		for w := range errs {
			wg.Go(func() {
				for i := int(next.Add(1)) - 1; i < len(list) && errs[w] == nil; i = int(next.Add(1)) - 1 {
					errs[w] = t.settleOne(list[i])
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return t.anchorTop(list)
}

func (t *Tier) settleOne(f *file) error {
	_, err := t.cache.Acquire(&f.Handle, disk.Write)
	if isNotExist(err) && f.Gone.Load() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open to sync: %w", err)
	}
	defer t.cache.Release(&f.Handle, false)
	if err := t.cache.Sync(&f.Handle); err != nil {
		return err
	}
	if f.anchored.Load() {
		return nil
	}
	dir := path.Dir(f.Handle.Name)
	err = t.config.FS.SyncDir(dir)
	if err == nil && !f.log.files.anchored.Load() {
		err = t.config.FS.SyncDir(path.Dir(dir))
	}
	if err != nil && !(isNotExist(err) && f.Gone.Load()) {
		return fmt.Errorf("sync directory of %s: %w", f.Handle.Name, err)
	}
	f.anchored.Store(true)
	return nil
}

// anchorTop syncs the directory of all topics once for however many new
// partitions are in the list.
func (t *Tier) anchorTop(list []*file) error {
	if !slices.ContainsFunc(list, func(f *file) bool { return !f.log.files.anchored.Load() }) {
		return nil
	}
	if err := t.config.FS.SyncDir(t.home().Topics()); err != nil {
		return fmt.Errorf("sync directory of topics: %w", err)
	}
	for _, f := range list {
		f.log.files.anchored.Store(true)
	}
	return nil
}
