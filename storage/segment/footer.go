package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/danubemq/danube/protocol/batch"
)

const (
	footerMagic  = "\x89DANFOT\n"
	closingMagic = "\x89DANEND\n"
	footerFixed  = 104 // bytes in front of the index
	trailerSize  = 4 + 4 + 8
	entrySize    = 24
	epochSize    = 16
	minFooter    = footerFixed + trailerSize
	// tailRead is how much of the end of a segment is read at first: it holds
	// the footer of nearly all.
	tailRead = 64 << 10
)

// Footer is what stands at the end of a sealed segment.
type Footer struct {
	Facts
	Index  []Entry
	Epochs []EpochStart

	sum       uint32 // of one that was read
	sessions  int
	producers []byte // encoded
}

// Sum is the CRC by which the segment is known whose footer was read, see [Sum].
func (f *Footer) Sum() uint32 { return f.sum }

// Append appends the encoded footer, with the producer table as it stands after
// the last batch of the segment, to dst. Nil is an empty table.
func (f *Footer) Append(dst []byte, p *Producers) []byte {
	if p == nil {
		p = &Producers{}
	}
	at := len(dst)
	dst = append(dst, footerMagic...)
	dst = binary.LittleEndian.AppendUint16(dst, version)
	dst = binary.LittleEndian.AppendUint16(dst, 0)
	dst = binary.LittleEndian.AppendUint32(dst, f.HeaderCRC)
	for _, v := range []uint64{
		uint64(f.DataEnd), f.First, f.End, uint64(f.FirstTime), uint64(f.LastTime), f.Batches, f.Messages, f.Marks,
	} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	for _, v := range []int{len(f.Index), len(f.Epochs), p.Len(), 0} {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(v))
	}
	dst = binary.LittleEndian.AppendUint32(dst, f.DataCRC)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	for _, e := range f.Index {
		dst = binary.LittleEndian.AppendUint64(dst, e.Offset)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.At))
		dst = binary.LittleEndian.AppendUint64(dst, uint64(e.Time))
	}
	for _, e := range f.Epochs {
		dst = binary.LittleEndian.AppendUint64(dst, e.Epoch)
		dst = binary.LittleEndian.AppendUint64(dst, e.Start)
	}
	dst = p.append(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dst)-at+trailerSize))
	// The one CRC answers for both: it is that of everything before it, the
	// data by the CRC known of them.
	dst = binary.LittleEndian.AppendUint32(dst, combine(f.DataCRC, batch.Checksum(dst[at:]), len(dst)-at))
	return append(dst, closingMagic...)
}

// Producers decodes the producer table.
func (f *Footer) Producers() (*Producers, error) { return parseProducers(f.producers, f.sessions) }

// Find is the part of the file in which the batch that holds an offset begins,
// or would: the last one for offsets behind the end.
func (f *Footer) Find(offset uint64) Span { return findOffset(f.Index, f.Facts, offset) }

// FindTime is the part in which the first batch appended at or after ms begins.
// False: there is none.
func (f *Footer) FindTime(ms int64) (Span, bool) { return findTime(f.Index, f.Facts, ms) }

// parseFooter reads a footer that fills b. Errors: ErrCorrupt, *VersionError.
func parseFooter(b []byte) (*Footer, error) {
	if len(b) < minFooter || string(b[:8]) != footerMagic || string(b[len(b)-8:]) != closingMagic {
		return nil, corrupt("no footer in %d bytes", len(b))
	}
	end := len(b) - trailerSize
	if size := int(binary.LittleEndian.Uint32(b[end:])); size != len(b) {
		return nil, corrupt("footer of %d bytes in %d", size, len(b))
	}
	f := &Footer{Facts: parseFacts(b), sum: Sum(b)}
	if got := combine(f.DataCRC, batch.Checksum(b[:end+4]), end+4); got != f.sum {
		return nil, corrupt("footer CRC %08x, computed %08x", f.sum, got)
	}
	if v := int(binary.LittleEndian.Uint16(b[8:])); v != version {
		return nil, &VersionError{What: "segment footer", Found: v, Known: version}
	}
	count := func(at int) int { return int(min(binary.LittleEndian.Uint32(b[at:]), math.MaxInt32)) }
	entries, epochs := count(80), count(84)
	f.sessions = count(88)
	rest := b[footerFixed:end]
	if entries > len(rest)/entrySize || epochs > (len(rest)-entries*entrySize)/epochSize {
		return nil, corrupt("%d index entries and %d epochs in %d bytes", entries, epochs, len(rest))
	}
	f.Index, rest = parseIndex(rest, entries)
	f.Epochs, rest = parseEpochs(rest, epochs)
	f.producers = slices.Clone(rest) // the tail it lies in is large
	return f, f.check()
}

func parseFacts(b []byte) Facts {
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	return Facts{
		HeaderCRC: binary.LittleEndian.Uint32(b[12:]),
		DataEnd:   int64(u(16)),
		First:     u(24),
		End:       u(32),
		FirstTime: int64(u(40)),
		LastTime:  int64(u(48)),
		Batches:   u(56),
		Messages:  u(64),
		Marks:     u(72),
		DataCRC:   binary.LittleEndian.Uint32(b[96:]),
	}
}

func parseIndex(b []byte, n int) ([]Entry, []byte) {
	index := make([]Entry, n)
	for i := range index {
		index[i] = Entry{
			Offset: binary.LittleEndian.Uint64(b),
			At:     int64(binary.LittleEndian.Uint64(b[8:])),
			Time:   int64(binary.LittleEndian.Uint64(b[16:])),
		}
		b = b[entrySize:]
	}
	return index, b
}

func parseEpochs(b []byte, n int) ([]EpochStart, []byte) {
	epochs := make([]EpochStart, n)
	for i := range epochs {
		epochs[i] = EpochStart{Epoch: binary.LittleEndian.Uint64(b), Start: binary.LittleEndian.Uint64(b[8:])}
		b = b[epochSize:]
	}
	return epochs, b
}

// check holds what a search relies on: positions inside the data, in order.
func (f *Footer) check() error {
	if f.DataEnd < 0 || f.First > f.End {
		return corrupt("footer of data up to %d with offsets from %d to %d", f.DataEnd, f.First, f.End)
	}
	at := int64(0)
	for i, e := range f.Index {
		if e.At <= at || e.At >= f.DataEnd || i > 0 && e.Offset < f.Index[i-1].Offset {
			return corrupt("index entry %d: offset %d at %d", i, e.Offset, e.At)
		}
		at = e.At
	}
	for i := 1; i < len(f.Epochs); i++ {
		if f.Epochs[i].Epoch <= f.Epochs[i-1].Epoch || f.Epochs[i].Start < f.Epochs[i-1].Start {
			return corrupt("epoch %d at %d follows epoch %d at %d", f.Epochs[i].Epoch, f.Epochs[i].Start, f.Epochs[i-1].Epoch, f.Epochs[i-1].Start)
		}
	}
	return nil
}

// ReadFooter reads the footer of a sealed segment of the given size in bytes
// from its tail, in one read but for the largest. Errors: ErrCorrupt when there
// is no footer or a bad one, *VersionError, those of reading.
func ReadFooter(r io.ReaderAt, size int64) (*Footer, error) {
	tail, err := readTail(r, size, min(size, tailRead))
	if err != nil {
		return nil, err
	}
	if len(tail) < minFooter || string(tail[len(tail)-8:]) != closingMagic {
		return nil, corrupt("no footer at the end")
	}
	length := int64(binary.LittleEndian.Uint32(tail[len(tail)-trailerSize:]))
	if length < minFooter || length > size {
		return nil, corrupt("footer of %d bytes in a file of %d", length, size)
	}
	if length > int64(len(tail)) {
		// The length is a claim of a few bytes: nothing is read for it before
		// its other end was seen.
		var magic [len(footerMagic)]byte
		if _, err := r.ReadAt(magic[:], size-length); err != nil {
			return nil, fmt.Errorf("read segment footer: %w", err)
		}
		if string(magic[:]) != footerMagic {
			return nil, corrupt("no footer of %d bytes at the end", length)
		}
		if tail, err = readTail(r, size, length); err != nil {
			return nil, err
		}
	}
	f, err := parseFooter(tail[int64(len(tail))-length:])
	if err == nil && f.DataEnd != size-length {
		return nil, corrupt("footer of data up to %d stands at %d", f.DataEnd, size-length)
	}
	return f, err
}

func readTail(r io.ReaderAt, size, n int64) ([]byte, error) {
	tail := make([]byte, n)
	got, err := r.ReadAt(tail, size-n)
	if int64(got) == n && errors.Is(err, io.EOF) {
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("read segment footer: %w", err)
	}
	return tail, nil
}
