// Package msgpackwalk checks a msgpack buffer before any decoder sees it.
//
// The msgpack decoder this project uses trusts the lengths a buffer declares: five bytes can make it allocate
// gigabytes, and deep nesting overflows the stack, which no recover can catch. Check reads every head of the buffer
// first, without allocating, and a buffer it passes holds exactly one value whose declared lengths all lie within the
// buffer. Nothing that came from a socket, a file or a peer is decoded without it.
//
// What Check leaves to its caller: an array of n elements takes n bytes at least, so a decoder that makes a slice of
// structs may still allocate n times the struct's size. Bound the length of the buffer accordingly.
package msgpackwalk

import (
	"encoding/binary"
	"errors"
)

// MaxDepth is the deepest nesting of arrays and maps that Check accepts; a scalar alone has depth 0.
const MaxDepth = 16

// The verdicts of Check. They carry no position and no detail so that refusing garbage costs no allocation either.
var (
	// ErrTruncated: a value is cut off, or declares more content than the buffer has left.
	ErrTruncated = errors.New("msgpack: declared length exceeds the buffer")
	// ErrTooDeep: arrays and maps are nested deeper than MaxDepth.
	ErrTooDeep = errors.New("msgpack: nested too deeply")
	// ErrTrailing: bytes follow the one value.
	ErrTrailing = errors.New("msgpack: bytes after the value")
	// ErrInvalid: the byte 0xc1, which the format never uses, stands where a value begins.
	ErrInvalid = errors.New("msgpack: invalid type byte")
)

// Check returns nil if b holds exactly one well-formed msgpack value that nests at most MaxDepth deep and whose
// declared lengths lie within b; otherwise one of the errors above. It allocates nothing and reads each byte at most
// once, in time linear in len(b).
func Check(b []byte) error {
	var open [MaxDepth]uint64 // values still missing in each array or map that is open
	depth := 0
	for {
		head, size, children, err := next(b)
		if err != nil {
			return err
		}
		// Every child takes a byte at least, so more children than bytes cannot be honest.
		rest := uint64(len(b) - head)
		if size > rest || children > rest {
			return ErrTruncated
		}
		b = b[head+int(size):]
		if children > 0 {
			if depth == MaxDepth {
				return ErrTooDeep
			}
			open[depth] = children
			depth++
			continue
		}
		for depth > 0 {
			open[depth-1]--
			if open[depth-1] > 0 {
				break
			}
			depth--
		}
		if depth == 0 {
			if len(b) > 0 {
				return ErrTrailing
			}
			return nil
		}
	}
}

// next reads the head of the value at the start of b: head is its length with the length field, size the bytes of
// content that follow it, children the number of values nested in it (a map's keys and values both count).
func next(b []byte) (head int, size, children uint64, err error) {
	if len(b) == 0 {
		return 0, 0, 0, ErrTruncated
	}
	c := b[0]
	switch {
	case c <= 0x7f, c >= 0xe0: // small integers
		return 1, 0, 0, nil
	case c <= 0x8f: // small map
		return 1, 0, 2 * uint64(c&0x0f), nil
	case c <= 0x9f: // small array
		return 1, 0, uint64(c & 0x0f), nil
	case c <= 0xbf: // short string
		return 1, uint64(c & 0x1f), 0, nil
	}
	k := kinds[c-0xc0]
	if k.invalid {
		return 0, 0, 0, ErrInvalid
	}
	head = 1 + int(k.lenBytes)
	if len(b) < head {
		return 0, 0, 0, ErrTruncated
	}
	var n uint64
	switch k.lenBytes {
	case 1:
		n = uint64(b[1])
	case 2:
		n = uint64(binary.BigEndian.Uint16(b[1:]))
	case 4:
		n = uint64(binary.BigEndian.Uint32(b[1:]))
	}
	if k.perLen > 0 {
		return head, 0, n * uint64(k.perLen), nil
	}
	return head, n + uint64(k.fixed), 0, nil
}

// kind describes a type byte from 0xc0 to 0xdf.
type kind struct {
	lenBytes uint8 // size of the length field
	fixed    uint8 // content bytes beside those the length field counts
	perLen   uint8 // nested values for each unit of the length: 1 array, 2 map, 0 neither
	invalid  bool
}

var kinds = [0x20]kind{
	0x00: {},              // nil
	0x01: {invalid: true}, // never used
	0x02: {}, 0x03: {},    // false, true
	0x04: {lenBytes: 1}, 0x05: {lenBytes: 2}, 0x06: {lenBytes: 4}, // bin
	0x07: {lenBytes: 1, fixed: 1}, 0x08: {lenBytes: 2, fixed: 1}, 0x09: {lenBytes: 4, fixed: 1}, // ext: the type byte
	0x0a: {fixed: 4}, 0x0b: {fixed: 8}, // float
	0x0c: {fixed: 1}, 0x0d: {fixed: 2}, 0x0e: {fixed: 4}, 0x0f: {fixed: 8}, // uint
	0x10: {fixed: 1}, 0x11: {fixed: 2}, 0x12: {fixed: 4}, 0x13: {fixed: 8}, // int
	0x14: {fixed: 2}, 0x15: {fixed: 3}, 0x16: {fixed: 5}, 0x17: {fixed: 9}, 0x18: {fixed: 17}, // fixext
	0x19: {lenBytes: 1}, 0x1a: {lenBytes: 2}, 0x1b: {lenBytes: 4}, // str
	0x1c: {lenBytes: 2, perLen: 1}, 0x1d: {lenBytes: 4, perLen: 1}, // array
	0x1e: {lenBytes: 2, perLen: 2}, 0x1f: {lenBytes: 4, perLen: 2}, // map
}
