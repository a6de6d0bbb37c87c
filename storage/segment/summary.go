package segment

import (
	"encoding/binary"
	"hash/crc32"
	"sort"

	"github.com/danubemq/danube/protocol/batch"
)

// stride is how many bytes of batches one index entry stands for, at least.
const stride = 64 << 10

// Entry is one entry of the sparse index: a stretch of batches.
type Entry struct {
	Offset uint64 // first offset of the stretch
	At     int64  // its file position
	Time   int64  // the largest append time of a message in it, ms since 1970; 0 for none
}

// EpochStart says from which offset on an epoch holds.
type EpochStart struct {
	Epoch uint64
	Start uint64
}

// Span is a part of a segment, [From, To) in file positions, that begins at a batch.
type Span struct{ From, To int64 }

// Facts are what a segment is known by without its index: counts and bounds.
type Facts struct {
	HeaderCRC uint32 // the last four bytes of the header: which file this is of
	DataCRC   uint32 // CRC of the bytes before DataEnd
	DataEnd   int64  // position behind the last batch: bytes of header and batches
	First     uint64 // offset of the first message, or the base when there is none
	End       uint64 // offset behind the last message
	FirstTime int64  // append time of the first message, ms since 1970; 0 without messages
	LastTime  int64  // the largest append time
	Batches   uint64 // batches with messages
	Messages  uint64
	Marks     uint64 // control batches
}

// Summary gathers, batch by batch, what the footer of a segment says. It
// allocates only when its index grows. Not safe for concurrent use.
type Summary struct {
	facts  Facts
	index  []Entry
	epochs []EpochStart
}

// NewSummary begins with the encoded header of a segment, which holds whole, and
// the base offset in it.
func NewSummary(header []byte, base uint64) *Summary {
	return &Summary{facts: Facts{
		HeaderCRC: binary.LittleEndian.Uint32(header[len(header)-4:]),
		DataCRC:   crc32.Checksum(header, castagnoli),
		DataEnd:   int64(len(header)),
		First:     base,
		End:       base,
	}}
}

// Facts are the counts and bounds so far.
func (s *Summary) Facts() Facts { return s.facts }

// Epochs are the epochs so far, in order. The slice stays the Summary's.
func (s *Summary) Epochs() []EpochStart { return s.epochs }

// Add takes the batch that stands next in the file, stamped, with CRCs that
// hold: they are trusted. Only its header is read.
func (s *Summary) Add(b batch.Batch) {
	f := &s.facts
	if n := len(s.index); n == 0 || f.DataEnd-s.index[n-1].At >= stride {
		s.index = append(s.index, Entry{Offset: b.Base(), At: f.DataEnd})
	}
	if n := len(s.epochs); n == 0 || s.epochs[n-1].Epoch != b.Epoch() {
		s.epochs = append(s.epochs, EpochStart{Epoch: b.Epoch(), Start: b.Base()})
	}
	if b.Control() {
		f.Marks++ // a mark holds no message, and its time is of no use to who looks for one
	} else {
		if f.Batches == 0 {
			f.First, f.FirstTime, f.LastTime = b.Base(), b.AppendTime(), b.AppendTime()
		}
		f.LastTime = max(f.LastTime, b.AppendTime())
		last := &s.index[len(s.index)-1]
		last.Time = max(last.Time, b.AppendTime())
		f.Batches++
		f.Messages += uint64(b.Count())
	}
	f.End = max(f.End, b.End())
	f.DataCRC = crc32.Update(f.DataCRC, castagnoli, b[:batch.HeaderSize])
	if body := b.Len() - batch.HeaderSize; body > 0 {
		f.DataCRC = combine(f.DataCRC, b.BodyCRC(), body)
	}
	f.DataEnd += int64(b.Len())
}

// Find is the part of the file in which the batch that holds an offset begins,
// or would: the last one for offsets behind the end.
func (s *Summary) Find(offset uint64) Span { return findOffset(s.index, s.facts, offset) }

// FindTime is the part in which the first batch appended at or after ms begins.
// False: there is none.
func (s *Summary) FindTime(ms int64) (Span, bool) { return findTime(s.index, s.facts, ms) }

// Footer is the footer as it would be now, without a producer table. It shares
// the index: nothing may be added while it is in use.
func (s *Summary) Footer() *Footer {
	return &Footer{Facts: s.facts, Index: s.index, Epochs: s.epochs}
}

func findOffset(index []Entry, f Facts, offset uint64) Span {
	// Entries of marks carry the offset that follows: the last entry at or
	// below the offset would skip the batch in front of such a one only if that
	// held no lower offset, which no batch does.
	i := sort.Search(len(index), func(i int) bool { return index[i].Offset > offset })
	return span(index, f, max(0, i-1))
}

func findTime(index []Entry, f Facts, ms int64) (Span, bool) {
	for i := range index {
		if index[i].Time >= ms {
			return span(index, f, i), true
		}
	}
	return Span{}, false
}

func span(index []Entry, f Facts, i int) Span {
	switch {
	case i >= len(index):
		return Span{From: f.DataEnd, To: f.DataEnd}
	case i+1 < len(index):
		return Span{From: index[i].At, To: index[i+1].At}
	default:
		return Span{From: index[i].At, To: f.DataEnd}
	}
}
