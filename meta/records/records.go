// Package records writes and reads a stream of records, the body of a snapshot of metadata: kind u8 · length u32
// little-endian · bytes. It knows nothing of what they say. A reader allocates in proportion to the bytes that are there.
package records

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Most bounds a record, in bytes; a cursor at its bounds takes a few MiB.
const Most = 64 << 20

// Writer writes records. After the first error it does nothing more, and Flush returns it.
type Writer struct {
	w     *bufio.Writer
	count uint64
	bytes int64
	err   error
}

// NewWriter returns a writer of a stream that begins with head.
func NewWriter(w io.Writer, head []byte) *Writer {
	out := &Writer{w: bufio.NewWriterSize(w, 64<<10)}
	out.write(head)
	return out
}

func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.w.Write(b)
		w.bytes += int64(len(b))
	}
}

// Put writes one record and keeps no part of b.
func (w *Writer) Put(kind uint8, b []byte) {
	var head [5]byte
	head[0] = kind
	binary.LittleEndian.PutUint32(head[1:], uint32(len(b)))
	w.write(head[:])
	w.write(b)
	w.count++
}

// Count returns the number of records so far.
func (w *Writer) Count() uint64 { return w.count }

// Flush ends the stream and returns its length in bytes and the first error.
func (w *Writer) Flush() (int64, error) {
	if w.err == nil {
		w.err = w.w.Flush()
	}
	return w.bytes, w.err
}

// Reader reads what a Writer has written.
type Reader struct {
	r   *bufio.Reader
	buf bytes.Buffer
}

// NewReader returns a reader, and the first n bytes of its stream.
func NewReader(r io.Reader, n int) (*Reader, []byte, error) {
	in := &Reader{r: bufio.NewReaderSize(r, 64<<10)}
	head := make([]byte, n)
	_, err := io.ReadFull(in.r, head)
	return in, head, err
}

// Next returns the next record, whose bytes are good until the next call.
func (r *Reader) Next() (kind uint8, b []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int64(binary.LittleEndian.Uint32(head[1:]))
	if size > Most {
		return 0, nil, fmt.Errorf("record of %d bytes", size)
	}
	r.buf.Reset()
	if _, err := io.CopyN(&r.buf, r.r, size); err != nil {
		return 0, nil, err
	}
	return head[0], r.buf.Bytes(), nil
}

// Ended says whether nothing is left.
func (r *Reader) Ended() bool {
	_, err := r.r.ReadByte()
	return err == io.EOF
}
