package batch

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
)

// Parts cuts batches into parts. Of the batch at hand it keeps the block, so
// that all its parts cost one decompression, and the place in the table, so
// that parts that ascend cost one walk together. The zero value is ready and
// takes the default [Limits]. Not safe for concurrent use.
type Parts struct {
	Limits Limits

	b      Batch            // the batch at hand; nil for none
	header [HeaderSize]byte // of the batch that block belongs to
	table  table
	block  []byte // records, not compressed
	buf    []byte // memory for a block that was compressed
	pos    int    // in block, of the record whose row is read next

	// The part in work: its rows, and its records, which end with block[from:to].
	rows, records []byte
	from, to      int
}

// Append appends to dst the part of b, which [Check] must have accepted, that
// holds count messages from index first on: their rows as the producer wrote
// them and their records, not compressed. The broker's header fields are kept.
// b must not change while it is the batch at hand. On an error dst is returned
// as it was.
func (p *Parts) Append(dst []byte, b Batch, first, count int) ([]byte, error) {
	err := p.begin(b, first)
	if err == nil {
		err = p.take(first, count)
	}
	if err != nil {
		return p.fail(dst, b, err)
	}
	return p.finish(dst, count), nil
}

// AppendChosen is Append for the messages at the given indexes, ascending.
func (p *Parts) AppendChosen(dst []byte, b Batch, indexes []int) ([]byte, error) {
	if len(indexes) == 0 {
		return p.fail(dst, b, fmt.Errorf("no message chosen"))
	}
	err := p.begin(b, indexes[0])
	for i := 0; i < len(indexes) && err == nil; i++ {
		err = p.take(indexes[i], 1)
	}
	if err != nil {
		return p.fail(dst, b, err)
	}
	return p.finish(dst, len(indexes)), nil
}

// AppendPart is [Parts.AppendChosen] for a batch of which one part is needed.
func AppendPart(dst []byte, b Batch, indexes []int, l Limits) ([]byte, error) {
	p := Parts{Limits: l}
	return p.AppendChosen(dst, b, indexes)
}

// Forget lets go of the batch at hand, and keeps the buffers.
func (p *Parts) Forget() { p.b, p.block, p.table = nil, nil, table{} }

func (p *Parts) fail(dst []byte, b Batch, err error) ([]byte, error) {
	p.Forget()
	return dst, fmt.Errorf("cut part of batch at offset %d: %w", b.Base(), err)
}

// begin makes b the batch at hand, with the table no further than row first.
func (p *Parts) begin(b Batch, first int) error {
	p.rows, p.records, p.from, p.to = p.rows[:0], p.records[:0], 0, 0
	// A header stands for one batch: it holds offset, epoch and the body's CRC.
	same := p.b != nil && bytes.Equal(p.header[:], b[:HeaderSize])
	if same && &p.b[0] == &b[0] && p.table.next <= first {
		return nil
	}
	if b.Attributes()&(Control|Part) != 0 {
		return corrupt("not a whole batch")
	}
	t, err := openTable(b)
	if err != nil {
		return err
	}
	if !same || b.Codec() == None {
		size, err := blockSize(b, &t, p.Limits.WithDefaults())
		if err != nil {
			return err
		}
		if b.Codec() != None {
			p.buf = slices.Grow(p.buf[:0], size)
		}
		if p.block, err = decompress(b.Codec(), p.buf, t.block, size); err != nil {
			return err
		}
	}
	p.b, p.table, p.pos = b, t, 0
	copy(p.header[:], b)
	return nil
}

// take puts count messages from index first on into the part.
func (p *Parts) take(first, count int) error {
	if count < 1 || first < p.table.next || first > p.b.Count()-count {
		return fmt.Errorf("%d messages from index %d on, after index %d, in a batch of %d",
			count, first, p.table.next-1, p.b.Count())
	}
	var r row
	for p.table.next < first {
		if err := p.read(&r); err != nil {
			return err
		}
	}
	if p.pos != p.to {
		p.records = append(p.records, p.block[p.from:p.to]...)
		p.from = p.pos
	}
	for range count {
		if err := p.read(&r); err != nil {
			return err
		}
		p.rows = binary.AppendUvarint(p.rows, uint64(r.index))
		p.rows = append(p.rows, r.bytes...)
	}
	p.to = p.pos
	return nil
}

// read reads a row and passes its record.
func (p *Parts) read(r *row) error {
	if err := p.table.read(r); err != nil {
		return err
	}
	if r.record > len(p.block)-p.pos {
		return corrupt("record longer than the block")
	}
	p.pos += r.record
	return nil
}

// finish appends the part in work, which holds count messages.
func (p *Parts) finish(dst []byte, count int) []byte {
	at := len(dst)
	dst = slices.Grow(dst, HeaderSize+2*binary.MaxVarintLen64+len(p.rows)+len(p.records)+p.to-p.from)
	dst = append(dst, p.b[:HeaderSize]...)
	dst = binary.AppendUvarint(dst, uint64(len(p.rows)))
	dst = binary.AppendVarint(dst, p.table.base)
	dst = append(dst, p.rows...)
	dst = append(dst, p.records...)
	dst = append(dst, p.block[p.from:p.to]...)
	part := Batch(dst[at:])
	binary.LittleEndian.PutUint32(part[0:], uint32(len(part)))
	binary.LittleEndian.PutUint32(part[56:], uint32(count))
	binary.LittleEndian.PutUint16(part[60:], uint16(Part))
	binary.LittleEndian.PutUint32(part[64:], Checksum(part.Body()))
	binary.LittleEndian.PutUint32(part[68:], uint32(len(part)-HeaderSize))
	part.seal()
	return dst
}
