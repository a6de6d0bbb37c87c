package main

import (
	"context"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// handle is an open file.
type handle struct {
	fd    int
	path  string
	world *world
}

func (h *handle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if e := h.world.faults.errno("read", h.path); e != 0 {
		return nil, e
	}
	return fuse.ReadResultFd(uintptr(h.fd), off, len(dest)), 0
}

func (h *handle) Write(_ context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	n := 0
	e := h.change(off, int64(len(data)), func() (err error) {
		n, err = syscall.Pwrite(h.fd, data, off)
		return err
	})
	return uint32(n), e
}

// change runs a change of length bytes unless it is to fail, and records what it hides.
func (h *handle) change(at, length int64, do func() error) syscall.Errno {
	j := h.world.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := h.world.faults.errno("write", h.path); e != 0 {
		return e
	}
	_, size, err := identify(h.fd)
	if err != nil {
		return fs.ToErrno(err)
	}
	if e := h.world.faults.grow(at + length - size); e != 0 {
		return e
	}
	if _, err := j.before(h.fd, at, length); err != nil {
		return fs.ToErrno(err)
	}
	return fs.ToErrno(do())
}

// truncate sets the length. One that grows the file touches no byte of it.
func (h *handle) truncate(size int64) syscall.Errno {
	j := h.world.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := h.world.faults.errno("write", h.path); e != 0 {
		return e
	}
	_, now, err := identify(h.fd)
	if err != nil {
		return fs.ToErrno(err)
	}
	if _, err := j.before(h.fd, min(size, now), max(now-size, 0)); err != nil {
		return fs.ToErrno(err)
	}
	if err := syscall.Ftruncate(h.fd, size); err != nil {
		return fs.ToErrno(err)
	}
	h.world.faults.give(now - size)
	return 0
}

// Allocate lays a file out ahead, or punches and zeroes a part of it.
func (h *handle) Allocate(_ context.Context, off, size uint64, mode uint32) syscall.Errno {
	return h.change(int64(off), int64(size), func() error { return unix.Fallocate(h.fd, mode, int64(off), int64(size)) })
}

// Fsync makes what was written durable. Nothing is asked of the real disk: only the loss of power asks.
func (h *handle) Fsync(context.Context, uint32) syscall.Errno {
	h.world.journal.mu.Lock()
	defer h.world.journal.mu.Unlock()
	if e := h.world.faults.errno("sync", h.path); e != 0 {
		return e
	}
	return fs.ToErrno(h.world.journal.synced(h.fd))
}

func (h *handle) Getattr(_ context.Context, out *fuse.AttrOut) syscall.Errno {
	var st syscall.Stat_t
	if err := syscall.Fstat(h.fd, &st); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStat(&st)
	return 0
}

func (h *handle) Flush(context.Context) syscall.Errno { return 0 }

func (h *handle) Release(context.Context) syscall.Errno { return fs.ToErrno(syscall.Close(h.fd)) }

// listing is an open directory.
type listing interface {
	fs.FileReaddirenter
	fs.FileSeekdirer
	fs.FileReleasedirer
}

// directory answers a sync of an open directory itself; the loopback one would ask the real disk.
type directory struct {
	listing
	node *node
}

func (d *directory) Fsyncdir(ctx context.Context, flags uint32) syscall.Errno {
	return d.node.Fsync(ctx, nil, flags)
}
