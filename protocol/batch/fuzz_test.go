package batch

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func seeds(f *testing.F) {
	for _, c := range []Codec{None, S2, Zstd} {
		b := fixed(f, c)
		f.Add([]byte(b))
		p, err := AppendPart(nil, b, []int{0, 2}, Limits{})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
	}
	f.Add(AppendMark(nil, 1, 2, 3))
}

// FuzzCheck: bytes as they come. What passes is what was written: its CRCs hold and its length is its own.
func FuzzCheck(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Check(b, Limits{})
		if err != nil {
			return
		}
		if len(h) != h.Len() || len(h) > len(b) || !bytes.Equal(h, b[:len(h)]) {
			t.Fatalf("%d bytes of %d returned, the length says %d", len(h), len(b), h.Len())
		}
		if !h.Control() && Checksum(h[HeaderSize:]) != h.BodyCRC() {
			t.Fatal("body CRC does not hold")
		}
	})
}

// FuzzBody: bytes behind right CRCs, as a lying producer sends them. No decoder
// may panic, hand out more messages or bytes than the batch can hold, or
// disagree with the door about what a good batch is.
func FuzzBody(f *testing.F) {
	for _, c := range []Codec{None, S2, Zstd} {
		b := fixed(f, c)
		f.Add([]byte(b.Body()), uint32(b.Count()), uint32(b.BodySize()), uint16(b.Attributes()))
	}
	p, err := AppendPart(nil, fixed(f, S2), []int{1, 2}, Limits{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(p[HeaderSize:], uint32(2), binary.LittleEndian.Uint32(p[68:]), uint16(Part))
	l := Limits{Body: 1 << 20, Messages: 1000, Batch: 1 << 20, Message: 1 << 18}
	f.Fuzz(func(t *testing.T, body []byte, count, size uint32, attributes uint16) {
		h, err := Check(forge(body, count, size, Attributes(attributes)), l)
		if err != nil {
			return
		}
		door := h.CheckTable(l)
		rows := 0
		if err := h.Keys(func(int, []byte, int64) bool { rows++; return true }); err != nil && door == nil {
			t.Fatalf("passed the door, its keys: %v", err)
		}
		d := NewDecoder(l)
		if err := d.Reset(h); err != nil {
			if door == nil && h.Codec() == None {
				t.Fatalf("passed the door, then: %v", err)
			}
			return
		}
		messages, total := 0, 0
		var m Message
		for {
			ok, err := d.Next(&m)
			if err != nil || !ok {
				break
			}
			messages++
			total += len(m.Payload)
		}
		if messages > h.Count() || messages > rows || total > h.BodySize() {
			t.Fatalf("%d messages of %d bytes from a batch of %d and %d", messages, total, h.Count(), h.BodySize())
		}
		if h.Count() > 0 {
			fuzzPart(t, h, l)
		}
	})
}

// fuzzPart cuts the last message of h; what comes out must be good in itself.
func fuzzPart(t *testing.T, h Batch, l Limits) {
	if h.Attributes()&Part != 0 {
		return
	}
	p, err := AppendPart(nil, h, []int{h.Count() - 1}, l)
	if err != nil {
		return
	}
	l.Batch, l.Body = 0, 0
	part, err := Check(p, l)
	if err != nil {
		t.Fatalf("the part is bad: %v", err)
	}
	d := NewDecoder(l)
	if err := d.Reset(part); err != nil {
		t.Fatalf("the part does not open: %v", err)
	}
	var m Message
	ok, err := d.Next(&m)
	if err == nil && (!ok || m.Offset != h.Base()+uint64(h.Count())-1) {
		t.Fatalf("the part holds offset %d, %v", m.Offset, ok)
	}
}
