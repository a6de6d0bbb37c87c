// Package offsets holds sets of offsets and numbers that belong to offsets, small in memory and smaller in bytes: cursors
// are made of them, and what a subscription has acknowledged out of order may be a hundred thousand runs.
//
// Values are immutable: methods return new ones that may share memory with the old. Decoding is safe on any bytes and
// allocates in proportion to them.
package offsets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"github.com/vmihailenco/msgpack/v5"
)

const (
	// MaxRanges bounds the ranges of a set and the entries of Numbers.
	MaxRanges = 1 << 20
	// Max keeps sums of offsets and counts far from overflow.
	Max = 1 << 62
)

// ErrDamaged says that bytes are not what an encoder of this package wrote.
var ErrDamaged = errors.New("offsets are damaged")

// Range is a run of offsets, End exclusive.
type Range struct{ Start, End uint64 }

// Set is a set of offsets: ascending, disjoint ranges that do not touch. It is immutable; methods return new sets
// that may share memory with it. On the wire dense stretches are bitmaps and sparse ones ranges, whichever is smaller.
type Set []Range

// Contains says whether n is in the set.
func (o Set) Contains(n uint64) bool {
	i := sort.Search(len(o), func(i int) bool { return o[i].End > n })
	return i < len(o) && o[i].Start <= n
}

// Union returns the set of what is in o or in p.
func (o Set) Union(p Set) Set {
	switch {
	case len(p) == 0:
		return o
	case len(o) == 0:
		return p
	}
	out := make(Set, 0, len(o)+len(p))
	for len(o) > 0 || len(p) > 0 {
		if len(p) == 0 || len(o) > 0 && o[0].Start <= p[0].Start {
			out, o = out.Extend(o[0]), o[1:]
		} else {
			out, p = out.Extend(p[0]), p[1:]
		}
	}
	// A cursor's set lives long, and consecutive acks make most unions far shorter than their parts.
	if cap(out) > 2*len(out) {
		out = slices.Clip(slices.Clone(out))
	}
	return out
}

// Joined makes ranges that ascend by their starts a set, in place: those that touch become one.
func Joined(ranges []Range) Set {
	out := Set(ranges[:0])
	for _, r := range ranges {
		out = out.Extend(r)
	}
	return out
}

// Extend appends r, whose start is not below that of the last range, to a set that the caller owns.
func (o Set) Extend(r Range) Set {
	if r.Start >= r.End {
		return o
	}
	if n := len(o); n > 0 && r.Start <= o[n-1].End {
		o[n-1].End = max(o[n-1].End, r.End)
		return o
	}
	return append(o, r)
}

// Fold returns the smallest offset that is at or above prefix and not in the set, and the set's part above it.
func (o Set) Fold(prefix uint64) (uint64, Set) {
	i := 0
	for ; i < len(o) && o[i].Start <= prefix; i++ {
		prefix = max(prefix, o[i].End)
	}
	if i == len(o) {
		return prefix, nil
	}
	return prefix, o[i:]
}

// From returns the part of the set that is not below start.
func (o Set) From(start uint64) Set {
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

// Valid says whether o keeps the promises of the type.
func (o Set) Valid() bool {
	for i, r := range o {
		if r.Start >= r.End || r.End > Max || i > 0 && r.Start <= o[i-1].End {
			return false
		}
	}
	return true
}

// groupRanges is how many ranges share one choice between the two forms.
const groupRanges = 512

// encode appends groups: uvarint (n<<1 | form), uvarint gap to the end of the group before, then for form 0 n ranges
// (length, gap, length, …), for form 1 n bytes of bitmap.
func (o Set) encode(b []byte) []byte {
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
func listSize(g Set) int {
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

func appendBitmap(b []byte, g Set, size int) []byte {
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
// more than MaxRanges ranges.
func decodeOffsets(b []byte) (Set, error) {
	d := varints{b: b}
	var out Set
	end := uint64(0)
	for len(d.b) > 0 && d.err == nil {
		head := d.next()
		n := head >> 1
		if n == 0 || n > uint64(len(d.b)) {
			return nil, fmt.Errorf("%w: group of %d in an offset set", ErrDamaged, n)
		}
		if head&1 == 0 {
			for range n {
				r := Range{Start: end + d.next()}
				r.End = r.Start + d.next()
				if d.err == nil && (r.Start < end || r.End <= r.Start) {
					return nil, fmt.Errorf("%w: range in an offset set", ErrDamaged)
				}
				out, end = out.Extend(r), r.End
			}
		} else {
			first := end + d.next()
			if n > uint64(len(d.b)) {
				return nil, fmt.Errorf("%w: bitmap of %d bytes in an offset set", ErrDamaged, n)
			}
			out, end = out.extendBitmap(first, d.b[:n])
			d.b = d.b[n:]
		}
		if len(out) > MaxRanges || end > Max {
			return nil, fmt.Errorf("%w: offset set out of bounds", ErrDamaged)
		}
	}
	if d.err == nil && !out.Valid() {
		d.err = fmt.Errorf("%w: offset set out of order", ErrDamaged)
	}
	if d.err != nil {
		return nil, d.err
	}
	return slices.Clip(out), nil
}

// extendBitmap appends the offsets of a bitmap whose first bit is first, and returns the end of the last one.
func (o Set) extendBitmap(first uint64, m []byte) (Set, uint64) {
	end := first
	for i, v := range m {
		for v != 0 {
			low := bits.TrailingZeros8(v)
			run := bits.TrailingZeros8(^(v >> low))
			start := first + uint64(8*i+low)
			end = start + uint64(run)
			o = o.Extend(Range{start, end})
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
func (o Set) EncodeMsgpack(e *msgpack.Encoder) error { return e.EncodeBytes(o.encode(nil)) }

// DecodeMsgpack implements msgpack.CustomDecoder.
func (o *Set) DecodeMsgpack(d *msgpack.Decoder) error {
	b, err := d.DecodeBytes()
	if err != nil {
		return err
	}
	*o, err = decodeOffsets(b)
	return err
}

// Number is a number that belongs to an offset.
type Number struct{ Offset, Number uint64 }

// Numbers is ascending by offset, each offset once. It is immutable.
type Numbers []Number

// Get returns the number of offset n, zero if it has none.
func (l Numbers) Get(n uint64) uint64 {
	i := sort.Search(len(l), func(i int) bool { return l[i].Offset >= n })
	if i < len(l) && l[i].Offset == n {
		return l[i].Number
	}
	return 0
}

// Merge returns l with the numbers of p put in by choose(old, new); a zero leaves the list, and so does each offset
// that is gone.
func (l Numbers) Merge(p Numbers, gone func(offset uint64) bool, choose func(old, new uint64) uint64) Numbers {
	if len(l) == 0 && len(p) == 0 {
		return nil
	}
	out := make(Numbers, 0, len(l)+len(p))
	put := func(e Number) {
		if e.Number != 0 && !gone(e.Offset) {
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
			put(Number{p[0].Offset, choose(l[0].Number, p[0].Number)})
			l, p = l[1:], p[1:]
		}
	}
	if len(out) == 0 {
		return nil
	}
	return slices.Clip(out)
}

// Valid says whether l keeps the promises of the type.
func (l Numbers) Valid() bool {
	for i, e := range l {
		if e.Offset > Max || i > 0 && e.Offset <= l[i-1].Offset {
			return false
		}
	}
	return true
}

// EncodeMsgpack implements msgpack.CustomEncoder: pairs of uvarints, gap of the offset and zigzag gap of the number.
func (l Numbers) EncodeMsgpack(e *msgpack.Encoder) error {
	var b []byte
	var at Number
	for _, n := range l {
		b = binary.AppendUvarint(b, n.Offset-at.Offset)
		b = binary.AppendVarint(b, int64(n.Number-at.Number))
		at = n
	}
	return e.EncodeBytes(b)
}

// DecodeMsgpack implements msgpack.CustomDecoder.
func (l *Numbers) DecodeMsgpack(dec *msgpack.Decoder) error {
	b, err := dec.DecodeBytes()
	if err != nil {
		return err
	}
	d := varints{b: b}
	var out Numbers
	var at Number
	for len(d.b) > 0 && d.err == nil {
		at.Offset += d.next()
		z := d.next()
		at.Number += z>>1 ^ -(z & 1)
		out = append(out, at)
	}
	if d.err == nil && (!out.Valid() || len(out) > MaxRanges) {
		d.err = fmt.Errorf("%w: numbers of offsets out of order or bounds", ErrDamaged)
	}
	*l = slices.Clip(out)
	return d.err
}
