package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"testing/iotest"
	"unsafe"

	"pgregory.net/rapid"
)

// want is a frame with memory of its own.
type want struct {
	Type         Type
	ID           uint64
	Header, Body []byte
}

func drawFrames(t *rapid.T, largest int) (frames []want, stream []byte) {
	for range rapid.IntRange(0, 12).Draw(t, "frames") {
		f := want{Type: Type(rapid.Byte().Draw(t, "type")), ID: rapid.Uint64().Draw(t, "id")}
		f.Header = (&Error{Text: string(rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "text"))}).AppendTo(nil)
		f.Body = bytes.Repeat([]byte{byte(len(frames))}, rapid.IntRange(0, largest).Draw(t, "body"))
		var h Error
		if err := h.Decode(f.Header); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
		stream = AppendFrame(stream, f.Type, f.ID, &h, f.Body)
	}
	return frames, stream
}

func TestFramesComeOutOfAnyStream(t *testing.T) {
	sources := map[string]func(io.Reader) io.Reader{
		"whole":        func(r io.Reader) io.Reader { return r },
		"halves":       iotest.HalfReader,
		"byte by byte": iotest.OneByteReader,
		"error early":  iotest.DataErrReader,
	}
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				frames, stream := drawFrames(t, 2000)
				r := NewReader(source(bytes.NewReader(stream)), rapid.IntRange(0, 4000).Draw(t, "size"))
				if rapid.Bool().Draw(t, "open") {
					r.SetLimit(1 << 20)
				}
				for i, w := range frames {
					f, err := r.Next()
					if err != nil {
						t.Fatalf("frame %d: %v", i, err)
					}
					if f.Type != w.Type || f.ID != w.ID || !bytes.Equal(f.Header, w.Header) || !bytes.Equal(f.Body, w.Body) {
						t.Fatalf("frame %d: %v %d %x %x, want %+v", i, f.Type, f.ID, f.Header, f.Body, w)
					}
				}
				if _, err := r.Next(); err != io.EOF {
					t.Fatalf("at the end: %v", err)
				}
			})
		})
	}
}

// The sizes at which a frame changes its road: the buffer's, the first believed, each growth, the pool's end.
func TestFramesOfEverySizeClass(t *testing.T) {
	var stream []io.Reader
	var bodies []int
	for _, n := range []int{4096, firstBuffer, 4 * firstBuffer, 1 << largestBit} {
		for _, d := range []int{-1, 0, 1} {
			if n == 1<<largestBit && d != 1 {
				continue // one of these is slow enough
			}
			size := n + d - FrameHead
			fill := bytes.Repeat([]byte{byte(len(bodies))}, 4096)
			bodies = append(bodies, size)
			stream = append(stream, bytes.NewReader(AppendHead(nil, TypeProduce, 1, nil, size)), io.LimitReader(&endless{b: fill}, int64(size)))
		}
	}
	r := NewReader(io.MultiReader(stream...), 4096)
	r.SetLimit(40 << 20)
	for i, n := range bodies {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Body) != n || bytes.Count(f.Body, []byte{byte(i)}) != n || len(f.Header) != 0 {
			t.Errorf("frame %d: body of %d bytes, want %d alike", i, len(f.Body), n)
		}
	}
	if r.Buffered() != 0 {
		t.Errorf("%d bytes left", r.Buffered())
	}
}

func head(length uint32, version uint16, header uint32) []byte {
	b := BeginFrame(nil, TypeProduce, 77)
	binary.LittleEndian.PutUint32(b, length)
	binary.LittleEndian.PutUint16(b[6:], version)
	binary.LittleEndian.PutUint32(b[16:], header)
	return b
}

func TestReaderRefuses(t *testing.T) {
	tests := map[string]struct {
		stream []byte
		limit  int // 0: SetLimit not called
		code   Code
		id     uint64
	}{
		"length 0":                     {make([]byte, 100), 0, CodeBadFrame, 0},
		"length below the head":        {head(15, 1, 0), 0, CodeBadFrame, 0},
		"length of 4 GiB":              {[]byte{0xff, 0xff, 0xff, 0xff}, 0, CodeTooLarge, 0},
		"4 GiB after HELLO":            {[]byte{0xff, 0xff, 0xff, 0xff}, 1 << 30, CodeTooLarge, 0},
		"one more than a stranger may": {head(HelloLimit-3, 1, 0), 0, CodeTooLarge, 0},
		"one more than the limit":      {head(1<<20-3, 1, 0), 1 << 20, CodeTooLarge, 0},
		"limit below the buffer":       {head(997, 1, 0), 1000, CodeTooLarge, 0},
		"header longer than the frame": {head(16, 1, 1), 0, CodeBadFrame, 77},
		"header of 4 GiB":              {head(16, 1, 1<<32-1), 0, CodeBadFrame, 77},
		"header over its own limit":    {append(head(16+MaxHeader+1, 1, MaxHeader+1), make([]byte, MaxHeader+1)...), 4 << 20, CodeTooLarge, 77},
		"header version 0":             {head(16, 0, 0), 0, CodeUnsupported, 77},
		"header version 2":             {head(16, 2, 0), 0, CodeUnsupported, 77},
		"text of another protocol":     {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 0, CodeTooLarge, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := NewReader(bytes.NewReader(test.stream), 64<<10)
			if test.limit > 0 {
				r.SetLimit(test.limit)
			}
			_, err := r.Next()
			e, ok := errors.AsType[*FrameError](err)
			if !ok || e.Code != test.code || e.ID != test.id || e.Error() == "" {
				t.Fatalf("got %+v, want %s with id %d", err, test.code, test.id)
			}
			if w := e.Wire(); w.Code != e.Code || w.Error() != e.Text {
				t.Errorf("on the wire it is %+v", w)
			}
		})
	}
	atLimit := AppendFrame(nil, TypeHello, 0, nil, make([]byte, HelloLimit-FrameHead))
	if _, err := NewReader(bytes.NewReader(atLimit), 64<<10).Next(); err != nil {
		t.Errorf("the largest frame of a stranger: %v", err)
	}
}

func TestReaderAtTheEndOfItsSource(t *testing.T) {
	whole := AppendFrame(nil, TypeHello, 1, &Hello{Cookie: Magic}, make([]byte, 6000))
	for n := range len(whole) {
		r := NewReader(bytes.NewReader(whole[:n]), 4096)
		r.SetLimit(1 << 20)
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF
		}
		if _, err := r.Next(); err != want {
			t.Fatalf("cut to %d bytes: %v, want %v", n, err, want)
		}
	}
	r := NewReader(iotest.TimeoutReader(iotest.OneByteReader(bytes.NewReader(whole))), 64)
	if _, err := r.Next(); !errors.Is(err, iotest.ErrTimeout) {
		t.Errorf("a source's own error came as %v", err)
	}
	if _, err := NewReader(stuck{}, 64).Next(); err != io.ErrNoProgress {
		t.Errorf("a source that gives nothing: %v", err)
	}
}

// stuck reads nothing for ever.
type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// A read deadline between frames costs nothing: the next Next goes on.
func TestReaderGoesOnAfterATimeoutBetweenFrames(t *testing.T) {
	frame := AppendFrame(nil, TypePing, 9, nil, nil)
	src := io.MultiReader(bytes.NewReader(frame), timeoutOnce(), bytes.NewReader(frame))
	r := NewReader(src, 4096)
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Next(); !errors.Is(err, os.ErrDeadlineExceeded) || r.Buffered() != 0 {
		t.Fatalf("%v, %d bytes buffered", err, r.Buffered())
	}
	if f, err := r.Next(); err != nil || f.ID != 9 {
		t.Errorf("after the timeout: %+v, %v", f, err)
	}
}

type once struct{ done bool }

func timeoutOnce() io.Reader { return &once{} }

func (o *once) Read([]byte) (int, error) {
	if o.done {
		return 0, io.EOF
	}
	o.done = true
	return 0, os.ErrDeadlineExceeded
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What a length claims is not allocated: a stranger gets its small buffer, a
// known peer no more than the first piece of what it announced.
func TestClaimsAllocateNothing(t *testing.T) {
	stranger := allocated(func() {
		r := NewReader(bytes.NewReader([]byte{0, 0x3f, 0, 0, 1}), 1<<20) // 16,128 bytes claimed
		if _, err := r.Next(); err != io.ErrUnexpectedEOF {
			t.Error(err)
		}
	})
	if stranger > HelloLimit+4096 {
		t.Errorf("a stranger made us allocate %d bytes", stranger)
	}
	known := allocated(func() {
		r := NewReader(bytes.NewReader([]byte{0, 0, 0, 1, 1}), 64<<10) // 16 MiB claimed
		r.SetLimit(32 << 20)
		if _, err := r.Next(); err != io.ErrUnexpectedEOF {
			t.Error(err)
		}
	})
	if most := uint64(HelloLimit + 64<<10 + firstBuffer + 8192); known > most {
		t.Errorf("a known peer made us allocate %d bytes, at most %d", known, most)
	}
}

// endless gives the same bytes again and again, as many as are asked for.
type endless struct {
	b  []byte
	at int
}

func (e *endless) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		k := copy(p[n:], e.b[e.at:])
		n, e.at = n+k, (e.at+k)%len(e.b)
	}
	return n, nil
}

// Frames are handed out where the read put them.
func TestSmallFramesAreNotCopied(t *testing.T) {
	frame := AppendFrame(nil, TypeProduce, 1, &Produce{Handle: 1}, make([]byte, 100))
	r := NewReader(&endless{b: frame}, 64<<10)
	for range 10_000 {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		lo, hi := &r.buf[0], &r.buf[len(r.buf)-1]
		if at := &f.Body[0]; address(at) < address(lo) || address(at) > address(hi) {
			t.Fatal("the body lies outside the buffer")
		}
	}
	if n := testing.AllocsPerRun(1000, func() { _, _ = r.Next() }); n != 0 {
		t.Errorf("%v allocations a frame", n)
	}
}

// Every prefix of a good frame of every type, then garbage: an error or frames, never a panic or a hang.
func TestGarbageAfterEveryPrefix(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, h := range headers() {
		frame := AppendFrame(nil, TypeProduce, 1, h, []byte("body"))
		for n := range len(frame) {
			garbage := make([]byte, 200)
			for i := range garbage {
				garbage[i] = byte(rnd.Uint32())
			}
			r := NewReader(bytes.NewReader(append(bytes.Clone(frame[:n]), garbage...)), 4096)
			var err error
			for i := 0; err == nil; i++ {
				if _, err = r.Next(); i > 20 {
					t.Fatalf("%s cut to %d bytes: no end", name, n)
				}
			}
		}
	}
}

func BenchmarkReaderNext(b *testing.B) {
	for name, size := range map[string]int{"128B": 128, "16KiB": 16 << 10, "1MiB": 1 << 20} {
		b.Run(name, func(b *testing.B) {
			frame := AppendFrame(nil, TypeProduce, 1, &Produce{Handle: 1, Epoch: 1 << 48}, make([]byte, size))
			r := NewReader(&endless{b: frame}, 64<<10)
			r.SetLimit(32 << 20)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func address(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }
