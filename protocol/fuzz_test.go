package protocol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/iotest"
)

// FuzzReader: a stream of any bytes, in pieces of any size. What comes out is
// what stands in the stream, and how it was cut into reads makes no difference.
func FuzzReader(f *testing.F) {
	var all []byte
	for _, s := range samples(f) {
		f.Add(s.frame(), uint16(512))
		all = append(all, s.frame()...)
	}
	f.Add(all, uint16(600))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), uint16(100))
	f.Fuzz(func(t *testing.T, stream []byte, size uint16) {
		whole := NewReader(bytes.NewReader(stream), int(size))
		single := NewReader(iotest.OneByteReader(bytes.NewReader(stream)), 512)
		whole.SetLimit(1 << 20)
		single.SetLimit(1 << 20)
		at := 0
		for {
			a, errA := whole.Next()
			b, errB := single.Next()
			if fmt.Sprint(errA) != fmt.Sprint(errB) {
				t.Fatalf("whole: %v, byte by byte: %v", errA, errB)
			}
			if errA != nil {
				if _, ok := errors.AsType[*FrameError](errA); !ok && errA != io.EOF && errA != io.ErrUnexpectedEOF {
					t.Fatalf("an error of no kind: %v", errA)
				}
				return
			}
			if a.Type != b.Type || a.ID != b.ID || !bytes.Equal(a.Header, b.Header) || !bytes.Equal(a.Body, b.Body) {
				t.Fatalf("whole: %+v, byte by byte: %+v", a, b)
			}
			at += FrameHead
			if !bytes.HasPrefix(stream[at:], a.Header) || !bytes.HasPrefix(stream[at+len(a.Header):], a.Body) {
				t.Fatalf("frame %+v does not stand at %d", a, at)
			}
			at += len(a.Header) + len(a.Body)
		}
	})
}

// FuzzHeaders: any bytes into every header. What is read, written and read
// again is the same, and takes no more memory than the bytes warrant.
func FuzzHeaders(f *testing.F) {
	all := headers()
	names := slices.Sorted(maps.Keys(all))
	for _, s := range samples(f) {
		if s.header == nil {
			continue
		}
		name := reflect.TypeOf(s.header).Elem().Name()
		f.Add(uint8(slices.Index(names, name)), s.header.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		zero := all[names[int(which)%len(names)]]
		h := fresh(zero)
		if err := h.Decode(b); err != nil {
			if e, ok := err.(*Error); !ok || e.Code != CodeBadFrame {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		wire := h.AppendTo(nil)
		again := fresh(zero)
		if err := again.Decode(wire); err != nil {
			t.Fatalf("wrote %x, which reads as %v", wire, err)
		}
		if second := again.AppendTo(nil); !bytes.Equal(wire, second) {
			t.Fatalf("wrote %x, then %x", wire, second)
		}
		// A list of owners is the costliest thing there is: 40 bytes from one.
		if most := 64*len(b) + 4096; len(wire) > most {
			t.Fatalf("%d bytes became %d", len(b), len(wire))
		}
	})
}

// FuzzDecodeBody: any bytes into every admin type.
func FuzzDecodeBody(f *testing.F) {
	all := bodies()
	for i, v := range all {
		b, err := EncodeBody(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(i), b)
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		v := reflect.New(reflect.TypeOf(all[int(which)%len(all)]).Elem()).Interface()
		if err := DecodeBody(b, v); err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		if _, err := EncodeBody(v); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}

// FuzzParseTopic: what passes is a full name that reads as itself.
func FuzzParseTopic(f *testing.F) {
	for _, s := range []string{"orders", "/ns/orders:3", "a:b", "/", "ä"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		full, partition, err := ParseTopic(s)
		if err != nil {
			return
		}
		if partition >= 0 {
			full += fmt.Sprintf(":%d", partition)
		}
		if again, p, err := ParseTopic(full); err != nil || p != partition || partition < 0 && again != full {
			t.Fatalf("%q reads as %q, which reads as %q %d, %v", s, full, again, p, err)
		}
	})
}
