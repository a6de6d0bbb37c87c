package cold

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// ReadAt fills p with the bytes of an object from off on, all of it or with an
// error. A connection that breaks costs only what was not read yet. An object
// that ends before p is full is Corrupt: whoever reads knows lengths from the
// catalog.
func (s *Store) ReadAt(ctx context.Context, key string, p []byte, off int64) error {
	return s.ReadInto(ctx, key, [][]byte{p}, off, nil)
}

// ReadInto is ReadAt into several pieces of memory, one behind the other, in one
// request. filled, unless nil, is called with the number of each piece once it is
// full, in order, while the rest is still on its way; what was filled stays so
// when the call fails later.
func (s *Store) ReadInto(ctx context.Context, key string, pieces [][]byte, off int64, filled func(n int)) error {
	in := &intake{pieces: pieces, off: off, filled: filled}
	for _, p := range pieces {
		in.left += int64(len(p))
	}
	ctx, c := s.begin(ctx, "read", key, in.left)
	defer c.end()
	return c.result(s.readInto(ctx, c, in))
}

func (s *Store) readInto(ctx context.Context, c *call, in *intake) error {
	if in.off < 0 {
		return fmt.Errorf("%w: offset %d", Refused, in.off)
	}
	if in.left == 0 {
		return nil
	}
	return c.run(ctx, in.left, func(ctx context.Context) error { return s.readSome(ctx, c.key, in) })
}

// intake is what a read has still to fill.
type intake struct {
	pieces    [][]byte
	filled    func(n int)
	n, at     int // the piece that is filled next, and from where on
	off, left int64
}

// read takes in what r has until the piece at hand is full.
func (in *intake) read(r io.Reader) (int, error) {
	p := in.pieces[in.n][in.at:]
	n, err := io.ReadFull(r, p)
	in.at, in.off, in.left = in.at+n, in.off+int64(n), in.left-int64(n)
	if n < len(p) {
		return n, err
	}
	if in.filled != nil {
		in.filled(in.n)
	}
	in.n, in.at = in.n+1, 0
	return n, nil
}

// readSome makes one ranged request for what is left; an error comes when something is left still.
func (s *Store) readSome(ctx context.Context, key string, in *intake) error {
	r, err := s.bucket.Blob.NewRangeReader(ctx, key, in.off, in.left, nil)
	if err != nil {
		return err
	}
	for in.left > 0 {
		n, err := in.read(r)
		s.m.received(n)
		if size := r.Size(); err != nil && size < in.off+in.left && size >= 0 && in.off >= size {
			err = fmt.Errorf("%w: the object has %d bytes, wanted up to %d", Corrupt, size, in.off+in.left)
		}
		if err != nil {
			return errors.Join(err, r.Close())
		}
	}
	// All bytes are here, and each is checked by its own CRC: what a close says of a range that was read is no news.
	_ = r.Close()
	return nil
}

// At is the object as an io.ReaderAt for the time of ctx, for those who read the
// footer of a segment. size is its length, which the catalog or Stat knows.
func (s *Store) At(ctx context.Context, key string, size int64) io.ReaderAt {
	return &objectAt{s: s, ctx: ctx, key: key, size: size}
}

// objectAt keeps a context because io.ReaderAt has no place for one. It lives no longer than the call that made it.
type objectAt struct {
	s    *Store
	ctx  context.Context
	key  string
	size int64
}

// ReadAt is io.ReaderAt.
func (o *objectAt) ReadAt(p []byte, off int64) (int, error) {
	if off >= o.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), o.size-off))
	if err := o.s.ReadAt(o.ctx, o.key, p[:n], off); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
