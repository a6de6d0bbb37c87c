package volume

import (
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/extents"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// limits are what is taken from a file.
var limits = segment.Limits()

// The sizes of reads: they grow while a reader goes on in order.
const (
	minRead = 16 << 10
	// MaxRead is the largest, but for a batch that is larger itself.
	MaxRead = 1 << 20
)

// Cursor is a reader's place in the files of a log. The zero value is at none. It
// holds no file open and no memory.
type Cursor struct {
	file *File
	at   int64
	size int // of the next read
}

// In reports whether it is in a file.
func (c *Cursor) In() bool { return c.file != nil }

// Leave forgets the place: the next offset may lie anywhere.
func (c *Cursor) Leave() { c.file = nil }

// Slow makes the next read small: who reads does not go on in order.
func (c *Cursor) Slow() { c.size = minRead }

// reading is one read of a cursor.
type reading struct {
	*Cursor
	next uint64 // the offset that is wanted
	b    Bounds
}

// errAgain says that the place was moved and the read begins again.
var errAgain = errors.New("read again")

// Fill reads ahead from a file, from the batch that holds the offset next on: whole
// checked batches, from byte off of the chunk to its end, which the caller releases.
// No chunk: the file has no more, and what follows lies in another. Errors:
// *recovery.Damage, *extents.Elsewhere, ErrReleased, those of reading.
func (c *Cursor) Fill(f *File, b Bounds, next uint64) (chunk *memory.Chunk, off int, err error) {
	if c.file != f {
		c.file, c.at = f, f.Position(next)
	}
	r := reading{c, next, b}
	c.size = max(c.size, minRead)
	for want := c.size; ; {
		if c.at >= b.Size {
			return nil, 0, r.ranOut()
		}
		chunk, err := f.read(c.at, int(min(int64(want), b.Size-c.at)))
		if err != nil {
			return nil, 0, err
		}
		off, need, err := r.take(chunk)
		switch {
		case errors.Is(err, errAgain):
			need = 0
		case err != nil:
			chunk.Release()
			return nil, 0, err
		case off >= 0:
			c.size = min(2*c.size, MaxRead)
			return chunk, off, nil
		}
		chunk.Release()
		want = max(need, c.size)
	}
}

// take checks the batches in a chunk, which was read at the cursor, and says where
// those from next on begin, -1 if there is not one whole batch to keep. It returns
// how many bytes the next read needs then.
func (r *reading) take(c *memory.Chunk) (from, need int, err error) {
	rest := c.Buf
	from, next := -1, r.next
	for len(rest) > 0 {
		at := len(c.Buf) - len(rest)
		b, err := batch.CheckHeader(rest, limits)
		if errors.Is(err, batch.ErrShort) && r.at+int64(len(c.Buf)) < r.b.Size {
			if len(rest) >= batch.HeaderSize {
				need = batch.Batch(rest).Len()
			}
			c.Buf = c.Buf[:at]
			break
		}
		if err == nil && b.End() > r.next {
			err = b.CheckBody()
		}
		if err == nil {
			err = r.fits(b)
		}
		if err != nil {
			if from >= 0 {
				c.Buf = c.Buf[:at] // yield the good ones first
				break
			}
			return -1, 0, r.step(r.at+int64(at), err)
		}
		if from >= 0 && (b.Control() || b.Base() != next) {
			c.Buf = c.Buf[:at]
			break
		}
		if !b.Control() && b.End() > r.next {
			if from < 0 && b.Base() > r.next { // what lay in between is lost, and was not seen: the index begins behind it
				return -1, 0, r.damage(b.Base(), r.at+int64(at), ErrMissing)
			}
			if from < 0 {
				from = at
			}
			next = b.End()
		}
		rest = rest[len(b):]
	}
	r.at += int64(len(c.Buf))
	return from, need, nil
}

// fits holds what the owner can check on its own path (R21).
func (r *reading) fits(b batch.Batch) error {
	switch {
	case b.Epoch() != r.file.Epoch:
		return fmt.Errorf("batch of epoch %d in a file of epoch %d", b.Epoch(), r.file.Epoch)
	case b.End() > r.b.Stop && !b.Control():
		return fmt.Errorf("batch of offsets %d to %d goes beyond %d", b.Base(), b.End(), r.b.Stop)
	}
	return nil
}

// damage says that what is wanted is lost up to an offset, or as far as the file goes.
func (r *reading) damage(to uint64, at int64, err error) error {
	return &recovery.Damage{From: r.next, To: min(to, r.b.After), File: r.file.Handle.Name, At: at, Err: err}
}

// step finds the first whole batch behind a bad place of a file. The cursor goes on
// there if it does not lie beyond the offset that is wanted.
func (r *reading) step(at int64, bad error) error {
	f := r.file
	h, err := f.open()
	if err != nil {
		return err
	}
	defer f.shelf.Cache.Release(&f.Handle, false)
	for scan := f.scanner(h, at, r.b.Size); ; {
		x, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return r.damage(r.b.After, at, bad)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f.Handle.Name, err)
		}
		if x.Kind != segment.Whole || x.Batch.Control() || r.fits(x.Batch) != nil {
			continue
		}
		if x.From <= r.next {
			if x.To > r.next {
				r.at = x.At
				return errAgain
			}
			continue
		}
		return r.damage(x.From, at, bad)
	}
}

// ranOut is called when the file ends before the offset that is wanted.
func (r *reading) ranOut() error {
	if r.b.After > r.next && r.b.Away {
		return &extents.Elsewhere{From: r.next, To: r.b.After}
	}
	if r.b.After > r.next {
		return r.damage(r.b.After, r.b.Size, io.ErrUnexpectedEOF)
	}
	r.Leave()
	return nil
}
