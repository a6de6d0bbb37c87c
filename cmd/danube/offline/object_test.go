package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/segment"
)

// bucketOf is a driver of a bucket that holds these objects.
func bucketOf(t *testing.T, objects map[string][]byte) cold.Opener {
	t.Helper()
	b := memblob.OpenBucket(nil)
	t.Cleanup(func() { _ = b.Close() })
	for key, data := range objects {
		if err := b.WriteAll(t.Context(), key, data, nil); err != nil {
			t.Fatal(err)
		}
	}
	return func(_ context.Context, u *url.URL, _ cold.Hooks) (*cold.Bucket, error) {
		if u.Path != "" {
			return nil, fmt.Errorf("asked to open %s", u)
		}
		return &cold.Bucket{Blob: blob.PrefixedBucket(b, "")}, nil
	}
}

// written are the bytes of a segment of six messages from base on.
func written(t *testing.T, base uint64) []byte {
	t.Helper()
	data, err := os.ReadFile(writeSegment(t, t.TempDir(), base, true))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// cutOf is one object of segments with an index.
func cutOf(t *testing.T, bases ...uint64) []byte {
	t.Helper()
	x := bundle.Index{Store: [16]byte{3}, Incarnation: 4, Number: 5, Created: noon()}
	var data []byte
	for _, base := range bases {
		b := written(t, base)
		x.Pieces = append(x.Pieces, bundle.Piece{
			Topic: [16]byte{1}, Partition: 2, CRC: segment.Sum(b), Start: base, End: base + 6, Epoch: 1, Position: int64(len(data)), Bytes: int64(len(b)),
		})
		data = append(data, b...)
	}
	return x.Append(data)
}

func pageOf() []byte {
	return catalog.EncodePage([16]byte{1}, 2, []catalog.Segment{
		{Start: 0, End: 6, Bytes: 700, CRC: 0xfeed, FirstTime: noon(), LastTime: noon(), Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 4, Unique: 9}},
	})
}

// looked runs dump and verify on what name says.
func looked(t *testing.T, drivers cold.Opener, name string, piece int) (dump, verify string, bad int, err error) {
	t.Helper()
	s, err := Open(t.Context(), name, drivers)
	if err != nil {
		return "", "", 0, err
	}
	defer s.Close()
	var d, v bytes.Buffer
	rep, err := s.Verify(piece)
	if derr := s.Dump(&d, piece, false); (derr == nil) != (err == nil) {
		t.Errorf("dump says %v, verify %v", derr, err)
	}
	if err != nil {
		return d.String(), "", 0, err
	}
	if err := rep.Print(&v); err != nil {
		t.Fatal(err)
	}
	for _, asJSON := range []any{rep} {
		if b, err := json.Marshal(asJSON); err != nil || !json.Valid(b) {
			t.Errorf("%s, %v", b, err)
		}
	}
	return d.String(), v.String(), len(rep.Found()), nil
}

// TestObjects: a segment, a cut, a piece of one and a page are shown alike, whether they are files or objects.
func TestObjects(t *testing.T) {
	key := keys.Segment{Topic: [16]byte{1}, Partition: 2, Start: 10, End: 16, Epoch: 1, Incarnation: 4, Unique: 1}.String()
	cutKey := keys.Cut{Store: [16]byte{3}, Incarnation: 4, Number: 5, Unique: 6}.String()
	pageKey := keys.Page{Topic: [16]byte{1}, Partition: 2, End: 6, Incarnation: 4, Unique: 7}.String()
	objects := map[string][]byte{"danube/" + key: written(t, 10), "danube/" + cutKey: cutOf(t, 10, 20), "danube/" + pageKey: pageOf()}
	drivers := bucketOf(t, objects)
	for name, c := range map[string]struct {
		key    string
		piece  int
		dump   []string
		verify string
	}{
		"segment":   {key, AllPieces, []string{"sealed: 6 messages in 3 batches, offsets 10-15", "/default/orders:2"}, "no problems"},
		"cut":       {cutKey, AllPieces, []string{"cut 5 of run 4", "10-15", "20-25", strings.Repeat("0", 30) + " "}, "no problems"},
		"one piece": {cutKey, 1, []string{"sealed: 6 messages in 3 batches, offsets 20-25", fmt.Sprint(len(written(t, 10)) + 123)}, "no problems"},
		"page":      {pageKey, AllPieces, []string{"page of a catalog", "0-5", "0000feed", "0000000000000009.seg"}, "page of a catalog"},
	} {
		t.Run(name, func(t *testing.T) {
			data := objects["danube/"+c.key]
			file := filepath.Join(t.TempDir(), "x.seg")
			if err := os.WriteFile(file, data, 0o644); err != nil {
				t.Fatal(err)
			}
			for _, place := range []string{"test://bucket/" + c.key + "?prefix=danube", "test://bucket/danube/" + c.key, file, "file://" + file} {
				dump, verify, bad, err := looked(t, drivers, place, c.piece)
				if err != nil || bad > 0 || !strings.Contains(verify, c.verify) {
					t.Fatalf("%s: %v, %d problems\n%s", place, err, bad, verify)
				}
				for _, want := range c.dump {
					if !strings.Contains(dump, want) {
						t.Errorf("%s: without %q\n%s", place, want, dump)
					}
				}
				if strings.HasPrefix(place, "test") && !strings.Contains(dump, "test://bucket/danube/"+c.key) {
					t.Errorf("%s is not named\n%s", place, dump)
				}
			}
		})
	}
}

// TestDamagedObjectIsNamedWithItsPlace and the command fails as on a file.
func TestDamagedObjectIsNamedWithItsPlace(t *testing.T) {
	cutKey := keys.Cut{Store: [16]byte{3}, Incarnation: 4, Number: 5, Unique: 6}.String()
	hurt := func(data []byte, at int) []byte {
		data = bytes.Clone(data)
		data[at] ^= 1
		return data
	}
	first := len(written(t, 10))
	good := cutOf(t, 10, 20)
	for name, c := range map[string]struct {
		key  string
		data []byte
		at   int64
		says string
		none bool // nothing can be shown: an error
	}{
		"segment":             {"x.seg", hurt(written(t, 10), 300), 0, "CRC", false},
		"piece of a cut":      {cutKey, hurt(good, first+300), int64(first), "piece 1: ", false},
		"index of a cut":      {cutKey, hurt(good, len(good)-20), 0, cutKey + " at", true},
		"torn cut":            {cutKey, good[:len(good)-3], 0, "index of a cut is corrupt", true},
		"page":                {"x.catalog", hurt(pageOf(), 40), 0, "x.catalog at 0: ", true},
		"nothing of the kind": {"x", []byte("no segment at all"), 0, "not a segment", true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Open(t.Context(), "test://bucket/"+c.key, bucketOf(t, map[string][]byte{c.key: c.data}))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if c.none {
				if err := s.Dump(io.Discard, AllPieces, false); err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "test://bucket/"+c.key) || fail.CodeOf(err) != fail.Failed {
					t.Errorf("says %v", err)
				}
				return
			}
			rep, err := s.Verify(AllPieces)
			if err != nil || len(rep.Found()) == 0 {
				t.Fatalf("%v, %+v", err, rep)
			}
			if p := rep.Found()[0]; p.File != "test://bucket/"+c.key || p.At < c.at || !strings.Contains(p.What, c.says) {
				t.Errorf("found %+v", p)
			}
		})
	}
}

// TestPieceUnderAnotherIndex: what a piece says of itself is held against the index.
func TestPieceUnderAnotherIndex(t *testing.T) {
	good := cutOf(t, 10, 20)
	x, err := bundle.Read(bytes.NewReader(good), int64(len(good)))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(p *bundle.Piece){
		"topic": func(p *bundle.Piece) { p.Topic[0]++ }, "end": func(p *bundle.Piece) { p.End++ }, "CRC": func(p *bundle.Piece) { p.CRC++ },
	} {
		y := x
		y.Pieces = slices.Clone(x.Pieces)
		change(&y.Pieces[0])
		last := x.Pieces[1]
		data := y.Append(bytes.Clone(good[:last.Position+last.Bytes]))
		s, err := Open(t.Context(), "test://bucket/c", bucketOf(t, map[string][]byte{"c": data}))
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := s.Verify(AllPieces); err != nil || len(rep.Found()) != 1 {
			t.Errorf("%s: %v, %+v", name, err, rep)
		}
		_ = s.Close()
	}
}

func TestWhatCannotBeOpened(t *testing.T) {
	drivers := bucketOf(t, map[string][]byte{"cut": cutOf(t, 10), "seg": written(t, 10)})
	for name, c := range map[string]struct {
		piece int
		code  int
		says  string
	}{
		"test://bucket":                 {AllPieces, fail.Usage, "names a bucket and no object"},
		"test:///x":                     {AllPieces, fail.Usage, "scheme://bucket/key"},
		"test://key:secret@bucket/x":    {AllPieces, fail.Usage, "holds credentials"},
		"test://bucket/seg?prefix=../x": {AllPieces, fail.Usage, "prefix"},
		"file://host/x":                 {AllPieces, fail.Usage, "file:///path"},
		"test://bucket/missing":         {AllPieces, fail.Failed, "not found"},
		"/no/such/file":                 {AllPieces, fail.Failed, "no such file"},
		"test://bucket/cut":             {1, fail.Usage, "has 1 piece: there is no piece 1"},
		"test://bucket/seg":             {0, fail.Usage, "is no cut"},
	} {
		_, _, _, err := looked(t, drivers, name, c.piece)
		if err == nil || fail.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: %v, code %d", name, err, fail.CodeOf(err))
		}
	}
}

// counted counts the reads of an object.
type counted struct {
	at    io.ReaderAt
	reads []int64
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads = append(c.reads, off)
	return c.at.ReadAt(p, off)
}

// TestObjectsAreReadInLargeRanges: the end first, and a few MiB with each request.
func TestObjectsAreReadInLargeRanges(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), (3*rangeBytes+5000)/16)
	c := &counted{at: bytes.NewReader(data)}
	r := &ranges{at: c, size: int64(len(data))}
	got := make([]byte, 8)
	if n, err := r.ReadAt(got, r.size-8); n != 8 || err != nil && !errors.Is(err, io.EOF) || len(c.reads) != 1 || c.reads[0] != r.size-tailBytes {
		t.Fatalf("%d, %v, reads at %v", n, err, c.reads)
	}
	all, err := io.ReadAll(io.NewSectionReader(r, 0, r.size))
	if err != nil || !bytes.Equal(all, data) || len(c.reads) != 4 {
		t.Errorf("%d bytes, %v, reads at %v", len(all), err, c.reads)
	}
	if n, err := r.ReadAt(got, r.size-3); n != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("over the end: %d, %v", n, err)
	}
	c.at = iotest{}
	r = &ranges{at: c, size: 100}
	if _, err := r.ReadAt(got, 0); !errors.Is(err, errAway) {
		t.Errorf("an error became %v", err)
	}
}

var errAway = errors.New("away")

type iotest struct{}

func (iotest) ReadAt([]byte, int64) (int, error) { return 0, errAway }
