package disk

import (
	"io"
	"io/fs"
	"syscall"
)

// memFile is an open file of a Memory. Its fields are guarded by m.mu.
type memFile struct {
	m        *Memory
	n        *node
	name     string
	writable bool
	closed   bool
	failed   error // the first error of Datasync or WriteBack
}

// do runs an operation on the open file.
func (f *memFile) do(op string, run func(w *world, failed error) error) error {
	return f.m.do(op, f.name, func(w *world, failed error) error {
		if f.closed {
			return fs.ErrClosed
		}
		return run(w, failed)
	})
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	err := f.do("read", func(_ *world, failed error) error {
		switch {
		case failed != nil:
			return failed
		case off < 0:
			return syscall.EINVAL
		case off < int64(len(f.n.live)):
			n = copy(p, f.n.live[off:])
		}
		if n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	n := 0
	err := f.do("write", func(w *world, failed error) error {
		w.stats.Writes++
		var err error
		n, err = f.write(w, failed, p, off)
		return err
	})
	return n, err
}

func (f *memFile) WriteVec(bufs [][]byte, off int64) error {
	return f.do("write", func(w *world, failed error) error {
		w.stats.Writes++
		if failed != nil && len(bufs) == 0 {
			return failed
		}
		if failed != nil {
			// Some of the buffers are written whole, the last of them not.
			bufs = bufs[:1+w.rng.IntN(len(bufs))]
		}
		for i, p := range bufs {
			var fail error
			if i == len(bufs)-1 {
				fail = failed
			}
			n, err := f.write(w, fail, p, off)
			if err != nil {
				return err
			}
			off += int64(n)
		}
		return nil
	})
}

// write writes p, or a prefix of it when the write has to fail or space ends.
func (f *memFile) write(w *world, failed error, p []byte, off int64) (int, error) {
	switch {
	case !f.writable:
		return 0, syscall.EBADF
	case off < 0:
		return 0, syscall.EINVAL
	}
	if failed != nil {
		p = p[:w.rng.IntN(len(p)+1)]
	} else if room := w.room(f.n, off); room < int64(len(p)) {
		p, failed = p[:room], syscall.ENOSPC
	}
	w.stats.Bytes += int64(len(p))
	before := len(f.n.live)
	f.n.write(w.rng, p, off)
	w.used += int64(len(f.n.live) - before)
	w.note(f.n)
	return len(p), failed
}

// room is how many bytes a write at off may have.
func (w *world) room(n *node, off int64) int64 {
	if w.limit == 0 {
		return 1<<63 - 1
	}
	return max(0, int64(len(n.live))+max(0, w.limit-w.used)-off)
}

// note remembers a file that has something to lose.
func (w *world) note(n *node) {
	if !n.noted && n.unsynced() {
		n.noted = true
		w.unsynced = append(w.unsynced, n)
	}
}

func (f *memFile) Datasync() error {
	return f.do("sync", func(w *world, failed error) error {
		w.stats.Syncs++
		if f.failed != nil {
			return f.failed
		}
		if err := w.syncFault(failed); err != nil {
			f.n.spoil()
			f.failed = asPathError("sync", f.name, err)
			return f.failed
		}
		f.n.sync()
		w.forget(f.n)
		return nil
	})
}

// WriteBack does nothing: a power loss keeps of what is not synced what it likes.
func (f *memFile) WriteBack(_, _ int64) error {
	return f.do("writeback", func(_ *world, failed error) error {
		if f.failed == nil && failed != nil {
			f.n.spoil()
			f.failed = asPathError("write back", f.name, failed)
		}
		return f.failed
	})
}

// forget drops a file from the list of those that have something to lose.
func (w *world) forget(n *node) {
	if !n.noted || n.unsynced() {
		return
	}
	n.noted = false
	for i, other := range w.unsynced {
		if other == n {
			w.unsynced = append(w.unsynced[:i], w.unsynced[i+1:]...)
			return
		}
	}
}

func (f *memFile) Truncate(size int64) error {
	return f.do("truncate", func(w *world, failed error) error {
		switch {
		case failed != nil:
			return failed
		case !f.writable || size < 0:
			return syscall.EINVAL
		case size > int64(len(f.n.live)) && w.room(f.n, size) == 0:
			return syscall.ENOSPC
		}
		w.used += size - int64(len(f.n.live))
		f.n.truncate(size)
		w.note(f.n)
		return nil
	})
}

func (f *memFile) Size() (int64, error) {
	var size int64
	err := f.do("size", func(_ *world, failed error) error {
		size = int64(len(f.n.live))
		return failed
	})
	return size, err
}

// Close is idempotent and does not sync; after a crash it does nothing.
func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.closed || f.m.w == nil {
		f.closed = true
		return nil
	}
	f.closed = true
	w := f.m.w
	w.stats.Open--
	f.n.open--
	if f.n.links == 0 && f.n.open == 0 {
		w.used -= int64(len(f.n.live))
	}
	return nil
}
