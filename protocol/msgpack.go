package protocol

import (
	"encoding/binary"
	"math"
	"slices"
)

// The msgpack of headers. Every header lists its fields once, in a method walk
// that runs in both directions: writing, each call appends a key and a value;
// reading, the one whose key stands next in the buffer takes its value. Bytes
// in the order of the list are read in one pass, any other order in several.
// Unlike a decoder driven by reflection this allocates nothing for the header
// itself, refuses a number that does not fit its field, and skips unknown
// fields without recursion, so it needs no walk over the buffer beforehand.

// maxStrings bounds a list of strings in a header: an empty string takes one
// byte on the wire and sixteen in memory.
const maxStrings = 1024

// codec is one map being written or read.
type codec struct {
	b     []byte // writing: all that was written; reading: what is left
	at    int    // writing: where the map's first byte stands
	n     int    // writing: fields so far; reading: pairs left, that of key included
	key   []byte // reading: the key whose value is next
	write bool
	spare string // reading: a text that a header read before had, used again when equal
	stuck bool   // reading: no field has taken the value of key in this pass
	bad   bool   // reading: the bytes are malformed
}

// writeMap begins a map at the end of dst; end finishes it.
func writeMap(dst []byte) codec {
	return codec{b: append(dst, 0x80), at: len(dst), write: true}
}

// end returns the buffer with the number of fields, at most 15, filled in.
func (c *codec) end() []byte {
	c.b[c.at] = 0x80 | byte(c.n)
	return c.b
}

// readMap opens the map at the start of b.
func readMap(b []byte) codec {
	c := codec{b: b}
	switch t := c.byte(); {
	case t&0xf0 == 0x80:
		c.n = int(t & 0x0f)
	case t == 0xde:
		c.n = int(c.bigEndian(2))
	case t == 0xdf:
		c.n = int(c.bigEndian(4))
	default:
		c.bad = true
	}
	if c.n > len(c.b)/2 {
		c.bad = true
	}
	c.readKey()
	return c
}

// more reports whether another pass over the fields is needed. A key that no
// field took in the pass before is unknown and skipped here.
func (c *codec) more() bool {
	if c.stuck && !c.bad && c.n > 0 {
		c.skip()
		c.next()
	}
	c.stuck = true
	return !c.bad && c.n > 0
}

// done is the verdict after the last pass over a header called name.
func (c *codec) done(name string) error {
	if c.bad || len(c.b) > 0 {
		return Errorf(CodeBadFrame, "malformed %s header", name)
	}
	return nil
}

// match reports whether the next value belongs to the field key.
func (c *codec) match(key string) bool {
	if len(c.key) != len(key) || c.key[0] != key[0] || string(c.key) != key || c.bad {
		return false
	}
	c.stuck = false
	return true
}

// next goes on to the pair behind the value just read.
func (c *codec) next() {
	c.n--
	c.readKey()
}

func (c *codec) readKey() {
	c.key = nil
	if c.n == 0 || c.bad {
		return
	}
	// A key of ours is a short string.
	if b := c.b; len(b) > 0 && b[0]&0xe0 == 0xa0 && int(b[0]&0x1f) < len(b) {
		end := 1 + int(b[0]&0x1f)
		c.key, c.b = b[1:end], b[end:]
		return
	}
	if len(c.b) > 0 && !isString(c.b[0]) {
		c.skip()
		return
	}
	c.key = c.bytes()
}

func isString(t byte) bool { return t&0xe0 == 0xa0 || t >= 0xd9 && t <= 0xdb }

func (c *codec) putKey(key string) {
	c.n++
	c.b = append(c.b, 0xa0|byte(len(key)))
	c.b = append(c.b, key...)
}

// byte takes one byte; 0xc1, which msgpack never uses, when there is none.
func (c *codec) byte() byte {
	if len(c.b) == 0 {
		c.bad = true
		return 0xc1
	}
	t := c.b[0]
	c.b = c.b[1:]
	return t
}

// take cuts off n bytes.
func (c *codec) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad = true
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

// bigEndian takes a number of size bytes: 1, 2, 4 or 8.
func (c *codec) bigEndian(size int) uint64 {
	p := c.take(uint64(size))
	if c.bad {
		return 0
	}
	switch size {
	case 1:
		return uint64(p[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(p))
	case 4:
		return uint64(binary.BigEndian.Uint32(p))
	}
	return binary.BigEndian.Uint64(p)
}

// integer reads an integer in any encoding; neg says that v is a negative one
// in two's complement. Nil reads as zero.
func (c *codec) integer() (v uint64, neg bool) {
	// What appendUint writes, without a call.
	switch b := c.b; {
	case len(b) > 0 && b[0] <= 0x7f:
		c.b = b[1:]
		return uint64(b[0]), false
	case len(b) > 4 && b[0] == 0xce:
		c.b = b[5:]
		return uint64(binary.BigEndian.Uint32(b[1:])), false
	case len(b) > 8 && b[0] == 0xcf:
		c.b = b[9:]
		return binary.BigEndian.Uint64(b[1:]), false
	}
	switch t := c.byte(); {
	case t >= 0xe0:
		return uint64(int64(int8(t))), true
	case t >= 0xcc && t <= 0xcf:
		return c.bigEndian(1 << (t - 0xcc)), false
	case t >= 0xd0 && t <= 0xd3:
		size := 1 << (t - 0xd0)
		shift := 64 - 8*size
		i := int64(c.bigEndian(size)<<shift) >> shift
		return uint64(i), i < 0
	case t != 0xc0:
		c.bad = true
	}
	return 0, false
}

// length reads the head of an array of elements that take at least min bytes each.
func (c *codec) length(min int) int {
	var n uint64
	switch t := c.byte(); {
	case t&0xf0 == 0x90:
		n = uint64(t & 0x0f)
	case t == 0xdc:
		n = c.bigEndian(2)
	case t == 0xdd:
		n = c.bigEndian(4)
	case t != 0xc0:
		c.bad = true
	}
	if n > uint64(len(c.b)/min) {
		c.bad = true
	}
	if c.bad {
		return 0
	}
	return int(n)
}

// bytes reads a string or binary value in place. Nil reads as none.
func (c *codec) bytes() []byte {
	var n uint64
	switch t := c.byte(); {
	case t&0xe0 == 0xa0:
		n = uint64(t & 0x1f)
	case t == 0xd9, t == 0xc4:
		n = c.bigEndian(1)
	case t == 0xda, t == 0xc5:
		n = c.bigEndian(2)
	case t == 0xdb, t == 0xc6:
		n = c.bigEndian(4)
	case t == 0xc0:
		return nil
	default:
		c.bad = true
	}
	return c.take(n)
}

// skip passes over one value and returns how many elements its arrays hold, at
// whatever depth. Nested values are counted, not recursed into; each takes a
// byte at least, so a lying count ends with the buffer.
func (c *codec) skip() (elements uint64) {
	for left := uint64(1); left > 0 && !c.bad; left-- {
		switch t := c.byte(); {
		case t <= 0x7f, t >= 0xe0, t == 0xc0, t == 0xc2, t == 0xc3:
		case t <= 0x8f:
			left += 2 * uint64(t&0x0f)
		case t <= 0x9f:
			left += uint64(t & 0x0f)
			elements += uint64(t & 0x0f)
		case t <= 0xbf:
			c.take(uint64(t & 0x1f))
		case t >= 0xc4 && t <= 0xc6: // bin
			c.take(c.bigEndian(1 << (t - 0xc4)))
		case t >= 0xc7 && t <= 0xc9: // ext
			c.take(c.bigEndian(1<<(t-0xc7)) + 1)
		case t == 0xca, t == 0xcb: // float
			c.take(4 << (t - 0xca))
		case t >= 0xcc && t <= 0xcf:
			c.take(1 << (t - 0xcc))
		case t >= 0xd0 && t <= 0xd3:
			c.take(1 << (t - 0xd0))
		case t >= 0xd4 && t <= 0xd8: // fixext
			c.take(1<<(t-0xd4) + 1)
		case t >= 0xd9 && t <= 0xdb: // str
			c.take(c.bigEndian(1 << (t - 0xd9)))
		case t == 0xdc, t == 0xdd: // array
			n := c.bigEndian(2 << (t - 0xdc))
			left += n
			elements += n
		case t == 0xde, t == 0xdf: // map
			left += 2 * c.bigEndian(2<<(t-0xde))
		default:
			c.bad = true
		}
	}
	return elements
}

// appendUint appends v in its shortest encoding.
func appendUint(dst []byte, v uint64) []byte {
	switch {
	case v <= 0x7f:
		return append(dst, byte(v))
	case v <= math.MaxUint8:
		return append(dst, 0xcc, byte(v))
	case v <= math.MaxUint16:
		return append(dst, 0xcd, byte(v>>8), byte(v))
	case v <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), v)
}

// appendInt appends v in its shortest encoding.
func appendInt(dst []byte, v int64) []byte {
	switch {
	case v >= 0:
		return appendUint(dst, uint64(v))
	case v >= -32:
		return append(dst, byte(v))
	case v >= math.MinInt8:
		return append(dst, 0xd0, byte(v))
	case v >= math.MinInt16:
		return append(dst, 0xd1, byte(v>>8), byte(v))
	case v >= math.MinInt32:
		return binary.BigEndian.AppendUint32(append(dst, 0xd2), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(v))
}

// appendLength appends the head of an array.
func appendLength(dst []byte, n int) []byte {
	switch {
	case n <= 0x0f:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return append(dst, 0xdc, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

// appendString appends s as a string.
func appendString(dst []byte, s string) []byte {
	switch n := len(s); {
	case n <= 0x1f:
		dst = append(dst, 0xa0|byte(n))
	case n <= math.MaxUint8:
		dst = append(dst, 0xd9, byte(n))
	case n <= math.MaxUint16:
		dst = append(dst, 0xda, byte(n>>8), byte(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

// The fields. A zero value is not written, and what is not there reads as zero.

// unsigned is a field that holds a number from 0 on.
func unsigned[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *codec, key string, v *T) {
	switch {
	case c.write:
		if *v != 0 {
			c.putKey(key)
			c.b = appendUint(c.b, uint64(*v))
		}
	case c.match(key):
		u, neg := c.integer()
		if *v = T(u); neg || uint64(*v) != u {
			c.bad = true
		}
		c.next()
	}
}

// signed is a field that holds any integer.
func signed[T ~int | ~int64](c *codec, key string, v *T) {
	switch {
	case c.write:
		if *v != 0 {
			c.putKey(key)
			c.b = appendInt(c.b, int64(*v))
		}
	case c.match(key):
		u, neg := c.integer()
		if *v = T(u); neg != (int64(u) < 0) || uint64(int64(*v)) != u {
			c.bad = true
		}
		c.next()
	}
}

func (c *codec) bool(key string, v *bool) {
	switch {
	case c.write:
		if *v {
			c.putKey(key)
			c.b = append(c.b, 0xc3)
		}
	case c.match(key):
		switch c.byte() {
		case 0xc3:
			*v = true
		case 0xc2, 0xc0:
			*v = false
		default:
			c.bad = true
		}
		c.next()
	}
}

// text is a field that holds a string. What is read is a copy, but for spare.
func (c *codec) text(key string, v *string) {
	switch {
	case c.write:
		if *v != "" {
			c.putKey(key)
			c.b = appendString(c.b, *v)
		}
	case c.match(key):
		if p := c.bytes(); string(p) == c.spare {
			*v = c.spare
		} else {
			*v = string(p)
		}
		c.next()
	}
}

// binary is a field of bytes; what is read is a copy.
func (c *codec) binary(key string, v *[]byte) {
	switch {
	case c.write:
		if n := len(*v); n > 0 {
			c.putKey(key)
			switch {
			case n <= math.MaxUint8:
				c.b = append(c.b, 0xc4, byte(n))
			case n <= math.MaxUint16:
				c.b = append(c.b, 0xc5, byte(n>>8), byte(n))
			default:
				c.b = binary.BigEndian.AppendUint32(append(c.b, 0xc6), uint32(n))
			}
			c.b = append(c.b, *v...)
		}
	case c.match(key):
		*v = slices.Clone(c.bytes())
		c.next()
	}
}

func (c *codec) strings(key string, v *[]string) {
	switch {
	case c.write:
		if len(*v) > 0 {
			c.putKey(key)
			c.b = appendLength(c.b, len(*v))
			for _, s := range *v {
				c.b = appendString(c.b, s)
			}
		}
	case c.match(key):
		n := c.length(1)
		if *v = nil; n > maxStrings {
			c.bad = true
		}
		for ; n > 0 && !c.bad; n-- {
			*v = append(*v, string(c.bytes()))
		}
		c.next()
	}
}

// ranges reads into the memory v has.
func (c *codec) ranges(key string, v *[]Range) {
	switch {
	case c.write:
		if len(*v) > 0 {
			c.putKey(key)
			c.b = appendLength(c.b, 2*len(*v))
			for _, r := range *v {
				c.b = appendUint(appendUint(c.b, r.From), r.To)
			}
		}
	case c.match(key):
		n := c.length(1)
		*v = slices.Grow((*v)[:0], n/2)
		if n%2 != 0 {
			c.bad = true
		}
		for ; n > 0 && !c.bad; n -= 2 {
			from, negFrom := c.integer()
			to, negTo := c.integer()
			if negFrom || negTo || from > to {
				c.bad = true
			}
			*v = append(*v, Range{From: from, To: to})
		}
		c.next()
	}
}

// inner begins a map inside this one: the value of key, or an element of a list.
// Writing, the caller has put the key; outer closes it.
func (c *codec) inner() codec {
	if c.write {
		return writeMap(c.b)
	}
	if len(c.b) > 0 && c.b[0] == 0xc0 { // nil: a map without fields
		return codec{b: c.b[1:], bad: c.bad}
	}
	in := readMap(c.b)
	in.bad = in.bad || c.bad
	return in
}

// outer goes on behind a map that inner began.
func (c *codec) outer(in *codec) {
	if c.write {
		c.b = in.end()
		return
	}
	c.b, c.bad = in.b, c.bad || in.bad
}
