package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"gocloud.dev/blob/driver"

	"github.com/danubemq/danube/storage/disk"
)

// chunk is the size of the pieces in which bytes go to the file system.
const chunk = 1 << 20

// writer gathers bytes in a buffer of its own, because a call that hangs may go on reading them after it was given up.
type writer struct {
	b         *bucket
	ctx       context.Context // of the write; driver.Writer has no other way
	key       string
	exclusive bool

	temp string
	f    disk.File
	buf  []byte
	off  int64 // of buf in the file
	err  error // the first; nothing is done after it
}

// NewTypedWriter begins an object. Attributes are not kept.
func (b *bucket) NewTypedWriter(ctx context.Context, key, _ string, opts *driver.WriterOptions) (driver.Writer, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return &writer{b: b, ctx: ctx, key: key, exclusive: opts.IfNotExist, temp: b.temp()}, nil
}

// Write takes all of p or fails.
func (w *writer) Write(p []byte) (int, error) {
	taken := 0
	for len(p) > 0 && w.err == nil {
		if w.buf == nil {
			w.buf = make([]byte, 0, chunk)
		}
		n := min(len(p), chunk-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		p, taken = p[n:], taken+n
		if len(w.buf) == chunk {
			w.flush()
		}
	}
	return taken, w.err
}

// flush hands the buffer to the file. After an error the file is somebody else's.
func (w *writer) flush() {
	if w.err != nil {
		return
	}
	f, data, off := w.f, w.buf, w.off
	w.err = w.b.do(w.ctx, func() error {
		if f == nil {
			var err error
			if f, err = w.b.create(w.temp); err != nil {
				return err
			}
		}
		_, err := f.WriteAt(data, off)
		return err
	}, func() { w.b.drop(f, w.temp) })
	if _, ok := errors.AsType[*abandonedError](w.err); ok {
		w.f = nil // it is dropped there
		return
	}
	w.f, w.buf, w.off = f, data[:0], off+int64(len(data))
}

func (b *bucket) create(temp string) (disk.File, error) {
	if err := b.mounted(); err != nil {
		return nil, err
	}
	f, err := b.fsys.Open(temp, disk.Exclusive)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if err := b.fsys.Mkdir(b.path(tempName)); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return b.fsys.Open(temp, disk.Exclusive)
}

// drop gives up an unfinished write. What cannot be removed now is swept later.
func (b *bucket) drop(f disk.File, temp string) {
	if f != nil {
		_ = f.Close() // its bytes are wanted by nobody
		_ = b.fsys.Remove(temp)
	}
}

// Close gives the object its key, unless something failed or the context has ended.
func (w *writer) Close() error {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	if len(w.buf) > 0 || w.f == nil {
		w.flush() // the last piece, or an empty object
	}
	f := w.f
	w.f = nil
	if w.err != nil {
		if f != nil {
			w.b.calls.Go(func() { w.b.drop(f, w.temp) }) // returns when the file system does
		}
		return w.err
	}
	w.err = w.b.do(w.ctx, func() error { return w.b.publish(f, w.temp, w.key, w.exclusive) }, func() { w.b.drop(f, w.temp) })
	return w.err
}

// publish syncs the bytes and gives them their key. Whatever happens, f is closed and temp is gone, as far as the file
// system lets it.
func (b *bucket) publish(f disk.File, temp, key string, exclusive bool) error {
	err := errors.Join(f.Datasync(), f.Close())
	if err == nil {
		err = b.name(temp, key, exclusive)
	}
	_ = b.fsys.Remove(temp) // swept later if not now; a rename has taken it away
	return err
}

func (b *bucket) name(temp, key string, exclusive bool) error {
	target := b.path(key)
	dir := path.Dir(target)
	if err := b.spoilt(dir); err != nil {
		return err
	}
	give := b.fsys.Rename
	if exclusive {
		give = b.fsys.Link
	}
	err := b.makeDir(dir)
	if err == nil {
		err = give(temp, target)
	}
	if errors.Is(err, fs.ErrNotExist) { // somebody removed the directory since it was made
		b.forget(dir)
		if err = b.makeDir(dir); err == nil {
			err = give(temp, target)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		// Whoever made it may have died before it was durable, this process by an earlier try included.
		if broken := errors.Join(b.settle(target), b.syncDir(dir)); broken != nil {
			return broken
		}
		return err
	}
	if err != nil {
		return err
	}
	return b.syncDir(dir)
}

// settle syncs the bytes of an object that somebody else wrote.
func (b *bucket) settle(target string) error {
	f, err := b.fsys.Open(target, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Datasync(), f.Close())
}

// makeDir makes a directory below the root, and those above it, durably.
func (b *bucket) makeDir(dir string) error {
	b.mu.Lock()
	made := b.made[dir]
	b.mu.Unlock()
	if made || dir == b.root {
		return nil
	}
	if err := b.mounted(); err != nil {
		return err
	}
	parent := path.Dir(dir)
	if err := b.makeDir(parent); err != nil {
		return err
	}
	if err := b.fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := b.syncDir(parent); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made[dir] = true
	return nil
}

// forget has a directory, and those above it, made again.
func (b *bucket) forget(dir string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ; dir != b.root && dir != "." && dir != "/"; dir = path.Dir(dir) {
		delete(b.made, dir)
	}
}

// syncDir makes the entries of a directory durable. The first failure is the last try (R20).
func (b *bucket) syncDir(dir string) error {
	if err := b.spoilt(dir); err != nil {
		return err
	}
	err := b.fsys.SyncDir(dir)
	if err == nil {
		return b.spoilt(dir) // a sync beside this one may have taken the error that was meant for both
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spoil[dir] = err
	return err
}

func (b *bucket) spoilt(dir string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.spoil[dir]; err != nil {
		return fmt.Errorf("a sync of the directory failed, which takes no more objects until a restart: %w", err)
	}
	return nil
}

// Delete removes an object, durably.
func (b *bucket) Delete(ctx context.Context, key string, _ *driver.DeleteOptions) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return b.do(ctx, func() error {
		if err := b.fsys.Remove(b.path(key)); err != nil {
			return b.missing(err)
		}
		return b.syncDir(path.Dir(b.path(key)))
	}, nil)
}
