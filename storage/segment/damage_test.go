package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// scanDamaged scans a file as one does that trusts nothing: by its header, or by
// its name where that is bad. It fails when a batch comes out that never went in.
func scanDamaged(t *testing.T, data []byte, h Header, list []placed) []Stretch {
	t.Helper()
	from := h.byName()
	if got, n, err := ReadHeader(bytes.NewReader(data)); err == nil {
		if got != h {
			t.Fatalf("the header came back as %+v", got)
		}
		from = got.Origin(n)
	} else if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("a damaged header is %v", err)
	}
	stretches := scanAll(t, data, from)
	for _, st := range stretches {
		if st.Kind != Whole {
			continue
		}
		ok := false
		for _, p := range list {
			ok = ok || p.at == st.At && bytes.Equal(p.bytes, st.Batch)
		}
		if !ok {
			t.Fatalf("a batch came out that never went in: %+v", st)
		}
	}
	return stretches
}

// shape writes stretches down for a comparison: kind, place, offsets.
func shape(stretches []Stretch) string {
	var out strings.Builder
	for _, st := range stretches {
		fmt.Fprintf(&out, "%s[%d,%d)", []string{"whole", "damaged", "torn", "zeros", "sealed"}[st.Kind], st.At, st.At+st.Len)
		if st.From != st.To {
			fmt.Fprintf(&out, "=%d-%d", st.From, st.To)
		}
		switch {
		case st.Kind == Sealed && st.Err != nil:
			out.WriteString("!")
		case st.Kind != Sealed && (st.Err == nil) != (st.Kind == Whole):
			out.WriteString("(error amiss)")
		}
		if st.Found {
			out.WriteString("?")
		}
		out.WriteString(" ")
	}
	return strings.TrimSpace(out.String())
}

// want builds the shape of a file in which the given parts are as damage says.
func want(list []placed, damage func(p placed) string, end string) string {
	var out []string
	for _, p := range list {
		s := damage(p)
		if s == "" {
			s = fmt.Sprintf("whole[%d,%d)", p.at, p.end)
			if p.from != p.to {
				s += fmt.Sprintf("=%d-%d", p.from, p.to)
			}
		}
		if s != "gone" {
			out = append(out, s)
		}
	}
	if end != "" {
		out = append(out, end)
	}
	return strings.Join(out, " ")
}

func offsets(p placed) string {
	if p.from == p.to {
		return ""
	}
	return fmt.Sprintf("=%d-%d", p.from, p.to)
}

// TestEveryFlippedBitOfASealedSegment: exactly the batch that was hit is
// reported, with its place and offsets; all others are served.
func TestEveryFlippedBitOfASealedSegment(t *testing.T) {
	w := small(t)
	data := w.seal()
	header, list := places(t, data)
	end := int64(len(w.data))
	for i := range 8 * len(data) {
		hurt := bytes.Clone(data)
		hurt[i/8] ^= 1 << (i % 8)
		at := int64(i / 8)
		footer := fmt.Sprintf("sealed[%d,%d)", end, len(data))
		head := ""
		if at < int64(header) {
			head = fmt.Sprintf("damaged[0,%d) ", header)
		}
		if at >= end {
			footer += "!"
		}
		got := shape(scanDamaged(t, hurt, w.header, list))
		want := head + want(list, func(p placed) string {
			if at < p.at || at >= p.end {
				return ""
			}
			return fmt.Sprintf("damaged[%d,%d)%s", p.at, p.end, offsets(p))
		}, footer)
		if got != want {
			t.Fatalf("bit %d of byte %d turned:\n got %s\nwant %s", i%8, at, got, want)
		}
		_, err := ReadFooter(bytes.NewReader(hurt), int64(len(hurt)))
		if at >= end != errors.Is(err, ErrCorrupt) {
			t.Fatalf("bit %d of byte %d turned: the footer is read with %v", i%8, at, err)
		}
		if i%8 != int(at%8) {
			continue // one bit of each byte is enough for what Verify adds
		}
		rep, err := Verify(bytes.NewReader(hurt), int64(len(hurt)))
		if err != nil || len(rep.Problems) == 0 {
			t.Fatalf("bit %d of byte %d turned: verified with %v, %v", i%8, at, rep.Problems, err)
		}
	}
}

// TestEveryFlippedBitOfAnUnsealedSegment: as above, but a bad last batch cannot
// be told from a torn one here; its offsets are named.
func TestEveryFlippedBitOfAnUnsealedSegment(t *testing.T) {
	w := small(t)
	header, list := places(t, w.data)
	last := list[len(list)-1]
	for i := range 8 * len(w.data) {
		hurt := bytes.Clone(w.data)
		hurt[i/8] ^= 1 << (i % 8)
		at := int64(i / 8)
		head := ""
		if at < int64(header) {
			head = fmt.Sprintf("damaged[0,%d) ", header)
		}
		got := shape(scanDamaged(t, hurt, w.header, list))
		want := head + want(list, func(p placed) string {
			switch {
			case at < p.at || at >= p.end:
				return ""
			case p.at == last.at:
				return fmt.Sprintf("torn[%d,%d)%s", p.at, p.end, offsets(p))
			}
			return fmt.Sprintf("damaged[%d,%d)%s", p.at, p.end, offsets(p))
		}, "")
		if got != want {
			t.Fatalf("bit %d of byte %d turned:\n got %s\nwant %s", i%8, at, got, want)
		}
	}
}

// TestEveryTruncation: the batches in front are served, the rest is a torn end.
func TestEveryTruncation(t *testing.T) {
	w := small(t)
	data := w.seal()
	header, list := places(t, data)
	end := int64(len(w.data))
	for n := range int64(len(data)) {
		cut := data[:n]
		tail := ""
		switch {
		case n > 0 && n < int64(header):
			tail = fmt.Sprintf("torn[0,%d)", n)
		case n >= end+int64(len(footerMagic)):
			tail = fmt.Sprintf("sealed[%d,%d)!", end, n)
		case n > end:
			tail = fmt.Sprintf("torn[%d,%d)", end, n)
		}
		want := want(list, func(p placed) string {
			switch {
			case n >= p.end:
				return ""
			case n <= p.at:
				return "gone"
			case n < p.at+batch.HeaderSize:
				return fmt.Sprintf("torn[%d,%d)", p.at, n)
			}
			return fmt.Sprintf("torn[%d,%d)%s", p.at, n, offsets(p))
		}, tail)
		if got := shape(scanDamaged(t, cut, w.header, list)); got != want {
			t.Fatalf("cut to %d bytes:\n got %s\nwant %s", n, got, want)
		}
		if _, err := ReadFooter(bytes.NewReader(cut), n); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: the footer is read with %v", n, err)
		}
	}
}

// TestEveryTruncationBeforeZeros: the same in a file that was laid out ahead.
func TestEveryTruncationBeforeZeros(t *testing.T) {
	w := small(t)
	header, list := places(t, w.data)
	for n := int64(header); n <= int64(len(w.data)); n++ {
		cut := append(bytes.Clone(w.data[:n]), make([]byte, 10_000)...)
		for _, st := range scanDamaged(t, cut, w.header, list) {
			if st.Kind == Damaged || st.Kind == Sealed {
				t.Fatalf("zeros from %d on: %s", n, shape([]Stretch{st}))
			}
		}
		stretches := scanDamaged(t, cut, w.header, list)
		kind := stretches[len(stretches)-1].Kind
		boundary := n == int64(header)
		for _, p := range list {
			rest := w.data[min(n, p.end):p.end] // a mark ends in zeros: cut there, it is whole
			boundary = boundary || n > p.at && n <= p.end && len(bytes.Trim(rest, "\x00")) == 0
		}
		if boundary != (kind == Zeros) {
			t.Fatalf("zeros from %d on: %s", n, shape(stretches))
		}
	}
}

// TestEveryLostSector: a sector that reads as zeros costs the batches in it.
func TestEveryLostSector(t *testing.T) {
	w := newBuild(t, testHeader())
	for i := range 100 {
		w.add(t, strings.Repeat("x", i))
	}
	w.mark()
	header, list := places(t, w.data)
	for at := int64(512); at+512 < int64(len(w.data)); at += 512 {
		hurt := bytes.Clone(w.data)
		clear(hurt[at : at+512])
		var missing, whole uint64
		for _, st := range scanDamaged(t, hurt, w.header, list) {
			switch {
			case st.Kind == Whole:
				whole += st.To - st.From
			case st.Kind == Damaged && st.At <= at+512 && st.At+st.Len >= at:
				missing += st.To - st.From
			default:
				t.Fatalf("sector at %d lost: %s", at, shape([]Stretch{st}))
			}
		}
		lost := uint64(0)
		for _, p := range list {
			if p.at < at+512 && p.end > at {
				lost += p.to - p.from
			}
		}
		if missing != lost || whole != 100-lost {
			t.Fatalf("sector at %d lost, header of %d: %d missing, %d whole, want %d missing", at, header, missing, whole, lost)
		}
	}
}

// TestOneFlippedBitOfThreeHundred: one rotten message costs that message.
func TestOneFlippedBitOfThreeHundred(t *testing.T) {
	h := testHeader()
	h.Base = 0
	w := newBuild(t, h)
	for i := range 300 {
		w.add(t, fmt.Sprintf("message %d", i))
	}
	_, list := places(t, w.data)
	hurt := bytes.Clone(w.data)
	hurt[list[150].end-3] ^= 4
	var damaged []Stretch
	next := uint64(0)
	for _, st := range scanDamaged(t, hurt, h, list) {
		if st.Kind == Damaged {
			damaged = append(damaged, st)
		}
		if st.From != next {
			t.Fatalf("offset %d follows %d", st.From, next)
		}
		next = st.To
	}
	if len(damaged) != 1 || damaged[0].From != 150 || damaged[0].To != 151 || damaged[0].At != list[150].at || next != 300 {
		t.Fatalf("damaged is %v, next %d", damaged, next)
	}
}

// nested is a segment whose second message is itself a valid batch of the same
// epoch, at an offset that could stand there.
func nested(t testing.TB) (w *build, inner []byte) {
	w = newBuild(t, testHeader())
	w.add(t, "first")
	fake := newBuild(t, w.header)
	fake.next = w.next
	inner = fake.add(t, "I was never sent")
	w.add(t, string(inner))
	w.add(t, "third")
	return w, inner
}

// TestPayloadThatLooksLikeABatch: as long as a header tells how far its batch
// reaches, nothing inside is taken for a batch.
func TestPayloadThatLooksLikeABatch(t *testing.T) {
	w, _ := nested(t)
	_, list := places(t, w.data)
	outer := list[1]
	for i := 8 * outer.at; i < 8*outer.end; i++ {
		hurt := bytes.Clone(w.data)
		hurt[i/8] ^= 1 << (i % 8)
		got := shape(scanDamaged(t, hurt, w.header, list))
		want := want(list, func(p placed) string {
			if p.at != outer.at {
				return ""
			}
			return fmt.Sprintf("damaged[%d,%d)=101-102", p.at, p.end)
		}, "")
		if got != want {
			t.Fatalf("bit %d turned:\n got %s\nwant %s", i, got, want)
		}
	}
	for n := outer.at + batch.HeaderSize; n < outer.end; n++ {
		got := shape(scanDamaged(t, w.data[:n], w.header, list))
		if want := fmt.Sprintf("whole[%d,%d)=100-101 torn[%d,%d)=101-102", list[0].at, list[0].end, outer.at, n); got != want {
			t.Fatalf("cut to %d:\n got %s\nwant %s", n, got, want)
		}
	}
}

// TestFoundBatchIsMarked: where the header itself is gone, what the search
// finds is said to be no more than found.
func TestFoundBatchIsMarked(t *testing.T) {
	w, inner := nested(t)
	_, list := places(t, w.data)
	hurt := bytes.Clone(w.data)
	clear(hurt[list[1].at : list[1].at+batch.HeaderSize])
	h, n, err := ReadHeader(bytes.NewReader(hurt))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, st := range scanAll(t, hurt, h.Origin(n)) {
		if st.Kind == Whole && st.At > list[0].at {
			if !st.Found {
				t.Fatalf("not marked: %s", shape([]Stretch{st}))
			}
			if bytes.Equal(st.Batch, inner) {
				found++
			}
		}
	}
	if found != 1 {
		t.Fatalf("the test finds the inner batch %d times", found)
	}
}

// TestPayloadThatLooksLikeAFooter: a whole batch counts before a footer that
// would begin inside it.
func TestPayloadThatLooksLikeAFooter(t *testing.T) {
	w := newBuild(t, testHeader())
	w.add(t, "first")
	fake := w.seal()[len(w.data):]
	w.add(t, string(fake))
	_, list := places(t, w.data)
	if len(list) != 2 {
		t.Fatalf("%d batches", len(list))
	}
	if f, err := ReadFooter(bytes.NewReader(w.data), int64(len(w.data))); err == nil {
		t.Fatalf("a payload was read as the footer %+v", f.Facts)
	}
}

func TestWhatAnEarlierRoundLeft(t *testing.T) {
	old := newBuild(t, testHeader())
	old.header.Epoch--
	for range 10 {
		old.add(t, "of an earlier epoch")
	}
	again := newBuild(t, testHeader())
	header := len(again.data)
	for range 3 {
		again.add(t, "of the same epoch, at offsets that are taken")
	}
	for name, left := range map[string][]byte{
		"whole batches of an earlier epoch": old.data[header:], "an end of an earlier epoch": old.data[len(old.data)-300:],
		"whole batches at taken offsets": again.data[header:], "an end at taken offsets": again.data[header+7:],
	} {
		w := newBuild(t, testHeader())
		for range 4 {
			w.add(t, "one")
		}
		_, list := places(t, w.data)
		want := want(list, func(placed) string { return "" }, fmt.Sprintf("torn[%d,%d)", len(w.data), len(w.data)+len(left)))
		if got := shape(scanDamaged(t, append(bytes.Clone(w.data), left...), w.header, list)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, want)
		}
	}
}

// TestBatchBehindLostPages: a header may begin with zeros itself.
func TestBatchBehindLostPages(t *testing.T) {
	w := newBuild(t, testHeader())
	w.add(t, "first")
	w.add(t, "lost")
	b := w.add(t, strings.Repeat("x", 256-90))
	if b.Len() != 256 {
		t.Fatalf("the batch has %d bytes: the test needs a length whose first byte is 0", b.Len())
	}
	_, list := places(t, w.data)
	clear(w.data[list[1].at:list[1].end])
	got := shape(scanDamaged(t, w.data, w.header, list))
	want := fmt.Sprintf("whole[%d,%d)=100-101 damaged[%d,%d)=101-102 whole[%d,%d)=102-103?",
		list[0].at, list[0].end, list[1].at, list[1].end, list[2].at, list[2].end)
	if got != want {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
}

func TestOffsetsLeftOut(t *testing.T) {
	w := newBuild(t, testHeader())
	w.add(t, "100")
	w.next = 105
	w.add(t, "105")
	h, n, err := ReadHeader(bytes.NewReader(w.data))
	if err != nil {
		t.Fatal(err)
	}
	got := shape(scanAll(t, w.data, h.Origin(n)))
	if want := "whole[123,215)=100-101 damaged[215,215)=101-105 whole[215,307)=105-106"; got != want {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
	w.sum.facts.End = 200
	got = shape(scanAll(t, w.seal(), h.Origin(n)))
	if want := "damaged[307,307)=106-200 sealed[307,"; !strings.Contains(got, want) {
		t.Fatalf("\n got %s\nwant %s", got, want)
	}
}

func TestSeveralEpochs(t *testing.T) {
	h := testHeader()
	h.FirstEpoch = h.Epoch - 2
	w := newBuild(t, h)
	for epoch := h.FirstEpoch; epoch <= h.Epoch; epoch++ {
		w.header.Epoch = epoch
		w.add(t, "a", "b")
		w.next += 1000 // a plain gap between two epochs
	}
	w.header = h
	data := w.seal()
	_, list := places(t, data)
	if len(list) != 3 {
		t.Fatalf("%d batches", len(list))
	}
	f, err := ReadFooter(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint([]EpochStart{{h.Epoch - 2, 100}, {h.Epoch - 1, 1102}, {h.Epoch, 2104}})
	if got := fmt.Sprint(f.Epochs); got != want {
		t.Fatalf("epochs %s, want %s", got, want)
	}
	// An epoch never goes back.
	back := newBuild(t, h)
	back.add(t, "newest")
	at := len(back.data)
	back.header.Epoch--
	back.add(t, "older")
	_, n, err := ReadHeader(bytes.NewReader(back.data))
	if err != nil {
		t.Fatal(err)
	}
	got := scanAll(t, back.data, h.Origin(n))
	if last := got[len(got)-1]; last.Kind != Torn || last.At != int64(at) {
		t.Fatalf("ends with %s", shape(got))
	}
}

func TestNewerFormatsAreRefused(t *testing.T) {
	w := small(t)
	sealed := w.seal()
	end := len(w.data)

	header := bytes.Clone(sealed)
	_, n, err := ReadHeader(bytes.NewReader(header))
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint16(header[8:], 2)
	binary.LittleEndian.PutUint32(header[n-4:], batch.Checksum(header[:n-4]))

	footer := bytes.Clone(sealed)
	binary.LittleEndian.PutUint16(footer[end+8:], 3)
	crc := len(footer) - 12
	binary.LittleEndian.PutUint32(footer[crc:], batch.Checksum(footer[:crc]))

	newer := bytes.Clone(w.data)
	b := batch.Batch(newer[n:])
	binary.LittleEndian.PutUint16(b[62:], 9)
	b.Stamp(batch.Stamp{Base: b.Base(), Epoch: b.Epoch(), AppendTime: b.AppendTime(), Synced: b.Synced()})

	for what, data := range map[string][]byte{"segment header 2": header, "segment footer 3": footer, "batch 9": newer} {
		_, err := Verify(bytes.NewReader(data), int64(len(data)))
		v, ok := errors.AsType[*VersionError](err)
		if !ok || fmt.Sprintf("%s %d", v.What, v.Found) != what || v.Known != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := ReadFooter(bytes.NewReader(footer), int64(len(footer))); errors.Is(err, ErrCorrupt) || err == nil {
		t.Errorf("a newer footer is read with %v", err)
	}
}
