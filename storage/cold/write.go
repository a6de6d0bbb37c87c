package cold

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"gocloud.dev/blob"
)

// Body is what is written: bytes that can be read as often as it takes.
type Body struct {
	At   io.ReaderAt // read from several times, until Put returns
	Size int64       // bytes
	CRC  uint32      // CRC-32C of all of them: what At gives is held against it before the object is made
}

// Bytes is a Body of bytes in memory, which must not change until Put has
// returned.
func Bytes(b []byte) Body {
	return Body{At: bytes.NewReader(b), Size: int64(len(b)), CRC: crc32.Checksum(b, castagnoli())}
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Put makes an object that is not there yet, and returns when the store has all
// its bytes: size and checksum were compared, by reading the object back where
// the store gives no checksum that can be trusted. When the object is there
// already and holds the same bytes, that is success: an earlier try came through
// (R5). With other bytes it is Exists.
//
// After any other error the object may be there or appear later. Then nothing
// helps but the same bytes under the same key again.
func (s *Store) Put(ctx context.Context, key string, body Body) (Info, error) {
	ctx, c := s.begin(ctx, "put", key, 2*body.Size) // there and back
	defer c.end()
	info, err := s.put(ctx, c, body)
	return info, c.result(err)
}

func (s *Store) put(ctx context.Context, c *call, body Body) (Info, error) {
	mine := Info{Key: c.key[len(s.prefix):], Size: body.Size}
	sum, err := s.scan(body)
	if err != nil {
		return Info{}, err
	}
	mine.MD5 = sum
	if s.unconditional.Load() {
		if found, err := s.lookFirst(ctx, c, body); found || err != nil {
			return mine, err
		}
	}
	var theirs []byte
	look := false
	err = c.run(ctx, body.Size, func(ctx context.Context) (err error) {
		if look {
			if err := s.absent(ctx, c.key); err != nil {
				return err
			}
		}
		theirs, err = s.upload(ctx, c.key, body, !s.unconditional.Load())
		look = err != nil && !s.answered(err)
		return err
	})
	if errors.Is(err, Exists) {
		return mine, s.compare(ctx, c, body, Exists)
	}
	if err != nil {
		return Info{}, err
	}
	return mine, s.verify(ctx, c, body, theirs, sum)
}

// absent looks for an object before it is sent again, after a try that had no answer. It saves the bytes if that try came
// through; and a server that refuses without reading the body, and closes, is never heard by who still writes.
func (s *Store) absent(ctx context.Context, key string) error {
	_, err := s.bucket.Blob.Attributes(ctx, key)
	switch {
	case err == nil:
		return fmt.Errorf("%w: found before it was sent again", Exists)
	case s.bucket.causeOf(err, ctx, ctx) == NotFound:
		return nil
	}
	return err
}

// answered tells whether a server has said why.
func (s *Store) answered(err error) bool {
	if s.bucket.Answer == nil {
		return false
	}
	status, code := s.bucket.Answer(err)
	return status != 0 || code != ""
}

// lookFirst stands in for the condition on a store that has none: good enough for the only writer.
func (s *Store) lookFirst(ctx context.Context, c *call, body Body) (found bool, err error) {
	_, err = s.stat(ctx, c)
	switch {
	case errors.Is(err, NotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, s.compare(ctx, c, body, Exists)
}

// Replace writes a small object, whatever was there before. The last of several
// that write at once wins, in the order of the store. A reader sees the old bytes
// or the new.
func (s *Store) Replace(ctx context.Context, key string, data []byte) error {
	ctx, c := s.begin(ctx, "replace", key, int64(len(data)))
	defer c.end()
	body := Bytes(data)
	return c.result(c.run(ctx, body.Size, func(ctx context.Context) error {
		_, err := s.upload(ctx, c.key, body, false)
		return err
	}))
}

// scan reads the body once before anything is sent: it must be what its writer says it is. The MD5 is compared with
// what stores give, and never relied on against an attacker.
func (s *Store) scan(body Body) (sum []byte, err error) {
	buf := s.piece()
	defer s.pieces.Put(buf)
	crc, digest := uint32(0), md5.New()
	for off := int64(0); off < body.Size; {
		p := buf[:min(pieceBytes, body.Size-off)]
		if n, err := body.At.ReadAt(p, off); n < len(p) {
			return nil, fmt.Errorf("%w: read what is to be written at %d: %w", Corrupt, off, err)
		}
		crc = crc32.Update(crc, castagnoli(), p)
		_, _ = digest.Write(p) // a hash takes everything
		off += int64(len(p))
	}
	if crc != body.CRC {
		return nil, fmt.Errorf("%w: what is to be written has CRC %08x, its writer says %08x", Corrupt, crc, body.CRC)
	}
	return digest.Sum(nil), nil
}

// upload sends the bytes once, and returns what the store says is their MD5, if it says so at once.
func (s *Store) upload(ctx context.Context, key string, body Body, absent bool) (sum []byte, err error) {
	g := &gate{from: io.NewSectionReader(body.At, 0, body.Size)}
	defer g.shut()
	if s.bucket.Upload != nil {
		sum, err = s.bucket.Upload(ctx, key, g, absent)
	} else {
		err = s.write(ctx, key, g, absent)
	}
	if err == nil {
		s.m.sent(body.Size)
	}
	return sum, s.noBucket(err)
}

// write is upload through the writer of gocloud.
func (s *Store) write(ctx context.Context, key string, body io.Reader, absent bool) error {
	ctx, abort := context.WithCancel(ctx)
	defer abort()
	w, err := s.bucket.Blob.NewWriter(ctx, key, &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: absent})
	if err != nil {
		return err
	}
	buf := s.piece()
	defer s.pieces.Put(buf)
	if _, err := io.CopyBuffer(w, struct{ io.Reader }{body}, buf[:]); err != nil {
		abort() // before Close, which would publish what was written so far
		return errors.Join(err, w.Close())
	}
	return w.Close()
}

// gate is a body for the time of one attempt: an HTTP client may go on reading after its call has returned.
type gate struct {
	mu   sync.Mutex
	from *io.SectionReader
	over bool
}

// Read is io.Reader until the gate is shut.
func (g *gate) Read(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return 0, errShut
	}
	return g.from.Read(p)
}

// Seek is io.Seeker until the gate is shut.
func (g *gate) Seek(off int64, whence int) (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.over {
		return 0, errShut
	}
	return g.from.Seek(off, whence)
}

// shut waits for a read that is under way.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}

var errShut = errors.New("the upload is over")

// pieceBytes is the size of the pieces in which bodies are read and compared.
const pieceBytes = 128 << 10

// piece is a buffer of the store's own; give it back with s.pieces.Put.
func (s *Store) piece() *[pieceBytes]byte {
	if p, ok := s.pieces.Get().(*[pieceBytes]byte); ok {
		return p
	}
	return new([pieceBytes]byte)
}

// verify holds the object that was just written against its body (R11).
func (s *Store) verify(ctx context.Context, c *call, body Body, theirs, sum []byte) error {
	if s.digests.Load() && bytes.Equal(theirs, sum) {
		return nil // of all the bytes, and so of as many
	}
	info, err := s.stat(ctx, c)
	if err != nil {
		return err
	}
	if info.Size != body.Size {
		return fmt.Errorf("%w: wrote %d bytes, the store has %d", Corrupt, body.Size, info.Size)
	}
	if s.digests.Load() && bytes.Equal(info.MD5, sum) {
		return nil
	}
	if err := s.compare(ctx, c, body, Corrupt); err != nil {
		return err
	}
	if len(info.MD5) > 0 {
		s.digests.Store(false) // the bytes are right: it is no digest of them, as under encryption with other keys
	}
	return nil
}

// compare reads an object and holds it against a body; a difference has the cause other.
func (s *Store) compare(ctx context.Context, c *call, body Body, other Cause) error {
	info, err := s.stat(ctx, c)
	if err != nil {
		return err
	}
	if info.Size != body.Size {
		return fmt.Errorf("%w: the store has %d bytes, not %d", other, info.Size, body.Size)
	}
	for off := int64(0); off < body.Size; {
		n := min(compareBytes, body.Size-off)
		same, err := s.samePiece(ctx, c, body, off, n)
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("%w: other bytes between %d and %d", other, off, off+n)
		}
		off += n
	}
	return nil
}

// compareBytes is how much of an object one request reads back.
const compareBytes = 8 << 20

// samePiece streams one range, so that reading back needs no memory to speak of.
func (s *Store) samePiece(ctx context.Context, c *call, body Body, off, n int64) (same bool, err error) {
	err = c.run(ctx, n, func(ctx context.Context) error {
		r, err := s.bucket.Blob.NewRangeReader(ctx, c.key, off, n, nil)
		if err != nil {
			return err
		}
		same, err = s.sameBytes(r, body, off, n)
		return errors.Join(err, r.Close())
	})
	return same, err
}

func (s *Store) sameBytes(r io.Reader, body Body, off, n int64) (bool, error) {
	theirs, ours := s.piece(), s.piece()
	defer s.pieces.Put(theirs)
	defer s.pieces.Put(ours)
	for done := int64(0); done < n; {
		size := int(min(pieceBytes, n-done))
		got, err := io.ReadFull(r, theirs[:size])
		s.m.received(got)
		if err != nil {
			return false, err
		}
		if k, err := body.At.ReadAt(ours[:size], off+done); k < size {
			return false, fmt.Errorf("%w: read what was written at %d: %w", Corrupt, off+done, err)
		}
		if !bytes.Equal(theirs[:size], ours[:size]) {
			return false, nil
		}
		done += int64(size)
	}
	return true, nil
}
