package catalog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/vmihailenco/msgpack/v5"
)

// A segment is encoded against the one before it (all zero for the first), so that one of its own takes about thirty
// bytes and a piece of a cut not many more:
//
//	head u8: kind in bits 0 and 1, bit 2 set if the store is the same
//	uvarint: start beyond the end before, length in offsets
//	zigzag varint: incarnation, difference
//	Own: zigzag varint epoch, difference
//	Cut: store, 16 bytes, unless the same; zigzag varint number, difference; uvarint position
//	unique u64 · uvarint bytes · CRC u32
//	zigzag varint: first time, beyond the last time before; uvarint: last time beyond the first
//
// Equal segments in equal order give equal bytes.
const (
	kindBits  = 3
	sameStore = 4
)

func appendSegment(b []byte, prev, s *Segment) []byte {
	o, before := &s.Object, &prev.Object
	head := byte(o.Kind) & kindBits
	if o.Kind == Cut && o.Store == before.Store {
		head |= sameStore
	}
	b = append(b, head)
	b = binary.AppendUvarint(b, s.Start-prev.End)
	b = binary.AppendUvarint(b, s.End-s.Start)
	b = binary.AppendVarint(b, int64(o.Incarnation-before.Incarnation))
	if o.Kind == Cut {
		if head&sameStore == 0 {
			b = append(b, o.Store[:]...)
		}
		b = binary.AppendVarint(b, int64(o.Number-before.Number))
		b = binary.AppendUvarint(b, uint64(s.Position))
	} else {
		b = binary.AppendVarint(b, int64(o.Epoch-before.Epoch))
	}
	b = binary.LittleEndian.AppendUint64(b, o.Unique)
	b = binary.AppendUvarint(b, uint64(s.Bytes))
	b = binary.LittleEndian.AppendUint32(b, s.CRC)
	b = binary.AppendVarint(b, s.FirstTime-prev.LastTime)
	return binary.AppendUvarint(b, uint64(s.LastTime-s.FirstTime))
}

// reader takes numbers from bytes; after the first that is not there it gives zeroes and failed is set.
type reader struct {
	b      []byte
	failed bool
}

func (r *reader) take(n int) []byte {
	if r.failed || len(r.b) < n {
		r.failed = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.failed = true
	}
	r.take(max(n, 0))
	return v
}

func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) fixed64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) fixed32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) segment(prev *Segment) (s Segment) {
	head := r.take(1)
	if head == nil {
		return s
	}
	o, before := &s.Object, &prev.Object
	o.Kind = Kind(head[0] & kindBits)
	s.Start = prev.End + r.uvarint()
	s.End = s.Start + r.uvarint()
	o.Incarnation = before.Incarnation + uint64(r.varint())
	if o.Kind == Cut {
		o.Store = before.Store
		if head[0]&sameStore == 0 {
			copy(o.Store[:], r.take(16))
		}
		o.Number = before.Number + uint64(r.varint())
		s.Position = int64(r.uvarint())
	} else {
		o.Epoch = before.Epoch + uint64(r.varint())
	}
	o.Unique = r.fixed64()
	s.Bytes = int64(r.uvarint())
	s.CRC = r.fixed32()
	s.FirstTime = prev.LastTime + r.varint()
	s.LastTime = s.FirstTime + int64(r.uvarint())
	return s
}

// segments reads n segments, which must ascend and not overlap. It allocates in proportion to the bytes there are.
func (r *reader) segments(n uint64) ([]Segment, error) {
	const least = 20 // bytes of the shortest segment
	if n > uint64(len(r.b))/least {
		return nil, fmt.Errorf("%w: %d segments in %d bytes", ErrDamaged, n, len(r.b))
	}
	out := make([]Segment, 0, n)
	prev := &Segment{}
	for range n {
		s := r.segment(prev)
		if r.failed || !s.Valid() || s.Start < prev.End {
			return nil, fmt.Errorf("%w: segment %d of %d", ErrDamaged, len(out), n)
		}
		out = append(out, s)
		prev = &out[len(out)-1]
	}
	return out, nil
}

func appendSegments(b []byte, segments []Segment) []byte {
	prev := &Segment{}
	for i := range segments {
		b = appendSegment(b, prev, &segments[i])
		prev = &segments[i]
	}
	return b
}

// A page's object: magic · version u8 · topic, 16 bytes · partition u32 · count u32 · segments, each encoded against
// the one before · CRC-32C u32 of everything before it. Numbers of fixed length are little-endian.
const (
	pageMagic   = "DNCP"
	pageVersion = 1
	pageHead    = len(pageMagic) + 1 + 16 + 4 + 4
	pageTail    = 4
)

// Content is what the object of a page says.
type Content struct {
	Topic     [16]byte
	Partition uint32
	Segments  []Segment // ascending, disjoint, 1 to MaxPage
}

// EncodePage returns the bytes of the object of a page.
func EncodePage(topic [16]byte, partition uint32, segments []Segment) []byte {
	b := make([]byte, 0, pageHead+pageTail+40*len(segments))
	b = append(b, pageMagic...)
	b = append(b, pageVersion)
	b = append(b, topic[:]...)
	b = binary.LittleEndian.AppendUint32(b, partition)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(segments)))
	b = appendSegments(b, segments)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli()))
}

// IsPage says whether the first bytes of an object are those of a page.
func IsPage(head []byte) bool {
	return len(head) >= len(pageMagic) && string(head[:len(pageMagic)]) == pageMagic
}

// DecodePage reads what EncodePage wrote. ErrDamaged if it is nothing that EncodePage writes; a newer version is named
// in an error of its own. It is safe on any bytes and keeps none of them.
func DecodePage(b []byte) (Content, error) {
	var c Content
	if len(b) < pageHead+pageTail || !IsPage(b) {
		return c, fmt.Errorf("%w: no page of a catalog", ErrDamaged)
	}
	if v := b[len(pageMagic)]; v != pageVersion {
		return c, fmt.Errorf("page of a catalog has version %d, this release knows %d", v, pageVersion)
	}
	if crc32.Checksum(b[:len(b)-pageTail], castagnoli()) != Sum(b) {
		return c, fmt.Errorf("%w: page fails its checksum", ErrDamaged)
	}
	r := reader{b: b[len(pageMagic)+1 : len(b)-pageTail]}
	copy(c.Topic[:], r.take(len(c.Topic)))
	c.Partition = r.fixed32()
	n := r.fixed32()
	if n == 0 || n > MaxPage {
		return Content{}, fmt.Errorf("%w: page of %d segments", ErrDamaged, n)
	}
	var err error
	if c.Segments, err = r.segments(uint64(n)); err != nil {
		return Content{}, err
	}
	// There is one encoding of a page: what is not it was not written here.
	if !bytes.Equal(EncodePage(c.Topic, c.Partition, c.Segments), b) {
		return Content{}, fmt.Errorf("%w: page is not what its segments make", ErrDamaged)
	}
	return c, nil
}

// At returns the segment that holds offset n, nil if none does.
func (c *Content) At(n uint64) *Segment {
	i := sort.Search(len(c.Segments), func(i int) bool { return c.Segments[i].End > n })
	if i == len(c.Segments) || c.Segments[i].Start > n {
		return nil
	}
	return &c.Segments[i]
}

// AtTime returns the first segment with a message appended at ms or later, nil if none has. Append times never run
// backwards within a partition.
func (c *Content) AtTime(ms int64) *Segment {
	i := sort.Search(len(c.Segments), func(i int) bool { return c.Segments[i].LastTime >= ms })
	if i == len(c.Segments) {
		return nil
	}
	return &c.Segments[i]
}

// Sum is the CRC by which a page is known: that at the end of its content, zero if there is none. One over all of the
// content would be the same for every page, because the last four bytes are the CRC of what stands before them.
func Sum(content []byte) uint32 {
	if len(content) < pageTail {
		return 0
	}
	return binary.LittleEndian.Uint32(content[len(content)-pageTail:])
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func appendPage(b []byte, prev, p *Page) []byte {
	b = binary.AppendUvarint(b, p.Start-prev.End)
	b = binary.AppendUvarint(b, p.End-p.Start)
	b = binary.AppendUvarint(b, p.Object.Incarnation)
	b = binary.LittleEndian.AppendUint64(b, p.Object.Unique)
	b = binary.AppendUvarint(b, uint64(p.Count))
	b = binary.AppendUvarint(b, uint64(p.Size))
	b = binary.LittleEndian.AppendUint32(b, p.CRC)
	b = binary.AppendUvarint(b, uint64(p.Bytes))
	b = binary.AppendVarint(b, p.FirstTime)
	return binary.AppendUvarint(b, uint64(p.LastTime-p.FirstTime))
}

func (r *reader) page(prev *Page) (p Page) {
	p.Start = prev.End + r.uvarint()
	p.End = p.Start + r.uvarint()
	p.Object = Object{Kind: PageObject, Incarnation: r.uvarint(), Unique: r.fixed64()}
	count := r.uvarint()
	p.Count = uint32(min(count, MaxPage+1))
	p.Size = int64(r.uvarint())
	p.CRC = r.fixed32()
	p.Bytes = int64(r.uvarint())
	p.FirstTime = r.varint()
	p.LastTime = p.FirstTime + int64(r.uvarint())
	return p
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (s Segment) EncodeMsgpack(e *msgpack.Encoder) error {
	return e.EncodeBytes(appendSegment(nil, &Segment{}, &s))
}

// DecodeMsgpack implements msgpack.CustomDecoder. What it takes may still not be Valid.
func (s *Segment) DecodeMsgpack(d *msgpack.Decoder) error {
	return decode(d, func(r *reader) { *s = r.segment(&Segment{}) })
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (p Page) EncodeMsgpack(e *msgpack.Encoder) error {
	return e.EncodeBytes(appendPage(nil, &Page{}, &p))
}

// DecodeMsgpack implements msgpack.CustomDecoder. What it takes may still not be Valid.
func (p *Page) DecodeMsgpack(d *msgpack.Decoder) error {
	return decode(d, func(r *reader) { *p = r.page(&Page{}) })
}

func decode(d *msgpack.Decoder, read func(r *reader)) error {
	b, err := d.DecodeBytes()
	if err != nil {
		return err
	}
	r := &reader{b: b}
	if read(r); r.failed || len(r.b) > 0 {
		return fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	return nil
}

// EncodeMsgpack implements msgpack.CustomEncoder: the pages behind their number, the segments behind theirs.
func (c *Catalog) EncodeMsgpack(e *msgpack.Encoder) error {
	pages := c.Pages()
	b := binary.AppendUvarint(make([]byte, 0, 64), uint64(len(pages)))
	before := &Page{}
	for i := range pages {
		b = appendPage(b, before, &pages[i])
		before = &pages[i]
	}
	b = binary.AppendUvarint(b, uint64(c.Len()))
	prev := Segment{}
	for s := range c.All() {
		b = appendSegment(b, &prev, &s)
		prev = s
	}
	return e.EncodeBytes(b)
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (c *Catalog) DecodeMsgpack(d *msgpack.Decoder) error {
	b, err := d.DecodeBytes()
	if err != nil {
		return err
	}
	r := &reader{b: b}
	n := r.uvarint()
	var pages []Page
	before := &Page{}
	for range n {
		p := r.page(before)
		if r.failed || !p.Valid() || p.Start < before.End {
			return fmt.Errorf("%w: page %d of %d", ErrDamaged, len(pages), n)
		}
		pages = append(pages, p)
		before = &pages[len(pages)-1]
	}
	segments, err := r.segments(r.uvarint())
	if err != nil {
		return err
	}
	if r.failed || len(r.b) > 0 || len(pages)+len(segments) == 0 {
		return fmt.Errorf("%w: %d bytes beside %d segments", ErrDamaged, len(r.b), len(segments))
	}
	made := build(pages, pack(nil, segments))
	if !made.disjoint() {
		return fmt.Errorf("%w: pages and segments overlap", ErrDamaged)
	}
	*c = *made
	return nil
}
