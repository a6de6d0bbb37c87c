package wal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"sync"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/excerpt"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
)

// fill appends messages of several sessions, and returns every batch as the log has it.
func (r *rig) fill(batches int) (all []batch.Batch) {
	r.t.Helper()
	senders := make([]sender, 5)
	for i := range senders {
		senders[i] = sender{producer: 100 + uint64(i), session: uint32(r.log.Next())}
		if _, _, err := r.log.OpenSession(senders[i].producer, senders[i].session, 0); err != nil {
			r.t.Fatal(err)
		}
	}
	for n := range batches {
		r.clock.ms += int64(n % 7)
		p, err := r.log.Append(senders[n%len(senders)].batch(r.t, 1+n%4, 60+n%300))
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return batchesOf(r.t, r.log, 0)
}

// batchesOf are the batches from an offset to the end.
func batchesOf(t testing.TB, l *Log, from uint64) (all []batch.Batch) {
	t.Helper()
	reader := l.Reader(from)
	defer reader.Close()
	for {
		v, err := reader.Next(4 << 10)
		if errors.Is(err, ErrEnd) {
			return all
		}
		if err != nil {
			t.Fatalf("read at %d: %v", reader.Offset(), err)
		}
		for rest := batch.Batch(bytes.Clone(v.Data)); len(rest) > 0; rest = rest[rest.Len():] {
			all = append(all, rest[:rest.Len()])
		}
		v.Release()
	}
}

// contents are the bytes of a segment; they must be what its CRC says, and come the same in pieces.
func contents(t testing.TB, s *excerpt.Segment) []byte {
	t.Helper()
	data, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size))
	if err != nil || int64(len(data)) != s.Size {
		t.Fatalf("read %d of %d bytes: %v", len(data), s.Size, err)
	}
	if crc := batch.Checksum(data); crc != s.CRC {
		t.Fatalf("CRC %08x, the segment says %08x", crc, s.CRC)
	}
	for range 20 {
		off, n := rand.Int64N(s.Size), 1+rand.IntN(3000)
		piece := make([]byte, n)
		got, err := s.ReadAt(piece, off)
		want := data[off:min(s.Size, off+int64(n))]
		if !bytes.Equal(piece[:got], want) || (got < n) != errors.Is(err, io.EOF) {
			t.Fatalf("%d bytes at %d: %d read, %v", n, off, got, err)
		}
	}
	return data
}

// checkCut holds a segment against the batches that the log has from an offset on.
func checkCut(t testing.TB, s *excerpt.Segment, all []batch.Batch, from uint64) {
	t.Helper()
	data := contents(t, s)
	report, err := segment.Verify(bytes.NewReader(data), s.Size)
	if err != nil || len(report.Problems) > 0 || report.Footer == nil {
		t.Fatalf("segment from %d: %v, %v", from, report.Problems, err)
	}
	if report.Footer.Facts != s.Facts || fmt.Sprint(report.Footer.Epochs) != fmt.Sprint(s.Epochs) {
		t.Fatalf("footer %+v, told %+v", report.Footer, s)
	}
	var table sessions.Table
	var want []byte
	for _, b := range all {
		if b.End() > s.End {
			break
		}
		table.Record(b)
		if b.End() > from {
			want = append(want, b...)
		}
	}
	body := data[report.Footer.Index[0].At:s.DataEnd]
	if !bytes.Equal(body, want) {
		t.Fatalf("segment from %d to %d holds %d bytes of batches, the log %d", from, s.End, len(body), len(want))
	}
	told, err := report.Footer.Producers()
	if err != nil {
		t.Fatal(err)
	}
	of := segment.Footer{}
	if !bytes.Equal(of.Append(nil, told), of.Append(nil, table.Stored(s.End))) {
		t.Fatalf("segment from %d to %d: the producer table is another", from, s.End)
	}
}

// Every cut is a whole segment of just what was asked for, wherever it begins and ends.
func TestCutIsAWholeSegment(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	defer r.close()
	all := r.fill(250)
	end := r.log.Committed()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		first, last := rnd.IntN(len(all)), rnd.IntN(len(all))
		from, to := all[min(first, last)].Base(), all[max(first, last)].End()
		most := int64(1 + rnd.IntN(40<<10))
		s, err := r.log.Cut(t.Context(), from, to, most)
		if err != nil {
			t.Fatal(err)
		}
		short := s.End < to && s.DataEnd < most-2000 && !slices.ContainsFunc(r.log.files.list, func(f *file) bool { return f.Base == from })
		if s.First != from || s.End > to || s.End <= from || short {
			t.Fatalf("cut from %d to %d, at most %d: offsets %d to %d, %d bytes", from, to, most, s.First, s.End, s.DataEnd)
		}
		checkCut(t, s, all, from)
	}
	if _, err := r.log.Cut(t.Context(), end, end+5, 1<<20); !errors.Is(err, ErrEnd) {
		t.Fatalf("behind the end: %v", err)
	}
	// An offset inside a batch, as the start of a log may be, brings the batch it lies in.
	for _, b := range all {
		if b.Count() < 2 {
			continue
		}
		s, err := r.log.Cut(t.Context(), b.Base()+1, end, 1)
		if err != nil || s.First != b.Base() || s.End != b.End() {
			t.Fatalf("inside a batch: %+v, %v", s, err)
		}
		break
	}
}

// A sealed file that is asked for as a whole is taken as it is.
func TestCutTakesTheFileItself(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	defer r.close()
	all := r.fill(120)
	files := 0
	for from := uint64(0); ; files++ {
		b, err := r.log.Backlog(from)
		if err != nil {
			t.Fatal(err)
		}
		if b.Sealed == from {
			break
		}
		s, err := r.log.Cut(t.Context(), from, b.Sealed, b.SealedBytes)
		if err != nil || s.End != b.Sealed {
			t.Fatalf("cut to %d: %+v, %v", b.Sealed, s, err)
		}
		name := path.Join(r.log.dir(), segment.FormatName(from, 1))
		if onDisk, err := disk.ReadFile(r.fsys, name); err != nil || !bytes.Equal(onDisk, contents(t, s)) {
			t.Fatalf("%s is not what was cut: %v", name, err)
		}
		checkCut(t, s, all, from)
		from = b.Sealed
	}
	if files < 3 {
		t.Fatalf("only %d files", files)
	}
}

// A cut stays within an epoch, and what no epoch gave is a gap.
func TestCutStaysWithinAnEpoch(t *testing.T) {
	r := newRig(t, nil)
	defer r.close()
	r.mustPut(5, 100)
	if err := r.log.Begin(2, 10, 1<<40); err != nil {
		t.Fatal(err)
	}
	r.mustPut(5, 100)
	for from, want := range map[uint64]struct{ end, epoch uint64 }{0: {5, 1}, 3: {5, 1}, 10: {15, 2}} {
		s, err := r.log.Cut(t.Context(), from, 15, 1<<20)
		if err != nil || s.End != want.end || len(s.Epochs) != 1 || s.Epochs[0].Epoch != want.epoch {
			t.Fatalf("from %d: %+v, %v", from, s, err)
		}
	}
	gap, ok := errors.AsType[*Gap](second(r.log.Cut(t.Context(), 5, 15, 1<<20)))
	if !ok || gap.To != 10 {
		t.Fatalf("at a gap: %v", gap)
	}
	if b, err := r.log.Backlog(0); err != nil || b.End != 15 || b.Sealed != 5 {
		t.Fatalf("backlog %+v, %v", b, err)
	}
}

// What lies in a file behind the end of its epoch does not exist, and is never exported (R19).
func TestCutEndsWhereItsEpochEnds(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(20, 100)
	r.close()
	r.tier = openTier(t, r.fsys, nil)
	defer r.close()
	var found Found
	r.log, found = openLog(t, r.tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: 12}, {Epoch: 2, Start: 30, End: openEnd}}, Start: 2})
	if found.End != 30 {
		t.Fatalf("%+v", found)
	}
	s, err := r.log.Cut(t.Context(), 2, 30, 1<<20)
	if err != nil || s.First != 2 || s.End != 12 {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := r.log.Cut(t.Context(), 1, 30, 1<<20); err == nil {
		t.Fatal("what lies below the start was cut")
	}
	s, err = r.log.Cut(t.Context(), 10, 12, 1<<20)
	if err != nil || s.First != 10 || s.End != 12 {
		t.Fatalf("%+v, %v", s, err)
	}
}

// A file that was left without a footer is cut all the same, with what the log knows of the producers.
func TestCutOfAFileLeftUnsealed(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 })
	all := r.fill(600) // large enough for a hint beside it
	end := r.log.Committed()
	for range 2 { // the first recovery scans the file, the second finds the hint
		r.fsys = r.fsys.Kill()
		r.tier = openTier(t, r.fsys, func(c *Config) { c.Now = r.clock.now; c.SegmentBytes = 1 << 20 })
		r.log, _ = openLog(t, r.tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: end}, {Epoch: 2, Start: end, End: openEnd}}})
		for _, from := range []uint64{0, all[300].Base()} {
			s, err := r.log.Cut(t.Context(), from, end, 1<<30)
			if err != nil || s.End != end {
				t.Fatalf("%+v, %v", s, err)
			}
			checkCut(t, s, batchesOf(t, r.log, 0), from)
		}
	}
	r.close()
}

func second[T any](_ T, err error) error { return err }

// What is damaged here is never exported: a cut ends in front of it, and the next one is an error with its bounds.
func TestCutOfDamage(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 })
	defer r.close()
	all := r.fill(60)
	name := path.Join(r.log.dir(), segment.FormatName(0, 1))
	data, err := disk.ReadFile(r.fsys, name)
	if err != nil {
		t.Fatal(err)
	}
	_, head, err := segment.ParseHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	at := int64(head)
	for _, b := range all[:30] {
		at += int64(b.Len())
	}
	flipByte(t, r.fsys, name, at+batch.HeaderSize+3)
	s, err := r.log.Cut(t.Context(), 0, r.log.Committed(), 1<<20)
	if err != nil || s.End != all[30].Base() {
		t.Fatalf("in front of the damage: %+v, %v; it begins at %d", s, err, all[30].Base())
	}
	checkCut(t, s, all, 0)
	d, ok := errors.AsType[*Damage](second(r.log.Cut(t.Context(), all[30].Base(), r.log.Committed(), 1<<20)))
	if !ok || d.From != all[30].Base() {
		t.Fatalf("at the damage: %v", d)
	}
}

// A byte that went bad in a sealed file does not agree with the CRC that the file goes out with.
func TestCutOfADamagedFile(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	defer r.close()
	r.fill(60)
	b, err := r.log.Backlog(0)
	if err != nil || b.Sealed == 0 {
		t.Fatalf("%+v, %v", b, err)
	}
	flipByte(t, r.fsys, path.Join(r.log.dir(), segment.FormatName(0, 1)), 2000)
	s, err := r.log.Cut(t.Context(), 0, b.Sealed, b.SealedBytes)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(io.NewSectionReader(s, 0, s.Size))
	if err != nil || crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)) == s.CRC {
		t.Fatalf("the damage goes out as it is: %v", err)
	}
}

func flipByte(t testing.TB, fsys disk.FS, name string, at int64) {
	t.Helper()
	f, err := fsys.Open(name, disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	var one [1]byte
	if _, err := f.ReadAt(one[:], at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 0x40
	if _, err := f.WriteAt(one[:], at); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// While others append, cuts one behind the other have every batch once.
func TestCutsWhileOthersAppend(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 16 << 10 })
	defer r.close()
	const total = 600
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for range total {
			p, err := r.log.Append(r.send.batch(t, 1, 200))
			if err == nil {
				err = p.Wait()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	news := make(chan struct{}, 1)
	defer r.log.Watch(news)()
	for next := uint64(0); next < total; {
		b, err := r.log.Backlog(next)
		if err != nil {
			t.Fatal(err)
		}
		if b.End == next {
			<-news
			continue
		}
		s, err := r.log.Cut(t.Context(), next, b.End, 3<<10)
		if err != nil || s.First != next || s.End <= next || s.End > r.log.Committed() {
			t.Fatalf("at %d: %+v, %v", next, s, err)
		}
		contents(t, s)
		next = s.End
	}
}

// Backlog tells what there is: the end, the age of the first batch exactly, and no less bytes than there are.
func TestBacklog(t *testing.T) {
	for _, cold := range []bool{false, true} {
		r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
		all := r.fill(150)
		if cold {
			r.log.giveUp(func() bool { return true })
		}
		total := int64(0)
		for i := len(all) - 1; i >= 0; i-- {
			b := all[i]
			total += int64(b.Len())
			got, err := r.log.Backlog(b.Base())
			if err != nil || got.End != r.log.Committed() || got.Oldest != b.AppendTime() || got.Bytes < total {
				t.Fatalf("cold %t, from %d: %+v, %v; appended at %d, %d bytes", cold, b.Base(), got, err, b.AppendTime(), total)
			}
			if got.Sealed == b.Base() {
				continue
			}
			inFile := int64(0)
			for _, later := range all[i:] {
				if later.End() <= got.Sealed {
					inFile += int64(later.Len())
				}
			}
			if got.Sealed <= b.Base() || got.SealedBytes < inFile {
				t.Fatalf("from %d: sealed %d, %d bytes, not %d", b.Base(), got.Sealed, got.SealedBytes, inFile)
			}
		}
		if got, err := r.log.Backlog(r.log.Committed()); err != nil || got.End != r.log.Committed() || got.Bytes != 0 || got.Oldest != 0 {
			t.Fatalf("at the end: %+v, %v", got, err)
		}
		r.close()
	}
}

// Behind a cut Backlog counts to the byte: of many partitions with little each, none may look as if it had much.
func TestBacklogIsExactBehindACut(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 1 << 20 })
	defer r.close()
	all := r.fill(100)
	for i := 0; i < len(all); i += 7 {
		from, to := all[i].Base(), all[min(i+6, len(all)-1)].End()
		if s, err := r.log.Cut(t.Context(), from, to, 1<<20); err != nil || s.End != to {
			t.Fatalf("%+v, %v", s, err)
		}
		want := int64(0)
		for _, b := range all {
			if b.Base() >= to {
				want += int64(b.Len())
			}
		}
		if b, err := r.log.Backlog(to); err != nil || b.Bytes != want || want > 0 && b.Oldest == 0 {
			t.Fatalf("behind %d: %+v, %v; there are %d bytes", to, b, err, want)
		}
	}
	end := r.log.Committed()
	r.mustPut(1, 100)
	b, err := r.log.Backlog(end)
	if last := batchesOf(t, r.log, end); err != nil || b.Bytes != int64(last[0].Len()) || b.Oldest != last[0].AppendTime() {
		t.Fatalf("behind everything: %+v, %v", b, err)
	}
}

// A cut that is full just where a file ends leaves no wrong place behind: the next one begins in the next file.
func TestCutFullAtTheEndOfAFile(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 8 << 10 })
	defer r.close()
	all := r.fill(150)
	var bounds []uint64
	for _, f := range r.log.files.list[1:] {
		bounds = append(bounds, f.Base)
	}
	for _, bound := range bounds {
		var from uint64
		bytes := int64(0)
		for i := len(all) - 1; i >= 0; i-- {
			if b := all[i]; b.End() <= bound && b.End() > bound-10 {
				from, bytes = b.Base(), bytes+int64(b.Len())
			}
		}
		s, err := r.log.Cut(t.Context(), from, r.log.Committed(), bytes)
		if err != nil || s.End != bound {
			t.Fatalf("from %d to %d: %+v, %v", from, bound, s, err)
		}
		checkCut(t, s, all, from)
		if s, err = r.log.Cut(t.Context(), bound, r.log.Committed(), 1); err != nil || s.First != bound {
			t.Fatalf("behind %d: %+v, %v", bound, s, err)
		}
	}
	if len(bounds) < 3 {
		t.Fatalf("only %d files", len(bounds))
	}
}
