package batch

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Builder encodes messages into one batch. It keeps its buffers from batch to
// batch, so that a producer in steady state allocates nothing. The zero value
// is ready. Not safe for concurrent use.
type Builder struct {
	rows  []byte
	block []byte
	base  int64
	count int
}

// Count is the number of messages so far.
func (w *Builder) Count() int { return w.count }

// Size is an upper bound, in bytes, of the batch as it stands, not compressed.
func (w *Builder) Size() int {
	return HeaderSize + 2*binary.MaxVarintLen64 + len(w.rows) + len(w.block)
}

// Add copies m into the batch. Its Offset is ignored.
func (w *Builder) Add(m *Message) {
	if w.count == 0 {
		w.base = m.PublishTime
	}
	at := len(w.block)
	w.block = appendRecord(w.block, m, w.base)
	w.rows = appendRow(w.rows, m, w.block[at:])
	w.count++
}

// Identity is who sends a batch and which sequence its first message has.
type Identity struct {
	Producer uint64
	Session  uint32
	Sequence uint64
}

// AppendTo appends the encoded batch to dst and resets the Builder. A codec
// that does not make the block smaller is not used.
func (w *Builder) AppendTo(dst []byte, c Codec, id Identity) ([]byte, error) {
	if w.count == 0 {
		return dst, fmt.Errorf("encode batch: %w: no message", ErrCorrupt)
	}
	at := len(dst)
	dst = slices.Grow(dst, w.Size())
	dst = append(dst, make([]byte, HeaderSize)...)
	dst = binary.AppendUvarint(dst, uint64(len(w.rows)))
	dst = binary.AppendVarint(dst, w.base)
	dst = append(dst, w.rows...)
	block := len(dst)
	bodySize := block - at - HeaderSize + len(w.block)
	if c != None {
		out, err := compress(c, dst, w.block)
		if err != nil {
			return dst[:at], err
		}
		if dst = out; len(dst)-block >= len(w.block) {
			c, dst = None, dst[:block]
		}
	}
	if c == None {
		dst = append(dst, w.block...)
	}
	b := Batch(dst[at:])
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[36:], id.Session)
	binary.LittleEndian.PutUint64(b[40:], id.Producer)
	binary.LittleEndian.PutUint64(b[48:], id.Sequence)
	binary.LittleEndian.PutUint32(b[56:], uint32(w.count))
	binary.LittleEndian.PutUint16(b[60:], uint16(c))
	binary.LittleEndian.PutUint16(b[62:], Version)
	binary.LittleEndian.PutUint32(b[64:], Checksum(b.Body()))
	binary.LittleEndian.PutUint32(b[68:], uint32(bodySize))
	b.seal()
	w.Reset()
	return dst, nil
}

// Reset drops what was added and keeps the buffers.
func (w *Builder) Reset() { w.rows, w.block, w.count = w.rows[:0], w.block[:0], 0 }
