package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"

	"github.com/danubemq/danube/protocol/batch"
)

// sight is what is seen at a position.
type sight struct {
	kind  sightKind
	batch batch.Batch // of sightWhole
	size  int64       // of sightExtent: bytes of the batch
	to    uint64      // of sightExtent: offset behind it
	err   error       // why it is no whole batch
}

type sightKind uint8

const (
	sightNothing sightKind = iota
	sightWhole
	// sightExtent is a batch that is not whole, but whose header tells its
	// length: its CRC holds, or holds once one bit is turned back. What stands
	// inside is part of it, whatever it looks like.
	sightExtent
	// sightNewer is a header that holds, of a format this binary does not know.
	sightNewer
)

// look judges what stands at pos.
func (s *Scanner) look(pos int64) (sight, error) {
	b, err := s.bytes(pos, batch.HeaderSize)
	if err != nil {
		return sight{}, err
	}
	// The log is read as it was written, whatever the limits are today; the size
	// of the file bounds what is held.
	none := batch.Limits{Message: math.MaxInt, Batch: math.MaxInt, Body: math.MaxInt, Messages: math.MaxInt}
	h, err := batch.CheckHeader(b, none)
	if errors.Is(err, batch.ErrShort) && len(b) >= batch.HeaderSize {
		n := batch.Batch(b).Len()
		if b, err = s.bytes(pos, min(n, math.MaxInt32)); err != nil {
			return sight{}, err
		}
		h, err = batch.CheckHeader(b, none)
	}
	switch {
	case errors.Is(err, batch.ErrVersion):
		return sight{kind: sightNewer, err: newer(b)}, nil
	case errors.Is(err, batch.ErrShort) && len(b) >= batch.HeaderSize:
		return s.extent(batch.Batch(b), err), nil
	case err != nil:
		if fixed := turnBack(b); fixed != nil {
			return s.extent(fixed, err), nil
		}
		return sight{err: err}, nil
	}
	if err := s.fits(h); err != nil {
		return sight{err: err}, nil
	}
	if err := h.CheckBody(); err != nil {
		return s.extent(h, err), nil
	}
	return sight{kind: sightWhole, batch: h}, nil
}

// newer is the refusal of a batch of another format.
func newer(b []byte) error {
	v := int(binary.LittleEndian.Uint16(b[versionAt:]))
	what := "batch"
	if v == batch.Version {
		what = fmt.Sprintf("batch with attributes %#x", uint16(batch.Batch(b).Attributes()))
	}
	return &VersionError{What: what, Found: v, Known: batch.Version}
}

// fits says why a batch cannot stand here: what an earlier round left in the file.
func (s *Scanner) fits(h batch.Batch) error {
	switch {
	case h.Epoch() < s.epoch || h.Epoch() > s.from.Epoch:
		return corrupt("a batch of epoch %d, want %d to %d", h.Epoch(), s.epoch, s.from.Epoch)
	case h.Base() < s.next:
		return corrupt("a batch at offset %d, want %d", h.Base(), s.next)
	}
	return nil
}

// extent is what a header tells of a batch that is not whole.
func (s *Scanner) extent(h batch.Batch, err error) sight {
	if s.fits(h) != nil || h.Len() < batch.HeaderSize {
		return sight{err: err}
	}
	return sight{kind: sightExtent, size: int64(h.Len()), to: h.End(), err: err}
}

// turnBack returns the header at the front of b with one bit turned back, when
// that makes its CRC hold. Nobody is served by it: it only tells how far the
// batch reached, so that a payload is not searched for batches.
func turnBack(b []byte) batch.Batch {
	if len(b) < batch.HeaderSize {
		return nil
	}
	h := [batch.HeaderSize]byte(b)
	off := headerCRC(h[:]) ^ binary.LittleEndian.Uint32(h[4:])
	bit := slices.Index(syndromes[:], off)
	if bit < 0 {
		return nil
	}
	h[bit/8] ^= 1 << (bit % 8)
	return h[:]
}

// syndromes[i] is by how much bit i of a batch header sets its CRC and the one
// computed of it apart. All differ. Never changed.
var syndromes = makeSyndromes()

func makeSyndromes() (t [8 * batch.HeaderSize]uint32) {
	var h [batch.HeaderSize]byte
	zero := headerCRC(h[:])
	for i := range t {
		h[i/8] ^= 1 << (i % 8)
		t[i] = headerCRC(h[:]) ^ zero ^ binary.LittleEndian.Uint32(h[4:])
		h[i/8] = 0
	}
	return t
}

// headerCRC is the CRC that a batch header should have.
func headerCRC(h []byte) uint32 {
	return crc32.Update(crc32.Checksum(h[:4], castagnoli), castagnoli, h[8:batch.HeaderSize])
}

// landing is where a scan finds its feet again.
type landing struct {
	at       int64       // the size of the file when it does not
	batch    batch.Batch // what stands there
	seal     *seal
	searched bool // bytes that make no sense were searched through
}

// resync finds the next whole batch or the footer behind something bad at pos.
func (s *Scanner) resync(pos int64) (landing, error) {
	end := landing{}
	tail, err := s.tail()
	if err != nil {
		return end, err
	}
	for pos < s.size {
		v, err := s.look(pos)
		if err != nil {
			return end, err
		}
		switch v.kind {
		case sightWhole:
			end.at, end.batch = pos, v.batch
			return end, nil
		case sightExtent:
			pos += v.size
			continue
		}
		if pos > s.at && (pos == tail || !end.searched) {
			if f, err := s.footer(pos); err != nil || f != nil {
				end.at, end.seal = pos, f
				return end, err
			}
		}
		end.searched = s.at > 0 || s.from.At > 0 // a lost segment header holds nothing of a producer
		if pos, err = s.search(pos+1, tail); err != nil {
			return end, err
		}
	}
	end.at = s.size
	return end, nil
}

// search returns the first position from pos on where the header of a batch may
// stand, tail when that comes first, or the size.
func (s *Scanner) search(pos, tail int64) (int64, error) {
	first, err := s.zeros(pos)
	if err != nil {
		return 0, err
	}
	// A header has a byte that is not 0 before its end.
	pos = max(pos, first-batch.HeaderSize+1)
	for pos < s.size {
		b, err := s.bytes(pos, 2*batch.HeaderSize)
		if err != nil {
			return 0, err
		}
		n := len(b) - batch.HeaderSize
		for i := 0; i <= n; i++ {
			// The version is the rarest pair of bytes a header is sure to have.
			k := bytes.Index(b[i+versionAt:n+versionAt+2], versionBytes)
			at := pos + int64(i+k)
			switch {
			case tail >= pos+int64(i) && (k < 0 && tail <= pos+int64(n) || tail <= at):
				return tail, nil
			case k < 0:
				i = n
			case s.promises(b[i+k:]):
				return at, nil
			default:
				i += k
			}
		}
		if pos+int64(len(b)) >= s.size {
			return s.size, nil
		}
		pos += int64(n + 1)
	}
	return s.size, nil
}

// versionAt is where a batch header has its version, versionBytes what stands there.
const versionAt = 62

var versionBytes = binary.LittleEndian.AppendUint16(nil, batch.Version)

// promises asks the fields that are cheap to ask whether a header of a batch that
// can stand here begins at b.
func (s *Scanner) promises(b []byte) bool {
	h := batch.Batch(b)
	return h.Epoch() >= s.epoch && h.Epoch() <= s.from.Epoch &&
		h.Base() >= s.next && h.Len() >= batch.HeaderSize
}

// seal is a footer that was met, whole or not.
type seal struct {
	footer *Footer
	err    error
}

// tail returns where the last bytes of the file say that its footer begins, -1
// when they do not.
func (s *Scanner) tail() (int64, error) {
	if s.size < minFooter {
		return -1, nil
	}
	b, err := s.bytes(s.size-trailerSize, trailerSize)
	if err != nil || len(b) < trailerSize || string(b[8:trailerSize]) != closingMagic {
		return -1, err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n < minFooter || n > s.size {
		return -1, nil
	}
	return s.size - n, nil
}

// footer reads the footer at pos; nil when none begins there.
func (s *Scanner) footer(pos int64) (*seal, error) {
	tail, err := s.tail()
	if err != nil {
		return nil, err
	}
	b, err := s.bytes(pos, len(footerMagic))
	if err != nil {
		return nil, err
	}
	begins := len(b) >= len(footerMagic) && string(b[:len(footerMagic)]) == footerMagic
	switch {
	case pos != tail && !begins:
		return nil, nil
	case pos != tail:
		return &seal{err: corrupt("a footer that does not end with the file")}, nil
	}
	if b, err = s.bytes(pos, int(s.size-pos)); err != nil {
		return nil, err
	}
	f, err := parseFooter(b)
	switch {
	case errors.Is(err, ErrCorrupt):
		return &seal{err: err}, nil
	case err != nil:
		return nil, err
	case f.DataEnd != pos:
		return &seal{err: corrupt("a footer of data up to %d stands at %d", f.DataEnd, pos)}, nil
	}
	return &seal{footer: f}, nil
}
