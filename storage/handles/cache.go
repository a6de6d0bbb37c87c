// Package handles keeps segment files open: thousands of partitions share one
// budget of descriptors, and the least recently used closes first.
package handles

import (
	"errors"
	"fmt"
	"sync"

	"github.com/danubemq/danube/storage/disk"
)

// Cache keeps files open, at most limit of them at rest. The least recently used
// closes first. A file with unsynced data is synced before it is closed, because an
// error of writing it back would be told to no later handle.
type Cache struct {
	fs    disk.FS
	mu    sync.Mutex
	limit int
	open  int
	ring  Link // of handles
}

// Handle is an open file in the cache, or the place for one. Zero is closed.
type Handle struct {
	Name  string // of the file
	link  Link
	file  disk.File
	pins  int
	dirty bool // written to since the last sync
	write bool // this run writes to it: it is always opened so
	gone  bool // to be closed by the last release
}

// New returns a cache without a file.
func New(fsys disk.FS, limit int) *Cache {
	c := &Cache{fs: fsys, limit: limit}
	c.ring.Init()
	return c
}

// Acquire opens the file if it is not open, and keeps it open until release. A
// file that is written to is asked for with Write from the first time on.
func (c *Cache) Acquire(h *Handle, flags disk.Flags) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.file == nil {
		if err := c.makeRoom(); err != nil {
			return nil, err
		}
		if h.write && flags == 0 {
			flags = disk.Write
		}
		f, err := c.fs.Open(h.Name, flags)
		if err != nil {
			return nil, err
		}
		h.file, h.write, h.link.Owner = f, flags != 0, h
		c.open++
	}
	h.pins++
	c.ring.Push(&h.link)
	return h.file, nil
}

// Release ends one acquire; wrote says that the file was written to.
func (c *Cache) Release(h *Handle, wrote bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.pins--
	h.dirty = h.dirty || wrote
	if h.gone && h.pins == 0 {
		h.dirty = false
		c.close(h) // a file that was given up: nobody asks how it closed
	}
}

// Sync makes an acquired file durable.
func (c *Cache) Sync(h *Handle) error {
	c.mu.Lock()
	f := h.file
	h.dirty = false // what is written while the sync runs sets it again
	c.mu.Unlock()
	if err := f.Datasync(); err != nil {
		c.mu.Lock()
		h.dirty = true
		c.mu.Unlock()
		return fmt.Errorf("sync %s: %w", h.Name, err)
	}
	return nil
}

// makeRoom closes what is not in use until one more file fits. When all are in
// use the budget is overdrawn. c.mu is held.
func (c *Cache) makeRoom() error {
	for c.open >= c.limit {
		victim := c.victim()
		if victim == nil {
			return nil
		}
		if err := c.close(victim); err != nil {
			return err
		}
	}
	return nil
}

// victim is the oldest file not in use, a clean one if one is near.
func (c *Cache) victim() *Handle {
	var first *Handle
	seen := 0
	for l := c.ring.Oldest(); l != nil && seen < 64; l = c.ring.After(l) {
		h := l.Owner.(*Handle)
		if h.pins > 0 {
			continue
		}
		if !h.dirty {
			return h
		}
		if first == nil {
			first = h
		}
		seen++
	}
	return first
}

// close closes a file that is not in use. c.mu is held.
func (c *Cache) close(h *Handle) error {
	var err error
	if h.dirty {
		if err = h.file.Datasync(); err == nil {
			h.dirty = false
		}
	}
	err = errors.Join(err, h.file.Close())
	h.file = nil
	h.link.Unlink()
	c.open--
	if err != nil {
		return fmt.Errorf("close %s: %w", h.Name, err)
	}
	return nil
}

// Drop closes a file whose content nobody needs any more, or at the end of the
// tier one that was synced. One in use closes with its last release.
func (c *Cache) Drop(h *Handle) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case h.file == nil:
		return nil
	case h.pins > 0:
		h.gone = true
		return nil
	}
	h.dirty = false
	return c.close(h)
}

// Count is how many files are open.
func (c *Cache) Count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}
