// Package bundle is the object that one cut of level object makes: whole segments
// of many partitions, one behind the other, and an index at the end that says
// which is where. docs/format.md holds the bytes.
//
// The catalog knows where each segment lies, so nobody who reads messages needs
// the index: it is for those who have the object alone, compaction, a rebuild and
// a person who looks at the bucket. One read of the tail gets it.
package bundle

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

const (
	magic        = "\x89DANCUT\n"
	closingMagic = "\x89DANCND\n"
	version      = 1
	fixed        = 72 // bytes in front of the pieces
	pieceSize    = 64
	trailer      = 4 + 4 + 8
	smallest     = fixed + trailer
	tailRead     = 64 << 10
)

// ErrCorrupt is wrapped by every error that says that bytes are not what was written.
var ErrCorrupt = errors.New("index of a cut is corrupt")

// VersionError refuses an index of a format that this binary does not know.
type VersionError struct{ Found, Known int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("index of a cut has format version %d, this binary reads up to %d: use the newer binary that wrote it", e.Found, e.Known)
}

// Index says what a cut holds and who made it.
type Index struct {
	Cluster     [16]byte
	Store       [16]byte // of the broker that made it
	Incarnation uint64   // its run
	Number      uint64   // counts the cuts of the run
	Created     int64    // ms since 1970
	Pieces      []Piece  // in the order of their bytes, without a hole between them
}

// Piece is one segment of a cut.
type Piece struct {
	Topic      [16]byte
	Partition  uint32
	CRC        uint32 // by which the segment is known: the one at its end, see segment.Sum
	Start, End uint64 // offsets
	Epoch      uint64 // of the partition when it was exported
	Position   int64  // of its first byte in the object
	Bytes      int64
}

// Append appends the encoded index to dst.
func (x *Index) Append(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(x.Pieces)))
	dst = append(dst, x.Cluster[:]...)
	dst = append(dst, x.Store[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, x.Incarnation)
	dst = binary.LittleEndian.AppendUint64(dst, x.Number)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.Created))
	for i := range x.Pieces {
		p := &x.Pieces[i]
		dst = append(dst, p.Topic[:]...)
		dst = binary.LittleEndian.AppendUint32(dst, p.Partition)
		dst = binary.LittleEndian.AppendUint32(dst, p.CRC)
		for _, v := range []uint64{p.Start, p.End, p.Epoch, uint64(p.Position), uint64(p.Bytes)} {
			dst = binary.LittleEndian.AppendUint64(dst, v)
		}
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dst)-at+trailer))
	dst = binary.LittleEndian.AppendUint32(dst, Checksum(dst[at:]))
	return append(dst, closingMagic...)
}

// Checksum is the CRC of what Append has made, as every CRC of these formats.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// IsCut says whether the last bytes of an object, eight at least, end the index of a cut.
func IsCut(tail []byte) bool {
	return len(tail) >= len(closingMagic) && string(tail[len(tail)-len(closingMagic):]) == closingMagic
}

// Read reads the index of an object of the given size in bytes from its tail, in
// one read but for the largest. Errors: ErrCorrupt, *VersionError, those of reading.
func Read(r io.ReaderAt, size int64) (Index, error) {
	n := min(size, tailRead)
	tail, err := read(r, size-n, n)
	if err != nil {
		return Index{}, err
	}
	if len(tail) < smallest || !IsCut(tail) {
		return Index{}, corrupt("none at the end of %d bytes", size)
	}
	length := int64(binary.LittleEndian.Uint32(tail[len(tail)-trailer:]))
	switch {
	case length < smallest || length > size:
		return Index{}, corrupt("%d bytes in an object of %d", length, size)
	case length > n:
		// The length is a claim of a few bytes: nothing is read for it before its other end was seen.
		head, err := read(r, size-length, int64(len(magic)))
		if err != nil {
			return Index{}, err
		}
		if string(head) != magic {
			return Index{}, corrupt("none of %d bytes at the end", length)
		}
		if tail, err = read(r, size-length, length); err != nil {
			return Index{}, err
		}
	}
	return parse(tail[int64(len(tail))-length:], size-length)
}

func read(r io.ReaderAt, at, n int64) ([]byte, error) {
	b := make([]byte, n)
	if got, err := r.ReadAt(b, at); int64(got) < n {
		return nil, fmt.Errorf("read index of a cut: %w", err)
	}
	return b, nil
}

// parse reads an index that fills b and stands behind so many bytes of segments.
func parse(b []byte, behind int64) (Index, error) {
	end := len(b) - trailer
	if end < fixed || string(b[:8]) != magic || int(binary.LittleEndian.Uint32(b[end:])) != len(b) {
		return Index{}, corrupt("none in %d bytes", len(b))
	}
	if got, want := Checksum(b[:end+4]), binary.LittleEndian.Uint32(b[end+4:]); got != want {
		return Index{}, corrupt("CRC %08x, computed %08x", want, got)
	}
	if v := int(binary.LittleEndian.Uint16(b[8:])); v != version {
		return Index{}, &VersionError{Found: v, Known: version}
	}
	count := int64(binary.LittleEndian.Uint32(b[12:]))
	if int64(end-fixed) != count*pieceSize {
		return Index{}, corrupt("%d pieces in %d bytes", count, len(b))
	}
	x := Index{
		Cluster: [16]byte(b[16:32]), Store: [16]byte(b[32:48]),
		Incarnation: binary.LittleEndian.Uint64(b[48:]), Number: binary.LittleEndian.Uint64(b[56:]),
		Created: int64(binary.LittleEndian.Uint64(b[64:])),
		Pieces:  make([]Piece, 0, count),
	}
	at := int64(0)
	for piece := range slices.Chunk(b[fixed:end], pieceSize) {
		p := parsePiece(piece)
		if p.Start >= p.End || p.Position != at || p.Bytes <= 0 || p.Bytes > behind-at {
			return Index{}, corrupt("piece of offsets %d to %d, %d bytes at %d of %d", p.Start, p.End, p.Bytes, p.Position, behind)
		}
		at += p.Bytes
		x.Pieces = append(x.Pieces, p)
	}
	if at != behind {
		return Index{}, corrupt("pieces up to %d, the index stands at %d", at, behind)
	}
	return x, nil
}

func parsePiece(b []byte) Piece {
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	return Piece{
		Topic: [16]byte(b[:16]), Partition: binary.LittleEndian.Uint32(b[16:]), CRC: binary.LittleEndian.Uint32(b[20:]),
		Start: u(24), End: u(32), Epoch: u(40), Position: int64(u(48)), Bytes: int64(u(56)),
	}
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
