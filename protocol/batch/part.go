package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Parts cuts parts from batches. It keeps the last block it decompressed, so
// that several parts of one batch, one after another, decompress it once. The
// zero value is ready and takes the default [Limits]. Not safe for concurrent use.
type Parts struct {
	Limits Limits

	header [HeaderSize]byte // of the batch that block belongs to
	buf    []byte           // block's memory
	block  []byte
	table  table
	b      Batch
}

// Append appends to dst the part of b, which [Check] must have accepted, with
// count messages from index first on: their rows as the producer wrote them and
// their records, not compressed. The broker's header fields are kept. dst does
// not alias b. On an error dst is returned as it was.
func (p *Parts) Append(dst []byte, b Batch, first, count int) ([]byte, error) {
	return p.cut(dst, b, chosen{first: first, count: count})
}

// AppendChosen is Append with the messages at the given indexes, ascending.
func (p *Parts) AppendChosen(dst []byte, b Batch, indexes []int) ([]byte, error) {
	return p.cut(dst, b, chosen{list: indexes, count: len(indexes)})
}

// AppendPart is [Parts.AppendChosen] for a batch of which one part is needed.
func AppendPart(dst []byte, b Batch, indexes []int, l Limits) ([]byte, error) {
	p := Parts{Limits: l}
	return p.AppendChosen(dst, b, indexes)
}

// chosen is which messages a part holds: count of them, from first on or as listed.
type chosen struct {
	list         []int
	first, count int
}

// at is the i-th index chosen.
func (c *chosen) at(i int) int {
	if c.list != nil {
		return c.list[i]
	}
	return c.first + i
}

func (p *Parts) cut(dst []byte, b Batch, c chosen) ([]byte, error) {
	if b.Attributes()&(Control|Part) != 0 {
		return dst, fmt.Errorf("cut part: %w", corrupt("not a whole batch"))
	}
	err := p.open(b)
	size := 0
	if err == nil {
		size, err = p.rowBytes(c)
	}
	if err != nil {
		return dst, fmt.Errorf("cut part of batch at offset %d: %w", b.Base(), err)
	}
	at := len(dst)
	dst = append(dst, b[:HeaderSize]...)
	dst = binary.AppendUvarint(dst, uint64(size))
	dst = binary.AppendVarint(dst, p.table.base)
	// rowBytes has walked the table and found it good: these two walks end without an error.
	for w := p.walk(c); w.next(); {
		dst = binary.AppendUvarint(dst, uint64(w.row.index))
		dst = append(dst, w.row.bytes...)
	}
	for w := p.walk(c); w.next(); {
		dst = append(dst, w.record...)
	}
	part := Batch(dst[at:])
	binary.LittleEndian.PutUint32(part[0:], uint32(len(part)))
	binary.LittleEndian.PutUint32(part[56:], uint32(c.count))
	binary.LittleEndian.PutUint16(part[60:], uint16(Part))
	binary.LittleEndian.PutUint32(part[64:], Checksum(part.Body()))
	binary.LittleEndian.PutUint32(part[68:], uint32(len(part)-HeaderSize))
	part.seal()
	return dst, nil
}

// open makes table and block those of b. The block kept is known again by the
// whole header: an offset and its body CRC stand for one batch.
func (p *Parts) open(b Batch) error {
	t, err := openTable(b)
	if err != nil {
		return err
	}
	p.b, p.table = b, t
	if b.Codec() != None && p.block != nil && bytes.Equal(p.header[:], b[:HeaderSize]) {
		return nil
	}
	p.block = nil
	size, err := blockSize(b, &t, p.Limits.WithDefaults())
	if err != nil {
		return err
	}
	if b.Codec() != None {
		p.buf = slices.Grow(p.buf[:0], size)
		copy(p.header[:], b)
	}
	p.block, err = decompress(b.Codec(), p.buf, t.block, size)
	return err
}

// rowBytes is the length of the part's table.
func (p *Parts) rowBytes(c chosen) (int, error) {
	size := 0
	w := p.walk(c)
	for w.next() {
		size += uvarintLen(uint64(w.row.index)) + len(w.row.bytes)
	}
	if w.err == nil && (w.found == 0 || w.found != c.count) {
		return 0, fmt.Errorf("%d of %d indexes lie in a batch of %d messages", w.found, c.count, p.b.Count())
	}
	return size, w.err
}

// walker visits the messages chosen: next goes on to row and record of the
// next one, and returns false when there is none or err is set.
type walker struct {
	table  table
	block  []byte // records not passed yet
	c      chosen
	left   int // rows not read yet
	found  int
	row    row
	record []byte
	err    error
}

func (p *Parts) walk(c chosen) walker {
	return walker{table: p.table, block: p.block, c: c, left: p.b.Count()}
}

func (w *walker) next() bool {
	for ; w.left > 0 && w.found < w.c.count; w.left-- {
		if w.err = w.table.read(&w.row); w.err != nil {
			return false
		}
		if w.row.record > len(w.block) {
			w.err = corrupt("record longer than the block")
			return false
		}
		w.record, w.block = w.block[:w.row.record], w.block[w.row.record:]
		if w.row.index == w.c.at(w.found) {
			w.found++
			w.left--
			return true
		}
	}
	return false
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
