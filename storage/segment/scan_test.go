package segment

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

// mixed is a segment of batches from one byte to larger than a chunk.
func mixed(t testing.TB) *build {
	rng := rand.New(rand.NewPCG(7, 8))
	noise := make([]byte, 3*chunk)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	w := newBuild(t, testHeader())
	for i := range 200 {
		size := rng.IntN(2000)
		if i%40 == 20 {
			size = chunk + rng.IntN(2*chunk)
		}
		w.add(t, string(noise[:size]))
		if i%7 == 0 {
			w.mark()
		}
	}
	return w
}

func TestScanReadsEachByteOnce(t *testing.T) {
	w := mixed(t)
	r := &counted{ReaderAt: bytes.NewReader(w.data)}
	_, n, err := ReadHeader(r)
	if err != nil {
		t.Fatal(err)
	}
	r.bytes = 0
	s := NewScanner(r, int64(len(w.data)), w.header.Origin(n))
	messages := uint64(0)
	for {
		st, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || st.Kind != Whole || st.Found {
			t.Fatalf("%s, %v", shape([]Stretch{st}), err)
		}
		messages += st.To - st.From
	}
	if messages != 200 {
		t.Fatalf("%d messages", messages)
	}
	if r.bytes > len(w.data) {
		t.Fatalf("%d bytes read of %d", r.bytes, len(w.data))
	}
	if cap(s.buf) > 4*chunk {
		t.Fatalf("a buffer of %d bytes", cap(s.buf))
	}
}

func TestScanFromTheMiddle(t *testing.T) {
	w := mixed(t)
	_, list := places(t, w.data)
	var s Scanner
	for _, i := range []int{0, 5, 100, len(list) - 1} {
		p := list[i]
		s.Reset(bytes.NewReader(w.data), int64(len(w.data)), Origin{At: p.at, Base: p.from, FirstEpoch: w.header.Epoch, Epoch: w.header.Epoch})
		st, err := s.Next()
		if err != nil || st.Kind != Whole || !bytes.Equal(st.Batch, p.bytes) {
			t.Fatalf("from batch %d: %s, %v", i, shape([]Stretch{st}), err)
		}
	}
}

func TestScanOfAFileShorterThanSaid(t *testing.T) {
	w := small(t)
	s := NewScanner(bytes.NewReader(w.data), 1<<40, w.header.byName())
	for {
		_, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.size != int64(len(w.data)) {
		t.Fatalf("the scan ended at %d of %d", s.size, len(w.data))
	}
}

// TestLengthsThatLie: a header whose CRC holds and whose length is beyond the
// file costs no more memory than the file has.
func TestLengthsThatLie(t *testing.T) {
	w := small(t)
	b := bytes.Clone(newProduced(t, 1, 1, 0, w.next))
	b[3] = 0xff // close to 4 GiB
	batch.Batch(b).Stamp(batch.Stamp{Base: w.next, Epoch: w.header.Epoch})
	data := append(bytes.Clone(w.data), b...)
	s := NewScanner(bytes.NewReader(data), int64(len(data)), w.header.byName())
	var last Stretch
	for {
		st, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = st
	}
	if last.Kind != Torn || last.From != w.next || last.To != w.next+1 || cap(s.buf) > len(data) {
		t.Fatalf("%s with a buffer of %d bytes for a file of %d", shape([]Stretch{last}), cap(s.buf), len(data))
	}
}

func TestErrorsOfReadingAreNoDamage(t *testing.T) {
	boom := errors.New("boom")
	m := disk.NewMemory(1)
	f, err := m.Open("/f", disk.Create)
	if err != nil {
		t.Fatal(err)
	}
	w := mixed(t)
	if _, err := f.WriteAt(w.seal(), 0); err != nil {
		t.Fatal(err)
	}
	// Each read in turn fails.
	for nth := 1; ; nth++ {
		reads := 0
		m.Fail(func(op, _ string) error {
			if op == "read" {
				if reads++; reads == nth {
					return boom
				}
			}
			return nil
		})
		rep, err := Verify(f, int64(len(w.seal())))
		if reads < nth {
			if err != nil || len(rep.Problems) > 0 {
				t.Fatalf("verified with %v, %v", rep.Problems, err)
			}
			break
		}
		if !errors.Is(err, boom) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("read %d failed: %v, %v", nth, err, rep.Problems)
		}
	}
	for nth := 1; nth <= 2; nth++ {
		reads := 0
		m.Fail(func(string, string) error {
			if reads++; reads == nth {
				return boom
			}
			return nil
		})
		if _, err := ReadFooter(f, int64(len(w.seal()))); nth == 1 && !errors.Is(err, boom) {
			t.Fatalf("read %d of the footer failed: %v", nth, err)
		}
	}
}

func TestDamageInFrontOfALargeBatch(t *testing.T) {
	w := newBuild(t, testHeader())
	w.add(t, "small")
	w.add(t, "lost")
	w.add(t, strings.Repeat("large", chunk))
	w.add(t, "last")
	_, list := places(t, w.data)
	clear(w.data[list[1].at:list[1].end])
	got := scanDamaged(t, w.data, w.header, list)
	if len(got) != 4 || got[1].Kind != Damaged || got[1].Len != list[1].end-list[1].at || got[3].Kind != Whole {
		t.Fatal(shape(got))
	}
}

func TestZerosToTheEnd(t *testing.T) {
	w := small(t)
	_, list := places(t, w.data)
	laid := append(bytes.Clone(w.data), make([]byte, 3*chunk)...)
	got := scanDamaged(t, laid, w.header, list)
	if last := got[len(got)-1]; last.Kind != Zeros || last.Len != 3*chunk || last.From != last.To {
		t.Fatal(shape(got))
	}
	laid[len(laid)-1] = 1
	got = scanDamaged(t, laid, w.header, list)
	if last := got[len(got)-1]; last.Kind != Torn || last.Len != 3*chunk {
		t.Fatal(shape(got))
	}
}

func BenchmarkScan(b *testing.B) {
	for name, size := range map[string]int{"128B": 128, "16KiB": 16 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			w := newBuild(b, testHeader())
			payload := strings.Repeat("x", size)
			for len(w.data) < 32<<20 {
				w.add(b, payload)
			}
			_, n, err := ReadHeader(bytes.NewReader(w.data))
			if err != nil {
				b.Fatal(err)
			}
			var s Scanner
			b.SetBytes(int64(len(w.data)))
			for b.Loop() {
				s.Reset(bytes.NewReader(w.data), int64(len(w.data)), w.header.Origin(n))
				for err = nil; err == nil; {
					_, err = s.Next()
				}
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkResync searches 32 MiB of noise.
func BenchmarkResync(b *testing.B) {
	w := newBuild(b, testHeader())
	header := len(w.data)
	rng := rand.New(rand.NewPCG(1, 1))
	data := bytes.Clone(w.data)
	for len(data) < 32<<20 {
		data = append(data, byte(rng.Uint32()))
	}
	var s Scanner
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		s.Reset(bytes.NewReader(data), int64(len(data)), w.header.Origin(header))
		if st, err := s.Next(); err != nil || st.Kind != Torn {
			b.Fatal(st, err)
		}
	}
}

func BenchmarkFeed(b *testing.B) {
	for name, size := range map[string]int{"128B": 128, "16KiB": 16 << 10} {
		b.Run(name, func(b *testing.B) {
			w := newBuild(b, testHeader())
			one := w.add(b, strings.Repeat("x", size))
			sum := NewSummary(w.data[:w.sum.index[0].At], w.header.Base)
			var p Producers
			b.SetBytes(int64(len(one)))
			b.ReportAllocs()
			for b.Loop() {
				sum.Add(one)
				p.Add(one)
			}
		})
	}
}
