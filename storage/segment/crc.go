package segment

import (
	"encoding/binary"
	"hash/crc32"
)

// castagnoli is CRC-32C, computed by the processor where it can.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// powers[i][d] is x to the 8 * d * 256^i modulo the CRC's polynomial: what a CRC
// is multiplied by when d * 256^i bytes follow. Never changed.
var powers = makePowers()

// mulmod multiplies two polynomials modulo the CRC's. Bits are reflected: the
// highest is x to the 0.
func mulmod(a, b uint32) uint32 {
	var p uint32
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

func makePowers() (t [4][256]uint32) {
	step := uint32(1) << (31 - 8) // x to the 8
	for i := range t {
		t[i][0] = 1 << 31
		for d := 1; d < 256; d++ {
			t[i][d] = mulmod(t[i][d-1], step)
		}
		step = mulmod(t[i][255], step)
	}
	return t
}

// combine is the CRC of what has CRC a followed by n bytes that have CRC b.
func combine(a, b uint32, n int) uint32 {
	for i := 0; n != 0 && i < len(powers); i++ {
		if d := n & 255; d != 0 {
			a = mulmod(powers[i][d], a)
		}
		n >>= 8
	}
	return a ^ b
}

// Join is the CRC of what has CRC a followed by n bytes that have CRC b, for n
// below 4 GiB: how the CRC of a whole follows from those of its parts.
func Join(a, b uint32, n int64) uint32 { return combine(a, b, int(n)) }

// Sum is the CRC by which a sealed segment is known, from its last 16 bytes or
// more: the one that stands there, of everything before it. Zero: these are fewer.
func Sum(tail []byte) uint32 {
	if len(tail) < trailerSize {
		return 0
	}
	return binary.LittleEndian.Uint32(tail[len(tail)-trailerSize+4:])
}

// WholeCRC is the CRC of all bytes of a sealed segment, from its last 16 or more.
// Bytes that went bad do not agree with it; it tells no segment from another, since
// it is the same for all: what their own CRC and a constant follow has no other.
func WholeCRC(tail []byte) uint32 {
	rest := tail[len(tail)-trailerSize+4:]
	return crc32.Update(binary.LittleEndian.Uint32(rest), castagnoli, rest)
}
