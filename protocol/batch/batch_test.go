package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fixed is a batch whose bytes never change: every feature of the format once.
func fixed(t testing.TB, c Codec) Batch {
	t.Helper()
	var w Builder
	for _, m := range fixedMessages() {
		w.Add(&m)
	}
	b, err := w.AppendTo(nil, c, Identity{Producer: 0x1122334455667788, Session: 0x99aabbcc, Sequence: 7})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fixedMessages() []Message {
	return []Message{
		{Payload: []byte("first"), PublishTime: 1_700_000_000_000},
		{Payload: bytes.Repeat([]byte("again "), 30), Key: []byte("k1"), PublishTime: 1_700_000_000_005},
		{Payload: []byte{}, Key: []byte{}, PublishTime: 1_699_999_999_000, DeliverAt: 1_700_000_060_000},
		{Payload: []byte("last\xff"), Key: []byte("thing\xc3\xa4"), PublishTime: 1_700_000_001_000, Schema: 300,
			Properties: []Property{{"colour", "red"}, {"", ""}, {"colour", "blue"}}},
	}
}

func stamped(b Batch) Batch {
	b.Stamp(Stamp{Base: 1_000_000, Epoch: 1<<48 | 5, AppendTime: 1_700_000_002_000, Synced: 999_990})
	return b
}

// golden compares got with a file of hex, which -update rewrites.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var text strings.Builder
	for at := 0; at < len(got); at += 16 {
		fmt.Fprintf(&text, "% x\n", got[at:min(at+16, len(got))])
	}
	path := filepath.Join("testdata", name+".hex")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("%s: the bytes changed; they were\n%sand are\n%s", path, want, text.String())
	}
}

func TestGoldenBytes(t *testing.T) {
	golden(t, "batch-v1-produced", fixed(t, None))
	golden(t, "batch-v1-stamped", stamped(fixed(t, None)))
	golden(t, "batch-v1-mark", AppendMark(nil, 1<<48|5, 1_000_004, 1_700_000_002_000))
	part, err := AppendPart(nil, stamped(fixed(t, None)), []int{1, 3}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "batch-v1-part", part)
}

// A file of an earlier day must read as the same messages, whatever a codec writes today.
func TestGoldenCompressedBatchesAreRead(t *testing.T) {
	for _, c := range []Codec{S2, Zstd} {
		path := filepath.Join("testdata", "batch-v1-"+c.String()+".bin")
		if *update {
			if err := os.WriteFile(path, stamped(fixed(t, c)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		h, err := Check(b, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if h.Codec() != c {
			t.Errorf("%s: codec %s", path, h.Codec())
		}
		want := fixedMessages()
		for i := range want {
			want[i].Offset = h.Base() + uint64(i)
		}
		compare(t, decode(t, h), want)
	}
}

// decode returns all messages of a batch that must be good.
func decode(t failer, b Batch) []Message {
	t.Helper()
	d := NewDecoder(Limits{})
	if err := d.Reset(b); err != nil {
		t.Fatalf("open batch: %v", err)
	}
	var out []Message
	for {
		var m Message
		ok, err := d.Next(&m)
		if err != nil {
			t.Fatalf("message %d: %v", len(out), err)
		}
		if !ok {
			return out
		}
		out = append(out, m)
	}
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func compare(t failer, got, want []Message) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d messages, want %d", len(got), len(want))
	}
	for i := range got {
		g, w := got[i], want[i]
		if (g.Key == nil) != (w.Key == nil) || !bytes.Equal(g.Key, w.Key) || !bytes.Equal(g.Payload, w.Payload) {
			t.Fatalf("message %d: key %q payload %q, want %q %q", i, g.Key, g.Payload, w.Key, w.Payload)
		}
		if len(g.Properties)+len(w.Properties) > 0 && !reflect.DeepEqual(g.Properties, w.Properties) {
			t.Fatalf("message %d: properties %q, want %q", i, g.Properties, w.Properties)
		}
		g.Key, g.Payload, g.Properties, w.Key, w.Payload, w.Properties = nil, nil, nil, nil, nil, nil
		if !reflect.DeepEqual(g, w) {
			t.Fatalf("message %d: %+v, want %+v", i, g, w)
		}
	}
}

func drawMessages(t *rapid.T) []Message {
	text := rapid.SliceOfN(rapid.Byte(), 0, 200)
	out := make([]Message, rapid.IntRange(1, 50).Draw(t, "messages"))
	for i := range out {
		m := &out[i]
		m.Payload = bytes.Repeat(text.Draw(t, "payload"), rapid.IntRange(0, 4).Draw(t, "times"))
		if rapid.Bool().Draw(t, "keyed") {
			m.Key = append([]byte{}, text.Draw(t, "key")...)
		}
		m.PublishTime = rapid.Int64().Draw(t, "published")
		if rapid.Bool().Draw(t, "later") {
			m.DeliverAt = rapid.Int64().Draw(t, "deliver at")
		}
		m.Schema = rapid.Uint64().Draw(t, "schema")
		for range rapid.IntRange(0, 3).Draw(t, "properties") {
			m.Properties = append(m.Properties, Property{string(text.Draw(t, "name")), string(text.Draw(t, "value"))})
		}
	}
	return out
}

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	var w Builder // the same one throughout: nothing of an earlier batch may show
	rapid.Check(t, func(t *rapid.T) {
		messages := drawMessages(t)
		for i := range messages {
			w.Add(&messages[i])
		}
		size := w.Size()
		codec := rapid.SampledFrom([]Codec{None, S2, Zstd}).Draw(t, "codec")
		b, err := w.AppendTo([]byte("before"), codec, Identity{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		if b = b[len("before"):]; len(b) > size {
			t.Fatalf("batch of %d bytes, Size said %d", len(b), size)
		}
		Batch(b).Stamp(Stamp{Base: 77, Epoch: 1, AppendTime: 2, Synced: 70})
		h, err := Check(append(b, "behind"...), Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.CheckTable(Limits{}); err != nil {
			t.Fatal(err)
		}
		for i := range messages {
			messages[i].Offset = 77 + uint64(i)
		}
		d := NewDecoder(Limits{})
		if err := d.Reset(h); err != nil {
			t.Fatal(err)
		}
		var got []Message
		var m Message // the same one throughout
		for ok, err := d.Next(&m); ok || err != nil; ok, err = d.Next(&m) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, m)
		}
		compare(t, got, messages)
		comparePart(t, h, messages)
	})
}

// comparePart cuts any part of h and reads it.
func comparePart(t *rapid.T, h Batch, messages []Message) {
	var indexes []int
	var want []Message
	for i := range messages {
		if rapid.Bool().Draw(t, "chosen") {
			indexes, want = append(indexes, i), append(want, messages[i])
		}
	}
	var parts Parts
	for i := range messages { // each alone first: the block kept must not be spoilt
		p, err := parts.Append(nil, h, i, 1)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, decode(t, p), messages[i:i+1])
	}
	first := rapid.IntRange(0, len(messages)-1).Draw(t, "first")
	count := rapid.IntRange(1, len(messages)-first).Draw(t, "count")
	stretch, err := parts.Append(nil, h, first, count)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, decode(t, stretch), messages[first:first+count])
	p, err := parts.AppendChosen([]byte("before"), h, indexes)
	if len(indexes) == 0 {
		if err == nil || string(p) != "before" {
			t.Fatalf("an empty part: %q, %v", p, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	part, err := Check(p[len("before"):], Limits{})
	if err != nil {
		t.Fatal(err)
	}
	got := decode(t, part)
	compare(t, got, want)
	if part.CheckTable(Limits{}) == nil {
		t.Fatal("a part passed as a producer's batch")
	}
}

// The broker's stamp is in the header alone, in place, and costs no allocation.
func TestStampLeavesTheBodyUntouched(t *testing.T) {
	b := fixed(t, None)
	before := bytes.Clone(b)
	if n := testing.AllocsPerRun(100, func() { stamped(b) }); n != 0 {
		t.Errorf("%v allocations a stamp", n)
	}
	if !bytes.Equal(b.Body(), before[HeaderSize:]) {
		t.Error("the body changed")
	}
	for at := range HeaderSize {
		ours := at >= 4 && at < 36 // header CRC, base, epoch, append time, synced end
		if !ours && b[at] != before[at] {
			t.Errorf("the producer's byte %d changed", at)
		}
	}
	h, err := Check(b, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if h.Base() != 1_000_000 || h.Epoch() != 1<<48|5 || h.AppendTime() != 1_700_000_002_000 || h.Synced() != 999_990 ||
		h.End() != 1_000_004 || h.Producer() != 0x1122334455667788 || h.Session() != 0x99aabbcc || h.Sequence() != 7 {
		t.Errorf("read back: base %d epoch %x time %d synced %d end %d", h.Base(), h.Epoch(), h.AppendTime(), h.Synced(), h.End())
	}
}

func TestSyncedClaimsNothingWhereItDoesNotFit(t *testing.T) {
	b := fixed(t, None)
	tests := map[string]struct{ base, synced, want uint64 }{
		"at the base":       {100, 100, 100},
		"above the base":    {100, 200, 100},
		"nothing":           {100, 0, 0},
		"as far as it fits": {1<<33 + 1<<32 - 2, 1 << 33, 1 << 33},
		"one too far":       {1<<33 + 1<<32 - 1, 1 << 33, 0},
		"far":               {1 << 60, 1, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b.Stamp(Stamp{Base: test.base, Synced: test.synced})
			if got := b.Synced(); got != test.want {
				t.Errorf("synced %d, want %d", got, test.want)
			}
		})
	}
}

func TestMark(t *testing.T) {
	h, err := Check(AppendMark(nil, 3, 50, 9), Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if !h.Control() || h.Count() != 0 || h.Base() != 50 || h.End() != 50 || h.Synced() != 50 || h.Epoch() != 3 {
		t.Errorf("mark reads as %+v", h)
	}
	if got := decode(t, h); len(got) != 0 {
		t.Errorf("a mark holds %d messages", len(got))
	}
	if h.CheckTable(Limits{}) == nil {
		t.Error("a mark passed as a producer's batch")
	}
}

// Any one flipped bit, and any cut, is noticed by Check: in the header by its CRC, in the body by the body's.
func TestEveryFlippedBitAndEveryCutIsNoticed(t *testing.T) {
	for _, c := range []Codec{None, S2, Zstd} {
		b := stamped(fixed(t, c))
		for bit := range len(b) * 8 {
			b[bit/8] ^= 1 << (bit % 8)
			if _, err := Check(b, Limits{}); err == nil {
				t.Errorf("%s: bit %d of byte %d flipped, nothing noticed", c, bit%8, bit/8)
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
		for n := range len(b) {
			if _, err := Check(b[:n], Limits{}); !errors.Is(err, ErrShort) {
				t.Errorf("%s: cut to %d bytes: %v", c, n, err)
			}
		}
	}
}

// A message of a part is vouched for by the producer's own CRC, even when the broker's CRCs are right.
func TestPartIsCheckedAgainstTheProducersCRC(t *testing.T) {
	p, err := AppendPart(nil, fixed(t, None), []int{1, 3}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(p, []byte("again"))
	p[at] ^= 1
	binary.LittleEndian.PutUint32(p[64:], Checksum(p[HeaderSize:]))
	Batch(p).seal()
	h, err := Check(p, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	d := NewDecoder(Limits{})
	if err := d.Reset(h); err != nil {
		t.Fatal(err)
	}
	var m Message
	if ok, err := d.Next(&m); ok || !errors.Is(err, ErrCorrupt) {
		t.Errorf("a changed message was handed out: %v, %v", ok, err)
	}
	if ok, err := d.Next(&m); ok || err != nil {
		t.Errorf("after an error the decoder goes on: %v, %v", ok, err)
	}
}

// Several parts of one batch cost one decompression, and never show another batch's messages.
func TestPartsKeepsTheBlockOfOneBatch(t *testing.T) {
	one, before := stamped(fixed(t, Zstd)), fixedMessages()
	after := slices.Clone(before)
	slices.Reverse(after)
	var w Builder
	for i := range after {
		w.Add(&after[i])
	}
	other, err := w.AppendTo(nil, Zstd, Identity{})
	if err != nil {
		t.Fatal(err)
	}
	var parts Parts
	dst := make([]byte, 0, 4096)
	tests := []struct {
		b    Batch
		want []Message
	}{{one, before}, {other, after}, {fixed(t, None), before}, {fixed(t, S2), before}, {one, before}}
	for i := range before {
		for _, test := range tests {
			part, err := parts.Append(dst, test.b, i, 1)
			if err != nil {
				t.Fatal(err)
			}
			want := test.want[i]
			want.Offset = test.b.Base() + uint64(i)
			compare(t, decode(t, part), []Message{want})
		}
	}
	n := testing.AllocsPerRun(100, func() {
		if _, err := parts.Append(dst, one, 1, 3); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations a part of a batch that is open", n)
	}
}
