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
	bytes     []byte // the row as it stands, without the index a part puts before it
	covered   []byte // what of it the CRC covers
}

const (
	rowKey       = 1
	rowDeliverAt = 2
	maxRecord    = 1 << 31
)

// table walks the rows of a body in place.
type table struct {
	rows  []byte
	at    int    // rows[at:] is not read yet
	base  int64  // base publish time, ms
	block []byte // what follows the table: records, compressed or not
	part  bool
	next  int // index of the next message in a whole batch
}

func corrupt(what string) error { return fmt.Errorf("%w: %s", ErrCorrupt, what) }

// uvarint is binary.Uvarint with the one- and two-byte cases inlined: nearly
// every row head and record prefix is one of them.
func uvarint(p []byte) (uint64, int) {
	if len(p) > 1 {
		if p[0] < 0x80 {
			return uint64(p[0]), 1
		}
		if p[1] < 0x80 {
			return uint64(p[0]&0x7f) | uint64(p[1])<<7, 2
		}
	}
	return binary.Uvarint(p)
}

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
	return table{rows: body[:size:size], base: base, block: body[size:], part: b.Attributes()&Part != 0}, nil
}

// read fills r with the next row. Its slices lie in the batch.
func (t *table) read(r *row) error {
	p := t.rows[t.at:]
	r.index = t.next
	if t.part {
		i, n := binary.Uvarint(p)
		if n <= 0 || i > maxRecord {
			return corrupt("row index")
		}
		r.index, p = int(i), p[n:]
		t.at += n
	}
	head, n := uvarint(p)
	if n <= 0 || head>>2 > maxRecord {
		return corrupt("row head")
	}
	r.record, r.key, r.deliverAt = int(head>>2), nil, 0
	end := n
	if head&(rowKey|rowDeliverAt) != 0 {
		var err error
		if end, err = r.readOptions(p, n, head); err != nil {
			return err
		}
	}
	if len(p)-end < 4 {
		return corrupt("row CRC")
	}
	r.crc = binary.LittleEndian.Uint32(p[end:])
	r.covered, r.bytes = p[n:end], p[:end+4]
	t.at += end + 4
	t.next++
	return nil
}

// readOptions reads key and deliver-at, which begin at p[at:], and returns where they end.
func (r *row) readOptions(p []byte, at int, head uint64) (int, error) {
	if head&rowKey != 0 {
		size, n := uvarint(p[at:])
		if n <= 0 || size > uint64(len(p)-at-n) {
			return 0, corrupt("row key")
		}
		at += n
		r.key = p[at : at+int(size) : at+int(size)]
		at += int(size)
	}
	if head&rowDeliverAt != 0 {
		v, n := binary.Varint(p[at:])
		if n <= 0 {
			return 0, corrupt("row deliver-at")
		}
		r.deliverAt = v
		at += n
	}
	return at, nil
}

// appendRow appends the row of m, whose record is given.
func appendRow(dst []byte, m *Message, record []byte) []byte {
	head := uint64(len(record)) << 2
	if m.Key == nil && m.DeliverAt == 0 {
		dst = binary.AppendUvarint(dst, head)
		return binary.LittleEndian.AppendUint32(dst, Checksum(record))
	}
	if m.Key != nil {
		head |= rowKey
	}
	if m.DeliverAt != 0 {
		head |= rowDeliverAt
	}
	dst = binary.AppendUvarint(dst, head)
	at := len(dst)
	if m.Key != nil {
		dst = binary.AppendUvarint(dst, uint64(len(m.Key)))
		dst = append(dst, m.Key...)
	}
	if m.DeliverAt != 0 {
		dst = binary.AppendVarint(dst, m.DeliverAt)
	}
	return binary.LittleEndian.AppendUint32(dst, rowCRC(dst[at:], record))
}

// rowCRC covers key and deliver-at as they stand in the row, then the record.
func rowCRC(covered, record []byte) uint32 {
	crc := uint32(0)
	if len(covered) > 0 {
		crc = Checksum(covered)
	}
	return crc32.Update(crc, castagnoli, record)
}

// CheckTable walks the table of a producer's batch, never the messages: a batch
// that passes has the rows its header counts, none larger than the limit, and
// together exactly the block its header claims. The broker asks this at the
// door, so that no later reader finds offsets that disagree with the messages.
// Control batches and parts, which no producer sends, do not pass.
func (b Batch) CheckTable(l Limits) error {
	if b.Attributes()&(Control|Part) != 0 {
		return corrupt("not a batch that a producer sends")
	}
	l = l.WithDefaults()
	t, err := openTable(b)
	if err != nil {
		return err
	}
	head := len(b.Body()) - len(t.block)
	sum, err := t.sum(b.Count(), l)
	switch {
	case err != nil:
		return err
	case t.at != len(t.rows):
		return corrupt("more rows than messages")
	case head+sum != b.BodySize():
		return corrupt("records do not add up to the body")
	case b.Codec() == None && sum != len(t.block):
		return corrupt("records do not add up to the block")
	}
	return nil
}

// sum reads the rows of count messages and adds up their records.
func (t *table) sum(count int, l Limits) (int, error) {
	sum := 0
	var r row
	for range count {
		// A row of a head of two bytes and a CRC, which is nearly every row, without a call.
		if p := t.rows[t.at:]; len(p) >= 6 && p[0]&(0x80|rowKey|rowDeliverAt) == 0x80 && p[1] < 0x80 {
			r.record, r.key = int(p[0]&0x7f)>>2|int(p[1])<<5, nil
			t.at += 6
		} else if err := t.read(&r); err != nil {
			return 0, err
		}
		if size := r.record + len(r.key); size > l.Message {
			return 0, fmt.Errorf("%w: message of %d bytes, at most %d", ErrTooLarge, size, l.Message)
		}
		if sum += r.record; sum > l.Body {
			return 0, fmt.Errorf("%w: records of more than %d bytes", ErrTooLarge, l.Body)
		}
	}
	return sum, nil
}

// Keys calls yield with the index, routing key (nil for none) and deliver-at of
// each message in order until it returns false. The key lies in the batch.
func (b Batch) Keys(yield func(index int, key []byte, deliverAt int64) bool) error {
	if b.Control() {
		return nil
	}
	t, err := openTable(b)
	if err != nil {
		return err
	}
	var r row
	for range b.Count() {
		if err := t.read(&r); err != nil {
			return err
		}
		if !yield(r.index, r.key, r.deliverAt) {
			return nil
		}
	}
	return nil
}
