package volume

import (
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/storage/extents"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// Bounds say what of a file may be read.
type Bounds struct {
	Size  int64  // bytes
	Stop  uint64 // batches at or above it do not exist in this file (R19)
	After uint64 // the base of the next file, or the end of the log
	Away  bool   // another store holds what is missing here
}

// Find walks from a position, at which a batch begins that is none behind it, to the
// batch that holds an offset, and says where that lies and when it was appended (ms
// since 1970). Errors: *recovery.Damage, *extents.Elsewhere, ErrReleased.
func (f *File) Find(offset uint64, from int64, b Bounds) (at, time int64, err error) {
	damage := func(at int64, err error) error {
		return &recovery.Damage{From: offset, To: b.After, File: f.Handle.Name, At: at, Err: err}
	}
	for scan := f.scanner(f, from, b.Size); ; {
		x, err := scan.Next()
		switch {
		case errors.Is(err, io.EOF) && b.Away:
			return 0, 0, &extents.Elsewhere{From: offset, To: b.After}
		case errors.Is(err, io.EOF):
			return 0, 0, damage(b.Size, io.ErrUnexpectedEOF)
		case err != nil && f.Gone.Load():
			return 0, 0, ErrReleased
		case err != nil:
			return 0, 0, fmt.Errorf("read %s: %w", f.Handle.Name, err)
		case x.Kind == segment.Damaged && x.To <= offset:
			continue
		case x.Kind != segment.Whole:
			return 0, 0, damage(x.At, errors.Join(x.Err, segment.ErrCorrupt))
		case x.Batch.Control() || x.To <= offset:
			continue
		case x.From > offset:
			return 0, 0, damage(x.At, fmt.Errorf("offsets %d to %d are missing", offset, x.From))
		}
		return x.At, x.Batch.AppendTime(), nil
	}
}

// FirstAt looks for the first batch that was appended at or after ms (ms since
// 1970), in the first size bytes of a file that was loaded or is written to.
func (f *File) FirstAt(ms int64, size int64) (offset uint64, ok bool, err error) {
	f.mu.Lock()
	var span segment.Span
	switch {
	case f.footer != nil:
		span, ok = f.footer.FindTime(ms)
	case f.summary != nil:
		span, ok = f.summary.FindTime(ms)
	}
	f.mu.Unlock()
	if !ok {
		return 0, false, nil
	}
	h, err := f.shelf.Cache.Acquire(&f.Handle, 0)
	if err != nil {
		return 0, false, fmt.Errorf("open segment: %w", err)
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	for scan := f.scanner(h, span.From, size); ; {
		x, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return 0, false, nil
		}
		if err != nil {
			return 0, false, fmt.Errorf("read %s: %w", f.Handle.Name, err)
		}
		if x.Kind == segment.Whole && !x.Batch.Control() && x.Batch.AppendTime() >= ms {
			return x.From, true, nil
		}
	}
}
