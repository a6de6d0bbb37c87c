package batch

import (
	"encoding/binary"
	"fmt"
)

// Splitter cuts parts from one batch, which it decompresses once.
type Splitter struct {
	b     Batch
	table table
	block []byte
}

// Split prepares b, which [Check] must have accepted, for [Splitter.AppendPart].
// A compressed block is decompressed into memory of its own, at most Limits.Body.
func Split(b Batch, l Limits) (Splitter, error) {
	t, block, err := open(b, l.WithDefaults())
	if err != nil {
		return Splitter{}, fmt.Errorf("split batch: %w", err)
	}
	return Splitter{b: b, table: t, block: block}, nil
}

// AppendPart appends to dst the part that holds the messages with the given
// indexes in the batch, ascending and at least one: their rows as the producer
// wrote them and their records, not compressed. The broker's header fields are kept.
func (s *Splitter) AppendPart(dst []byte, indexes []int) ([]byte, error) {
	size, err := s.rowBytes(indexes)
	if err != nil {
		return dst, fmt.Errorf("cut part: %w", err)
	}
	at := len(dst)
	dst = append(dst, s.b[:HeaderSize]...)
	dst = binary.AppendUvarint(dst, uint64(size))
	dst = binary.AppendVarint(dst, s.table.base)
	// rowBytes has walked the table: these two walks find it good.
	_ = s.walk(indexes, func(r *row, _ []byte) {
		dst = binary.AppendUvarint(dst, uint64(r.index))
		dst = append(dst, r.bytes...)
	})
	_ = s.walk(indexes, func(_ *row, record []byte) { dst = append(dst, record...) })
	p := Batch(dst[at:])
	binary.LittleEndian.PutUint32(p[0:], uint32(len(p)))
	binary.LittleEndian.PutUint32(p[56:], uint32(len(indexes)))
	binary.LittleEndian.PutUint16(p[60:], uint16(Part))
	binary.LittleEndian.PutUint32(p[64:], Checksum(p.Body()))
	binary.LittleEndian.PutUint32(p[68:], uint32(len(p)-HeaderSize))
	p.seal()
	return dst, nil
}

// rowBytes is the length of the part's table.
func (s *Splitter) rowBytes(indexes []int) (int, error) {
	size, found := 0, 0
	err := s.walk(indexes, func(r *row, _ []byte) {
		size += uvarintLen(uint64(r.index)) + len(r.bytes)
		found++
	})
	if err == nil && (found == 0 || found != len(indexes)) {
		err = fmt.Errorf("%d of %d indexes in a batch of %d messages", found, len(indexes), s.b.Count())
	}
	return size, err
}

// walk calls visit with row and record of each message chosen.
func (s *Splitter) walk(indexes []int, visit func(r *row, record []byte)) error {
	t := s.table
	var r row
	for i, pos := 0, 0; i < s.b.Count() && len(indexes) > 0; i++ {
		if err := t.read(&r); err != nil {
			return err
		}
		if r.record > len(s.block)-pos {
			return corrupt("record longer than the block")
		}
		if r.index == indexes[0] {
			visit(&r, s.block[pos:pos+r.record])
			indexes = indexes[1:]
		}
		pos += r.record
	}
	return nil
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// AppendPart appends one part of b: [Split] and [Splitter.AppendPart] in one.
func AppendPart(dst []byte, b Batch, indexes []int, l Limits) ([]byte, error) {
	s, err := Split(b, l)
	if err != nil {
		return dst, err
	}
	return s.AppendPart(dst, indexes)
}
