package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Contents are what a segment holds beside its batches.
type Contents struct {
	Size       int64 // of the file in bytes
	Header     Header
	HeaderSize int   // bytes
	HeaderErr  error // why Header is empty: ErrCorrupt
	HeaderCRC  uint32
	Footer     *Footer // nil when there is none, or it is not whole
	FooterErr  error   // why the footer there is is not whole
}

// Dump walks over a segment, whole or not, and calls visit with each stretch,
// until that returns an error, which it hands back. Without a header it looks
// for batches of any epoch. Other errors are those of reading and *VersionError.
func Dump(r io.ReaderAt, size int64, visit func(Stretch) error) (Contents, error) {
	c := Contents{Size: size}
	from := anyEpoch()
	h, n, err := ReadHeader(r)
	switch {
	case err == nil:
		c.Header, c.HeaderSize, from = h, n, h.Origin(n)
		var crc [4]byte
		if _, err := r.ReadAt(crc[:], int64(n-4)); err != nil && !errors.Is(err, io.EOF) {
			return c, fmt.Errorf("read segment header: %w", err)
		}
		c.HeaderCRC = binary.LittleEndian.Uint32(crc[:])
	case errors.Is(err, ErrCorrupt):
		c.HeaderErr = err
	default:
		return c, err
	}
	for s := NewScanner(r, size, from); ; {
		st, err := s.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		if st.Kind == Sealed {
			c.Footer, c.FooterErr = st.Footer, st.Err
		}
		if err := visit(st); err != nil {
			return c, err
		}
	}
}

// Problem is something wrong with a segment.
type Problem struct {
	At       int64  // file position
	From, To uint64 // the offsets concerned, none known when equal
	Err      error
}

// Report is what Verify found.
type Report struct {
	Contents
	Facts    Facts     // as the batches say
	Problems []Problem // none: the segment is whole
}

// Verify reads a segment to its end and holds everything in it against
// everything else. Errors: those of reading and *VersionError; what is wrong
// with the segment is in the report.
func Verify(r io.ReaderAt, size int64) (Report, error) {
	var rep Report
	complain := func(st Stretch, err error) {
		rep.Problems = append(rep.Problems, Problem{At: st.At, From: st.From, To: st.To, Err: err})
	}
	var seen Producers
	sum, err := summaryOf(r)
	if err != nil {
		return rep, err
	}
	rep.Contents, err = Dump(r, size, func(st Stretch) error {
		switch st.Kind {
		case Whole:
			sum.Add(st.Batch)
			seen.Add(st.Batch)
		case Sealed:
			if st.Err != nil {
				complain(st, st.Err)
			}
		default:
			complain(st, st.Err)
		}
		return nil
	})
	rep.Facts = sum.facts
	if rep.HeaderErr != nil {
		rep.Problems = slices.Insert(rep.Problems, 0, Problem{Err: rep.HeaderErr})
	}
	if err == nil && rep.Footer != nil && len(rep.Problems) == 0 {
		for _, err := range rep.Footer.disagrees(sum, &seen) {
			complain(Stretch{At: rep.Footer.DataEnd}, err)
		}
	}
	return rep, err
}

// summaryOf begins a summary with the header of a segment, or with none when that is lost.
func summaryOf(r io.ReaderAt) (*Summary, error) {
	h, n, err := ReadHeader(r)
	if errors.Is(err, ErrCorrupt) {
		return NewSummary(make([]byte, 4), 0), nil
	}
	if err != nil {
		return nil, err
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read segment header: %w", err)
	}
	return NewSummary(header, h.Base), nil
}

// disagrees says in what a footer is not what the batches in front of it make it.
func (f *Footer) disagrees(sum *Summary, seen *Producers) []error {
	var errs []error
	if f.Facts != sum.facts {
		errs = append(errs, corrupt("footer says %+v, the batches %+v", f.Facts, sum.facts))
	}
	if !slices.Equal(f.Index, sum.index) {
		errs = append(errs, corrupt("index is not that of the batches"))
	}
	if !slices.Equal(f.Epochs, sum.epochs) {
		errs = append(errs, corrupt("epochs %v, the batches have %v", f.Epochs, sum.epochs))
	}
	table, err := f.Producers()
	if err != nil {
		return append(errs, err)
	}
	seen.Each(func(s *Session) bool {
		// A session may have expired; one that is there ends where it ended here.
		if t := table.Find(s.Producer, s.Session); t != nil && t.Last != s.Last {
			errs = append(errs, corrupt("producer %d session %d ends at sequence %d, the batches at %d", s.Producer, s.Session, t.Last, s.Last))
		}
		return true
	})
	return errs
}
