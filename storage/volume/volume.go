// Package volume is one segment file of a log as it is read: its index, reads
// ahead through it, searches by offset and by time, and the hint that a recovery
// leaves beside one without a footer. Which file holds an offset, what of it may
// be read and which epoch counts, the log knows: it comes in as [Bounds].
//
// A [File] is safe for concurrent use, a [Cursor] is not. The lock is a leaf: it is
// held for a look into the index alone. R-numbers are the design's ownership rules.
package volume

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/handles"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

var (
	// ErrReleased says that a file was given up while it was in use.
	ErrReleased = errors.New("the segment was given up meanwhile")
	// ErrMissing is what is wrong where messages are not there at all.
	ErrMissing = errors.New("segment file is missing or cut short")
)

// Shelf is what the files of a log directory share.
type Shelf struct {
	FS     disk.FS
	Store  [16]byte // that the files belong to
	Cache  *handles.Cache
	Memory *memory.Pool
	Room   func() // called after something was taken from Memory, to keep its budget
	Log    *slog.Logger
}

// File is one segment file of a partition.
type File struct {
	Handle      handles.Handle
	Base, Epoch uint64
	Gone        atomic.Bool // it was given up

	shelf   *Shelf
	id      hotdir.ID
	mu      sync.Mutex       // guards what follows
	summary *segment.Summary // of one that this run writes
	footer  *segment.Footer  // of one that is known by it
}

// File returns a file of a partition, of which nothing is known yet.
func (s *Shelf) File(id hotdir.ID, name string, base, epoch uint64) *File {
	f := &File{shelf: s, id: id, Base: base, Epoch: epoch}
	f.Handle.Name = name
	return f
}

// Begin says that the file is being written and has its header.
func (f *File) Begin(header []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.summary = segment.NewSummary(header, f.Base)
}

// Add adds to the index what was written: whole batches back to back.
func (f *File) Add(bufs [][]byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, buf := range bufs {
		for b := batch.Batch(buf); len(b) > 0; b = b[b.Len():] {
			f.summary.Add(b)
		}
	}
}

// Written is the footer of what was written so far.
func (f *File) Written() *segment.Footer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.summary.Footer()
}

// Adopt takes what a footer says of the file.
func (f *File) Adopt(footer *segment.Footer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.footer = footer
}

// place is what the file has to be.
func (f *File) place() recovery.Place {
	return recovery.Place{Store: f.shelf.Store, ID: f.id, Name: f.Handle.Name, Base: f.Base, Epoch: f.Epoch}
}

// Load reads the footer of the file. One that has no whole footer is scanned; it is
// not sealed then.
func (f *File) Load() (footer *segment.Footer, sealed bool, err error) {
	h, err := f.shelf.Cache.Acquire(&f.Handle, 0)
	if err != nil {
		return nil, false, err
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	if _, _, err := f.place().Header(h); err != nil {
		return nil, false, err
	}
	total, err := h.Size()
	if err != nil {
		return nil, false, err
	}
	footer, err = segment.ReadFooter(h, total)
	sealed = err == nil
	if err != nil {
		found, serr := f.place().Scan(h, total, nil)
		if serr != nil {
			return nil, false, errors.Join(err, serr)
		}
		footer = found.Footer
	}
	f.Adopt(footer)
	return footer, sealed, nil
}

// Footer reads the footer that stands in the file, and no more.
func (f *File) Footer() (*segment.Footer, error) {
	h, err := f.shelf.Cache.Acquire(&f.Handle, 0)
	if err != nil {
		return nil, err
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	if _, _, err := f.place().Header(h); err != nil {
		return nil, err
	}
	total, err := h.Size()
	if err != nil {
		return nil, err
	}
	return segment.ReadFooter(h, total)
}

// Position is where the search for an offset begins.
func (f *File) Position(offset uint64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.footer != nil:
		return f.footer.Find(offset).From
	case f.summary != nil:
		return f.summary.Find(offset).From
	}
	return 0
}

// LastTime is the largest append time in the file, ms since 1970, zero if nothing
// is known.
func (f *File) LastTime() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.footer != nil:
		return f.footer.LastTime
	case f.summary != nil:
		return f.summary.Facts().LastTime
	}
	return 0
}

// open opens the file to read, until it is given back to the cache.
func (f *File) open() (disk.File, error) {
	h, err := f.shelf.Cache.Acquire(&f.Handle, 0)
	switch {
	case err != nil && f.Gone.Load():
		return nil, ErrReleased
	case err != nil:
		return nil, fmt.Errorf("open segment: %w", err)
	}
	return h, nil
}

// ReadAt is io.ReaderAt. It keeps nothing open.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	h, err := f.open()
	if err != nil {
		return 0, err
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	return h.ReadAt(p, off)
}

// Size is how many bytes the file has.
func (f *File) Size() (int64, error) {
	h, err := f.open()
	if err != nil {
		return 0, err
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	return h.Size()
}

// read returns n bytes of the file at a position in a chunk of its own.
func (f *File) read(at int64, n int) (*memory.Chunk, error) {
	h, err := f.open()
	if err != nil {
		return nil, err
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	c := f.shelf.Memory.Take(n)
	got, err := h.ReadAt(c.Buf[:n], at)
	c.Buf = c.Buf[:got]
	if err != nil && !(errors.Is(err, io.EOF) && got > 0) {
		c.Release()
		return nil, fmt.Errorf("read %s: %w", f.Handle.Name, err)
	}
	f.shelf.Room()
	return c, nil
}

// scanner walks over the file from a position on, as far as size.
func (f *File) scanner(r io.ReaderAt, at, size int64) *segment.Scanner {
	return segment.NewScanner(r, size, segment.Origin{At: at, Base: f.Base, FirstEpoch: f.Epoch, Epoch: f.Epoch})
}
