package disk

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// ErrCrashed is what every call returns on a Memory, and on its files, whose
// process or machine has died.
var ErrCrashed = errors.New("the process or its machine has died")

// Memory is a file system in memory that can lose power. The same seed and the
// same calls in the same order end in the same bytes.
//
// Of a file it keeps what readers see and what is on stable storage, of a
// directory likewise. [Memory.PowerLoss] decides by itself for each page of 4
// KiB that was not synced whether it is kept, dropped, torn at 512-byte sectors
// or left as an earlier unsynced write had it; how many of the changes of size
// happened; and for each change of a directory entry whether it did. That is no
// kinder than POSIX: a real file system keeps more of its order.
//
// A sync that fails leaves its pages as Linux does: clean to every later sync,
// and not on stable storage.
type Memory struct {
	mu sync.Mutex
	w  *world // nil once crashed
}

// world is what outlives the process: it passes from one Memory to the next.
type world struct {
	rng      *rand.Rand
	root     *node
	pending  []dirOp // changes of directories that are not durable, oldest first
	unsynced []*node // files with pages or sizes that are not durable
	locks    map[string]bool

	limit, used int64 // bytes; limit 0 for none
	hook        func(op, name string) error
	failSync    int // syncs until one fails, 0 for none
	stats       Stats
}

// Stats count what was asked of a Memory since it was made, over crashes too.
type Stats struct {
	Writes   int   // WriteAt and WriteVec calls
	Bytes    int64 // written by them
	Syncs    int   // Datasync calls
	DirSyncs int   // SyncDir calls
	Open     int   // files open now
}

// NewMemory returns an empty file system. Its root directory is "/", which is
// also ".".
func NewMemory(seed uint64) *Memory {
	return &Memory{w: &world{
		rng:   rand.New(rand.NewPCG(seed, 0x64616e756265)),
		root:  newDir(),
		locks: make(map[string]bool),
	}}
}

// PowerLoss ends the machine: m and its files fail with ErrCrashed from now on,
// and the returned Memory holds what stable storage kept. Faults are cleared.
func (m *Memory) PowerLoss() *Memory { return m.crash((*world).losePower) }

// Kill ends the process: m and its files fail with ErrCrashed from now on, and
// the returned Memory holds everything that was written, synced or not, still to
// be lost by a later power loss. Locks are free. Faults are cleared.
func (m *Memory) Kill() *Memory { return m.crash(func(*world) {}) }

func (m *Memory) crash(what func(*world)) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.w
	if w == nil {
		return &Memory{}
	}
	m.w = nil
	what(w)
	clear(w.locks)
	w.limit, w.hook, w.failSync, w.stats.Open = 0, nil, 0, 0
	w.root.unlinkAll()
	w.used = w.root.settle()
	return &Memory{w: w}
}

// Fail has hook called before every operation, with no lock held, as hook(op,
// name): op is open, read, write, sync, truncate, size, mkdir, readdir, stat,
// rename and link (name is the old one), remove, syncdir, lock or free. An error it
// returns is what the operation returns. A failed write leaves a prefix of its
// bytes written, a failed sync its pages unsynced for good; everything else then
// did nothing. Nil removes the hook.
func (m *Memory) Fail(hook func(op, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w != nil {
		m.w.hook = hook
	}
}

// FailSync makes one Datasync or SyncDir fail with EIO: the next one for 1, the
// one after it for 2.
func (m *Memory) FailSync(nth int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w != nil {
		m.w.failSync = nth
	}
}

// Limit sets the space in bytes, 0 for no limit. A write beyond it writes what
// fits and fails with ENOSPC.
func (m *Memory) Limit(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w != nil {
		m.w.limit = bytes
	}
}

// Stats returns the counters.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w == nil {
		return Stats{}
	}
	return m.w.stats
}

// do runs an operation under the lock, after the hook. The operation gets the
// hook's error, so that it can fail half-way as a real one does.
func (m *Memory) do(op, name string, run func(w *world, failed error) error) error {
	m.mu.Lock()
	var hook func(op, name string) error
	if m.w != nil {
		hook = m.w.hook
	}
	m.mu.Unlock()
	var failed error
	if hook != nil {
		failed = hook(op, name)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.w == nil {
		return &fs.PathError{Op: op, Path: name, Err: ErrCrashed}
	}
	return asPathError(op, name, run(m.w, failed))
}

// call is do for an operation that does nothing when the hook fails it.
func (m *Memory) call(op, name string, run func(w *world) error) error {
	return m.do(op, name, func(w *world, failed error) error {
		if failed != nil {
			return failed
		}
		return run(w)
	})
}

func asPathError(op, name string, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return err
	}
	if _, ok := errors.AsType[*LockedError](err); ok {
		return err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open opens a regular file.
func (m *Memory) Open(name string, flags Flags) (File, error) {
	var f *memFile
	err := m.call("open", name, func(w *world) error {
		n, err := w.open(name, flags)
		if err != nil {
			return err
		}
		n.open++
		w.stats.Open++
		f = &memFile{m: m, n: n, name: name, writable: flags != 0}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (w *world) open(name string, flags Flags) (*node, error) {
	dir, base, err := w.parent(name)
	if err != nil {
		return nil, err
	}
	n := dir.entries[base]
	if base == "" {
		n = dir
	}
	switch {
	case n != nil && flags&Exclusive != 0:
		return nil, syscall.EEXIST
	case n != nil && n.dir:
		return nil, syscall.EISDIR
	case n != nil:
		return n, nil
	case flags&(Create|Exclusive) == 0:
		return nil, syscall.ENOENT
	}
	n = &node{}
	w.link(dir, base, n)
	return n, nil
}

// Mkdir makes one directory.
func (m *Memory) Mkdir(name string) error {
	return m.call("mkdir", name, func(w *world) error {
		dir, base, err := w.parent(name)
		if err != nil {
			return err
		}
		if base == "" || dir.entries[base] != nil {
			return syscall.EEXIST
		}
		w.link(dir, base, newDir())
		return nil
	})
}

// ReadDir lists a directory.
func (m *Memory) ReadDir(name string) ([]Entry, error) {
	var entries []Entry
	err := m.call("readdir", name, func(w *world) error {
		n, err := w.find(name)
		if err != nil {
			return err
		}
		if !n.dir {
			return syscall.ENOTDIR
		}
		entries = make([]Entry, 0, len(n.entries))
		for name, child := range n.entries {
			entries = append(entries, child.entry(name))
		}
		slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
		return nil
	})
	return entries, err
}

// Stat describes one file or directory.
func (m *Memory) Stat(name string) (Entry, error) {
	var e Entry
	err := m.call("stat", name, func(w *world) error {
		n, err := w.find(name)
		if err != nil {
			return err
		}
		e = n.entry(path.Base(name))
		return nil
	})
	return e, err
}

// Link gives a file a further name.
func (m *Memory) Link(from, to string) error {
	return m.call("link", from, func(w *world) error { return w.linkTo(from, to) })
}

// Rename moves a file or directory.
func (m *Memory) Rename(from, to string) error {
	return m.call("rename", from, func(w *world) error { return w.rename(from, to) })
}

// Remove deletes a file or an empty directory.
func (m *Memory) Remove(name string) error {
	return m.call("remove", name, func(w *world) error { return w.remove(name) })
}

// SyncDir makes the entries of a directory durable.
func (m *Memory) SyncDir(name string) error {
	return m.do("syncdir", name, func(w *world, failed error) error {
		n, err := w.find(name)
		if err != nil {
			return err
		}
		if !n.dir {
			return syscall.ENOTDIR
		}
		w.stats.DirSyncs++
		if err := w.syncFault(failed); err != nil {
			w.spoilDir(n)
			return err
		}
		w.syncDir(n)
		return nil
	})
}

// syncFault is the error a sync has to fail with.
func (w *world) syncFault(failed error) error {
	if failed != nil {
		return failed
	}
	if w.failSync == 0 {
		return nil
	}
	w.failSync--
	if w.failSync == 0 {
		return syscall.EIO
	}
	return nil
}

// Lock takes the exclusive lock on a file.
func (m *Memory) Lock(name string) (io.Closer, error) {
	err := m.call("lock", name, func(w *world) error {
		if _, err := w.open(name, Create); err != nil {
			return err
		}
		if w.locks[path.Clean(name)] {
			return &LockedError{Name: name, PID: os.Getpid()}
		}
		w.locks[path.Clean(name)] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &memLock{m: m, name: path.Clean(name)}, nil
}

// Free tells what the limit leaves; without one, a TiB.
func (m *Memory) Free(dir string) (Space, error) {
	space := Space{Free: 1 << 40, Total: 1 << 40}
	err := m.call("free", dir, func(w *world) error {
		if _, err := w.find(dir); err != nil {
			return err
		}
		if w.limit > 0 {
			space = Space{Free: uint64(max(0, w.limit-w.used)), Total: uint64(w.limit)}
		}
		return nil
	})
	return space, err
}

type memLock struct {
	m    *Memory
	name string
	once sync.Once
}

// Close gives the lock back. It is idempotent; a crash has done it already.
func (l *memLock) Close() error {
	l.once.Do(func() {
		l.m.mu.Lock()
		defer l.m.mu.Unlock()
		if l.m.w != nil {
			delete(l.m.w.locks, l.name)
		}
	})
	return nil
}
