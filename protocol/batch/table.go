package batch

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// row is one message's entry in the table of a body.
type row struct {
	index     int // of the message in its batch
	record    int // bytes of the record
	key       []byte
	deliverAt int64 // ms, 0 for none
	crc       uint32
}

const (
	rowKey       = 1
	rowDeliverAt = 2
)

// table walks the rows of a body in place.
type table struct {
	rest  []byte // rows not read yet
	base  int64  // base publish time, ms
	block []byte // what follows the table: records, compressed or not
	part  bool
	next  int // index of the next message in a whole batch
}

func corrupt(what string) error { return fmt.Errorf("%w: %s", ErrCorrupt, what) }

// openTable splits a body into rows and block.
func openTable(b Batch) (table, error) {
	body := b.Body()
	size, n := binary.Uvarint(body)
	if n <= 0 {
		return table{}, corrupt("table length")
	}
	body = body[n:]
	base, n := binary.Varint(body)
	if n <= 0 {
		return table{}, corrupt("base publish time")
	}
	body = body[n:]
	if size > uint64(len(body)) {
		return table{}, corrupt("table longer than its body")
	}
	return table{rest: body[:size], base: base, block: body[size:], part: b.Attributes()&Part != 0}, nil
}

// read returns the next row. Its key lies in the batch.
func (t *table) read() (row, error) {
	r := row{index: t.next}
	p := t.rest
	if t.part {
		i, n := binary.Uvarint(p)
		if n <= 0 || i > 1<<31 {
			return r, corrupt("row index")
		}
		r.index, p = int(i), p[n:]
	}
	t.next++
	head, n := binary.Uvarint(p)
	if n <= 0 || head>>2 > 1<<31 {
		return r, corrupt("row head")
	}
	p = p[n:]
	r.record = int(head >> 2)
	if head&rowKey != 0 {
		size, n := binary.Uvarint(p)
		if n <= 0 || size > uint64(len(p)-n) {
			return r, corrupt("row key")
		}
		r.key, p = p[n:n+int(size):n+int(size)], p[n+int(size):]
	}
	if head&rowDeliverAt != 0 {
		r.deliverAt, n = binary.Varint(p)
		if n <= 0 {
			return r, corrupt("row deliver-at")
		}
		p = p[n:]
	}
	if len(p) < 4 {
		return r, corrupt("row CRC")
	}
	r.crc = binary.LittleEndian.Uint32(p)
	t.rest = p[4:]
	return r, nil
}

// appendRow is the reverse of read; index is written only for a part.
func appendRow(dst []byte, r row, part bool) []byte {
	if part {
		dst = binary.AppendUvarint(dst, uint64(r.index))
	}
	head := uint64(r.record) << 2
	if r.key != nil {
		head |= rowKey
	}
	if r.deliverAt != 0 {
		head |= rowDeliverAt
	}
	dst = binary.AppendUvarint(dst, head)
	if r.key != nil {
		dst = binary.AppendUvarint(dst, uint64(len(r.key)))
		dst = append(dst, r.key...)
	}
	if r.deliverAt != 0 {
		dst = binary.AppendVarint(dst, r.deliverAt)
	}
	return binary.LittleEndian.AppendUint32(dst, r.crc)
}

// rowCRC covers key, deliver-at and record.
func rowCRC(key []byte, deliverAt int64, record []byte) uint32 {
	crc := uint32(0)
	if len(key) > 0 {
		crc = crc32.Update(crc, castagnoli, key)
	}
	if deliverAt != 0 {
		var at [8]byte
		binary.LittleEndian.PutUint64(at[:], uint64(deliverAt))
		crc = crc32.Update(crc, castagnoli, at[:])
	}
	return crc32.Update(crc, castagnoli, record)
}

// CheckTable walks the table, never the messages: a batch that passes has the
// rows its header counts, none larger than the limit, and together exactly the
// block its header claims. The broker asks this at the door, so that no later
// reader finds offsets that disagree with the messages.
func (b Batch) CheckTable(l Limits) error {
	l = l.WithDefaults()
	t, err := openTable(b)
	if err != nil {
		return err
	}
	head := len(b.Body()) - len(t.block)
	sum := 0
	for range b.Count() {
		r, err := t.read()
		if err != nil {
			return err
		}
		if size := r.record + len(r.key); size > l.Message {
			return fmt.Errorf("%w: message of %d bytes, at most %d", ErrTooLarge, size, l.Message)
		}
		sum += r.record
		if sum > l.Body {
			return fmt.Errorf("%w: records of more than %d bytes", ErrTooLarge, l.Body)
		}
	}
	switch {
	case len(t.rest) != 0:
		return corrupt("more rows than messages")
	case head+sum != b.BodySize():
		return corrupt("records do not add up to the body")
	case b.Codec() == None && sum != len(t.block):
		return corrupt("records do not add up to the block")
	}
	return nil
}

// Keys calls yield with the index and routing key (nil for none) of each message
// in order until it returns false. The key lies in the batch.
func (b Batch) Keys(yield func(index int, key []byte, deliverAt int64) bool) error {
	t, err := openTable(b)
	if err != nil {
		return err
	}
	for range b.Count() {
		r, err := t.read()
		if err != nil {
			return err
		}
		if !yield(r.index, r.key, r.deliverAt) {
			return nil
		}
	}
	return nil
}
