package segment

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/danubemq/danube/protocol/batch"
)

const (
	headerMagic = "\x89DANSEG\n"
	headerFixed = 104 // bytes in front of the topic name
	maxTopic    = 4096
)

// maxHeader is the longest header in bytes.
const maxHeader = headerFixed + maxTopic + 4

// Limits are what is taken from a disk: whoever wrote a batch has checked it
// against the limits of its day, which may have been other ones.
func Limits() batch.Limits {
	return batch.Limits{Message: 1 << 30, Batch: 64 << 20, Body: 1 << 30, Messages: 1 << 24}
}

// Header says whose messages a segment holds and where they begin.
type Header struct {
	Cluster    [16]byte
	Store      [16]byte // of the store that wrote the file
	TopicID    [16]byte
	Topic      string // its name when the file was made, at most 4096 bytes
	History    uint16 // of the cluster (R22)
	Partition  uint32
	Epoch      uint64 // the last a batch of this segment can have
	FirstEpoch uint64 // the first one; differs from Epoch only after compaction
	Base       uint64 // offset of the first message
	Created    int64  // ms since 1970
	Copied     bool   // taken over whole from another store: it was synced before it had its name
}

// The flags of a header. A reader passes over those it does not know.
const flagCopied = 1

// Append appends the encoded header to dst.
func (h *Header) Append(dst []byte) ([]byte, error) {
	if len(h.Topic) > maxTopic {
		return dst, fmt.Errorf("encode segment header: topic name of %d bytes, at most %d", len(h.Topic), maxTopic)
	}
	at := len(dst)
	dst = append(dst, headerMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(headerFixed+len(h.Topic)+4))
	dst = binary.LittleEndian.AppendUint16(dst, h.History)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.Topic)))
	dst = append(dst, h.Cluster[:]...)
	dst = append(dst, h.Store[:]...)
	dst = append(dst, h.TopicID[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, h.Partition)
	flags := uint32(0)
	if h.Copied {
		flags |= flagCopied
	}
	dst = binary.LittleEndian.AppendUint32(dst, flags)
	dst = binary.LittleEndian.AppendUint64(dst, h.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, h.FirstEpoch)
	dst = binary.LittleEndian.AppendUint64(dst, h.Base)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(h.Created))
	dst = append(dst, h.Topic...)
	return binary.LittleEndian.AppendUint32(dst, batch.Checksum(dst[at:])), nil
}

// ParseHeader reads the header at the front of b and returns its length in
// bytes. Errors: ErrCorrupt, *VersionError. In every version the magic, the
// version, the length and the CRC at the end stand where they stand in this one,
// so that a rotten version number is told from a newer format.
func ParseHeader(b []byte) (Header, int, error) {
	const head = len(headerMagic) + 4
	if len(b) < head {
		return Header{}, 0, corrupt("%d bytes are no header", len(b))
	}
	if string(b[:len(headerMagic)]) != headerMagic {
		return Header{}, 0, corrupt("no segment magic")
	}
	found, size := int(binary.LittleEndian.Uint16(b[8:])), int(binary.LittleEndian.Uint16(b[10:]))
	if size < head+4 || size > len(b) {
		return Header{}, 0, corrupt("header of %d bytes in %d", size, len(b))
	}
	if got, want := batch.Checksum(b[:size-4]), binary.LittleEndian.Uint32(b[size-4:]); got != want {
		return Header{}, 0, corrupt("header CRC %08x, computed %08x", want, got)
	}
	if found != version {
		return Header{}, 0, &VersionError{What: "segment header", Found: found, Known: version}
	}
	if name := int(binary.LittleEndian.Uint16(b[14:])); size != headerFixed+name+4 {
		return Header{}, 0, corrupt("header of %d bytes with a name of %d", size, name)
	}
	h := Header{
		Cluster:    [16]byte(b[16:32]),
		Store:      [16]byte(b[32:48]),
		TopicID:    [16]byte(b[48:64]),
		Topic:      string(b[headerFixed : size-4]),
		History:    binary.LittleEndian.Uint16(b[12:]),
		Partition:  binary.LittleEndian.Uint32(b[64:]),
		Epoch:      binary.LittleEndian.Uint64(b[72:]),
		FirstEpoch: binary.LittleEndian.Uint64(b[80:]),
		Base:       binary.LittleEndian.Uint64(b[88:]),
		Created:    int64(binary.LittleEndian.Uint64(b[96:])),
		Copied:     binary.LittleEndian.Uint32(b[68:])&flagCopied != 0,
	}
	if h.FirstEpoch > h.Epoch {
		return Header{}, 0, corrupt("epochs from %d to %d", h.FirstEpoch, h.Epoch)
	}
	return h, size, nil
}

// ReadHeader reads the header of a segment and returns its length in bytes.
// Errors: those of ParseHeader and of reading.
func ReadHeader(r io.ReaderAt) (Header, int, error) {
	b := make([]byte, 1024) // holds all but the longest names
	for {
		n, err := r.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return Header{}, 0, fmt.Errorf("read segment header: %w", err)
		}
		more := err == nil && len(b) < maxHeader
		h, size, err := ParseHeader(b[:n])
		if err != nil && more {
			b = make([]byte, maxHeader)
			continue
		}
		return h, size, err
	}
}

// Origin is where a scan of the segment begins, size being the header's length.
func (h *Header) Origin(size int) Origin {
	return Origin{At: int64(size), Base: h.Base, FirstEpoch: h.FirstEpoch, Epoch: h.Epoch}
}

// Origin is what a [Scanner] has to know of the batches it looks for. Of a file
// whose header is lost, the name still tells base and epoch: it is scanned from
// At 0.
type Origin struct {
	At                int64  // file position
	Base              uint64 // the lowest offset that can stand there
	FirstEpoch, Epoch uint64 // every batch has an epoch of these, both included
}

// anyEpoch is the Origin of a file of which nothing is known.
func anyEpoch() Origin { return Origin{Epoch: math.MaxUint64} }
