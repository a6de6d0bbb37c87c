package segment

import "hash/crc32"

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
