package wal

import (
	"errors"
	"fmt"
	"math"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/volume"
)

// ErrEnd says that nothing is committed behind the reader's place yet.
var ErrEnd = errors.New("end of log")

// Trimmed says that the offset asked for lies below the start of the log.
type Trimmed struct{ LogStart uint64 }

func (e *Trimmed) Error() string { return fmt.Sprintf("the log starts at offset %d", e.LogStart) }

// Damage says that messages cannot be read. A reader steps over it with Seek(To).
type Damage = recovery.Damage

// View is a run of whole batches in memory, to be released once.
type View = memory.View

// Reader yields the batches of a log in the order of offsets, from memory or
// from files. It holds no file open and, at the end of the log, no memory. Not
// safe for concurrent use.
type Reader struct {
	log  *Log
	next uint64

	serial uint64 // the chunk of the tail it was in, and where
	pos    int

	files volume.Cursor
	buf   *memory.Chunk // whole checked batches that were read ahead, from off on
	off   int

	limit uint64 // nothing at or above it is shown, when the log was last asked

	cold bool // passes the memory by, to see what is in the files
}

// Reader returns a reader whose first batch is the one that holds from.
func (l *Log) Reader(from uint64) *Reader { return &Reader{log: l, next: from} }

// Offset is the next offset the reader yields.
func (r *Reader) Offset() uint64 { return r.next }

// Seek goes on at another offset.
func (r *Reader) Seek(offset uint64) {
	if r.buf != nil && r.files.In() && offset != r.next {
		r.letGo()
		r.files.Slow()
	}
	if offset != r.next {
		r.serial = 0
		r.files.Leave()
	}
	r.next = offset
}

// Close gives the reader's memory back.
func (r *Reader) Close() { r.letGo() }

func (r *Reader) letGo() {
	if r.buf != nil {
		r.buf.Release()
		r.buf = nil
	}
}

// Next returns the next batches: as many as lie together and fit maxBytes, but
// at least one. Nothing at or above the committed end is ever shown (R1).
// Errors: ErrEnd, ErrClosed, *Gap, *Trimmed, *InCold, *Elsewhere, *Damage; then the
// reader has not moved.
func (r *Reader) Next(maxBytes int) (View, error) {
	for {
		if r.buf != nil {
			if v, ok := r.fromBuffer(maxBytes); ok {
				return v, nil
			}
		}
		s, err := r.log.source(r)
		if err != nil {
			r.letGo()
			return View{}, err
		}
		if s.chunk != nil {
			r.letGo()
			return r.cut(s.chunk, s.data, s.pos, maxBytes), nil
		}
		switch err := r.fill(s); {
		case errors.Is(err, volume.ErrReleased):
			r.files.Leave() // what is to be said of it now, the next look tells
		case err != nil && r.cold:
			return View{}, err
		case err != nil:
			return View{}, r.log.orCold(r.next, err)
		}
	}
}

// source is where a reader finds its next batch.
type source struct {
	chunk         *memory.Chunk // in memory, with a reference for the reader; else in file
	data          []byte        // of the chunk what may be read
	pos           int
	file          *file
	volume.Bounds // of the file; a size of -1: not known yet
}

// source looks where the reader's next batch is.
func (l *Log) source(r *Reader) (source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.limit = math.MaxUint64
	if l.ends.held {
		r.limit = l.ends.shown()
	}
	if err := l.readable(r.next, l.ends.shown()); err != nil {
		return source{}, err
	}
	if c := l.tail.Find(r.next); c != nil && len(c.Committed()) > 0 && !r.cold {
		s := source{chunk: c, data: c.Committed()}
		if c.Serial() == r.serial {
			s.pos = r.pos
		} else {
			s.pos = locate(s.data, r.next)
		}
		r.serial = c.Serial()
		c.Retain()
		return s, nil
	}
	return l.inFiles(r.next)
}

// readable says why nothing below end can be read at an offset. l.mu is held.
func (l *Log) readable(offset, end uint64) error {
	switch {
	case l.door.closed:
		return ErrClosed
	case offset < l.ends.start:
		return &Trimmed{LogStart: l.ends.start}
	case offset >= end:
		return ErrEnd
	}
	return nil
}

// inFiles looks which file holds an offset. l.mu is held.
func (l *Log) inFiles(offset uint64) (source, error) {
	if err := l.readable(offset, l.ends.committed); err != nil {
		return source{}, err
	}
	x, gap := l.extents.At(offset)
	if gap != nil {
		return source{}, gap
	}
	stop := min(x.End, l.ends.committed)
	f, after := l.files.find(offset, x.Epoch)
	if f == nil || f.known && f != l.files.current && f.end <= offset {
		if end := l.files.cold.End(offset); end > offset {
			return source{}, &InCold{From: offset, To: min(after, stop, end)}
		}
	}
	if f == nil && x.Away {
		return source{}, &Elsewhere{From: offset, To: min(after, stop)}
	}
	if f == nil {
		return source{}, &Damage{From: offset, To: min(after, stop), File: l.dir(), Err: errors.New("segment file is missing")}
	}
	s := source{file: f, Bounds: volume.Bounds{Size: f.size, Stop: stop, After: min(after, stop), Away: x.Away}}
	if !f.known {
		s.Size = -1
	}
	return s, nil
}

// locate finds the batch that holds offset; buf is whole batches.
func locate(buf []byte, offset uint64) int {
	pos := 0
	for pos < len(buf) {
		b := batch.Batch(buf[pos:])
		if b.End() > offset {
			break
		}
		pos += b.Len()
	}
	return pos
}

// cut makes a view of the batches in data, which lies in c, from pos on, and
// moves the reader behind it.
func (r *Reader) cut(c *memory.Chunk, data batch.Batch, pos, maxBytes int) View {
	var last uint64
	end := pos
	for end < len(data) {
		b := data[end:]
		n := b.Len()
		if end > pos && (end-pos+n > maxBytes || b.End() > r.limit) {
			break
		}
		last = b.End()
		end += n
	}
	r.next, r.pos = last, end
	return c.View(data[pos:end:end], data[pos:].Base(), last)
}

// fromBuffer yields what was read ahead.
func (r *Reader) fromBuffer(maxBytes int) (View, bool) {
	if r.off >= len(r.buf.Buf) {
		r.letGo()
		return View{}, false
	}
	if r.next >= r.limit { // read ahead, and not shown yet when it was
		r.letGo()
		r.files.Leave()
		return View{}, false
	}
	r.buf.Retain()
	v := r.cut(r.buf, r.buf.Buf, r.off, maxBytes)
	r.off = r.pos
	r.serial = 0
	if r.off >= len(r.buf.Buf) {
		r.letGo()
	}
	return v, true
}

// fill reads ahead from a file into r.buf.
func (r *Reader) fill(s source) (err error) {
	if s.Size < 0 {
		if s.Size, err = s.file.load(s.After); err != nil {
			return err
		}
		if s.file.holdsNothing() { // which is known only now: look for another
			r.files.Leave()
			return nil
		}
	}
	buf, off, err := r.files.Fill(s.file.File, s.Bounds, r.next)
	if buf != nil {
		r.buf, r.off = buf, off
	}
	return err
}
