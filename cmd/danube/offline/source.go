package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
)

// Source is a file, or an object of a bucket, that is read by ranges.
type Source struct {
	Name string // without anything that may be a secret
	Size int64  // bytes

	at    io.ReaderAt
	cut   bool // its name is that of a cut
	close func() error
}

// Open opens what name says: a file, or file:///path, or s3://bucket/key and its like with the parameters that
// storage.durable.url takes, its prefix too. ctx is for all of its reading.
func Open(ctx context.Context, name string, drivers cold.Opener) (*Source, error) {
	scheme, _, isURL := strings.Cut(name, "://")
	switch {
	case !isURL:
		return openFile(name)
	case scheme == "file":
		u, err := url.Parse(name)
		if err != nil || u.Host != "" || u.RawQuery != "" {
			return nil, fail.Usagef("%s: a file is given as file:///path", name)
		}
		return openFile(u.Path)
	}
	return openObject(ctx, name, drivers)
}

// openFile opens a file that is one.
func openFile(name string) (*Source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Source{Name: name, Size: info.Size(), at: f, close: f.Close}, nil
}

func openObject(ctx context.Context, name string, drivers cold.Opener) (*Source, error) {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return nil, fail.Usagef("an object is given as scheme://bucket/key?parameters") // the parser's error quotes the parameters
	}
	key := strings.TrimPrefix(u.Path, "/")
	u.Path, u.RawPath = "", ""
	if key == "" {
		return nil, fail.WithHint(fail.Usagef("%s://%s names a bucket and no object in it", u.Scheme, u.Host), "put the object's key behind the bucket: %s://%s/topics/…", u.Scheme, u.Host)
	}
	store, err := cold.Open(ctx, cold.Config{URL: u.String(), Drivers: drivers})
	if err != nil {
		return nil, fail.With(fail.Usage, err)
	}
	info, err := store.Stat(ctx, key)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	shown := u.Scheme + "://" + u.Host + "/" + prefixOf(u) + key
	n, _ := keys.NameOf(key) // of anything else there is nothing to know
	return &Source{Name: shown, Size: info.Size, cut: n.Object.Kind == catalog.Cut, at: &ranges{at: store.At(ctx, key, info.Size), size: info.Size}, close: store.Close}, nil
}

// prefixOf is what the store puts in front of keys.
func prefixOf(u *url.URL) string {
	p := u.Query().Get("prefix")
	if p != "" && !strings.HasSuffix(p, "/") {
		p += "/"
	}
	return p
}

// Close gives up the file or the connections.
func (s *Source) Close() error { return s.close() }

// part is a stretch of the source as a source of its own.
func (s *Source) part(at, size int64) *Source {
	return &Source{Name: s.Name, Size: size, at: io.NewSectionReader(s.at, at, size)}
}

const (
	rangeBytes = 4 << 20  // of one request, while an object is read from its beginning
	tailBytes  = 64 << 10 // of the end, which comes first
)

// ranges reads an object a few MiB at a time, for those who read it bit by bit. It keeps the end, where footers and indexes
// stand, and the piece that was read last.
type ranges struct {
	at   io.ReaderAt
	size int64
	tail piece
	last piece
}

// piece is a part of an object that was read.
type piece struct {
	off int64
	b   []byte
}

// ReadAt is io.ReaderAt.
func (r *ranges) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		from, err := r.holding(at)
		if err != nil {
			return n, err
		}
		n += copy(p[n:], from.b[at-from.off:])
	}
	return n, nil
}

// holding returns a piece that holds the byte at a position.
func (r *ranges) holding(at int64) (*piece, error) {
	if tail := max(0, r.size-tailBytes); at >= tail {
		return &r.tail, r.read(&r.tail, tail, r.size)
	}
	begin := at - at%rangeBytes
	return &r.last, r.read(&r.last, begin, min(begin+rangeBytes, r.size))
}

func (r *ranges) read(p *piece, from, to int64) error {
	if p.b != nil && p.off == from {
		return nil
	}
	b := make([]byte, to-from)
	if n, err := r.at.ReadAt(b, from); n < len(b) {
		return err
	}
	p.off, p.b = from, b
	return nil
}
