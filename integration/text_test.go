package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// longLine is what the corpus has to hold one of: several times what a buffer of a reader of lines usually is.
const longLine = 1 << 20

// corpus is real text: the files of the Go toolchain's sources, one after another, each line a message. Without
// DANUBE_FULL it is every twentieth file, and those with a long line.
func corpus(t testing.TB) []byte {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	every := 1
	if scaled(20) == 1 {
		every = 20
	}
	var all []byte
	n := 0
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		n++
		if n%every != 0 && (len(text) < longLine || longest(text) < longLine) {
			return nil
		}
		all = append(all, text...)
		if len(text) > 0 && text[len(text)-1] != '\n' {
			all = append(all, '\n')
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	foreign := 0
	for line := range bytes.Lines(all) {
		if !utf8.Valid(line) {
			foreign++
		}
	}
	if foreign == 0 || longest(all) < longLine {
		t.Fatalf("the corpus shows nothing: %d lines that are no UTF-8, the longest has %d bytes", foreign, longest(all))
	}
	t.Logf("%d lines, %d bytes, %d lines are not UTF-8, the longest has %d bytes", bytes.Count(all, []byte("\n")), len(all), foreign, longest(all))
	return all
}

func longest(text []byte) int {
	most := 0
	for line := range bytes.Lines(text) {
		most = max(most, len(line))
	}
	return most
}

// sameText names the first line that differs.
func sameText(t testing.TB, got, want []byte) {
	t.Helper()
	if bytes.Equal(got, want) {
		return
	}
	a, b := bytes.Split(got, []byte("\n")), bytes.Split(want, []byte("\n"))
	for i := range min(len(a), len(b)) {
		if !bytes.Equal(a[i], b[i]) {
			t.Fatalf("line %d of %d came back as %.80q, it was %.80q", i+1, len(b)-1, a[i], b[i])
		}
	}
	t.Fatalf("%d lines came back, there were %d", len(a)-1, len(b)-1)
}

func (b *broker) consumeText(topic string, lines int) []byte {
	b.t.Helper()
	return b.must(nil, "consume", topic, "--from", "earliest", "--count", strconv.Itoa(lines), "-o", "raw").stdout
}

// nothingBehind fails the test when the topic holds more than so many messages.
func (b *broker) nothingBehind(topic string, n int) {
	b.t.Helper()
	if next := b.describe(topic).Partitions[0].NextOffset; next != uint64(n) {
		b.t.Errorf("the next offset of %s is %d, %d messages were sent", topic, next, n)
	}
}

// TestTextByteForByte sends real text through the command line and compares what comes back: from a file, and from
// standard input without a newline at the end, where the output has one newline more.
func TestTextByteForByte(t *testing.T) {
	text := corpus(t)
	lines := bytes.Count(text, []byte("\n"))
	b := startBroker(t, "n1", options{})
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	said := b.must(nil, "produce", "text", "--file", file).stderr
	if want := fmt.Sprintf("sent %d, acknowledged %d, failed 0, offsets 0-%d", lines, lines, lines-1); !strings.Contains(said, want) {
		t.Fatalf("produce says %q, want %q", said, want)
	}
	sameText(t, b.consumeText("text", lines), text)
	b.nothingBehind("text", lines)

	b.must(bytes.NewReader(text[:len(text)-1]), "produce", "unended")
	sameText(t, b.consumeText("unended", lines), text)
	b.nothingBehind("unended", lines)

	// The same through a subscription, which acknowledges everything.
	got := b.must(nil, "consume", "text", "-s", "all", "--from", "earliest", "--count", strconv.Itoa(lines), "-o", "raw").stdout
	sameText(t, got, text)
	if s := b.describe("text").Subscriptions; len(s) != 1 || s[0].Partitions[0].Lag != 0 {
		t.Errorf("after all was consumed the subscription stands at %+v", s)
	}
	b.stop(20 * time.Second)
	b.start()
	sameText(t, b.consumeText("text", lines), text)
}

// ackLine is what produce -o json prints of each acknowledged line.
type ackLine struct {
	Line, Offset uint64
}

// TestTextSurvivesKills kills the broker ten times while the text is on its way: every line is acknowledged in the end,
// and stored exactly once and in order.
func TestTextSurvivesKills(t *testing.T) {
	const kills = 10
	text := corpus(t)
	parts := cut(text, 2*kills+1)
	b := startBroker(t, "n1", options{})
	in, feed := io.Pipe()
	defer feed.Close()
	p := b.command(in, "produce", "text", "-o", "json")
	write := func(part []byte) {
		t.Helper()
		if _, err := feed.Write(part); err != nil {
			t.Fatalf("produce takes no more lines (ended: %v): %v", p.ended(), err)
		}
	}
	fed, open := 0, 0
	for i := range kills {
		before := fed
		write(parts[2*i])
		fed += bytes.Count(parts[2*i], []byte("\n"))
		eventually(t, readyWithin, fmt.Sprintf("an acknowledgement after kill %d", i), func() bool { return p.printed() > before || p.ended() })
		write(parts[2*i+1])
		fed += bytes.Count(parts[2*i+1], []byte("\n"))
		if p.printed() < fed {
			open++
		}
		b.restart()
	}
	if open < kills/2 {
		t.Errorf("only %d of %d kills came while lines were on their way", open, kills)
	}
	write(parts[2*kills])
	feed.Close()
	if code, err := p.wait(2 * time.Minute); err != nil || code != 0 {
		t.Fatalf("produce ended with %d, %v", code, err)
	}
	lines := bytes.Count(text, []byte("\n"))
	checkAcks(t, p.output(), lines)
	sameText(t, b.consumeText("text", lines), text)
	b.nothingBehind("text", lines)
	if epoch := b.describe("text").Partitions[0].Epoch; epoch != kills+1 {
		t.Errorf("after %d kills the epoch is %d", kills, epoch)
	}
}

// checkAcks wants every line acknowledged once, in order, at dense offsets: the same machine restarts at the proven end.
func checkAcks(t testing.TB, output []string, lines int) {
	t.Helper()
	if len(output) != lines {
		t.Fatalf("%d lines were acknowledged, %d sent", len(output), lines)
	}
	for i, text := range output {
		var ack ackLine
		if err := json.Unmarshal([]byte(text), &ack); err != nil {
			t.Fatalf("acknowledgement %d is %q: %v", i, text, err)
		}
		if ack.Line != uint64(i+1) || ack.Offset != uint64(i) {
			t.Fatalf("acknowledgement %d is of line %d at offset %d", i, ack.Line, ack.Offset)
		}
	}
}

// cut divides text into n parts of about the same size, each of whole lines.
func cut(text []byte, n int) [][]byte {
	var parts [][]byte
	for ; n > 1; n-- {
		at := len(text) / n
		at += bytes.IndexByte(text[at:], '\n') + 1
		parts = append(parts, text[:at])
		text = text[at:]
	}
	return append(parts, text)
}

// TestTextLineTooLongFailsAlone names the line and sends the others.
func TestTextLineTooLongFailsAlone(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	text := "before\n" + strings.Repeat("x", 11<<20) + "\nbehind\n"
	r := b.run(strings.NewReader(text), "produce", "text", "-o", "json")
	if r.code != 1 || !strings.Contains(r.stderr, "danube: line 2: 11534336 bytes are more than a message may have") ||
		!strings.Contains(r.stderr, "sent 3, acknowledged 2, failed 1") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
	acks := bufio.NewScanner(bytes.NewReader(r.stdout))
	for _, want := range []ackLine{{1, 0}, {3, 1}} {
		var ack ackLine
		if !acks.Scan() || json.Unmarshal(acks.Bytes(), &ack) != nil || ack != want {
			t.Errorf("acknowledged %q, want line %d at offset %d", acks.Text(), want.Line, want.Offset)
		}
	}
	sameText(t, b.consumeText("text", 2), []byte("before\nbehind\n"))
}
