package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
)

// ErrEnd says that nothing is committed behind the reader's place yet.
var ErrEnd = errors.New("end of log")

// Gap says that no message has the offsets [From, To): no epoch gave them. A
// reader steps over it with Seek(To).
type Gap struct{ From, To uint64 }

func (g *Gap) Error() string {
	return fmt.Sprintf("offsets %d to %d were never given to a message", g.From, g.To)
}

// Trimmed says that the offset asked for lies below the start of the log.
type Trimmed struct{ LogStart uint64 }

func (e *Trimmed) Error() string { return fmt.Sprintf("the log starts at offset %d", e.LogStart) }

// Elsewhere says that the messages [From, To) exist, in other stores than this
// one. A reader never steps over it: they are to be had there, or to be waited for.
type Elsewhere struct{ From, To uint64 }

func (e *Elsewhere) Error() string {
	return fmt.Sprintf("offsets %d to %d lie in another store", e.From, e.To)
}

// Damage says that messages cannot be read. A reader steps over it with Seek(To).
type Damage = recovery.Damage

// View is a run of whole batches, back to back, as they lie in memory. It must
// be released once, and Data not used afterwards.
type View struct {
	Data      []byte
	Base, End uint64 // offsets; Base may lie below the offset asked for
	chunk     *memory.Chunk
}

// Release gives the memory back.
func (v View) Release() {
	if v.chunk != nil {
		v.chunk.Release()
	}
}

// The sizes of reads from files: they grow while a reader goes on in order.
const (
	minRead = 16 << 10
	maxRead = 1 << 20
)

// Reader yields the batches of a log in the order of offsets, from memory or
// from files. It holds no file open and, at the end of the log, no memory. Not
// safe for concurrent use.
type Reader struct {
	log  *Log
	next uint64

	serial uint64 // the chunk of the tail it was in, and where
	pos    int

	file *file // the file it was in, and where
	at   int64
	size int           // of the next read
	buf  *memory.Chunk // whole checked batches that were read ahead, from off on
	off  int

	cold bool // passes the memory by, to see what is in the files
}

// Reader returns a reader whose first batch is the one that holds from.
func (l *Log) Reader(from uint64) *Reader { return &Reader{log: l, next: from, size: minRead} }

// Offset is the next offset the reader yields.
func (r *Reader) Offset() uint64 { return r.next }

// Seek goes on at another offset.
func (r *Reader) Seek(offset uint64) {
	if r.buf != nil && r.file != nil && offset != r.next {
		r.letGo()
		r.file, r.size = nil, minRead
	}
	if offset != r.next {
		r.serial = 0
		r.file = nil
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
// Errors: ErrEnd, ErrClosed, *Gap, *Trimmed, *Elsewhere, *Damage; then the reader has not moved.
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
		if err := r.fill(s, maxBytes); err != nil {
			return View{}, err
		}
	}
}

// source is where a reader finds its next batch.
type source struct {
	chunk *memory.Chunk // in memory, with a reference for the reader; else in file
	data  []byte        // of the chunk what may be read
	pos   int
	file  *file
	size  int64  // bytes of the file that may be read, -1: not known yet
	stop  uint64 // batches at or above it do not exist in this file (R19)
	after uint64 // the base of the next file, or the end of the log
	away  bool   // another store holds what is missing here
}

// source looks where the reader's next batch is.
func (l *Log) source(r *Reader) (source, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.door.closed:
		return source{}, ErrClosed
	case r.next < l.ends.start:
		return source{}, &Trimmed{LogStart: l.ends.start}
	case r.next >= l.ends.committed:
		return source{}, ErrEnd
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
	x, gap := l.extents.at(r.next)
	if gap != nil {
		return source{}, gap
	}
	stop := min(x.End, l.ends.committed)
	f, after := l.files.find(r.next, x.Epoch)
	if f == nil && x.Away {
		return source{}, &Elsewhere{From: r.next, To: min(after, stop)}
	}
	if f == nil {
		return source{}, &Damage{From: r.next, To: min(after, stop), File: l.dir(), Err: errors.New("segment file is missing")}
	}
	s := source{file: f, size: f.size, stop: stop, after: min(after, stop), away: x.Away}
	if !f.known {
		s.size = -1
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
	v := View{Base: data[pos:].Base(), chunk: c}
	end := pos
	for end < len(data) {
		b := data[end:]
		n := b.Len()
		if end > pos && end-pos+n > maxBytes {
			break
		}
		v.End = b.End()
		end += n
	}
	v.Data = data[pos:end:end]
	r.next, r.pos = v.End, end
	return v
}

// fromBuffer yields what was read ahead.
func (r *Reader) fromBuffer(maxBytes int) (View, bool) {
	if r.off >= len(r.buf.Buf) {
		r.letGo()
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
func (r *Reader) fill(s source, maxBytes int) error {
	f := s.file
	if s.size < 0 {
		var err error
		if s.size, err = f.load(s); err != nil {
			return err
		}
	}
	if r.file != f {
		r.file, r.at = f, f.position(r.next)
	}
	want := r.size
	for {
		if r.at >= s.size {
			return r.ranOut(s)
		}
		c, err := f.read(r.at, int(min(int64(want), s.size-r.at)))
		if err != nil {
			return err
		}
		need, err := r.take(c, s)
		switch {
		case errors.Is(err, errAgain):
			need = 0
		case err != nil:
			c.Release()
			return err
		case r.buf != nil:
			r.size = min(2*max(r.size, minRead), maxRead)
			return nil
		}
		c.Release()
		want = max(need, r.size)
	}
}

// take checks the batches in c, which was read at r.at, and keeps those from
// r.next on in r.buf. It returns how many bytes the next read needs when there
// is not one whole batch to keep.
func (r *Reader) take(c *memory.Chunk, s source) (need int, err error) {
	rest := c.Buf
	from, next := -1, r.next
	for len(rest) > 0 {
		at := len(c.Buf) - len(rest)
		b, err := batch.CheckHeader(rest, limits)
		if errors.Is(err, batch.ErrShort) && r.at+int64(len(c.Buf)) < s.size {
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
			err = r.fits(b, s)
		}
		if err != nil {
			if from >= 0 {
				c.Buf = c.Buf[:at] // yield the good ones first
				break
			}
			return 0, r.step(s, r.at+int64(at), err)
		}
		if from >= 0 && (b.Control() || b.Base() != next) {
			c.Buf = c.Buf[:at]
			break
		}
		if !b.Control() && b.End() > r.next {
			if from < 0 && b.Base() > r.next { // what lay in between is lost, and was not seen: the index begins behind it
				return 0, &Damage{From: r.next, To: min(b.Base(), s.after), File: s.file.handle.Name, At: r.at + int64(at), Err: errMissing}
			}
			if from < 0 {
				from = at
			}
			next = b.End()
		}
		rest = rest[len(b):]
	}
	r.at += int64(len(c.Buf))
	if from >= 0 {
		r.buf, r.off = c, from
	}
	return need, nil
}

// fits holds what the owner can check on its own path (R21).
func (r *Reader) fits(b batch.Batch, s source) error {
	switch {
	case b.Epoch() != s.file.epoch:
		return fmt.Errorf("batch of epoch %d in a file of epoch %d", b.Epoch(), s.file.epoch)
	case b.End() > s.stop && !b.Control():
		return fmt.Errorf("batch of offsets %d to %d goes beyond %d", b.Base(), b.End(), s.stop)
	}
	return nil
}

// ranOut is called when the file ends before the reader's next offset.
func (r *Reader) ranOut(s source) error {
	if s.file.holdsNothing() { // which is known only now: look for another
		r.file = nil
		return nil
	}
	if s.after > r.next && s.away {
		return &Elsewhere{From: r.next, To: s.after}
	}
	if s.after > r.next {
		return &Damage{From: r.next, To: s.after, File: s.file.handle.Name, At: s.size, Err: io.ErrUnexpectedEOF}
	}
	r.file = nil
	return nil
}
