package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// world is one mount: what its nodes share.
type world struct {
	journal *journal
	faults  *faults
}

// node is a file or directory. What it does not do itself, the loopback node does on the backing tree.
type node struct {
	fs.LoopbackNode
	world *world
}

// WrapChild makes every node below one of ours.
func (n *node) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &node{LoopbackNode: fs.LoopbackNode{RootData: n.RootData}, world: n.world}
}

func (n *node) backing() string { return filepath.Join(n.RootData.Path, n.Path(n.Root())) }

func (n *node) child(name string) string { return filepath.Join(n.backing(), name) }

// changing runs a change of a directory unless it is to fail, with the journal locked.
func (n *node) changing(path string, change func() error) syscall.Errno {
	n.world.journal.mu.Lock()
	defer n.world.journal.mu.Unlock()
	// Asked with the lock held: what begins after the loss of power must not reach the next world.
	if e := n.world.faults.errno("write", path); e != 0 {
		return e
	}
	return fs.ToErrno(change())
}

// Open opens a file; one that is emptied by it is a truncation.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	path := n.backing()
	if e := n.world.faults.errno("open", path); e != 0 {
		return nil, 0, e
	}
	fd, err := syscall.Open(path, int(flags)&^(syscall.O_APPEND|syscall.O_TRUNC|syscall.O_CREAT|fuse.FMODE_EXEC)|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, fs.ToErrno(err)
	}
	h := &handle{fd: fd, path: path, world: n.world}
	if flags&syscall.O_TRUNC != 0 {
		if e := h.truncate(0); e != 0 {
			syscall.Close(fd)
			return nil, 0, e
		}
	}
	return h, 0, 0
}

// OpendirHandle opens a directory such that its syncs come to us.
func (n *node) OpendirHandle(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, out, e := n.LoopbackNode.OpendirHandle(ctx, flags)
	if e != 0 {
		return nil, 0, e
	}
	l, ok := h.(listing)
	if !ok {
		return nil, 0, syscall.ENOTSUP
	}
	return &directory{listing: l, node: n}, out, 0
}

// Create makes a file and opens it.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	path := n.child(name)
	var fd int
	e := n.changing(path, func() (err error) {
		_, statErr := os.Lstat(path)
		fd, err = syscall.Open(path, int(flags)&^syscall.O_APPEND|syscall.O_CREAT|syscall.O_CLOEXEC, mode)
		if err == nil && statErr != nil {
			err = n.world.journal.created(path)
		}
		return err
	})
	if e != 0 {
		return nil, nil, 0, e
	}
	child, e := n.Lookup(ctx, name, out)
	if e != 0 {
		syscall.Close(fd)
		return nil, nil, 0, e
	}
	return child, &handle{fd: fd, path: path, world: n.world}, 0, 0
}

func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (child *fs.Inode, e syscall.Errno) {
	path := n.child(name)
	e = n.changing(path, func() error {
		if err := syscall.Mkdir(path, mode); err != nil {
			return err
		}
		return n.world.journal.created(path)
	})
	if e != 0 {
		return nil, e
	}
	return n.Lookup(ctx, name, out)
}

func (n *node) Symlink(ctx context.Context, target, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	path := n.child(name)
	e := n.changing(path, func() error {
		if err := syscall.Symlink(target, path); err != nil {
			return err
		}
		return n.world.journal.created(path)
	})
	if e != 0 {
		return nil, e
	}
	return n.Lookup(ctx, name, out)
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	from, ok := target.(*node)
	if !ok {
		return nil, syscall.EXDEV
	}
	path := n.child(name)
	e := n.changing(path, func() error {
		if err := syscall.Link(from.backing(), path); err != nil {
			return err
		}
		return n.world.journal.created(path)
	})
	if e != 0 {
		return nil, e
	}
	return n.Lookup(ctx, name, out)
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	path := n.child(name)
	return n.changing(path, func() error {
		size := lastLink(path)
		err := n.world.journal.remove(path)
		if err == nil {
			n.world.faults.give(size)
		}
		return err
	})
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	path := n.child(name)
	return n.changing(path, func() error {
		entries, err := os.ReadDir(path)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return syscall.ENOTEMPTY
		}
		return n.world.journal.remove(path)
	})
}

func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to, ok := newParent.(*node)
	if !ok {
		return syscall.EXDEV
	}
	oldPath, newPath := n.child(name), to.child(newName)
	return n.changing(newPath, func() error {
		if flags&^unix.RENAME_NOREPLACE != 0 {
			return syscall.ENOTSUP
		}
		if _, err := os.Lstat(newPath); err == nil && flags != 0 {
			return syscall.EEXIST
		}
		size := lastLink(newPath)
		err := n.world.journal.rename(oldPath, newPath)
		if err == nil {
			n.world.faults.give(size)
		}
		return err
	})
}

// lastLink is the size of a file that is gone with this name, 0 if there is none.
func lastLink(path string) int64 {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG || st.Nlink > 1 {
		return 0
	}
	return st.Size
}

// Fsync of a directory makes its names durable. Files answer for themselves.
func (n *node) Fsync(ctx context.Context, f fs.FileHandle, flags uint32) syscall.Errno {
	if h, ok := f.(*handle); ok {
		return h.Fsync(ctx, flags)
	}
	path := n.backing()
	n.world.journal.mu.Lock()
	defer n.world.journal.mu.Unlock()
	if e := n.world.faults.errno("sync", path); e != 0 {
		return e
	}
	return fs.ToErrno(n.world.journal.dirSynced(path))
}

// Setattr looks out for truncations; times and modes are nothing that a loss of power undoes here.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		h, ok := f.(*handle)
		if !ok {
			fd, err := syscall.Open(n.backing(), syscall.O_RDWR|syscall.O_CLOEXEC, 0)
			if err != nil {
				return fs.ToErrno(err)
			}
			defer syscall.Close(fd)
			h = &handle{fd: fd, path: n.backing(), world: n.world}
		}
		if e := h.truncate(int64(size)); e != 0 {
			return e
		}
		in.Valid &^= fuse.FATTR_SIZE
	}
	return n.LoopbackNode.Setattr(ctx, nil, in, out)
}

// Statfs shows the space that is left, where it is bounded.
func (n *node) Statfs(ctx context.Context, out *fuse.StatfsOut) syscall.Errno {
	e := n.LoopbackNode.Statfs(ctx, out)
	n.world.faults.mu.Lock()
	defer n.world.faults.mu.Unlock()
	if n.world.faults.space >= 0 && out.Bsize > 0 {
		out.Bavail = min(out.Bavail, uint64(n.world.faults.space)/uint64(out.Bsize))
		out.Bfree = out.Bavail
	}
	return e
}

// CopyFileRange is left to the kernel, which then reads and writes: those are seen here.
func (n *node) CopyFileRange(context.Context, fs.FileHandle, uint64, *fs.Inode, fs.FileHandle, uint64, uint64, uint64) (uint32, syscall.Errno) {
	return 0, syscall.ENOTSUP
}

// Tmpfile is not offered: a file without a name is outside of what the journal follows.
func (n *node) Tmpfile(context.Context, uint32, uint32, *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	return nil, nil, 0, syscall.ENOTSUP
}
