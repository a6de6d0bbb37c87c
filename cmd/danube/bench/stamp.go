package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
)

// A bench message is filling, then a magic, the number of the run, the stream
// (which producer of the run), the sequence within the stream, and a CRC-32C
// over all before it. The stamp stands at the end so that the CRC of the filling
// is computed once.
const (
	// StampSize is the size of the smallest message there is.
	StampSize  = 4 + 8 + 4 + 8 + 4
	runFrom    = 4
	streamFrom = 12
	seqFrom    = 16
	crcFrom    = 24
	stampMagic = 0x484e4244 // "DBNH"
)

// errNotStamped says that a message is none of a bench.
var errNotStamped = errors.New("not a bench message")

// stamper makes the messages of one stream, all in one buffer.
type stamper struct {
	table *crc32.Table
	fill  uint32 // CRC of the filling
	buf   []byte
	seq   uint64
}

// newStamper makes messages of size bytes, which must be at least StampSize.
func newStamper(run uint64, stream uint32, size int) *stamper {
	s := &stamper{table: crc32.MakeTable(crc32.Castagnoli), buf: make([]byte, size)}
	filling := s.buf[:size-StampSize]
	source := rand.NewPCG(run, uint64(stream))
	for i := range filling {
		filling[i] = byte(source.Uint64() >> 33)
	}
	s.fill = crc32.Update(0, s.table, filling)
	stamp := s.buf[len(filling):]
	binary.LittleEndian.PutUint32(stamp, stampMagic)
	binary.LittleEndian.PutUint64(stamp[runFrom:], run)
	binary.LittleEndian.PutUint32(stamp[streamFrom:], stream)
	return s
}

// next returns the next message. The call after overwrites it.
func (s *stamper) next() []byte {
	stamp := s.buf[len(s.buf)-StampSize:]
	binary.LittleEndian.PutUint64(stamp[seqFrom:], s.seq)
	binary.LittleEndian.PutUint32(stamp[crcFrom:], crc32.Update(s.fill, s.table, stamp[:crcFrom]))
	s.seq++
	return s.buf
}

// stamp is what a bench message says of itself.
type stamp struct {
	run, seq uint64
	stream   uint32
}

// readStamp reads the stamp of a message and checks its CRC. errNotStamped: it has none.
func readStamp(table *crc32.Table, payload []byte) (stamp, error) {
	if len(payload) < StampSize {
		return stamp{}, errNotStamped
	}
	b := payload[len(payload)-StampSize:]
	if binary.LittleEndian.Uint32(b) != stampMagic {
		return stamp{}, errNotStamped
	}
	s := stamp{run: binary.LittleEndian.Uint64(b[runFrom:]), stream: binary.LittleEndian.Uint32(b[streamFrom:]), seq: binary.LittleEndian.Uint64(b[seqFrom:])}
	if crc32.Checksum(payload[:len(payload)-4], table) != binary.LittleEndian.Uint32(b[crcFrom:]) {
		return s, fmt.Errorf("CRC of message %d of stream %d is wrong", s.seq, s.stream)
	}
	return s, nil
}
