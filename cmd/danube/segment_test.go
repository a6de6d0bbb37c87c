package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/segment"
)

// writeSegment writes a segment of three batches with two messages each, from base on, and returns its name.
func writeSegment(t *testing.T, dir string, base uint64, sealed bool) string {
	t.Helper()
	return writeLyingSegment(t, dir, base, sealed, 0)
}

// writeLyingSegment is writeSegment with a footer that counts so many messages too many.
func writeLyingSegment(t *testing.T, dir string, base uint64, sealed bool, lie uint64) string {
	t.Helper()
	h := segment.Header{Topic: "/default/orders", TopicID: [16]byte{1}, Partition: 2, Epoch: 1, FirstEpoch: 1, Base: base, Created: noon().UnixMilli()}
	data, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := segment.NewSummary(data, base)
	var producers segment.Producers
	for i := range uint64(3) {
		var w batch.Builder
		for range 2 {
			w.Add(&batch.Message{Payload: []byte("hello"), PublishTime: noon().UnixMilli()})
		}
		at := len(data)
		if data, err = w.AppendTo(data, batch.None, batch.Identity{Producer: 7, Session: 8, Sequence: i * 2}); err != nil {
			t.Fatal(err)
		}
		b := batch.Batch(data[at:])
		b.Stamp(batch.Stamp{Base: base + i*2, Epoch: 1, AppendTime: noon().UnixMilli()})
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

func TestSegmentDump(t *testing.T) {
	file := writeSegment(t, t.TempDir(), 10, true)
	s := newShell()
	if code := s.call(t, "segment", "dump", file, "-o", "json"); code != fail.Done {
		t.Fatalf("exit code %d: %s", code, s.err.String())
	}
	var got struct {
		Stretches []segmentStretch
		Header    *segmentHeader
		Footer    *segmentFacts
	}
	if err := json.Unmarshal(s.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Stretches) != 4 || got.Stretches[1].Kind != "batch" || got.Stretches[1].From != 12 || got.Stretches[3].Kind != "footer" ||
		got.Header == nil || got.Header.Topic != "/default/orders" || got.Footer == nil || got.Footer.Messages != 6 {
		t.Errorf("got %s", s.out.String())
	}
	golden(t, "segment-dump.json", []byte(strings.ReplaceAll(s.out.String(), filepath.Dir(file), "DIR")))
	text := newShell()
	if code := text.call(t, "segment", "dump", file); code != fail.Done || !strings.Contains(text.out.String(), "sealed: 6 messages in 3 batches, offsets 10-15") {
		t.Errorf("exit code %d: %s", code, text.out.String())
	}
}

// TestSegmentDumpOfSomethingElse: what holds nothing of a segment is said to be none, whatever the output; a segment
// that has lost its header is still dumped.
func TestSegmentDumpOfSomethingElse(t *testing.T) {
	dir := t.TempDir()
	segment := writeSegment(t, dir, 0, false)
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[20] ^= 1
	for name, c := range map[string]struct {
		data []byte
		code int
	}{
		"text":            {[]byte(strings.Repeat("no segment at all\n", 300)), fail.Failed},
		"empty":           {nil, fail.Failed},
		"zeros":           {make([]byte, 9000), fail.Failed},
		"header is wrong": {data, fail.Done},
	} {
		file := filepath.Join(dir, "file")
		if err := os.WriteFile(file, c.data, 0o644); err != nil {
			t.Fatal(err)
		}
		for _, output := range []string{"text", "json"} {
			s := newShell()
			if code := s.call(t, "segment", "dump", file, "-o", output); code != c.code || strings.Contains(s.err.String(), "not a segment") != (code == fail.Failed) {
				t.Errorf("%s as %s: exit code %d, want %d\n%s%s", name, output, code, c.code, s.out.String(), s.err.String())
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
		code int
	}{{nil, fail.Done}, {[]byte("something else"), fail.Failed}} {
		if c.data != nil {
			if err := os.WriteFile(journal, c.data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		s := newShell()
		if code := s.call(t, "wal", "verify", dir); code != c.code || strings.Contains(s.out.String(), journal) != (code == fail.Failed) {
			t.Errorf("exit code %d, want %d\n%s%s", code, c.code, s.out.String(), s.err.String())
		}
	}
}

// TestDamageIsFound: a whole segment is whole, a flipped byte is found and makes the exit code 1, whatever the output.
func TestDamageIsFound(t *testing.T) {
	for _, output := range []string{"text", "json"} {
		file := writeSegment(t, t.TempDir(), 0, true)
		s := newShell()
		if code := s.call(t, "segment", "verify", file, "-o", output); code != fail.Done {
			t.Fatalf("a whole segment: exit code %d\n%s%s", code, s.out.String(), s.err.String())
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/3] ^= 1
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		s = newShell()
		if code := s.call(t, "segment", "verify", file, "-o", output); code != fail.Failed || !strings.Contains(s.err.String(), "problem") {
			t.Errorf("a flipped byte: exit code %d\n%s%s", code, s.out.String(), s.err.String())
		}
	}
}

func TestWALVerify(t *testing.T) {
	for name, c := range map[string]struct {
		hurt func(t *testing.T, first, last string)
		code int
		says string // in the output
	}{
		"whole": {func(*testing.T, string, string) {}, fail.Done, "no problems"},
		"torn end of the last file": {func(t *testing.T, _, last string) {
			resize(t, last, -3)
		}, fail.Done, "ends torn"},
		"zeros behind the last file": {func(t *testing.T, _, last string) { resize(t, last, 4096) }, fail.Done, "ends torn"},
		"damage in the first file": {func(t *testing.T, first, _ string) {
			data, err := os.ReadFile(first)
			if err != nil {
				t.Fatal(err)
			}
			data[len(data)/3] ^= 1
			if err := os.WriteFile(first, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}, fail.Failed, "00000000000000000000-"},
		"footer of the first file cut": {func(t *testing.T, first, _ string) { resize(t, first, -3) }, fail.Done, "of an earlier run ends torn"},
		"batch of the first file cut":  {func(t *testing.T, first, _ string) { resize(t, first, -250) }, fail.Failed, "4-5"},
		"empty file":                   {func(t *testing.T, first, _ string) { resize(t, first, -1<<20) }, fail.Failed, "00000000000000000000-"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			partition := filepath.Join(dir, "wal", "0100", "2")
			first, last := writeSegment(t, partition, 0, true), writeSegment(t, partition, 6, false)
			c.hurt(t, first, last)
			s := newShell()
			if code := s.call(t, "wal", "verify", dir); code != c.code || !strings.Contains(s.out.String(), c.says) {
				t.Errorf("exit code %d, want %d\n%s%s", code, c.code, s.out.String(), s.err.String())
			}
		})
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
	s := newShell()
	if code := s.call(t, "wal", "verify", dir); code != fail.Failed || !strings.Contains(s.out.String(), "6-11") {
		t.Errorf("exit code %d\n%s", code, s.out.String())
	}
}

// TestFooterThatLiesIsNoTornEnd: the file is sealed, so what is wrong at its end is no trace of a crash.
func TestFooterThatLiesIsNoTornEnd(t *testing.T) {
	dir := t.TempDir()
	writeLyingSegment(t, filepath.Join(dir, "0"), 0, true, 1)
	s := newShell()
	if code := s.call(t, "wal", "verify", dir); code != fail.Failed {
		t.Errorf("exit code %d\n%s", code, s.out.String())
	}
}
