package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// OS is the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Open(name string, flags Flags) (File, error) {
	mode := os.O_RDONLY
	switch {
	case flags&Exclusive != 0:
		mode = os.O_RDWR | os.O_CREATE | os.O_EXCL
	case flags&Create != 0:
		mode = os.O_RDWR | os.O_CREATE
	case flags&Write != 0:
		mode = os.O_RDWR
	}
	f, err := os.OpenFile(name, mode, 0o640)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &osFile{f: f, fd: int(f.Fd())}, nil
}

func (osFS) Mkdir(name string) error { return os.Mkdir(name, 0o750) }

func (osFS) ReadDir(name string) ([]Entry, error) {
	list, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(list))
	for _, d := range list {
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since the directory was read
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, entryOf(info))
	}
	return entries, nil
}

func entryOf(info fs.FileInfo) Entry {
	e := Entry{Name: info.Name(), Dir: info.IsDir()}
	if !e.Dir {
		e.Size = info.Size()
	}
	return e
}

func (osFS) Stat(name string) (Entry, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Entry{}, err
	}
	return entryOf(info), nil
}

func (osFS) Link(from, to string) error { return os.Link(from, to) }

func (osFS) Rename(from, to string) error {
	err := os.Rename(from, to)
	if link, ok := errors.AsType[*os.LinkError](err); ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fmt.Errorf("to %s: %w", to, link.Err)}
	}
	return err
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(syncDir(d), d.Close())
}

func (osFS) Lock(name string) (io.Closer, error) {
	if err := refuseNetwork(filepath.Dir(name)); err != nil {
		return nil, err
	}
	return lockFile(name)
}

func (osFS) Free(dir string) (Space, error) { return freeSpace(dir) }

// osFile keeps the descriptor beside the os.File: the calls of the hot path go
// to it directly, so that a commit round allocates nothing.
type osFile struct {
	f  *os.File
	fd int

	mu     sync.RWMutex // held to read by every call, to write by Close
	closed bool

	syncMu sync.Mutex // guards failed
	failed error      // the first error of Datasync or WriteBack
}

// enter holds the file open until leave. It fails once the file was closed.
func (f *osFile) enter(op string) error {
	f.mu.RLock()
	if f.closed {
		f.mu.RUnlock()
		return &fs.PathError{Op: op, Path: f.f.Name(), Err: fs.ErrClosed}
	}
	return nil
}

func (f *osFile) leave() { f.mu.RUnlock() }

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.enter("read"); err != nil {
		return 0, err
	}
	defer f.leave()
	return f.f.ReadAt(p, off)
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.enter("write"); err != nil {
		return 0, err
	}
	defer f.leave()
	return f.f.WriteAt(p, off)
}

func (f *osFile) WriteVec(bufs [][]byte, off int64) error {
	if err := f.enter("write"); err != nil {
		return err
	}
	defer f.leave()
	return f.writeVec(bufs, off)
}

func (f *osFile) Datasync() error {
	if err := f.enter("sync"); err != nil {
		return err
	}
	defer f.leave()
	if err := f.failure(); err != nil {
		return err
	}
	err := f.datasync()
	if err == nil {
		// A sync beside this one may have taken the error that was meant for both.
		return f.failure()
	}
	return f.fail("sync", err)
}

func (f *osFile) WriteBack(off, n int64) error {
	if err := f.enter("write back"); err != nil {
		return err
	}
	defer f.leave()
	if err := f.failure(); err != nil {
		return err
	}
	if err := f.writeBack(off, n); err != nil {
		return f.fail("write back", err)
	}
	return nil
}

// fail notes the first failure of a sync, which every later one returns.
func (f *osFile) fail(op string, err error) error {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	if f.failed == nil {
		f.failed = &fs.PathError{Op: op, Path: f.f.Name(), Err: err}
	}
	return f.failed
}

func (f *osFile) failure() error {
	f.syncMu.Lock()
	defer f.syncMu.Unlock()
	return f.failed
}

func (f *osFile) Truncate(size int64) error {
	if err := f.enter("truncate"); err != nil {
		return err
	}
	defer f.leave()
	return f.f.Truncate(size)
}

func (f *osFile) Size() (int64, error) {
	if err := f.enter("stat"); err != nil {
		return 0, err
	}
	defer f.leave()
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Close is idempotent and does not sync.
func (f *osFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.f.Close()
}
