// Package excerpt makes a whole segment of a part of others, for the cold tier:
// its header and footer are made anew and lie in memory, its batches stay where
// they are. Nothing is copied, so that a full disk can still be emptied.
//
// A sealed file that is wanted from its first batch to its last needs no excerpt:
// [Whole] takes it as it stands. Else a [Maker] walks over the batches that are
// wanted, checks every CRC of them (R21), and gathers what the footer says.
package excerpt

import (
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

// Segment is a whole segment, from header to footer. Its bytes are the same
// whenever they are read. It is safe for concurrent use if what it was made of is.
type Segment struct {
	segment.Facts
	Epochs []segment.EpochStart
	Size   int64  // bytes
	CRC    uint32 // CRC-32C of all of them: what is bad does not agree with it, but every segment has the same
	Sum    uint32 // the CRC by which a catalog knows it, see segment.Sum

	parts Parts
}

// ReadAt is io.ReaderAt.
func (s *Segment) ReadAt(p []byte, off int64) (int, error) { return s.parts.ReadAt(p, off) }

func (s *Segment) add(at io.ReaderAt, from, size int64) {
	s.parts.Add(at, from, size)
	s.Size = s.parts.Size()
}

// errParts says that a sealed file is not what one segment of the cold tier may be.
var errParts = errors.New("the file has holes, or more than one epoch")

// Whole is a sealed file of the given size in bytes as it stands, if its messages
// follow each other without a hole under one epoch. The footer answers for the
// bytes in front of it; whoever reads them compares them with CRC.
func Whole(r io.ReaderAt, size int64) (*Segment, error) {
	footer, err := segment.ReadFooter(r, size)
	if err != nil {
		return nil, err
	}
	if footer.Batches == 0 || footer.End-footer.First != footer.Messages || len(footer.Epochs) != 1 {
		return nil, errParts
	}
	var tail [16]byte
	if n, err := r.ReadAt(tail[:], size-int64(len(tail))); n < len(tail) {
		return nil, fmt.Errorf("read segment footer: %w", err)
	}
	s := &Segment{Facts: footer.Facts, Epochs: footer.Epochs, CRC: segment.WholeCRC(tail[:]), Sum: footer.Sum()}
	s.add(r, 0, size)
	return s, nil
}

// Config says what an excerpt is of.
type Config struct {
	Header segment.Header // of the excerpt; its base becomes that of the first batch
	// From and To are the offsets: it begins with the batch that holds From and
	// ends in front of the first that does not end by To.
	From, To uint64
	// Most is how many bytes of batches it has at most, but at least one batch is taken.
	Most int64
	// Visit is called with each batch that is taken; nil is allowed.
	Visit func(batch.Batch)
}

// Maker gathers the batches of an excerpt, file by file. Not safe for concurrent use.
type Maker struct {
	config  Config
	next    uint64           // end of what was taken
	behind  int64            // position behind it in its file
	summary *segment.Summary // nil until there is a batch
	header  []byte
	out     Segment
}

// New begins an excerpt.
func New(c Config) *Maker { return &Maker{config: c, next: c.From} }

// Next is the offset behind what was taken, From before anything was.
func (m *Maker) Next() uint64 { return m.next }

// Behind is the position behind what was taken in the last file of which anything was.
func (m *Maker) Behind() int64 { return m.behind }

// File is a file with batches of the excerpt.
type File struct {
	At    io.ReaderAt // stays readable as long as the excerpt is used
	From  int64       // position of a batch, none of those wanted in front of it
	Size  int64       // bytes that may be read
	Base  uint64      // of the file
	Epoch uint64
}

// Add takes the batches of a file from Next on. More says that the file has no
// more of them, and the next one may. What is no good batch there is an error,
// but only when it stands where the excerpt would begin: else what is good in
// front of it is an excerpt, which ends there.
func (m *Maker) Add(f File) (more bool, err error) {
	scan := segment.NewScanner(f.At, f.Size, segment.Origin{At: f.From, Base: f.Base, FirstEpoch: f.Epoch, Epoch: f.Epoch})
	for m.next < m.config.To {
		x, err := scan.Next()
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case err != nil:
			return false, m.stop(fmt.Errorf("read segment: %w", err))
		case x.Kind == segment.Sealed:
			return true, nil
		case x.Kind == segment.Damaged && x.Len == 0 && x.To <= m.next:
			continue // the scan began inside the file
		case x.Kind != segment.Whole || x.Found:
			return false, m.stop(fmt.Errorf("no batch at position %d: %w", x.At, errors.Join(x.Err, segment.ErrCorrupt)))
		case x.Batch.Control() || x.To <= m.next:
			continue
		}
		if done, err := m.take(f.At, x); done || err != nil {
			return false, err
		}
	}
	return false, nil
}

// stop ends an excerpt at a bad place. It is an error of one that has nothing yet.
func (m *Maker) stop(err error) error {
	if m.summary != nil {
		return nil
	}
	return err
}

// take adds one batch, unless the excerpt ends in front of it.
func (m *Maker) take(at io.ReaderAt, x segment.Stretch) (done bool, err error) {
	b := x.Batch
	if x.From > m.next || m.summary != nil && x.From != m.next {
		return true, m.stop(fmt.Errorf("offsets %d to %d are missing: %w", m.next, x.From, segment.ErrCorrupt))
	}
	if x.To > m.config.To {
		return true, m.stop(fmt.Errorf("the batch of offsets %d to %d goes beyond %d: %w", x.From, x.To, m.config.To, segment.ErrCorrupt))
	}
	if m.summary == nil {
		m.config.Header.Base = x.From
		if m.header, err = m.config.Header.Append(nil); err != nil {
			return true, err
		}
		m.summary = segment.NewSummary(m.header, x.From)
		m.out.add(Bytes(m.header), 0, int64(len(m.header)))
	} else if m.out.Size-int64(len(m.header))+x.Len > m.config.Most {
		return true, nil
	}
	m.summary.Add(b)
	m.out.add(at, x.At, x.Len)
	m.next, m.behind = x.To, x.At+x.Len
	if m.config.Visit != nil {
		m.config.Visit(b)
	}
	return false, nil
}

// errNothing says that an excerpt would have no message.
var errNothing = errors.New("there is no batch to take")

// Finish makes the segment, with the producer table as it stood behind the last
// batch. The maker is used up.
func (m *Maker) Finish(table *segment.Producers) (*Segment, error) {
	if m.summary == nil {
		return nil, errNothing
	}
	footer := m.summary.Footer()
	tail := footer.Append(nil, table)
	out := &m.out
	out.Facts, out.Epochs, out.CRC, out.Sum = footer.Facts, footer.Epochs, segment.WholeCRC(tail), segment.Sum(tail)
	out.add(Bytes(tail), 0, int64(len(tail)))
	return out, nil
}
