package state

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/vmihailenco/msgpack/v5"
)

// OffsetRange is a run of offsets, End exclusive.
type OffsetRange struct{ Start, End uint64 }

// Offsets is a set of offsets: ascending, disjoint ranges that do not touch. It is immutable; methods return new sets
// that may share memory with it. On the wire dense stretches are bitmaps and sparse ones ranges, whichever is smaller.
type Offsets []OffsetRange

// Contains says whether n is in the set.
func (o Offsets) Contains(n uint64) bool {
	i := sort.Search(len(o), func(i int) bool { return o[i].End > n })
	return i < len(o) && o[i].Start <= n
}

// Union returns the set of what is in o or in p.
func (o Offsets) Union(p Offsets) Offsets {
	switch {
	case len(p) == 0:
		return o
	case len(o) == 0:
		return p
	}
	out := make(Offsets, 0, len(o)+len(p))
	for len(o) > 0 || len(p) > 0 {
		if len(p) == 0 || len(o) > 0 && o[0].Start <= p[0].Start {
			out, o = out.extend(o[0]), o[1:]
		} else {
			out, p = out.extend(p[0]), p[1:]
		}
	}
	// A cursor's set lives long, and consecutive acks make most unions far shorter than their parts.
	if cap(out) > 2*len(out) {
		out = slices.Clip(slices.Clone(out))
	}
	return out
}

// Joined makes ranges that ascend by their starts a set, in place: those that touch become one.
func Joined(ranges []OffsetRange) Offsets {
	out := Offsets(ranges[:0])
	for _, r := range ranges {
		out = out.extend(r)
	}
	return out
}

// extend appends r, whose start is not below that of the last range, to a set that the caller owns.
func (o Offsets) extend(r OffsetRange) Offsets {
	if r.Start >= r.End {
		return o
	}
	if n := len(o); n > 0 && r.Start <= o[n-1].End {
		o[n-1].End = max(o[n-1].End, r.End)
		return o
	}
	return append(o, r)
}

// fold returns the smallest offset that is at or above prefix and not in the set, and the set's part above it.
func (o Offsets) fold(prefix uint64) (uint64, Offsets) {
	i := 0
	for ; i < len(o) && o[i].Start <= prefix; i++ {
		prefix = max(prefix, o[i].End)
	}
	if i == len(o) {
		return prefix, nil
	}
	return prefix, o[i:]
}

// from returns the part of the set that is not below start.
func (o Offsets) from(start uint64) Offsets {
	i := sort.Search(len(o), func(i int) bool { return o[i].End > start })
	switch {
	case i == len(o):
		return nil
	case o[i].Start >= start:
		return o[i:]
	}
	out := slices.Clone(o[i:])
	out[0].Start = start
	return out
}

// valid says whether o keeps the promises of the type.
func (o Offsets) valid() bool {
	for i, r := range o {
		if r.Start >= r.End || r.End > maxOffset || i > 0 && r.Start <= o[i-1].End {
			return false
		}
	}
	return true
}

// groupRanges is how many ranges share one choice between the two forms.
const groupRanges = 512

// encode appends groups: uvarint (n<<1 | form), uvarint gap to the end of the group before, then for form 0 n ranges
// (length, gap, length, …), for form 1 n bytes of bitmap.
func (o Offsets) encode(b []byte) []byte {
	end := uint64(0)
	for len(o) > 0 {
		g := o[:min(groupRanges, len(o))]
		o = o[len(g):]
		first, last := g[0].Start, g[len(g)-1].End
		size := (last - first + 7) / 8
		if size < uint64(listSize(g)) {
			b = binary.AppendUvarint(b, size<<1|1)
			b = binary.AppendUvarint(b, first-end)
			b = appendBitmap(b, g, int(size))
		} else {
			b = binary.AppendUvarint(b, uint64(len(g))<<1)
			for _, r := range g {
				b = binary.AppendUvarint(b, r.Start-end)
				b = binary.AppendUvarint(b, r.End-r.Start)
				end = r.End
			}
		}
		end = last
	}
	return b
}

// listSize returns the bytes that the ranges of g take as a list, without the first gap.
func listSize(g Offsets) int {
	size := 0
	for i, r := range g {
		if i > 0 {
			size += uvarintLen(r.Start - g[i-1].End)
		}
		size += uvarintLen(r.End - r.Start)
	}
	return size
}

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func appendBitmap(b []byte, g Offsets, size int) []byte {
	at := len(b)
	b = append(b, make([]byte, size)...)
	m, first := b[at:], g[0].Start
	for _, r := range g {
		for n := r.Start - first; n < r.End-first; n++ {
			m[n/8] |= 1 << (n % 8)
		}
	}
	return b
}

// decodeOffsets reads what encode wrote. It allocates in proportion to the bytes it has read and never makes a set of
// more than MaxCursorRanges ranges.
func decodeOffsets(b []byte) (Offsets, error) {
	d := varints{b: b}
	var out Offsets
	end := uint64(0)
	for len(d.b) > 0 && d.err == nil {
		head := d.next()
		n := head >> 1
		if n == 0 || n > uint64(len(d.b)) {
			return nil, fmt.Errorf("%w: group of %d in an offset set", ErrDamaged, n)
		}
		if head&1 == 0 {
			for range n {
				r := OffsetRange{Start: end + d.next()}
				r.End = r.Start + d.next()
				if d.err == nil && (r.Start < end || r.End <= r.Start) {
					return nil, fmt.Errorf("%w: range in an offset set", ErrDamaged)
				}
				out, end = out.extend(r), r.End
			}
		} else {
			first := end + d.next()
			if n > uint64(len(d.b)) {
				return nil, fmt.Errorf("%w: bitmap of %d bytes in an offset set", ErrDamaged, n)
			}
			out, end = out.extendBitmap(first, d.b[:n])
			d.b = d.b[n:]
		}
		if len(out) > MaxCursorRanges || end > maxOffset {
			return nil, fmt.Errorf("%w: offset set out of bounds", ErrDamaged)
		}
	}
	if d.err == nil && !out.valid() {
		d.err = fmt.Errorf("%w: offset set out of order", ErrDamaged)
	}
	if d.err != nil {
		return nil, d.err
	}
	return slices.Clip(out), nil
}

// extendBitmap appends the offsets of a bitmap whose first bit is first, and returns the end of the last one.
func (o Offsets) extendBitmap(first uint64, m []byte) (Offsets, uint64) {
	end := first
	for i, v := range m {
		for v != 0 {
			low := bits.TrailingZeros8(v)
			run := bits.TrailingZeros8(^(v >> low))
			start := first + uint64(8*i+low)
			end = start + uint64(run)
			o = o.extend(OffsetRange{start, end})
			v &^= (1<<run - 1) << low
		}
	}
	return o, end
}

// varints reads uvarints; after the first error it returns zeroes.
type varints struct {
	b   []byte
	err error
}

func (d *varints) next() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		if d.err == nil {
			d.err = fmt.Errorf("%w: cut number", ErrDamaged)
		}
		d.b = nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// EncodeMsgpack implements msgpack.CustomEncoder.
func (o Offsets) EncodeMsgpack(e *msgpack.Encoder) error { return e.EncodeBytes(o.encode(nil)) }

// DecodeMsgpack implements msgpack.CustomDecoder.
func (o *Offsets) DecodeMsgpack(d *msgpack.Decoder) error {
	b, err := d.DecodeBytes()
	if err != nil {
		return err
	}
	*o, err = decodeOffsets(b)
	return err
}

// OffsetNumber is a number that belongs to an offset.
type OffsetNumber struct{ Offset, Number uint64 }

// OffsetNumbers is ascending by offset, each offset once. It is immutable.
type OffsetNumbers []OffsetNumber

// Get returns the number of offset n, zero if it has none.
func (l OffsetNumbers) Get(n uint64) uint64 {
	i := sort.Search(len(l), func(i int) bool { return l[i].Offset >= n })
	if i < len(l) && l[i].Offset == n {
		return l[i].Number
	}
	return 0
}

// merge returns l with the numbers of p put in by choose(old, new); a zero leaves the list, and so does each offset
// that c acknowledges.
func (l OffsetNumbers) merge(p OffsetNumbers, c *Cursor, choose func(old, new uint64) uint64) OffsetNumbers {
	if len(l) == 0 && len(p) == 0 {
		return nil
	}
	out := make(OffsetNumbers, 0, len(l)+len(p))
	put := func(e OffsetNumber) {
		if e.Number != 0 && !c.Acknowledged(e.Offset) {
			out = append(out, e)
		}
	}
	for len(l) > 0 || len(p) > 0 {
		switch {
		case len(p) == 0 || len(l) > 0 && l[0].Offset < p[0].Offset:
			put(l[0])
			l = l[1:]
		case len(l) == 0 || p[0].Offset < l[0].Offset:
			put(p[0])
			p = p[1:]
		default:
			put(OffsetNumber{p[0].Offset, choose(l[0].Number, p[0].Number)})
			l, p = l[1:], p[1:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	return slices.Clip(out)
}

func (l OffsetNumbers) valid() bool {
	for i, e := range l {
		if e.Offset > maxOffset || i > 0 && e.Offset <= l[i-1].Offset {
			return false
		}
	}
	return true
}

// EncodeMsgpack implements msgpack.CustomEncoder: pairs of uvarints, gap of the offset and zigzag gap of the number.
func (l OffsetNumbers) EncodeMsgpack(e *msgpack.Encoder) error {
	var b []byte
	var at OffsetNumber
	for _, n := range l {
		b = binary.AppendUvarint(b, n.Offset-at.Offset)
		b = binary.AppendVarint(b, int64(n.Number-at.Number))
		at = n
	}
	return e.EncodeBytes(b)
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (l *OffsetNumbers) DecodeMsgpack(dec *msgpack.Decoder) error {
	b, err := dec.DecodeBytes()
	if err != nil {
		return err
	}
	d := varints{b: b}
	var out OffsetNumbers
	var at OffsetNumber
	for len(d.b) > 0 && d.err == nil {
		at.Offset += d.next()
		z := d.next()
		at.Number += z>>1 ^ -(z & 1)
		out = append(out, at)
	}
	if d.err == nil && (!out.valid() || len(out) > MaxCursorRanges) {
		d.err = fmt.Errorf("%w: numbers of offsets out of order or bounds", ErrDamaged)
	}
	*l = slices.Clip(out)
	return d.err
}
