package segment

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// rewrite makes `go test -update` write the golden files anew.
var rewrite = flag.Bool("update", false, "rewrite the golden files")

// goldenSegment is the sealed segment of the golden files and of docs/format.md:
// two batches and a mark.
func goldenSegment(t testing.TB) *build {
	w := newBuild(t, testHeader())
	w.add(t, "hello")
	w.add(t, "two", "three")
	w.mark()
	return w
}

// dumped is bytes as hex, 16 to a line.
func dumped(data []byte) string {
	var out strings.Builder
	for len(data) > 0 {
		n := min(16, len(data))
		text := hex.EncodeToString(data[:n])
		for i := 0; i < len(text); i += 2 {
			if i > 0 {
				out.WriteByte(' ')
			}
			out.WriteString(text[i : i+2])
		}
		out.WriteByte('\n')
		data = data[n:]
	}
	return out.String()
}

func undumped(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// goldenParts are the parts of the golden segment by the name of their file.
func goldenParts(t testing.TB) map[string][]byte {
	w := goldenSegment(t)
	data := w.seal()
	_, n, err := ReadHeader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"header-v1.hex": data[:n], "batches-v1.hex": data[n:len(w.data)], "footer-v1.hex": data[len(w.data):],
	}
}

func TestGoldenBytes(t *testing.T) {
	for name, data := range goldenParts(t) {
		path := filepath.Join("testdata", name)
		if *rewrite {
			if err := os.WriteFile(path, []byte(dumped(data)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		golden, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := dumped(data); got != string(golden) {
			t.Errorf("%s has changed:\n got\n%s\nwant\n%s", name, got, golden)
		}
	}
}

// TestGoldenSegmentIsRead reads the bytes on disk, not what this version writes.
func TestGoldenSegmentIsRead(t *testing.T) {
	var data []byte
	for _, name := range []string{"header-v1.hex", "batches-v1.hex", "footer-v1.hex"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, undumped(t, string(text))...)
	}
	rep, err := Verify(bytes.NewReader(data), int64(len(data)))
	if err != nil || len(rep.Problems) > 0 {
		t.Fatalf("verified with %v, %v", rep.Problems, err)
	}
	if rep.Header != testHeader() {
		t.Errorf("header %+v", rep.Header)
	}
	want := Facts{
		HeaderCRC: rep.HeaderCRC, DataCRC: batch.Checksum(data[:rep.Footer.DataEnd]), DataEnd: rep.Facts.DataEnd,
		First: 100, End: 103, FirstTime: 1_700_000_001_000, LastTime: 1_700_000_001_010, Batches: 2, Messages: 3, Marks: 1,
	}
	if rep.Footer.Facts != want {
		t.Errorf("facts %+v, want %+v", rep.Footer.Facts, want)
	}
	table, err := rep.Footer.Producers()
	if err != nil {
		t.Fatal(err)
	}
	s := table.Find(42, 5)
	if s == nil || s.Last != 102 || s.Len() != 2 || s.Sent(1).Base != 101 || s.Sent(1).Count != 2 {
		t.Errorf("session %+v", s)
	}
}

// TestDocumentHoldsTheGoldenBytes: every example of docs/format.md that names a
// golden file shows the bytes of that file.
func TestDocumentHoldsTheGoldenBytes(t *testing.T) {
	text, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range goldenParts(t) {
		_, after, ok := strings.Cut(string(text), "`storage/segment/testdata/"+name+"`")
		if !ok {
			t.Errorf("docs/format.md does not name %s", name)
			continue
		}
		_, after, _ = strings.Cut(after, "```\n")
		block, _, _ := strings.Cut(after, "```")
		var shown strings.Builder
		for line := range strings.Lines(block) {
			bytes, _, _ := strings.Cut(line, "|") // behind the bar stands what they mean
			shown.WriteString(bytes)
		}
		if !bytes.Equal(undumped(t, shown.String()), data) {
			t.Errorf("docs/format.md shows other bytes than %s", name)
		}
	}
}
