package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

// The journal file, little-endian, CRC-32C:
//
//	block 0   u32 magic "DJH1" · u32 CRC of what follows · u32 version · u32 0 ·
//	          store id (16) · u64 nonce
//	frames    each begins on a block of 4 KiB and fills it up with zeros:
//	          u32 magic "DJF1" · u32 CRC of head and entries but for this field ·
//	          u64 nonce · u64 number of the frame · u32 entries · u32 0 · u64 bytes of data
//	          entries, 64 bytes each:
//	            topic id (16) · u32 partition · u32 kind · u64 base and u64 epoch
//	            of the segment file · u64 position in that file · u32 length ·
//	            u32 leading bytes that are the file's header · u32 digest · u32 0
//	          data: what the entries name, one after another
//
// A frame is one commit round. Its number grows over all laps, and the nonce is
// random and new with every journal file: neither what an earlier lap left nor
// a frame that a client sent inside a message passes for a frame of this
// journal. The digest covers the file header and the header of every batch,
// whose own CRCs cover the rest: an entry whose data was torn, or is still that
// of an earlier lap (of another topic, even), is told apart without a second
// pass over the bodies on the produce path.
const (
	// Block is what the first byte of a frame is aligned to, in bytes.
	Block      = 4 << 10
	headMagic  = 0x31484A44 // "DJH1"
	frameMagic = 0x31464A44 // "DJF1"
	version    = 1
	headSize   = 40
	// FrameHead is what a frame takes besides its entries and data, in bytes.
	FrameHead = 40
	// EntrySize is what each piece of a frame takes besides its data, in bytes.
	EntrySize = 64
)

// The kinds of entries.
const (
	entryData = 0
	entryGone = 1 // the partition's files with a lower base than this were given up
)

// entry says where a piece of a frame belongs.
type entry struct {
	id     hotdir.ID
	kind   uint32
	base   uint64
	epoch  uint64
	pos    int64
	length uint32
	head   uint32
	digest uint32
}

// frame is a frame as recovery finds it.
type frame struct {
	number  uint64
	data    int64 // where its data lies in the journal
	entries []entry
}

func appendHead(dst []byte, store [16]byte, nonce uint64) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, headMagic)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = append(dst, store[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, nonce)
	binary.LittleEndian.PutUint32(dst[at+4:], batch.Checksum(dst[at+8:]))
	return dst
}

func readHead(b []byte, store [16]byte) (nonce uint64, err error) {
	switch {
	case len(b) < headSize, binary.LittleEndian.Uint32(b) != headMagic:
		return 0, errors.New("no journal header")
	case binary.LittleEndian.Uint32(b[4:]) != batch.Checksum(b[8:headSize]):
		return 0, errors.New("journal header CRC is wrong")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v > version {
		return 0, &segment.VersionError{What: "journal", Found: int(v), Known: version}
	}
	if [16]byte(b[16:32]) != store {
		return 0, fmt.Errorf("journal belongs to store %x", b[16:32])
	}
	return binary.LittleEndian.Uint64(b[32:]), nil
}

func appendEntry(dst []byte, e entry) []byte {
	dst = append(dst, e.id.Topic[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, e.id.Partition)
	dst = binary.LittleEndian.AppendUint32(dst, e.kind)
	dst = binary.LittleEndian.AppendUint64(dst, e.base)
	dst = binary.LittleEndian.AppendUint64(dst, e.epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.pos))
	dst = binary.LittleEndian.AppendUint32(dst, e.length)
	dst = binary.LittleEndian.AppendUint32(dst, e.head)
	dst = binary.LittleEndian.AppendUint32(dst, e.digest)
	return binary.LittleEndian.AppendUint32(dst, 0)
}

func readEntry(b []byte) entry {
	return entry{
		id:     hotdir.ID{Topic: [16]byte(b), Partition: binary.LittleEndian.Uint32(b[16:])},
		kind:   binary.LittleEndian.Uint32(b[20:]),
		base:   binary.LittleEndian.Uint64(b[24:]),
		epoch:  binary.LittleEndian.Uint64(b[32:]),
		pos:    int64(binary.LittleEndian.Uint64(b[40:])),
		length: binary.LittleEndian.Uint32(b[48:]),
		head:   binary.LittleEndian.Uint32(b[52:]),
		digest: binary.LittleEndian.Uint32(b[56:]),
	}
}

// readFrames returns the frames whose head and entries are whole, in no
// particular order. It looks at every block: behind the newest frame lie the
// remains of the lap before, at places that nothing in front of them tells.
func readFrames(f disk.File, nonce uint64) ([]frame, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	var frames []frame
	window := make([]byte, min(1<<20, max(size-Block, Block)))
	for at := int64(Block); at < size; at += int64(len(window)) {
		n, err := f.ReadAt(window, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		for i := 0; i+FrameHead <= n; i += Block {
			h := window[i:n]
			if binary.LittleEndian.Uint32(h) != frameMagic || binary.LittleEndian.Uint64(h[8:]) != nonce {
				continue
			}
			fr, err := readFrame(f, h, at+int64(i), size)
			if err != nil {
				return nil, err
			}
			if fr.entries != nil {
				frames = append(frames, fr)
			}
		}
	}
	return frames, nil
}

// readFrame reads the frame at position at, whose first bytes are in h. A frame
// without entries is one whose head or table is not whole.
func readFrame(f disk.File, h []byte, at, size int64) (frame, error) {
	n := int64(binary.LittleEndian.Uint32(h[24:]))
	table := FrameHead + n*EntrySize
	data := int64(binary.LittleEndian.Uint64(h[32:]))
	if n == 0 || at+table > size || data < 0 || data > size-at-table {
		return frame{}, nil
	}
	if int64(len(h)) < table {
		h = make([]byte, table)
		if _, err := f.ReadAt(h, at); err != nil {
			return frame{}, err
		}
	}
	if binary.LittleEndian.Uint32(h[4:]) != batch.Checksum(h[8:table]) {
		return frame{}, nil
	}
	fr := frame{number: binary.LittleEndian.Uint64(h[16:]), data: at + table, entries: make([]entry, n)}
	left := data
	for i := range fr.entries {
		e := readEntry(h[FrameHead+i*EntrySize:])
		if left -= int64(e.length); left < 0 || e.head > e.length || e.pos < 0 {
			return frame{}, nil
		}
		fr.entries[i] = e
	}
	return fr, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// updateDigest folds the header of a batch into the digest of an entry.
func updateDigest(digest uint32, b batch.Batch) uint32 {
	return crc32.Update(digest, castagnoli, b[:batch.HeaderSize])
}

// checkEntry reports whether data is what e describes: whole batches with
// right CRCs behind the file header, and the digest.
func checkEntry(e entry, data []byte) bool {
	digest := batch.Checksum(data[:e.head])
	for rest := data[e.head:]; len(rest) > 0; {
		b, err := batch.Check(rest, segment.Limits())
		if err != nil || b.Epoch() != e.epoch {
			return false
		}
		digest = updateDigest(digest, b)
		rest = rest[len(b):]
	}
	return digest == e.digest
}
