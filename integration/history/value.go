package history

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
)

// ErrForeign says that bytes are no payload that a Run made, or are not any more what it made.
var ErrForeign = errors.New("payload of no producer")

// value names one message for ever: the producer that made it and its place in that producer's order.
type value struct {
	producer uint32
	seq      uint64
}

func (v value) String() string { return fmt.Sprintf("p%d/%d", v.producer, v.seq) }

// castagnoli covers the text of a payload behind its checksum.
func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// encode makes a payload of about size bytes: "CRC run producer sequence random…", all text and without a newline, so
// that it also passes through pipes of lines. It is never shorter than its own head.
func encode(run uint32, v value, size int, rnd *rand.Rand) ([]byte, uint32) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEF"
	b := make([]byte, 9, max(size, 64))
	b = strconv.AppendUint(b, uint64(run), 16)
	b = append(b, ' ')
	b = strconv.AppendUint(b, uint64(v.producer), 10)
	b = append(b, ' ')
	b = strconv.AppendUint(b, v.seq, 10)
	b = append(b, ' ')
	for bits := uint64(0); len(b) < size; bits >>= 5 {
		if bits == 0 {
			bits = rnd.Uint64()
		}
		b = append(b, letters[bits&31])
	}
	sum := checksum(b[9:])
	copy(b, fmt.Sprintf("%08x ", sum))
	return b, sum
}

// decode reads a payload back; anything that is not exactly what encode made for this run is ErrForeign.
func decode(run uint32, payload []byte) (value, uint32, error) {
	fields := bytes.SplitN(payload, []byte(" "), 5)
	if len(fields) != 5 || len(fields[0]) != 8 {
		return value{}, 0, ErrForeign
	}
	var numbers [4]uint64
	for i, base := range []int{16, 16, 10, 10} {
		n, err := strconv.ParseUint(string(fields[i]), base, 64)
		if err != nil {
			return value{}, 0, fmt.Errorf("%w: %w", ErrForeign, err)
		}
		numbers[i] = n
	}
	sum := checksum(payload[9:])
	switch {
	case uint64(sum) != numbers[0]:
		return value{}, 0, fmt.Errorf("%w: its checksum is %08x, it says %08x", ErrForeign, sum, numbers[0])
	case numbers[1] != uint64(run):
		return value{}, 0, fmt.Errorf("%w: it is of run %x, this is %x", ErrForeign, numbers[1], run)
	case numbers[2] > 1<<32-1:
		return value{}, 0, ErrForeign
	}
	return value{producer: uint32(numbers[2]), seq: numbers[3]}, sum, nil
}
