package keeper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/segment"
)

// Damage says that the bytes of an object are not what the catalog has of it. Nothing was changed.
type Damage struct {
	Key string
	At  int64 // position in the segment
	Err error
}

func (d *Damage) Error() string { return fmt.Sprintf("%s is damaged at %d: %v", d.Key, d.At, d.Err) }

// Unwrap returns what is wrong.
func (d *Damage) Unwrap() error { return d.Err }

// footerMark is what a footer begins with; read as the length of a batch it is above all limits.
const footerMark = "\x89DANFOT\n"

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// walker takes the bytes of one segment in pieces of any length, checks all there is to check and hands on the batches.
// It holds one piece and one batch, or the footer.
type walker struct {
	key     string
	segment catalog.Segment
	part    *upkeep.Partition
	head    func(h segment.Header) error
	each    func(b batch.Batch) error // a batch is valid until it returns

	buf    []byte
	at     int64 // position of buf
	crc    uint32
	next   uint64 // offset of the next message
	epoch  uint64
	header segment.Header
	stage  stage
	counts counts
}

type counts struct{ batches, messages, marks uint64 }

type stage uint8

const (
	inHeader stage = iota
	inBatches
	inFooter
)

func (w *walker) bad(format string, args ...any) error {
	return &Damage{Key: w.key, At: w.at, Err: fmt.Errorf(format, args...)}
}

// write takes the next bytes.
func (w *walker) write(p []byte) error {
	w.crc = crc32.Update(w.crc, castagnoli(), p)
	w.buf = append(w.buf, p...)
	if w.at+int64(len(w.buf)) > w.segment.Bytes {
		return w.bad("more bytes than the catalog says")
	}
	rest := w.buf
	for {
		n, err := w.step(rest)
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		rest, w.at = rest[n:], w.at+int64(n)
	}
	w.buf = append(w.buf[:0], rest...)
	return nil
}

// step takes one thing from the front of b and returns its length, 0 if it is not all there.
func (w *walker) step(b []byte) (int, error) {
	switch w.stage {
	case inHeader:
		return w.takeHeader(b)
	case inBatches:
		return w.takeBatch(b)
	}
	return 0, nil
}

func (w *walker) takeHeader(b []byte) (int, error) {
	const lengthAt = 10
	if len(b) < lengthAt+2 || len(b) < int(binary.LittleEndian.Uint16(b[lengthAt:])) {
		return 0, nil
	}
	h, n, err := segment.ParseHeader(b)
	if err != nil {
		return 0, w.bad("%w", err)
	}
	if h.TopicID != w.part.Topic || h.Partition != w.part.Number || h.Base != w.segment.Start {
		return 0, w.bad("header of %x:%d at %d, want %x:%d at %d", h.TopicID, h.Partition, h.Base, w.part.Topic, w.part.Number, w.segment.Start)
	}
	w.header, w.next, w.epoch, w.stage = h, h.Base, h.FirstEpoch, inBatches
	return n, w.head(h)
}

func (w *walker) takeBatch(b []byte) (int, error) {
	if len(b) >= len(footerMark) && string(b[:len(footerMark)]) == footerMark {
		w.stage = inFooter
		return 0, nil
	}
	if len(b) < batch.HeaderSize {
		return 0, nil
	}
	h, err := batch.Check(b, segment.Limits())
	if errors.Is(err, batch.ErrShort) {
		return 0, nil
	}
	if err != nil {
		return 0, w.bad("%w", err)
	}
	if err := w.fits(h); err != nil {
		return 0, err
	}
	if w.next, w.epoch = h.End(), h.Epoch(); h.Control() {
		w.counts.marks++
	} else {
		w.counts.batches++
		w.counts.messages += uint64(h.Count())
	}
	return h.Len(), w.each(h)
}

// fits holds a batch against what must stand here: the next offset, under the epoch that the ranges give it (R19).
func (w *walker) fits(h batch.Batch) error {
	if h.Base() != w.next || h.End() > w.segment.End {
		return w.bad("a batch of [%d, %d) stands where [%d, %d) is left", h.Base(), h.End(), w.next, w.segment.End)
	}
	if h.Epoch() < w.epoch || h.Epoch() > w.header.Epoch {
		return w.bad("a batch of epoch %d, want %d to %d", h.Epoch(), w.epoch, w.header.Epoch)
	}
	if h.Control() || h.Base() < w.part.LogStart {
		return nil
	}
	if want := w.part.EpochOf(h.Base()); h.Epoch() != want {
		return w.bad("offset %d has epoch %d, the ranges say %d", h.Base(), h.Epoch(), want)
	}
	return nil
}

// finish is called after the last byte and returns the footer.
func (w *walker) finish() (*segment.Footer, error) {
	if got := w.at + int64(len(w.buf)); w.stage != inFooter || w.next != w.segment.End || got != w.segment.Bytes {
		return nil, w.bad("it ends at offset %d after %d bytes, want %d after %d", w.next, got, w.segment.End, w.segment.Bytes)
	}
	f, err := segment.ReadFooter(tailAt{w.buf, w.at}, w.segment.Bytes)
	if err != nil {
		return nil, w.bad("%w", err)
	}
	if want := segment.WholeCRC(w.buf); w.crc != want {
		return nil, w.bad("CRC %08x of all of it, want %08x", w.crc, want)
	}
	if f.Sum() != w.segment.CRC {
		return nil, w.bad("it is another segment: CRC %08x, the catalog has %08x", f.Sum(), w.segment.CRC)
	}
	if (counts{f.Batches, f.Messages, f.Marks}) != w.counts || f.First != w.segment.Start || f.End != w.segment.End {
		return nil, w.bad("footer of [%d, %d) in %d batches, read %d", f.First, f.End, f.Batches, w.counts.batches)
	}
	return f, nil
}

// tailAt is the end of a file.
type tailAt struct {
	b  []byte
	at int64
}

// ReadAt is io.ReaderAt. What lies before the tail reads as zeros: nobody looks there.
func (t tailAt) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	skip := max(0, min(t.at-off, int64(len(p))))
	from := max(0, off-t.at)
	if from > int64(len(t.b)) {
		return 0, io.EOF
	}
	n := int(skip) + copy(p[skip:], t.b[from:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
