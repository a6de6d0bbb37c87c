package offline

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/segment"
)

// noon is when everything here was written, in milliseconds.
func noon() int64 { return time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC).UnixMilli() }

// writeSegment writes a segment of three batches with two messages each, from base on, and returns its name.
func writeSegment(t *testing.T, dir string, base uint64, sealed bool) string {
	t.Helper()
	return writeLyingSegment(t, dir, base, sealed, 0)
}

// writeLyingSegment is writeSegment with a footer that counts so many messages too many.
func writeLyingSegment(t *testing.T, dir string, base uint64, sealed bool, lie uint64) string {
	t.Helper()
	h := segment.Header{Topic: "/default/orders", TopicID: [16]byte{1}, Partition: 2, Epoch: 1, FirstEpoch: 1, Base: base, Created: noon()}
	data, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := segment.NewSummary(data, base)
	var producers segment.Producers
	for i := range uint64(3) {
		var w batch.Builder
		for range 2 {
			w.Add(&batch.Message{Payload: []byte("hello"), PublishTime: noon()})
		}
		at := len(data)
		if data, err = w.AppendTo(data, batch.None, batch.Identity{Producer: 7, Session: 8, Sequence: i * 2}); err != nil {
			t.Fatal(err)
		}
		b := batch.Batch(data[at:])
		b.Stamp(batch.Stamp{Base: base + i*2, Epoch: 1, AppendTime: noon()})
		sum.Add(b)
		producers.Add(b)
	}
	if sealed {
		footer := sum.Footer()
		footer.Messages += lie
		data = footer.Append(data, &producers)
	}
	name := filepath.Join(dir, segment.FormatName(base, 1))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestDump holds the JSON of a dump to what programs were promised, and the end of it to what a person is told.
func dumpFile(w io.Writer, name string, asJSON bool) error {
	s, err := openFile(name)
	if err != nil {
		return err
	}
	return errors.Join(s.Dump(w, AllPieces, asJSON), s.Close())
}

func TestDump(t *testing.T) {
	file := writeSegment(t, t.TempDir(), 10, true)
	var got, text bytes.Buffer
	if err := dumpFile(&got, file, true); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join("testdata", "segment-dump.json"))
	if err != nil {
		t.Fatal(err)
	}
	if s := strings.ReplaceAll(got.String(), filepath.Dir(file), "DIR"); s != string(want) {
		t.Errorf("got\n%swant\n%s", s, want)
	}
	if err := dumpFile(&text, file, false); err != nil || !strings.Contains(text.String(), "sealed: 6 messages in 3 batches, offsets 10-15") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestDumpOfSomethingElse: what holds nothing of a segment is said to be none, whatever the output; a segment
// that has lost its header is still dumped.
func TestDumpOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	segment := writeSegment(t, dir, 0, false)
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[20] ^= 1
	for name, c := range map[string]struct {
		data []byte
		none bool
	}{
		"text":            {[]byte(strings.Repeat("no segment at all\n", 300)), true},
		"empty":           {nil, true},
		"zeros":           {make([]byte, 9000), true},
		"header is wrong": {data, false},
	} {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, c.data, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			if err := dumpFile(&out, file, asJSON); (err != nil) != c.none || c.none && !strings.Contains(err.Error(), "not a segment") {
				t.Errorf("%s, JSON %v: %v\n%s", name, asJSON, err, out.String())
			}
		}
	}
}

// TestWALVerifyNamesTheJournal: one that was overwritten is named, also after a clean stop, when nothing in it is needed.
func TestWALVerifyNamesTheJournal(t *testing.T) {
	dir := t.TempDir()
	store, err := storage.Open(t.Context(), storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	writeSegment(t, filepath.Join(dir, "wal", "0100", "2"), 0, true)
	journal := filepath.Join(dir, "journal")
	for _, c := range []struct {
		data []byte
		bad  bool
	}{{nil, false}, {[]byte("something else"), true}} {
		if c.data != nil {
			if err := os.WriteFile(journal, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if bad, text := verified(t, dir); bad != c.bad || strings.Contains(text, journal) != bad {
			t.Errorf("something is wrong: %v, want %v\n%s", bad, c.bad, text)
		}
	}
}

// TestDamageIsFound: a whole segment is whole, a flipped byte is found.
func TestDamageIsFound(t *testing.T) {
	file := writeSegment(t, t.TempDir(), 0, true)
	if rep, err := verifyFile(file); err != nil || len(rep.Problems) > 0 || !rep.Sealed || rep.Facts.Messages != 6 {
		t.Fatalf("a whole segment: %v, %+v", err, rep)
	}
	flip(t, file, 3)
	var text bytes.Buffer
	rep, err := verifyFile(file)
	if err != nil || len(rep.Problems) == 0 {
		t.Fatalf("a flipped byte: %v, %+v", err, rep)
	}
	if err := rep.Print(&text); err != nil || !strings.Contains(text.String(), rep.Problems[0].What) {
		t.Errorf("%v, prints\n%s", err, text.String())
	}
}

// verified checks the log below dir and reports whether something is wrong with it, and what is printed.
func verified(t *testing.T, dir string) (bad bool, text string) {
	t.Helper()
	done, total := int64(-1), int64(0)
	rep, err := VerifyLog(dir, func(d, of int64) { done, total = d, of })
	if err != nil {
		t.Fatal(err)
	}
	if done != rep.Bytes || done > total {
		t.Errorf("read %d of %d bytes, and the report has %d", done, total, rep.Bytes)
	}
	var b bytes.Buffer
	if err := rep.Print(&b); err != nil {
		t.Fatal(err)
	}
	return len(rep.Problems) > 0, b.String()
}

func TestWALVerify(t *testing.T) {
	for name, c := range map[string]struct {
		hurt func(t *testing.T, first, last string)
		bad  bool
		says string // in the output
	}{
		"whole": {func(*testing.T, string, string) {}, false, "no problems"},
		"torn end of the last file": {func(t *testing.T, _, last string) {
			resize(t, last, -3)
		}, false, "ends torn"},
		"zeros behind the last file": {func(t *testing.T, _, last string) { resize(t, last, 4096) }, false, "ends torn"},
		"damage in the first file": {func(t *testing.T, first, _ string) {
			flip(t, first, 3)
		}, true, "00000000000000000000-"},
		"damage in the last file": {func(t *testing.T, _, last string) {
			flip(t, last, 2)
		}, true, "00000000000000000006-"},
		"footer of the first file cut": {func(t *testing.T, first, _ string) { resize(t, first, -3) }, false, "of an earlier run ends torn"},
		"batch of the first file cut":  {func(t *testing.T, first, _ string) { resize(t, first, -250) }, true, "4-5"},
		"empty file":                   {func(t *testing.T, first, _ string) { resize(t, first, -1<<20) }, true, "00000000000000000000-"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			partition := filepath.Join(dir, "wal", "0100", "2")
			first, last := writeSegment(t, partition, 0, true), writeSegment(t, partition, 6, false)
			c.hurt(t, first, last)
			if bad, text := verified(t, dir); bad != c.bad || !strings.Contains(text, c.says) {
				t.Errorf("something is wrong: %v, want %v\n%s", bad, c.bad, text)
			}
		})
	}
}

// flip changes a bit of a file, at a part of its length.
func flip(t *testing.T, name string, part int) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/part] ^= 1
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// resize makes a file longer with zeros, or shorter, at least empty.
func resize(t *testing.T, name string, by int64) {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, max(0, info.Size()+by)); err != nil {
		t.Fatal(err)
	}
}

// TestWALVerifyNamesMissingFile: within a run that is damage; between two runs offsets may be left out.
func TestWALVerifyNamesMissingFile(t *testing.T) {
	dir := t.TempDir()
	writeSegment(t, filepath.Join(dir, "0"), 0, true)
	writeSegment(t, filepath.Join(dir, "0"), 12, true)
	if bad, text := verified(t, dir); !bad || !strings.Contains(text, "6-11") {
		t.Errorf("something is wrong: %v\n%s", bad, text)
	}
}

// TestFooterThatLiesIsNoTornEnd: the file is sealed, so what is wrong at its end is no trace of a crash.
func TestFooterThatLiesIsNoTornEnd(t *testing.T) {
	dir := t.TempDir()
	writeLyingSegment(t, filepath.Join(dir, "0"), 0, true, 1)
	if bad, text := verified(t, dir); !bad {
		t.Errorf("nothing is wrong:\n%s", text)
	}
}
