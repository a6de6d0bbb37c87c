package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// counted counts the reads of a file and their bytes.
type counted struct {
	io.ReaderAt
	reads int
	bytes int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	c.bytes += len(p)
	return c.ReaderAt.ReadAt(p, off)
}

func TestCombineIsOneChecksum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	cuts := []int{0, 1, 2, 71, 72, 255, 256, 257, 65535, 65536, 65537, 131072, len(data)}
	for range 200 {
		cuts = append(cuts, rng.IntN(len(data)))
	}
	for _, n := range cuts {
		got := combine(batch.Checksum(data[:n]), batch.Checksum(data[n:]), len(data)-n)
		if want := batch.Checksum(data); got != want {
			t.Fatalf("cut at %d: %08x, want %08x", n, got, want)
		}
	}
	// A length of four bytes: zeros are cheap to sum up twice.
	const long = 1<<24 + 12345
	zeros := make([]byte, long)
	if got, want := combine(batch.Checksum(data), batch.Checksum(zeros), long), batch.Checksum(append(bytes.Clone(data), zeros...)); got != want {
		t.Fatalf("%d bytes: %08x, want %08x", long, got, want)
	}
}

// TestFileChecksums holds the sums made from the batches to a plain pass over the file.
func TestFileChecksums(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	w := newBuild(t, testHeader())
	for i := range 300 {
		if i%10 == 0 {
			w.mark()
		}
		w.add(t, strings.Repeat("payload ", rng.IntN(300)), strings.Repeat("x", rng.IntN(20)))
		if got, want := w.sum.Facts().DataCRC, batch.Checksum(w.data); got != want || w.sum.Facts().DataEnd != int64(len(w.data)) {
			t.Fatalf("after batch %d: %08x, want %08x", i, got, want)
		}
	}
	data := w.seal()
	n := len(data) - 12
	if got, want := binary.LittleEndian.Uint32(data[n:]), batch.Checksum(data[:n]); got != want {
		t.Fatalf("CRC of everything before it %08x, want %08x", got, want)
	}
}

// TestSumTellsSegmentsApart: of the same length, offsets and times. A CRC over all of the bytes does not.
func TestSumTellsSegmentsApart(t *testing.T) {
	of := func(payload string) []byte {
		w := newBuild(t, testHeader())
		w.add(t, payload)
		return w.seal()
	}
	a, b := of("payload a"), of("payload b")
	if len(a) != len(b) || Sum(a) == Sum(b) {
		t.Errorf("%d and %d bytes, %08x and %08x", len(a), len(b), Sum(a), Sum(b))
	}
	if batch.Checksum(a) != WholeCRC(a) || WholeCRC(a) != WholeCRC(b) {
		t.Errorf("all of it %08x and %08x, computed %08x", WholeCRC(a), WholeCRC(b), batch.Checksum(a))
	}
	f, err := ReadFooter(bytes.NewReader(a), int64(len(a)))
	if err != nil || f.Sum() != Sum(a) || Sum(a[len(a)-16:]) != Sum(a) || Sum(a[:15]) != 0 {
		t.Errorf("%v, %v", f, err)
	}
}

// large is a segment of several stretches, with a clock that goes back once.
func large(t testing.TB) *build {
	w := newBuild(t, testHeader())
	for i := range 400 {
		ms := int64(1_700_000_000_000 + 10*i)
		if i >= 200 {
			ms -= 1000
		}
		if i%50 == 49 {
			for range 2000 { // a stretch of marks alone
				w.put(batch.AppendMark(nil, w.header.Epoch, w.next, ms+1_000_000))
			}
		}
		w.builder.Add(&batch.Message{Payload: bytes.Repeat([]byte{byte(i)}, 3000), PublishTime: ms})
		w.builder.Add(&batch.Message{Payload: []byte("small"), PublishTime: ms})
		b, err := w.builder.AppendTo(nil, batch.None, batch.Identity{Producer: uint64(i % 7), Session: 1, Sequence: uint64(2 * (i / 7))})
		if err != nil {
			t.Fatal(err)
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: w.next, Epoch: w.header.Epoch, AppendTime: ms})
		w.put(b)
	}
	return w
}

func TestFindLeadsToEveryOffset(t *testing.T) {
	w := large(t)
	data := w.seal()
	_, list := places(t, data)
	r := &counted{ReaderAt: bytes.NewReader(data)}
	f, err := ReadFooter(r, int64(len(data)))
	if err != nil || r.reads != 1 {
		t.Fatalf("%d reads, %v", r.reads, err)
	}
	if len(f.Index) < 20 {
		t.Fatalf("only %d index entries", len(f.Index))
	}
	for _, p := range list {
		for offset := p.from; offset < p.to; offset++ {
			span := f.Find(offset)
			if live := w.sum.Find(offset); live != span {
				t.Fatalf("offset %d: %v while it was written, %v after", offset, live, span)
			}
			if p.at < span.From || p.at >= span.To {
				t.Fatalf("offset %d at %d is looked for in %v", offset, p.at, span)
			}
			if n := span.To - span.From; n > 2*stride+4000 {
				t.Fatalf("a stretch of %d bytes", n)
			}
		}
	}
	if span := f.Find(0); span.From != f.Index[0].At {
		t.Fatalf("an offset below the first is looked for in %v", span)
	}
	if span := f.Find(1 << 60); span.To != f.DataEnd || span.From >= span.To {
		t.Fatalf("an offset behind the end is looked for in %v", span)
	}
}

func TestFindTimeLeadsToTheFirstMessageNotOlder(t *testing.T) {
	w := large(t)
	data := w.seal()
	_, list := places(t, data)
	f, err := ReadFooter(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for ms := f.FirstTime - 20; ms <= f.LastTime; ms += 5 {
		var first placed
		for _, p := range list {
			if !p.bytes.Control() && p.bytes.AppendTime() >= ms {
				first = p
				break
			}
		}
		span, ok := f.FindTime(ms)
		if live, liveOK := w.sum.FindTime(ms); live != span || liveOK != ok {
			t.Fatalf("time %d: %v while it was written, %v after", ms, live, span)
		}
		if !ok || first.at < span.From || first.at >= span.To {
			t.Fatalf("time %d, at %d, is looked for in %v, %v", ms, first.at, span, ok)
		}
	}
	if span, ok := f.FindTime(f.LastTime + 1); ok {
		t.Fatalf("a time behind the end is looked for in %v", span)
	}
}

func TestFooterKeepsItsWords(t *testing.T) {
	w := large(t)
	data := w.seal()
	f, err := ReadFooter(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if f.Facts != w.sum.Facts() || !reflect.DeepEqual(f.Index, w.sum.Footer().Index) || !reflect.DeepEqual(f.Epochs, w.sum.Epochs()) {
		t.Fatal("the footer came back as another")
	}
	table, err := f.Producers()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := table.append(nil), w.table.append(nil); !bytes.Equal(got, want) {
		t.Fatal("the producer table came back as another")
	}
}

func TestFooterOfNothing(t *testing.T) {
	w := newBuild(t, testHeader())
	data := w.seal()
	f, err := ReadFooter(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if f.First != 100 || f.End != 100 || f.Messages != 0 {
		t.Fatalf("facts %+v", f.Facts)
	}
	if span := f.Find(100); span != (Span{f.DataEnd, f.DataEnd}) {
		t.Fatalf("an offset is looked for in %v", span)
	}
	if _, ok := f.FindTime(0); ok {
		t.Fatal("a time was found")
	}
	if got := shape(scanAll(t, data, testHeader().byName())); !strings.Contains(got, "sealed") {
		t.Fatal(got)
	}
}

func TestLargeFooterIsReadInTwoSteps(t *testing.T) {
	w := newBuild(t, testHeader())
	w.add(t, "one")
	for i := range uint64(20_000) {
		b := newProduced(t, i, 1, 0, w.next)
		w.put(b)
	}
	data := w.seal()
	r := &counted{ReaderAt: bytes.NewReader(data)}
	f, err := ReadFooter(r, int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if r.reads > 3 {
		t.Fatalf("%d reads", r.reads)
	}
	table, err := f.Producers()
	if err != nil || table.Len() != 20_001 {
		t.Fatalf("%d sessions, %v", table.Len(), err)
	}
}

func TestEmptiedAndOverwrittenFiles(t *testing.T) {
	for _, data := range []string{"", "abc", "\x00\x00\x00", strings.Repeat("\x00", 500), closingMagic, strings.Repeat(closingMagic, 50)} {
		if _, err := ReadFooter(strings.NewReader(data), int64(len(data))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("footer of %q: %v", data, err)
		}
		if _, _, err := ReadHeader(strings.NewReader(data)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("header of %q: %v", data, err)
		}
		rep, err := Verify(strings.NewReader(data), int64(len(data)))
		if err != nil || len(rep.Problems) == 0 {
			t.Errorf("verified %q with %v, %v", data, rep.Problems, err)
		}
	}
}

// TestCountsThatLie: a footer with a CRC that holds and counts beyond its bytes
// is refused before anything is allocated for them.
func TestCountsThatLie(t *testing.T) {
	w := small(t)
	footer := w.seal()[len(w.data):]
	for name, at := range map[string]int{"index": 80, "epochs": 84, "sessions": 88} {
		for _, count := range []uint32{1000, 1 << 31, 1<<32 - 1} {
			lying := bytes.Clone(footer)
			binary.LittleEndian.PutUint32(lying[at:], count)
			crc := len(lying) - 12
			binary.LittleEndian.PutUint32(lying[crc:], combine(w.sum.facts.DataCRC, batch.Checksum(lying[:crc]), crc))
			f, err := parseFooter(lying)
			if err == nil {
				_, err = f.Producers()
			}
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%d %s: %v", count, name, err)
			}
		}
	}
	huge := append(bytes.Clone(w.data), footer...)
	binary.LittleEndian.PutUint32(huge[len(huge)-16:], uint32(len(huge)))
	if _, err := ReadFooter(bytes.NewReader(huge), int64(len(huge))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a footer as long as its file: %v", err)
	}
}

func TestFooterOfAnotherPlaceIsRefused(t *testing.T) {
	w := small(t)
	moved := append(append(bytes.Clone(w.data), make([]byte, 72)...), w.seal()[len(w.data):]...)
	if _, err := ReadFooter(bytes.NewReader(moved), int64(len(moved))); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("read with %v", err)
	}
}

func TestVerifyHoldsTheFooterToTheBatches(t *testing.T) {
	tests := map[string]func(w *build){
		"messages": func(w *build) { w.sum.facts.Messages++ },
		"header":   func(w *build) { w.sum.facts.HeaderCRC++ },
		"index":    func(w *build) { w.sum.index[0].Time++ },
		"epochs":   func(w *build) { w.sum.epochs[0].Start-- },
		"sequence": func(w *build) { w.table.Find(42, 5).add(Sent{Sequence: 500, Count: 1}) },
	}
	for name, lie := range tests {
		t.Run(name, func(t *testing.T) {
			w := small(t)
			lie(w)
			rep, err := Verify(bytes.NewReader(w.seal()), int64(len(w.seal())))
			if err != nil || len(rep.Problems) != 1 {
				t.Fatalf("verified with %v, %v", rep.Problems, err)
			}
		})
	}
	w := small(t)
	w.table = Producers{} // expired
	if rep, err := Verify(bytes.NewReader(w.seal()), int64(len(w.seal()))); err != nil || len(rep.Problems) > 0 {
		t.Fatalf("without the expired session: %v, %v", rep.Problems, err)
	}
}

func TestDumpHandsBackTheErrorOfItsVisitor(t *testing.T) {
	w := small(t)
	enough := fmt.Errorf("enough")
	seen := 0
	_, err := Dump(bytes.NewReader(w.data), int64(len(w.data)), func(Stretch) error {
		if seen++; seen == 2 {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != 2 {
		t.Fatalf("after %d stretches %v", seen, err)
	}
}
