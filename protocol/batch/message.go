package batch

import (
	"encoding/binary"
	"fmt"
)

// MaxProperties bounds the properties of one message. It is part of the format.
const MaxProperties = 4096

// Property is one name and value of a message. Order and repetition are kept.
type Property struct{ Name, Value string }

// Message is one message as an application sees it.
type Message struct {
	Offset      uint64 // set by a Decoder
	Key         []byte // routing key; nil for none, which is not the same as an empty one
	Payload     []byte
	Properties  []Property
	PublishTime int64 // the producer's clock, ms since 1970
	DeliverAt   int64 // ms since 1970, 0 for at once
	Schema      uint64
}

// Check says whether a broker with these limits takes m. The error wraps [ErrTooLarge].
func (m *Message) Check(l Limits) error {
	if n := len(m.Properties); n > MaxProperties {
		return fmt.Errorf("%w: message with %d properties, at most %d", ErrTooLarge, n, MaxProperties)
	}
	size := binary.MaxVarintLen64*2 + binary.MaxVarintLen16 + len(m.Key) + len(m.Payload)
	for i := range m.Properties {
		size += len(m.Properties[i].Name) + len(m.Properties[i].Value) + 2*binary.MaxVarintLen32
	}
	if l = l.WithDefaults(); size > l.Message {
		return fmt.Errorf("%w: message of %d bytes, at most %d", ErrTooLarge, size, l.Message)
	}
	return nil
}

// Decoder yields the messages of one batch after another. Keys and payloads of
// the messages lie in the batch, or for a compressed one in a buffer the
// Decoder allocates anew for each batch, so they stay valid as long as they
// are held. Properties are always new memory. Not safe for concurrent use.
type Decoder struct {
	limits Limits
	b      Batch
	table  table
	row    row
	block  []byte
	at     int // block[at:] is not decoded yet
	left   int
}

// NewDecoder returns a Decoder that accepts batches within l.
func NewDecoder(l Limits) *Decoder { return &Decoder{limits: l.WithDefaults()} }

// Reset begins with b, a whole batch or a part, which [Check] must have
// accepted. It decompresses the block.
func (d *Decoder) Reset(b Batch) error {
	d.left = 0
	if b.Control() {
		return nil
	}
	t, err := openTable(b)
	if err != nil {
		return fmt.Errorf("open batch: %w", err)
	}
	size, err := blockSize(b, &t, d.limits)
	if err != nil {
		return fmt.Errorf("open batch: %w", err)
	}
	block, err := decompress(b.Codec(), nil, t.block, size)
	if err != nil {
		return fmt.Errorf("open batch: %w", err)
	}
	d.b, d.table, d.block, d.at, d.left = b, t, block, 0, b.Count()
	return nil
}

// blockSize is the length of b's block when it is not compressed, bounded by
// Limits.Body whatever the header and the compressed bytes claim.
func blockSize(b Batch, t *table, l Limits) (int, error) {
	size := b.BodySize() - (len(b.Body()) - len(t.block))
	if size < 0 || size > l.Body {
		return 0, corrupt("uncompressed length")
	}
	return size, nil
}

// Next fills m with the next message and reports whether there was one. An
// error means that the batch lies although its CRC is right; the Decoder then
// has no more messages.
func (d *Decoder) Next(m *Message) (bool, error) {
	if d.left == 0 {
		return false, nil
	}
	d.left--
	if err := d.next(m); err != nil {
		d.left = 0
		return false, fmt.Errorf("decode message of batch at offset %d: %w", d.b.Base(), err)
	}
	return true, nil
}

func (d *Decoder) next(m *Message) error {
	r := &d.row
	if err := d.table.read(r); err != nil {
		return err
	}
	end := d.at + r.record
	if end > len(d.block) {
		return corrupt("record longer than the block")
	}
	rec := d.block[d.at:end:end]
	d.at = end
	if d.table.part {
		if got := rowCRC(r.covered, rec); got != r.crc {
			return fmt.Errorf("%w: message CRC %08x, computed %08x", ErrCorrupt, r.crc, got)
		}
	}
	m.Offset, m.Key, m.DeliverAt = d.b.Base()+uint64(r.index), r.key, r.deliverAt
	return m.decode(rec, d.table.base)
}

// decode reads a record.
func (m *Message) decode(rec []byte, base int64) error {
	// A record that begins with one byte each of publish time, schema and property count is nearly every one.
	if len(rec) >= 3 && rec[0] < 0x80 && rec[1] < 0x80 && rec[2] == 0 {
		m.PublishTime = base + (int64(rec[0]>>1) ^ -int64(rec[0]&1))
		m.Schema, m.Properties, m.Payload = uint64(rec[1]), nil, rec[3:]
		return nil
	}
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
	count, n := binary.Uvarint(rec)
	switch {
	case n <= 0 || count > uint64(len(rec)-n)/2:
		return corrupt("property count")
	case count > MaxProperties:
		return fmt.Errorf("%w: message with %d properties, at most %d", ErrTooLarge, count, MaxProperties)
	}
	var err error
	m.Properties, m.Payload, err = cutProperties(rec[n:], int(count))
	return err
}

// cutProperties reads count properties and returns what stands behind them. All
// names and values share one string, made once their bytes were found good.
func cutProperties(b []byte, count int) ([]Property, []byte, error) {
	rest := b
	for range 2 * count {
		size, n := binary.Uvarint(rest)
		if n <= 0 || size > uint64(len(rest)-n) {
			return nil, nil, corrupt("property")
		}
		rest = rest[n+int(size):]
	}
	if count == 0 {
		return nil, rest, nil
	}
	text := string(b[:len(b)-len(rest)])
	props := make([]Property, count)
	cut := func() string {
		size, n := binary.Uvarint(b)
		s := text[n : n+int(size)]
		b, text = b[n+int(size):], text[n+int(size):]
		return s
	}
	for i := range props {
		props[i].Name = cut()
		props[i].Value = cut()
	}
	return props, rest, nil
}

// appendRecord appends the record of m, whose publish time counts from base.
func appendRecord(dst []byte, m *Message, base int64) []byte {
	delta := m.PublishTime - base
	if zigzag := uint64(delta<<1) ^ uint64(delta>>63); zigzag < 0x80 && m.Schema < 0x80 && len(m.Properties) == 0 {
		dst = append(dst, byte(zigzag), byte(m.Schema), 0)
		return append(dst, m.Payload...)
	}
	dst = binary.AppendVarint(dst, delta)
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
