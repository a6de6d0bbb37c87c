package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
)

// forge makes a batch with right CRCs from a body and what the header says of it.
func forge(body []byte, count, bodySize uint32, attributes Attributes) Batch {
	b := Batch(append(make([]byte, HeaderSize), body...))
	binary.LittleEndian.PutUint32(b[0:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[56:], count)
	binary.LittleEndian.PutUint16(b[60:], uint16(attributes))
	binary.LittleEndian.PutUint16(b[62:], Version)
	binary.LittleEndian.PutUint32(b[64:], Checksum(body))
	binary.LittleEndian.PutUint32(b[68:], bodySize)
	b.seal()
	return b
}

// forgeBlock is forge of a table with one row that claims record bytes, and a block.
func forgeBlock(block []byte, record int, c Codec) Batch {
	var rows []byte
	rows = binary.AppendUvarint(rows, uint64(record)<<2)
	rows = append(rows, 0, 0, 0, 0)
	body := binary.AppendUvarint(nil, uint64(len(rows)))
	body = binary.AppendVarint(body, 0)
	body = append(body, rows...)
	head := len(body)
	return forge(append(body, block...), 1, uint32(head+record), Attributes(c))
}

func TestCheckHeaderRefuses(t *testing.T) {
	edit := func(change func(b Batch)) Batch {
		b := fixed(t, None)
		change(b)
		b.seal()
		return b
	}
	put32 := binary.LittleEndian.PutUint32
	put16 := binary.LittleEndian.PutUint16
	tests := map[string]struct {
		b    Batch
		want error
	}{
		"newer version":         {edit(func(b Batch) { put16(b[62:], Version+1) }), ErrVersion},
		"unknown attribute":     {edit(func(b Batch) { put16(b[60:], 1<<15) }), ErrVersion},
		"unknown codec":         {edit(func(b Batch) { put16(b[60:], 3) }), ErrVersion},
		"length below header":   {edit(func(b Batch) { put32(b[0:], HeaderSize-1) }), ErrCorrupt},
		"length over limit":     {edit(func(b Batch) { put32(b[0:], 16<<20+1) }), ErrTooLarge},
		"length of 4 GiB":       {edit(func(b Batch) { put32(b[0:], 1<<32-1) }), ErrTooLarge},
		"length over the bytes": {edit(func(b Batch) { put32(b[0:], 16<<20) }), ErrShort},
		"body of 4 GiB":         {edit(func(b Batch) { put32(b[68:], 1<<32-1) }), ErrTooLarge},
		"4 G messages":          {edit(func(b Batch) { put32(b[56:], 1<<32-1) }), ErrTooLarge},
		"no messages":           {edit(func(b Batch) { put32(b[56:], 0) }), ErrCorrupt},
		"control with messages": {edit(func(b Batch) { put16(b[60:], uint16(Control)) }), ErrCorrupt},
		"offsets overflow":      {edit(func(b Batch) { b.Stamp(Stamp{Base: 1<<64 - 2}) }), ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := CheckHeader(test.b, Limits{}); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestCheckTableRefusesATableThatLies(t *testing.T) {
	long := uint64(1<<40) << 2
	tests := map[string]Batch{
		"no body":                      forge(nil, 1, 0, 0),
		"table longer than the body":   forge([]byte{200, 1, 0}, 1, 3, 0),
		"table of 2^63 bytes":          forge(append(binary.AppendUvarint(nil, 1<<63), 0), 1, 10, 0),
		"more messages than rows":      forge([]byte{5, 0, 4, 0, 0, 0, 0, 'x'}, 2, 8, 0),
		"more rows than messages":      forge([]byte{10, 0, 4, 0, 0, 0, 0, 4, 0, 0, 0, 0, 'x'}, 1, 13, 0),
		"record longer than the block": forge([]byte{5, 0, 40, 0, 0, 0, 0, 'x'}, 1, 8, 0),
		"block longer than the record": forge([]byte{5, 0, 4, 0, 0, 0, 0, 'x', 'y'}, 1, 9, 0),
		"record of 2^40 bytes":         forge(append([]byte{11, 0}, append(binary.AppendUvarint(nil, long), 0, 0, 0, 0)...), 1, 13, 0),
		"body shorter than its rows":   forgeBlock([]byte("compressed"), 1<<31-1, Zstd),
		"key longer than the table":    forge([]byte{6, 0, 4<<2 | rowKey, 100, 0, 0, 0, 0}, 1, 8, 0),
		"size of the header":           forge([]byte{5, 0, 4, 0, 0, 0, 0, 'x'}, 1, 9, 0),
		"row cut off":                  forge([]byte{4, 0, 4, 0, 0, 0, 'x'}, 1, 7, 0),
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			if err := b.CheckTable(Limits{}); err == nil {
				t.Error("passed")
			}
		})
	}
	good := forge([]byte{5, 0, 4, 0, 0, 0, 0, 'x'}, 1, 8, 0)
	if err := good.CheckTable(Limits{}); err != nil {
		t.Errorf("the honest one: %v", err)
	}
	var tooLarge = forge([]byte{5, 0, 60, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, 1, 22, 0)
	if err := tooLarge.CheckTable(Limits{Message: 14}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a message of 15 bytes where 14 are allowed: %v", err)
	}
}

// allocated returns the bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A small block that unpacks to far more than the header says costs no more memory than the header says.
func TestCompressionBombsAreBounded(t *testing.T) {
	const bomb = 32 << 20
	zeros := make([]byte, bomb)
	enc, err := zstd.NewWriter(nil, zstd.WithWindowSize(512<<10))
	if err != nil {
		t.Fatal(err)
	}
	zstdBomb := enc.EncodeAll(zeros, nil)
	if err := enc.Close(); err != nil {
		t.Fatal(err)
	}
	// A frame without a content size that claims the widest window there is and holds one byte.
	window := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x09, 0x00, 0x00, 'x'}
	tests := map[string]Batch{
		"zstd":               forgeBlock(zstdBomb, 1000, Zstd),
		"zstd, wide window":  forgeBlock(window, 1000, Zstd),
		"s2":                 forgeBlock(s2.Encode(nil, zeros), 1000, S2),
		"zstd, at the limit": forgeBlock(zstdBomb, 1<<20, Zstd),
		"s2, claims 1 MiB":   forgeBlock(append(binary.AppendUvarint(nil, 1<<20), 0), 1<<20, S2),
	}
	zeros = nil
	warm := NewDecoder(Limits{}) // the shared zstd decoder is made at first use
	if err := warm.Reset(fixed(t, Zstd)); err != nil {
		t.Fatal(err)
	}
	for name, b := range tests {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(Limits{})
			n := allocated(func() { err = d.Reset(b) })
			if err == nil {
				t.Error("unpacked")
			}
			if n > 3<<20 {
				t.Errorf("%d bytes allocated for a batch of %d", n, len(b))
			}
			_, err := AppendPart(nil, b, []int{0}, Limits{})
			if err == nil {
				t.Error("unpacked for a part")
			}
		})
	}
	over := forgeBlock(zstdBomb, bomb, Zstd)
	if err := NewDecoder(Limits{}).Reset(over); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a body over the limit: %v", err)
	}
}

func TestPropertiesAreBounded(t *testing.T) {
	var w Builder
	m := Message{Properties: make([]Property, MaxProperties+1)}
	if err := m.Check(Limits{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("check: %v", err)
	}
	w.Add(&m)
	b, err := w.AppendTo(nil, None, Identity{})
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(Limits{})
	if err := d.Reset(b); err != nil {
		t.Fatal(err)
	}
	if ok, err := d.Next(&m); ok || !errors.Is(err, ErrTooLarge) {
		t.Errorf("decode: %v, %v", ok, err)
	}
}

// What Check lets pass the broker's door lets pass too, at the very limit.
func TestMessageCheckIsNotLaxerThanTheDoor(t *testing.T) {
	for size := 60; size < 140; size++ {
		m := Message{Key: []byte("key"), Payload: bytes.Repeat([]byte("x"), size), Properties: []Property{{"n", "v"}}, Schema: 1 << 60}
		l := Limits{Message: 128}
		var w Builder
		w.Add(&m)
		b, err := w.AppendTo(nil, None, Identity{})
		if err != nil {
			t.Fatal(err)
		}
		if m.Check(l) == nil && Batch(b).CheckTable(l) != nil {
			t.Errorf("payload of %d bytes: the client lets it pass, the broker does not", size)
		}
	}
	if err := (&Message{}).Check(Limits{}); err != nil {
		t.Errorf("an empty message: %v", err)
	}
}

func TestAppendPartRefusesWrongIndexes(t *testing.T) {
	b := fixed(t, S2)
	for _, indexes := range [][]int{{}, {4}, {2, 1}, {1, 1}, {-1}, {0, 4}} {
		if p, err := AppendPart([]byte("x"), b, indexes, Limits{}); err == nil || string(p) != "x" {
			t.Errorf("indexes %v: %q, %v", indexes, p, err)
		}
	}
}

func TestBuilderWithoutMessages(t *testing.T) {
	var w Builder
	if _, err := w.AppendTo(nil, None, Identity{}); err == nil {
		t.Error("an empty batch was encoded")
	}
	w.Add(&Message{Payload: []byte("x")})
	if _, err := w.AppendTo(nil, Codec(7), Identity{}); err == nil {
		t.Error("an unknown codec was used")
	}
	w.Reset()
	if w.Count() != 0 {
		t.Error("Reset kept messages")
	}
}

func TestCodecNames(t *testing.T) {
	for _, c := range []Codec{None, S2, Zstd} {
		got, err := ParseCodec(c.String())
		if err != nil || got != c {
			t.Errorf("%s reads as %v, %v", c, got, err)
		}
	}
	if _, err := ParseCodec("gzip"); err == nil {
		t.Error("gzip is no codec")
	}
	if Codec(7).String() != "codec(7)" {
		t.Error(Codec(7))
	}
}

func TestKeysStopsWhenTold(t *testing.T) {
	b := fixed(t, Zstd)
	var keys []string
	err := b.Keys(func(i int, key []byte, deliverAt int64) bool {
		keys = append(keys, string(key))
		if (key == nil) != (i == 0) || (deliverAt != 0) != (i == 2) {
			t.Errorf("message %d: key %q, deliver at %d", i, key, deliverAt)
		}
		return i < 2
	})
	if err != nil || len(keys) != 3 || keys[1] != "k1" {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// The road of every message: nothing is allocated once the buffers have grown.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	var w Builder
	var dst []byte
	d := NewDecoder(Limits{})
	m := Message{Key: []byte("key"), Payload: make([]byte, 128), PublishTime: 5, DeliverAt: 9}
	var out Message
	run := func() {
		for range 100 {
			w.Add(&m)
		}
		b, err := w.AppendTo(dst[:0], None, Identity{})
		if err != nil {
			t.Fatal(err)
		}
		dst = b
		h, err := Check(b, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.CheckTable(Limits{}); err != nil {
			t.Fatal(err)
		}
		h.Stamp(Stamp{Base: 1})
		if err := d.Reset(h); err != nil {
			t.Fatal(err)
		}
		for ok, err := d.Next(&out); ok || err != nil; ok, err = d.Next(&out) {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	run()
	if n := testing.AllocsPerRun(50, run); n != 0 {
		t.Errorf("%v allocations a batch", n)
	}
}
