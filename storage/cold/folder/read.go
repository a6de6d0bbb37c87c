package folder

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"

	"gocloud.dev/blob/driver"

	"github.com/danubemq/danube/storage/disk"
)

const pageSize = 1000

// Attributes tells size and presence of an object.
func (b *bucket) Attributes(ctx context.Context, key string) (*driver.Attributes, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	var size int64
	err := b.do(ctx, func() error {
		e, err := b.fsys.Stat(b.path(key))
		if err == nil && e.Dir {
			err = &fs.PathError{Op: "stat", Path: key, Err: fs.ErrNotExist}
		}
		size = e.Size
		return b.missing(err)
	}, nil)
	if err != nil {
		return nil, err
	}
	return &driver.Attributes{Size: size, AsFunc: b.As}, nil
}

// reader reads ahead into a buffer of its own, because a call that hangs may write to it after it was given up.
type reader struct {
	b        *bucket
	ctx      context.Context // of the read; driver.Reader has no other way
	f        disk.File
	off, end int64
	space    []byte // nil once given up
	ready    []byte // part of space that was read and not handed out
	attrs    driver.ReaderAttributes
}

// NewRangeReader opens an object and the range [offset, offset+length) of it; a negative length is the rest.
func (b *bucket) NewRangeReader(ctx context.Context, key string, offset, length int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	var f disk.File
	var size int64
	err := b.do(ctx, func() error {
		opened, err := b.fsys.Open(b.path(key), 0)
		if err != nil {
			return b.missing(err)
		}
		f = opened
		size, err = f.Size()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		return nil
	}, func() {
		if f != nil {
			_ = f.Close() // opened to read, for nobody
		}
	})
	if err != nil {
		return nil, err
	}
	end := size
	if length >= 0 {
		end = min(size, offset+length)
	}
	return &reader{b: b, ctx: ctx, f: f, off: min(offset, end), end: end, attrs: driver.ReaderAttributes{Size: size}}, nil
}

// Read returns what is there, at most one chunk.
func (r *reader) Read(p []byte) (int, error) {
	if len(r.ready) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *reader) fill() error {
	if r.off >= r.end {
		return io.EOF
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	want := min(chunk, r.end-r.off)
	space := r.space
	if int64(len(space)) < want {
		space = make([]byte, want)
	}
	r.space = nil
	f, off, n := r.f, r.off, 0
	err := r.b.do(r.ctx, func() error {
		var err error
		n, err = f.ReadAt(space[:want], off)
		return err
	}, nil)
	if _, ok := errors.AsType[*abandonedError](err); ok {
		return err // n is not ours to read
	}
	if errors.Is(err, io.EOF) { // shorter than when it was opened
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	r.space, r.ready, r.off = space, space[:n], off+int64(n)
	return nil
}

// Close does not wait for a call that hangs.
func (r *reader) Close() error {
	r.b.calls.Go(func() { _ = r.f.Close() }) // returns when the file system does; opened to read, nothing is lost
	return nil
}

// Attributes tells the size of the whole object.
func (r *reader) Attributes() *driver.ReaderAttributes { return &r.attrs }

// As knows no type.
func (r *reader) As(any) bool { return false }

// listing is one page in the making.
type listing struct {
	ctx           context.Context
	prefix, after string // keys begin with prefix and lie above after
	room          int
	objects       []*driver.ListObject
}

// ListPaged lists objects in the order of their keys. The token is the last key of the page before.
func (b *bucket) ListPaged(ctx context.Context, opts *driver.ListOptions) (*driver.ListPage, error) {
	if opts.Delimiter != "" {
		return nil, errors.ErrUnsupported
	}
	l := &listing{ctx: ctx, prefix: opts.Prefix, after: string(opts.PageToken), room: opts.PageSize}
	if l.room == 0 {
		l.room = pageSize
	}
	page := &driver.ListPage{}
	if strings.HasPrefix(l.prefix, ".") || strings.Contains(l.prefix, "/.") {
		return page, nil // what is ours, and no object
	}
	err := b.do(ctx, func() error {
		more, err := b.walk(l, l.prefix[:strings.LastIndexByte(l.prefix, '/')+1])
		if err != nil {
			return err
		}
		if len(l.objects) == 0 {
			return b.mounted()
		}
		if more {
			page.NextPageToken = []byte(l.objects[len(l.objects)-1].Key)
		}
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	page.Objects = l.objects
	return page, nil
}

// walk adds the objects below dir, which is empty or ends with a slash. True: there are more than the page has room for.
func (b *bucket) walk(l *listing, dir string) (more bool, err error) {
	if err := l.ctx.Err(); err != nil {
		return false, err
	}
	entries, err := b.fsys.ReadDir(b.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // removed since its name was read; whether the mount is gone is asked at the end
	}
	if err != nil {
		return false, err
	}
	for i, e := range entries {
		if e.Dir {
			entries[i].Name += "/" // keys are compared with it
		}
	}
	slices.SortFunc(entries, func(a, b disk.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range entries {
		key := dir + e.Name
		switch {
		case strings.HasPrefix(e.Name, "."):
		case e.Dir:
			if l.skips(key) {
				continue
			}
			if more, err := b.walk(l, key); more || err != nil {
				return more, err
			}
		case key > l.after && strings.HasPrefix(key, l.prefix):
			if len(l.objects) == l.room {
				return true, nil
			}
			l.objects = append(l.objects, &driver.ListObject{Key: key, Size: e.Size, AsFunc: b.As})
		}
	}
	return false, nil
}

// skips tells that no key below dir belongs to the page.
func (l *listing) skips(dir string) bool {
	if !strings.HasPrefix(dir, l.prefix) && !strings.HasPrefix(l.prefix, dir) {
		return true
	}
	return dir < l.after && !strings.HasPrefix(l.after, dir)
}

// As knows no type.
func (b *bucket) As(any) bool { return false }

// ErrorAs knows what errors.As does.
func (b *bucket) ErrorAs(err error, target any) bool { return errors.As(err, target) }

// Copy is not needed: objects are written once.
func (b *bucket) Copy(context.Context, string, string, *driver.CopyOptions) error {
	return errors.ErrUnsupported
}

// SignedURL has nobody to sign for.
func (b *bucket) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errors.ErrUnsupported
}

var _ driver.Bucket = (*bucket)(nil)
