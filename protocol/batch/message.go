package batch

import (
	"encoding/binary"
	"fmt"
)

// Property is one name and value of a message. Order and repetition are kept.
type Property struct{ Name, Value string }

// Message is one message as an application sees it.
type Message struct {
	Offset      uint64 // set by a Decoder
	Key         []byte // routing key; nil for none
	Payload     []byte
	Properties  []Property
	PublishTime int64 // the producer's clock, ms since 1970
	DeliverAt   int64 // ms since 1970, 0 for at once
	Schema      uint64
}

// Decoder yields the messages of one batch after another. Keys and payloads of
// the messages lie in the batch, or for a compressed one in a buffer the
// Decoder allocates anew for each batch, so they stay valid as long as they
// are held.
type Decoder struct {
	limits Limits
	b      Batch
	table  table
	block  []byte
	left   int
}

// NewDecoder returns a Decoder that accepts batches within l.
func NewDecoder(l Limits) *Decoder { return &Decoder{limits: l.WithDefaults()} }

// Reset begins with b, which [Check] must have accepted. It decompresses the block.
func (d *Decoder) Reset(b Batch) error {
	d.left = 0
	if b.Control() {
		d.b = b
		return nil
	}
	t, err := openTable(b)
	if err != nil {
		return err
	}
	size := b.BodySize() - (len(b.Body()) - len(t.block))
	if size < 0 || size > d.limits.Body {
		return corrupt("uncompressed length")
	}
	block, err := decompress(b.Codec(), t.block, size)
	if err != nil {
		return err
	}
	d.b, d.table, d.block, d.left = b, t, block, b.Count()
	return nil
}

// Next fills m with the next message and reports whether there was one. An
// error means that the batch lies although its CRC is right.
func (d *Decoder) Next(m *Message) (bool, error) {
	if d.left == 0 {
		return false, nil
	}
	r, err := d.table.read()
	if err != nil {
		return false, err
	}
	if r.record > len(d.block) {
		return false, corrupt("record longer than the block")
	}
	rec := d.block[:r.record:r.record]
	if d.table.part {
		if got := rowCRC(r.key, r.deliverAt, rec); got != r.crc {
			return false, fmt.Errorf("%w: CRC of message at offset %d", ErrCorrupt, d.b.Base()+uint64(r.index))
		}
	}
	m.Offset, m.Key, m.DeliverAt = d.b.Base()+uint64(r.index), r.key, r.deliverAt
	if err := m.decode(rec, d.table.base); err != nil {
		return false, err
	}
	d.block = d.block[r.record:]
	d.left--
	return true, nil
}

// decode reads a record. Properties are allocated anew, never reused, since m may be copied.
func (m *Message) decode(rec []byte, base int64) error {
	delta, n := binary.Varint(rec)
	if n <= 0 {
		return corrupt("publish time")
	}
	rec = rec[n:]
	m.PublishTime = base + delta
	if m.Schema, n = binary.Uvarint(rec); n <= 0 {
		return corrupt("schema id")
	}
	rec = rec[n:]
	props, n := binary.Uvarint(rec)
	if n <= 0 || props > uint64(len(rec)-n)/2 {
		return corrupt("property count")
	}
	rec = rec[n:]
	m.Properties = nil
	if props > 0 {
		m.Properties = make([]Property, props)
	}
	for i := range m.Properties {
		var ok bool
		if m.Properties[i].Name, rec, ok = cutString(rec); !ok {
			return corrupt("property name")
		}
		if m.Properties[i].Value, rec, ok = cutString(rec); !ok {
			return corrupt("property value")
		}
	}
	m.Payload = rec
	return nil
}

func cutString(b []byte) (s string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, false
	}
	return string(b[n : n+int(size)]), b[n+int(size):], true
}

// appendRecord appends the record of m, whose publish time counts from base.
func appendRecord(dst []byte, m *Message, base int64) []byte {
	dst = binary.AppendVarint(dst, m.PublishTime-base)
	dst = binary.AppendUvarint(dst, m.Schema)
	dst = binary.AppendUvarint(dst, uint64(len(m.Properties)))
	for i := range m.Properties {
		dst = binary.AppendUvarint(dst, uint64(len(m.Properties[i].Name)))
		dst = append(dst, m.Properties[i].Name...)
		dst = binary.AppendUvarint(dst, uint64(len(m.Properties[i].Value)))
		dst = append(dst, m.Properties[i].Value...)
	}
	return append(dst, m.Payload...)
}
