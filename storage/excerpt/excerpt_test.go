package excerpt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

// written is a segment file with one message in each batch, but for those whose offsets are left out.
func written(t testing.TB, base uint64, count int, left ...uint64) (data []byte, footer *segment.Footer, places []int64) {
	t.Helper()
	h := header(base)
	data, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := segment.NewSummary(data, base)
	var w batch.Builder
	for n := base; n < base+uint64(count); n++ {
		w.Add(&batch.Message{Payload: fmt.Appendf(nil, "message %d", n)})
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 1, Session: 2, Sequence: n})
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, int64(len(data)))
		if len(left) > 0 && left[0] == n {
			left = left[1:]
			continue
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: n, Epoch: 7, AppendTime: 1000 + int64(n), Synced: n})
		sum.Add(b)
		data = append(data, b...)
	}
	footer = sum.Footer()
	return data, footer, places
}

func header(base uint64) segment.Header {
	return segment.Header{Topic: "/default/t", Epoch: 7, FirstEpoch: 7, Base: base}
}

// sealed is a file with its footer.
func sealed(t testing.TB, base uint64, count int, left ...uint64) []byte {
	data, footer, _ := written(t, base, count, left...)
	return footer.Append(data, nil)
}

func verify(t testing.TB, s *Segment) segment.Report {
	t.Helper()
	data, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size))
	if err != nil || batch.Checksum(data) != s.CRC || segment.Sum(data) != s.Sum {
		t.Fatalf("%d bytes, CRC %08x, told %08x and %08x, %v", len(data), batch.Checksum(data), s.CRC, s.Sum, err)
	}
	r, err := segment.Verify(bytes.NewReader(data), s.Size)
	if err != nil || len(r.Problems) > 0 || r.Footer == nil || r.Footer.Facts != s.Facts {
		t.Fatalf("%v, %v", r.Problems, err)
	}
	return r
}

func TestWholeTakesWhatIsWhole(t *testing.T) {
	data := sealed(t, 100, 20)
	s, err := Whole(bytes.NewReader(data), int64(len(data)))
	if err != nil || s.Size != int64(len(data)) || s.First != 100 || s.End != 120 {
		t.Fatalf("%+v, %v", s, err)
	}
	verify(t, s)
	unsealed, _, _ := written(t, 100, 20)
	for name, bad := range map[string][]byte{
		"a hole":      sealed(t, 100, 20, 110),
		"no message":  sealed(t, 100, 0),
		"no footer":   unsealed,
		"cut short":   data[:len(data)-1],
		"bad footer":  append(bytes.Clone(data[:len(data)-20]), make([]byte, 20)...),
		"not a thing": {},
	} {
		if s, err := Whole(bytes.NewReader(bad), int64(len(bad))); err == nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// An excerpt goes over files, and ends at a bound, at a bad place, or where no more is wanted, never behind.
func TestMakerGathers(t *testing.T) {
	first, _, places := written(t, 0, 10)
	second := sealed(t, 10, 10)
	third := sealed(t, 25, 5)
	bad := bytes.Clone(first)
	bad[places[4]+batch.HeaderSize] ^= 1
	one := places[1] - places[0] // a batch
	for name, test := range map[string]struct {
		files    [][]byte
		from, to uint64
		most     int64
		end      uint64 // 0: an error
	}{
		"all of a file":         {files: [][]byte{first}, from: 0, to: 10, end: 10},
		"the middle":            {files: [][]byte{first}, from: 3, to: 7, end: 7},
		"over two files":        {files: [][]byte{first, second}, from: 3, to: 15, end: 15},
		"at most three":         {files: [][]byte{first, second}, from: 3, to: 15, most: 3 * one, end: 6},
		"at least one":          {files: [][]byte{first}, from: 3, to: 10, most: 1, end: 4},
		"up to a hole":          {files: [][]byte{first, second, third}, from: 0, to: 30, end: 20},
		"up to a bad place":     {files: [][]byte{bad}, from: 0, to: 10, end: 4},
		"at a bad place":        {files: [][]byte{bad}, from: 4, to: 10},
		"at a hole":             {files: [][]byte{third}, from: 20, to: 30},
		"nothing there":         {files: [][]byte{first}, from: 10, to: 20},
		"up to where it is cut": {files: [][]byte{first[:places[6]+20]}, from: 2, to: 10, end: 6},
	} {
		t.Run(name, func(t *testing.T) {
			if test.most == 0 {
				test.most = 1 << 20
			}
			visited := uint64(0)
			m := New(Config{Header: header(0), From: test.from, To: test.to, Most: test.most, Visit: func(b batch.Batch) { visited += uint64(b.Count()) }})
			bases := []uint64{0, 10, 25}
			more, err := true, error(nil)
			for i, data := range test.files {
				if !more || err != nil {
					break
				}
				base := bases[i]
				if len(test.files) == 1 && test.from >= 20 {
					base = 25
				}
				_, head, herr := segment.ParseHeader(data)
				if herr != nil {
					t.Fatal(herr)
				}
				more, err = m.Add(File{At: bytes.NewReader(data), From: int64(head), Size: int64(len(data)), Base: base, Epoch: 7})
			}
			var s *Segment
			if err == nil {
				s, err = m.Finish(nil)
			}
			if test.end == 0 {
				if err == nil {
					t.Fatalf("%+v", s)
				}
				return
			}
			if err != nil || s.First != test.from || s.End != test.end || s.Messages != test.end-test.from || visited != s.Messages || m.Next() != test.end {
				t.Fatalf("%+v, %v; %d visited", s, err, visited)
			}
			if r := verify(t, s); r.Header.Base != test.from {
				t.Fatalf("header %+v", r.Header)
			}
		})
	}
}

// Bytes that lie in several places read as one run, and a place that has got shorter is an error, not the end.
func TestParts(t *testing.T) {
	var p Parts
	a, b := bytes.NewReader([]byte("0123456789")), Bytes([]byte("abcdef"))
	p.Add(a, 2, 3)
	p.Add(a, 5, 2) // goes on where the last one ends
	p.Add(b, 0, 6)
	p.Add(a, 0, 1)
	const want = "23456abcdef0"
	if p.Size() != int64(len(want)) || len(p.list) != 3 {
		t.Fatalf("%d bytes in %d places", p.Size(), len(p.list))
	}
	for off := range len(want) + 2 {
		for n := range len(want) + 3 {
			got := make([]byte, n)
			k, err := p.ReadAt(got, int64(off))
			expect := want[min(off, len(want)):min(off+n, len(want))]
			if string(got[:k]) != expect || (err == io.EOF) != (k < n) {
				t.Fatalf("%d bytes at %d: %q, %v", n, off, got[:k], err)
			}
		}
	}
	if _, err := p.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("in front of the first byte")
	}
	p.Add(a, 8, 5)
	if k, err := p.ReadAt(make([]byte, 20), 10); k != 4 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, %v", k, err)
	}
}
