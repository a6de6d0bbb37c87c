package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/protocol/batch"
)

// Kind is what a stretch of a segment is.
type Kind uint8

const (
	// Whole is a batch whose CRCs hold, at an offset that can stand there.
	Whole Kind = iota
	// Damaged is something that is no such batch, with one, or a footer, behind
	// it. Its length is 0 where a batch follows that leaves offsets out.
	Damaged
	// Torn is something that is no such batch and reaches to the end of the file.
	Torn
	// Zeros is Torn of nothing but zeros: laid out ahead, or lost pages.
	Zeros
	// Sealed is a footer. Its Err says whether it is whole.
	Sealed
)

// Stretch is one stretch of a segment. Stretches follow each other without a hole.
type Stretch struct {
	Kind Kind
	At   int64 // file position
	Len  int64 // bytes
	// Batch is the whole batch, valid until the next call of Next; nil for every
	// other kind.
	Batch batch.Batch
	// From and To are the offsets [From, To) that stand here, or would: of a
	// Whole batch its own; of a Damaged stretch those that are missing; of a
	// Torn one those that its header, which was whole, claims. None are known
	// when they are equal.
	From, To uint64
	// Found says of a Whole batch that it was found by a search through bytes
	// that make no sense: what stands there may be the payload of another
	// message. Whether the log has reached so far, the Synced of its header and
	// of later batches tell, and who trusts it decides.
	Found bool
	// Err says what is wrong, nil for a Whole batch and a whole footer.
	Err error
	// Footer is the footer of a Sealed stretch, nil when it is not whole.
	Footer *Footer
}

// chunk is how much a scan reads at once.
const chunk = 256 << 10

// Scanner walks over the stretches of a segment, sealed or not, whole or not. It
// holds one chunk of the file, or one batch when that is larger, and never more
// than the file has. Not safe for concurrent use.
type Scanner struct {
	r     io.ReaderAt
	size  int64
	at    int64  // position of the next stretch
	next  uint64 // the lowest offset that can stand there
	from  Origin
	epoch uint64 // the lowest epoch that can stand there
	found bool   // a search was needed to get here

	buf   []byte // bytes of the file from bufAt on
	bufAt int64
}

// NewScanner scans size bytes of r from an origin on.
func NewScanner(r io.ReaderAt, size int64, from Origin) *Scanner {
	s := &Scanner{}
	s.Reset(r, size, from)
	return s
}

// Reset begins anew, on the same file or another, with the buffer kept.
func (s *Scanner) Reset(r io.ReaderAt, size int64, from Origin) {
	*s = Scanner{r: r, size: size, at: from.At, next: from.Base, from: from, epoch: from.FirstEpoch, buf: s.buf[:0]}
}

// Next returns the next stretch, io.EOF behind the last. Other errors are those
// of reading and *VersionError; the scan cannot go on after them.
func (s *Scanner) Next() (Stretch, error) {
	if s.at >= s.size {
		return Stretch{}, io.EOF
	}
	v, err := s.look(s.at)
	switch {
	case err != nil:
		return Stretch{}, err
	case v.kind == sightNewer:
		return Stretch{}, v.err
	case v.kind == sightWhole:
		return s.whole(v.batch), nil
	}
	if f, err := s.footer(s.at); err != nil || f != nil {
		return s.sealed(f), err
	}
	return s.bad(v)
}

func (s *Scanner) whole(b batch.Batch) Stretch {
	if b.Base() > s.next && b.Epoch() == s.epoch {
		// Within an epoch offsets are contiguous: something was left out.
		return s.missing(b.Base())
	}
	st := Stretch{Kind: Whole, At: s.at, Len: int64(b.Len()), Batch: b, From: b.Base(), To: b.End(), Found: s.found}
	s.at += st.Len
	s.next, s.epoch = b.End(), b.Epoch()
	return st
}

func (s *Scanner) missing(to uint64) Stretch {
	st := Stretch{Kind: Damaged, At: s.at, From: s.next, To: to, Err: corrupt("offsets %d to %d are missing", s.next, to)}
	s.next = to
	return st
}

func (s *Scanner) sealed(f *seal) Stretch {
	if f == nil {
		return Stretch{}
	}
	if f.footer != nil && f.footer.End > s.next && s.from.FirstEpoch == s.from.Epoch {
		return s.missing(f.footer.End)
	}
	st := Stretch{Kind: Sealed, At: s.at, Len: s.size - s.at, From: s.next, To: s.next, Err: f.err, Footer: f.footer}
	s.at = s.size
	return st
}

// bad judges a position where neither batch nor footer stands.
func (s *Scanner) bad(v sight) (Stretch, error) {
	st := Stretch{Kind: Damaged, At: s.at, From: s.next, To: s.next, Err: v.err}
	if v.kind == sightExtent {
		st.To = v.to
	}
	zero, err := s.zeros(s.at)
	if err != nil {
		return Stretch{}, err
	}
	if zero >= s.size {
		st.Kind, st.Len = Zeros, s.size-s.at
		s.at = s.size
		return st, nil
	}
	where, err := s.resync(s.at)
	if err != nil {
		return Stretch{}, err
	}
	switch {
	case where.seal != nil && where.seal.footer != nil:
		st.To = max(st.From, where.seal.footer.End)
	case where.batch != nil && where.batch.Epoch() == s.epoch:
		st.To = where.batch.Base()
	case where.batch != nil:
		st.To = min(st.To, where.batch.Base())
	case where.seal == nil:
		st.Kind = Torn
	}
	st.Len = where.at - s.at
	s.at, s.next = where.at, max(s.next, st.To)
	s.found = s.found || where.searched
	return st, nil
}

// bytes returns the bytes of the file from pos on, n of them at least unless the
// file ends before; they are valid until the next call.
func (s *Scanner) bytes(pos int64, n int) ([]byte, error) {
	left := s.size - pos
	if left <= 0 {
		return nil, nil
	}
	n = int(min(int64(n), left))
	var kept []byte
	if skip := pos - s.bufAt; skip >= 0 && skip < int64(len(s.buf)) {
		kept = s.buf[skip:]
	}
	if len(kept) >= n {
		return kept, nil
	}
	want := max(n, int(min(chunk, left)))
	buf := s.buf[:0]
	if cap(buf) < want {
		buf = make([]byte, 0, want)
	}
	k := copy(buf[:want], kept)
	got, err := s.r.ReadAt(buf[k:want], pos+int64(k))
	s.buf, s.bufAt = buf[:k+got], pos
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read segment at %d: %w", pos, err)
	}
	if k+got < want {
		s.size = pos + int64(k+got) // the file is shorter than was said
	}
	return s.buf, nil
}

// zeros returns the position of the first byte from pos on that is not 0, or the size.
func (s *Scanner) zeros(pos int64) (int64, error) {
	for pos < s.size {
		b, err := s.bytes(pos, 1)
		if err != nil {
			return 0, err
		}
		rest := bytes.TrimLeft(b, "\x00")
		if len(rest) > 0 {
			return pos + int64(len(b)-len(rest)), nil
		}
		pos += int64(len(b))
	}
	return s.size, nil
}
