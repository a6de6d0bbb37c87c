package wal

import (
	"errors"
	"fmt"
	"sync"

	"github.com/danubemq/danube/storage/disk"
)

// cache keeps segment files open, at most limit of them at rest: thousands of
// partitions share one budget of descriptors. The least recently used closes
// first. A file with unsynced data is synced before it is closed, because an
// error of writing it back would be told to no later handle.
type cache struct {
	fs    disk.FS
	mu    sync.Mutex
	limit int
	open  int
	ring  lruLink // of handles; ring.next is the oldest
}

// handle is an open file in the cache, or the place for one. Zero is closed.
type handle struct {
	lruLink
	name  string
	file  disk.File
	pins  int
	dirty bool // written to since the last sync
	write bool // this run writes to it: it is always opened so
	gone  bool // to be closed by the last release
}

// lruLink is a place in a ring of least recent use. The zero value is in none.
type lruLink struct {
	prev, next *lruLink
	owner      any
}

func (r *lruLink) init() { r.prev, r.next = r, r }

// push makes x the most recently used.
func (r *lruLink) push(x *lruLink) {
	x.unlink()
	x.prev, x.next = r.prev, r
	r.prev.next, r.prev = x, x
}

func (r *lruLink) unlink() {
	if r.next == nil {
		return
	}
	r.prev.next, r.next.prev = r.next, r.prev
	r.prev, r.next = nil, nil
}

// acquire opens the file if it is not open, and keeps it open until release. A
// file that is written to is asked for with Write from the first time on.
func (c *cache) acquire(h *handle, flags disk.Flags) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.file == nil {
		if err := c.makeRoom(); err != nil {
			return nil, err
		}
		if h.write && flags == 0 {
			flags = disk.Write
		}
		f, err := c.fs.Open(h.name, flags)
		if err != nil {
			return nil, err
		}
		h.file, h.write, h.owner = f, flags != 0, h
		c.open++
	}
	h.pins++
	c.ring.push(&h.lruLink)
	return h.file, nil
}

// release ends one acquire; wrote says that the file was written to.
func (c *cache) release(h *handle, wrote bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.pins--
	h.dirty = h.dirty || wrote
	if h.gone && h.pins == 0 {
		h.dirty = false
		c.close(h) // a file that was given up: nobody asks how it closed
	}
}

// sync makes an acquired file durable.
func (c *cache) sync(h *handle) error {
	c.mu.Lock()
	f := h.file
	h.dirty = false // what is written while the sync runs sets it again
	c.mu.Unlock()
	if err := f.Datasync(); err != nil {
		c.mu.Lock()
		h.dirty = true
		c.mu.Unlock()
		return fmt.Errorf("sync %s: %w", h.name, err)
	}
	return nil
}

// makeRoom closes what is not in use until one more file fits. When all are in
// use the budget is overdrawn. c.mu is held.
func (c *cache) makeRoom() error {
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
func (c *cache) victim() *handle {
	var first *handle
	seen := 0
	for l := c.ring.next; l != &c.ring && seen < 64; l = l.next {
		h := l.owner.(*handle)
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
func (c *cache) close(h *handle) error {
	var err error
	if h.dirty {
		if err = h.file.Datasync(); err == nil {
			h.dirty = false
		}
	}
	err = errors.Join(err, h.file.Close())
	h.file = nil
	h.unlink()
	c.open--
	if err != nil {
		return fmt.Errorf("close %s: %w", h.name, err)
	}
	return nil
}

// drop closes a file whose content nobody needs any more, or at the end of the
// tier one that was synced. One in use closes with its last release.
func (c *cache) drop(h *handle) error {
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

// count is how many files are open.
func (c *cache) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}
