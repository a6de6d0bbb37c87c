package pipe

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// readLines reads all lines; one that is too long is the text TOO LONG.
func readLines(t testing.TB, r io.Reader, limit int) []string {
	t.Helper()
	l := newLineReader(r, limit)
	var lines []string
	for {
		line, err := l.next()
		_, tooLong := errors.AsType[*tooLongError](err)
		switch {
		case errors.Is(err, io.EOF):
			return lines
		case tooLong:
			lines = append(lines, "TOO LONG")
		case err != nil:
			t.Fatal(err)
		default:
			lines = append(lines, string(line))
		}
		if int(l.line) != len(lines) {
			t.Fatalf("line %d has number %d", len(lines), l.line)
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 300<<10) // longer than the reader's buffer
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing":              {"", nil},
		"one empty":            {"\n", []string{""}},
		"empty ones":           {"\n\na\n\n", []string{"", "", "a", ""}},
		"last without newline": {"a\nb", []string{"a", "b"}},
		"carriage return kept": {"a\r\n", []string{"a\r"}},
		"any bytes":            {"\x00\xff\n\xfe", []string{"\x00\xff", "\xfe"}},
		"long":                 {long + "\nb\n", []string{long, "b"}},
		"long at the end":      {"a\n" + long, []string{"a", long}},
		"too long":             {"a\n" + strings.Repeat("x", 1<<20+1) + "\nb\n", []string{"a", "TOO LONG", "b"}},
		"too long at the end":  {"a\n" + strings.Repeat("x", 1<<20+1), []string{"a", "TOO LONG"}},
		"just fits":            {strings.Repeat("x", 1<<20) + "\n", []string{strings.Repeat("x", 1<<20)}},
		"just fits at the end": {strings.Repeat("x", 1<<20), []string{strings.Repeat("x", 1<<20)}},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(c.text), "in halves": iotest.HalfReader(strings.NewReader(c.text))} {
			got := readLines(t, r, 1<<20)
			if len(got) != len(c.want) {
				t.Fatalf("%s, %s: %d lines, want %d", name, how, len(got), len(c.want))
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("%s, %s: line %d has %d bytes, want %d", name, how, i, len(got[i]), len(c.want[i]))
				}
			}
		}
	}
}

// TestLinesAsSplit compares random texts with bytes.Split.
func TestLinesAsSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		text := make([]byte, rng.IntN(400<<10))
		every := 1 + rng.IntN(1+len(text))
		for i := range text {
			if text[i] = byte(rng.IntN(256)); text[i] == '\n' || rng.IntN(every) == 0 {
				text[i] = '\n'
			}
		}
		want := bytes.Split(text, []byte("\n"))
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		got := readLines(t, bytes.NewReader(text), 1<<20)
		if len(got) != len(want) {
			t.Fatalf("%d lines, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != string(want[i]) {
				t.Fatalf("line %d differs", i)
			}
		}
	}
}

func TestBrokenInputIsNoEnd(t *testing.T) {
	broken := errors.New("broken")
	l := newLineReader(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)), 100)
	if line, err := l.next(); err != nil || string(line) != "a" {
		t.Fatalf("%q, %v", line, err)
	}
	if line, err := l.next(); !errors.Is(err, broken) {
		t.Fatalf("half a line was taken for one: %q, %v", line, err)
	}
}

func BenchmarkLines(b *testing.B) {
	text := bytes.Repeat([]byte("some forty bytes of a line of a program\n"), 10_000)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		l := newLineReader(bytes.NewReader(text), 1<<20)
		for {
			if _, err := l.next(); err != nil {
				break
			}
		}
	}
}
