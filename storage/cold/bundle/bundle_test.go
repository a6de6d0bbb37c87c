package bundle

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// rewrite makes `go test -update` write the golden file anew.
var rewrite = flag.Bool("update", false, "rewrite the golden files")

func id(first byte) (a [16]byte) {
	for i := range a {
		a[i] = first + byte(i)
	}
	return a
}

// golden is the index of the golden file and of docs/format.md, and the bytes it stands behind.
func golden() (Index, []byte) {
	return Index{
		Cluster: id(0x10), Store: id(0x30), Incarnation: 12, Number: 345, Created: 1_700_000_000_250,
		Pieces: []Piece{
			{Topic: id(0x50), Partition: 3, CRC: 0xe3069283, Start: 100, End: 103, Epoch: 1<<48 | 7, Position: 0, Bytes: 598},
			{Topic: id(0x70), Partition: 0, CRC: 0x01020304, Start: 0, End: 50, Epoch: 1<<48 | 2, Position: 598, Bytes: 4096},
		},
	}, make([]byte, 598+4096)
}

func dumped(data []byte) string {
	var out strings.Builder
	for len(data) > 0 {
		n := min(16, len(data))
		for i, b := range data[:n] {
			if i > 0 {
				out.WriteByte(' ')
			}
			out.WriteString(hex.EncodeToString([]byte{b}))
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

const goldenFile = "cut-v1.hex"

func TestGoldenBytes(t *testing.T) {
	x, behind := golden()
	path := filepath.Join("testdata", goldenFile)
	if *rewrite {
		if err := os.WriteFile(path, []byte(dumped(x.Append(nil))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := dumped(x.Append(nil)); got != string(text) {
		t.Errorf("%s has changed:\n got\n%s\nwant\n%s", path, got, text)
	}
	object := append(behind, undumped(t, string(text))...)
	read, err := Read(bytes.NewReader(object), int64(len(object)))
	if err != nil || !reflect.DeepEqual(read, x) {
		t.Errorf("read %+v, %v; want %+v", read, err, x)
	}
}

// The example of docs/format.md shows the bytes of the golden file.
func TestDocumentHoldsTheGoldenBytes(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(doc), "`storage/cold/bundle/testdata/"+goldenFile+"`")
	if !ok {
		t.Fatal("docs/format.md does not name it")
	}
	_, after, _ = strings.Cut(after, "```\n")
	block, _, _ := strings.Cut(after, "```")
	var shown strings.Builder
	for line := range strings.Lines(block) {
		b, _, _ := strings.Cut(line, "|") // behind the bar stands what they mean
		shown.WriteString(b)
	}
	x, _ := golden()
	if !bytes.Equal(undumped(t, shown.String()), x.Append(nil)) {
		t.Error("docs/format.md shows other bytes")
	}
}

// Every flipped bit and every cut of an object is an error, never another index.
func TestDamageIsSeen(t *testing.T) {
	x, behind := golden()
	object := x.Append(behind)
	for at := len(behind); at < len(object); at++ {
		for bit := range 8 {
			object[at] ^= 1 << bit
			if _, err := Read(bytes.NewReader(object), int64(len(object))); err == nil {
				t.Fatalf("bit %d of byte %d is turned and nobody sees it", bit, at)
			}
			object[at] ^= 1 << bit
		}
	}
	for size := range len(object) {
		if _, err := Read(bytes.NewReader(object[:size]), int64(size)); err == nil {
			t.Fatalf("%d of %d bytes are read as a whole", size, len(object))
		}
	}
}

// A newer format is refused with both versions named; a rotten version number is damage.
func TestNewerVersion(t *testing.T) {
	x, behind := golden()
	b := x.Append(nil)
	b[8] = 2
	_, err := Read(bytes.NewReader(append(behind, b...)), int64(len(behind)+len(b)))
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("a rotten version: %v", err)
	}
	_, err = Read(bytes.NewReader(append(behind, mended(b)...)), int64(len(behind)+len(b)))
	var newer *VersionError
	if !errors.As(err, &newer) || newer.Found != 2 || newer.Known != 1 {
		t.Errorf("a newer version: %v", err)
	}
}

// An index longer than the first read is read whole.
func TestManyPieces(t *testing.T) {
	x, _ := golden()
	first := x.Pieces[0]
	x.Pieces = nil
	for n := range 5000 {
		p := first
		p.Partition, p.Position, p.Bytes = uint32(n), int64(n), 1
		x.Pieces = append(x.Pieces, p)
	}
	object := x.Append(make([]byte, 5000))
	read, err := Read(bytes.NewReader(object), int64(len(object)))
	if err != nil || !reflect.DeepEqual(read, x) {
		t.Fatalf("%d pieces, %v", len(read.Pieces), err)
	}
}

// mended is an index whose frame holds: magic, length and CRC.
func mended(b []byte) []byte {
	b = bytes.Clone(b)
	if len(b) < smallest {
		return b
	}
	copy(b, magic)
	end := len(b) - trailer
	binary.LittleEndian.PutUint32(b[end:], uint32(len(b)))
	binary.LittleEndian.PutUint32(b[end+4:], Checksum(b[:end+4]))
	copy(b[end+8:], closingMagic)
	return b
}

// FuzzRead: what is read is what would be written; nothing is allocated that a count claims.
func FuzzRead(f *testing.F) {
	x, behind := golden()
	f.Add(x.Append(nil), uint16(len(behind)))
	x.Pieces = nil
	f.Add(x.Append(nil), uint16(0))
	f.Fuzz(func(t *testing.T, b []byte, behind uint16) {
		b = mended(b)
		if len(b) > 10 {
			b[8], b[9] = version, 0
			b = mended(b)
		}
		object := append(make([]byte, behind), b...)
		x, err := Read(bytes.NewReader(object), int64(len(object)))
		if err != nil {
			return
		}
		if again := x.Append(nil); len(again) != len(b) || len(b) > 12 && b[10] == 0 && b[11] == 0 && !bytes.Equal(again, b) {
			t.Fatalf("%x was read, %x would be written", b, again)
		}
	})
}
