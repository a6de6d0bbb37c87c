package protocol

import (
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"sync"
)

// HelloLimit is the largest frame, in bytes, and the largest buffer of a
// [Reader] before SetLimit: what a stranger can make this side hold.
const HelloLimit = 16 << 10

// Reader cuts a stream into frames. A frame that fits the buffer is read into
// it by the read that brings it and handed out in place. A larger one goes
// through a pooled buffer that grows as its bytes arrive, so that a length
// claims no memory which the peer has not filled a quarter of. Not safe for concurrent use.
type Reader struct {
	src   io.Reader
	buf   []byte
	r, w  int // buf[r:w] is read and not handed out
	size  int // of buf once the limit is above HelloLimit
	limit int
	big   *[]byte // the pooled buffer of the frame handed out last

	budget      *Budget // of large frames; nil: none
	first, rest int64   // held of it
}

// NewReader reads frames from src through a buffer of size bytes, of which it
// makes no more than [HelloLimit] before SetLimit allows larger frames.
func NewReader(src io.Reader, size int) *Reader {
	size = max(size, 512)
	return &Reader{src: src, buf: make([]byte, min(size, HelloLimit)), size: size, limit: HelloLimit}
}

// SetLimit sets the largest frame accepted, in bytes, its length field included,
// from the next Next on. With one above [HelloLimit] the buffer takes its full size.
func (r *Reader) SetLimit(n int) { r.limit = n }

// Buffered is the number of bytes read from the source and not handed out: 0
// means that the next Next reads from the source.
func (r *Reader) Buffered() int { return r.w - r.r }

// Next returns the next frame, whose header and body are valid until Next is
// called again. It ends with io.EOF between frames, io.ErrUnexpectedEOF inside
// one, a [*FrameError] for bytes that are no acceptable frame, or the source's
// error as it is. After an error the Reader is of no further use, but for one:
// a source's timeout inside no frame ([Reader.Buffered] is 0).
func (r *Reader) Next() (Frame, error) {
	r.release()
	if err := r.fill(4); err != nil {
		return Frame{}, err
	}
	n := int64(binary.LittleEndian.Uint32(r.buf[r.r:])) + 4
	switch {
	case n < FrameHead:
		return Frame{}, (&Frame{}).refuse(CodeBadFrame, "frame of %d bytes, at least %d", n, FrameHead)
	case n > int64(r.limit):
		return Frame{}, (&Frame{}).refuse(CodeTooLarge, "frame of %d bytes, at most %d", n, r.limit)
	case n > int64(len(r.buf)):
		if err := r.readBig(int(n)); err != nil {
			return Frame{}, err
		}
		return parseFrame(*r.big)
	}
	if err := r.fill(int(n)); err != nil {
		return Frame{}, err
	}
	b := r.buf[r.r : r.r+int(n)]
	r.r += int(n)
	return parseFrame(b)
}

// release gives back what the frame handed out last lies in.
func (r *Reader) release() {
	if r.big != nil {
		putBuffer(r.big)
		r.big = nil
	}
	r.settle()
	if r.r == r.w {
		r.r, r.w = 0, 0
	}
	if r.limit > HelloLimit && len(r.buf) < r.size {
		buf := make([]byte, r.size)
		r.r, r.w = 0, copy(buf, r.buf[r.r:r.w])
		r.buf = buf
	}
}

// fill reads until n bytes are there, n at most the buffer. It moves what there
// is to the front only when the rest of the frame has no room behind it.
func (r *Reader) fill(n int) error {
	if r.r+n > len(r.buf) {
		r.r, r.w = 0, copy(r.buf, r.buf[r.r:r.w])
	}
	for empty := 0; r.w-r.r < n; {
		got, err := r.src.Read(r.buf[r.w:])
		r.w += got
		if r.w-r.r >= n {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) && r.w > r.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		if got > 0 {
			empty = 0
		} else if empty++; empty == 100 {
			return io.ErrNoProgress
		}
	}
	return nil
}

// readBig reads the frame of n bytes, more than the buffer holds, into r.big.
func (r *Reader) readBig(n int) error {
	first := min(n, firstBuffer)
	if err := r.charge(first, 0); err != nil {
		return err
	}
	r.big = getBuffer(first)
	at := copy(*r.big, r.buf[r.r:r.w])
	r.r, r.w = 0, 0
	for {
		got, err := io.ReadFull(r.src, (*r.big)[at:])
		if at += got; at == n {
			return nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		if r.rest == 0 {
			if err := r.charge(0, n-first); err != nil {
				return err
			}
		}
		grown := getBuffer(min(n, 4*len(*r.big)))
		copy(*grown, *r.big)
		putBuffer(r.big)
		r.big = grown
	}
}

// Pooled buffers by size class, powers of two from the smallest to the largest;
// what is larger is not pooled.
const (
	firstBuffer = 256 << 10 // how much of a large frame is believed at once
	smallestBit = 12
	largestBit  = 25
)

// The one thing shared by all Readers: large frames are rare, their buffers costly.
var buffers [largestBit - smallestBit + 1]sync.Pool

// getBuffer returns a buffer of n bytes from its class. Its content is old.
func getBuffer(n int) *[]byte {
	class := max(bits.Len(uint(n-1)), smallestBit)
	if class > largestBit {
		b := make([]byte, n)
		return &b
	}
	if b, ok := buffers[class-smallestBit].Get().(*[]byte); ok {
		*b = (*b)[:n]
		return b
	}
	b := make([]byte, n, 1<<class)
	return &b
}

// putBuffer takes back what getBuffer returned.
func putBuffer(b *[]byte) {
	if n := cap(*b); n >= 1<<smallestBit && n <= 1<<largestBit && n&(n-1) == 0 {
		buffers[bits.Len(uint(n))-1-smallestBit].Put(b)
	}
}
