package records

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func stream(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	w := NewWriter(&b, []byte("HD"))
	w.Put(1, []byte("one"))
	w.Put(200, nil)
	w.Put(3, bytes.Repeat([]byte{7}, 70_000))
	n, err := w.Flush()
	if err != nil || w.Count() != 3 || n != int64(b.Len()) {
		t.Fatalf("%d records in %d bytes, %v", w.Count(), n, err)
	}
	return b.Bytes()
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	b := stream(t)
	if got := hex.EncodeToString(b[:15]); got != "484401030000006f6e65c800000000" {
		t.Fatalf("the stream begins with %s", got)
	}
	r, head, err := NewReader(bytes.NewReader(b), 2)
	if err != nil || string(head) != "HD" {
		t.Fatalf("%q, %v", head, err)
	}
	for _, want := range []struct {
		kind uint8
		size int
	}{{1, 3}, {200, 0}, {3, 70_000}} {
		if kind, b, err := r.Next(); err != nil || kind != want.kind || len(b) != want.size {
			t.Fatalf("kind %d of %d bytes, %v", kind, len(b), err)
		}
	}
	if !r.Ended() {
		t.Fatal("it goes on")
	}
}

func TestCutAndOverlongRecordsAreErrors(t *testing.T) {
	b := stream(t)
	for n := range 12 {
		r, _, err := NewReader(bytes.NewReader(b[:n]), 2)
		read := 0
		for err == nil {
			if _, _, err = r.Next(); err == nil {
				read++
			}
		}
		if whole := n >= 10; (read == 1) != whole {
			t.Errorf("cut at %d, %d records are read", n, read)
		}
	}
	r, _, err := NewReader(bytes.NewReader([]byte{'H', 'D', 1, 0xff, 0xff, 0xff, 0xff, 0}), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.Next(); err == nil {
		t.Error("a record of four gigabytes is read")
	}
}

// TestTheFirstErrorOfAWriterStays: a full disk is told once, at the end.
func TestTheFirstErrorOfAWriterStays(t *testing.T) {
	full := errors.New("full")
	w := NewWriter(failing{full}, nil)
	for range 10 {
		w.Put(1, make([]byte, 64<<10))
	}
	if _, err := w.Flush(); !errors.Is(err, full) {
		t.Fatalf("flushed with %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
