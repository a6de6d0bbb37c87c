package batch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// HeaderSize is the length of a batch header in bytes.
const HeaderSize = 72

// Version is the format version this package writes and the newest it reads.
const Version = 1

// Attributes are the low bits of a batch header that say how to read its body.
type Attributes uint16

// The attribute bits. The lowest three hold the [Codec].
const (
	codecMask Attributes = 7
	// Control marks a batch without messages: "synced up to base offset" (R10).
	Control Attributes = 1 << 3
	// Part marks what a broker sends of a batch of which a consumer gets only some messages.
	Part Attributes = 1 << 4

	known = codecMask | Control | Part
)

// Errors of a batch that cannot be taken. They are wrapped with the detail.
var (
	ErrShort    = errors.New("batch is cut short")
	ErrCorrupt  = errors.New("batch is corrupt")
	ErrVersion  = errors.New("batch has an unknown format version")
	ErrTooLarge = errors.New("batch exceeds a limit")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the CRC-32C used by every Danube format.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// Batch is one whole encoded batch: header and body, exactly Len bytes. Its
// accessors read the header in place and need at least HeaderSize bytes; use
// [Check] on bytes that come from a socket or a disk.
type Batch []byte

// Len is the total length in bytes, header included.
func (b Batch) Len() int { return int(binary.LittleEndian.Uint32(b[0:])) }

// Base is the offset of the first message; of a control batch the next offset.
func (b Batch) Base() uint64 { return binary.LittleEndian.Uint64(b[8:]) }

// Epoch is the ownership under which the batch was appended.
func (b Batch) Epoch() uint64 { return binary.LittleEndian.Uint64(b[16:]) }

// AppendTime is the broker's time of the append, ms since 1970.
func (b Batch) AppendTime() int64 { return int64(binary.LittleEndian.Uint64(b[24:])) }

// Synced is the offset up to which the log was known synced when this batch was
// written; 0, which claims nothing, where the distance did not fit its field.
func (b Batch) Synced() uint64 {
	back := binary.LittleEndian.Uint32(b[32:])
	if back == math.MaxUint32 {
		return 0
	}
	return b.Base() - min(uint64(back), b.Base())
}

// Session tells one producer object of a client from the next under one producer id.
func (b Batch) Session() uint32 { return binary.LittleEndian.Uint32(b[36:]) }

// Producer is the producer id.
func (b Batch) Producer() uint64 { return binary.LittleEndian.Uint64(b[40:]) }

// Sequence is the sequence of the first message within producer and session.
func (b Batch) Sequence() uint64 { return binary.LittleEndian.Uint64(b[48:]) }

// Count is the number of messages, 0 for a control batch.
func (b Batch) Count() int { return int(binary.LittleEndian.Uint32(b[56:])) }

// Attributes are the attribute bits.
func (b Batch) Attributes() Attributes { return Attributes(binary.LittleEndian.Uint16(b[60:])) }

// Codec is how the block of the body is compressed.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & codecMask) }

// Control reports whether this is a control batch.
func (b Batch) Control() bool { return b.Attributes()&Control != 0 }

// BodyCRC is the CRC of the body as the producer computed it.
func (b Batch) BodyCRC() uint32 { return binary.LittleEndian.Uint32(b[64:]) }

// BodySize is the length of the body before compression, in bytes.
func (b Batch) BodySize() int { return int(binary.LittleEndian.Uint32(b[68:])) }

// Body is everything behind the header.
func (b Batch) Body() []byte { return b[HeaderSize:] }

// End is the offset after the last message.
func (b Batch) End() uint64 { return b.Base() + uint64(b.Count()) }

// Stamp is what the broker writes into a batch on append.
type Stamp struct {
	Base       uint64 // offset of the first message
	Epoch      uint64
	AppendTime int64  // ms since 1970
	Synced     uint64 // the log is synced up to this offset; at most Base
}

// Stamp writes the broker's fields and the header CRC in place.
func (b Batch) Stamp(s Stamp) {
	binary.LittleEndian.PutUint64(b[8:], s.Base)
	binary.LittleEndian.PutUint64(b[16:], s.Epoch)
	binary.LittleEndian.PutUint64(b[24:], uint64(s.AppendTime))
	back := s.Base - min(s.Synced, s.Base)
	binary.LittleEndian.PutUint32(b[32:], uint32(min(back, math.MaxUint32)))
	b.seal()
}

// seal writes the header CRC.
func (b Batch) seal() { binary.LittleEndian.PutUint32(b[4:], b.headerCRC()) }

func (b Batch) headerCRC() uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:HeaderSize])
}

// AppendMark appends a control batch that says "synced up to next" (R10).
func AppendMark(dst []byte, epoch, next uint64, appendTime int64) []byte {
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	b := Batch(dst[at:])
	binary.LittleEndian.PutUint32(b[0:], HeaderSize)
	binary.LittleEndian.PutUint16(b[60:], uint16(Control))
	binary.LittleEndian.PutUint16(b[62:], Version)
	b.Stamp(Stamp{Base: next, Epoch: epoch, AppendTime: appendTime, Synced: next})
	return dst
}

// Limits bound what is accepted. Zero means the default.
type Limits struct {
	Message  int // bytes of one message: payload, key and properties; default 10 MiB
	Batch    int // bytes of a batch on the wire; default 16 MiB
	Body     int // bytes of a body when not compressed; default 16 MiB
	Messages int // messages in a batch; default 65,536
}

// WithDefaults returns the limits with the zero fields filled.
func (l Limits) WithDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.Message, 10<<20)
	def(&l.Batch, 16<<20)
	def(&l.Body, 16<<20)
	def(&l.Messages, 1<<16)
	return l
}

// CheckHeader reads the batch at the front of b, which may hold more behind it,
// and checks its header: length, version, attributes, CRC. It returns the batch
// cut to its own length. ErrShort: b ends inside the batch, and the length
// itself was not proven unless HeaderSize bytes were there. The body is not looked at.
func CheckHeader(b []byte, l Limits) (Batch, error) {
	if len(b) < HeaderSize {
		return nil, fmt.Errorf("%w: %d of %d header bytes", ErrShort, len(b), HeaderSize)
	}
	h := Batch(b)
	if got, want := h.headerCRC(), binary.LittleEndian.Uint32(b[4:]); got != want {
		return nil, fmt.Errorf("%w: header CRC %08x, computed %08x", ErrCorrupt, want, got)
	}
	if v := binary.LittleEndian.Uint16(b[62:]); v != Version {
		return nil, fmt.Errorf("%w: %d, this binary reads %d", ErrVersion, v, Version)
	}
	l = l.WithDefaults()
	n, count := h.Len(), h.Count()
	switch {
	case n < HeaderSize:
		return nil, fmt.Errorf("%w: total length %d", ErrCorrupt, n)
	case n > l.Batch:
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, n, l.Batch)
	case h.BodySize() > l.Body:
		return nil, fmt.Errorf("%w: body of %d bytes, at most %d", ErrTooLarge, h.BodySize(), l.Body)
	case count > l.Messages:
		return nil, fmt.Errorf("%w: %d messages, at most %d", ErrTooLarge, count, l.Messages)
	case h.Attributes()&^known != 0, h.Codec() > Zstd:
		return nil, fmt.Errorf("%w: attributes %#x", ErrVersion, uint16(h.Attributes()))
	case h.Control() != (count == 0), h.Control() && n != HeaderSize:
		return nil, fmt.Errorf("%w: %d messages, control %v, %d bytes", ErrCorrupt, count, h.Control(), n)
	case h.Base()+uint64(count) < h.Base():
		return nil, fmt.Errorf("%w: offsets overflow", ErrCorrupt)
	case len(b) < n:
		return nil, fmt.Errorf("%w: %d of %d bytes", ErrShort, len(b), n)
	}
	return h[:n:n], nil
}

// CheckBody compares the body with its CRC.
func (b Batch) CheckBody() error {
	if b.Control() {
		return nil
	}
	if got := Checksum(b.Body()); got != b.BodyCRC() {
		return fmt.Errorf("%w: body CRC %08x, computed %08x", ErrCorrupt, b.BodyCRC(), got)
	}
	return nil
}

// Check is CheckHeader and CheckBody: what a reader of a log needs to take a batch.
func Check(b []byte, l Limits) (Batch, error) {
	h, err := CheckHeader(b, l)
	if err != nil {
		return nil, err
	}
	return h, h.CheckBody()
}
