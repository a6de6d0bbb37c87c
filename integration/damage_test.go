package integration

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// segments are the segment files of a data directory, in the order of offsets.
func segments(t testing.TB, dir string) []string {
	t.Helper()
	all := filesUnder(t, dir, func(path string, _ int64) bool { return filepath.Ext(path) == ".seg" })
	slices.Sort(all)
	for i := range all {
		all[i] = filepath.Join(dir, all[i])
	}
	return all
}

// inSegments finds the segment, and the position in it, of the payload of a numbered message.
func inSegments(t testing.TB, dir string, i, size int) (path string, at int64) {
	t.Helper()
	for _, path := range segments(t, dir) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(text, numbered(i, size)); at >= 0 {
			return path, int64(at)
		}
	}
	t.Fatalf("no segment holds message %d", i)
	return "", 0
}

// kept300 makes a topic of 300 messages in several segments, each message a batch of its own, beside an untouched topic,
// and stops the broker.
func kept300(t testing.TB) *broker {
	t.Helper()
	b := startBroker(t, "n1", options{env: []string{"DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB", "DANUBE_SUBSCRIPTION_GAP_WAIT=1s"}})
	sendEach(t, b.produce("hurt"), 0, 300, sizeKept)
	sendEach(t, b.produce("whole"), 0, 50, sizeKept)
	_, err := b.dial().Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "empty", Config: protocol.TopicConfig{Partitions: 1}})
	if err != nil {
		t.Fatal(err)
	}
	b.stop(20 * time.Second)
	return b
}

// consumeHurt consumes to the end through a new subscription and returns the offsets and gaps it was told of.
func consumeHurt(t testing.TB, b *broker, last uint64) (offsets []uint64, gaps []client.GapError) {
	t.Helper()
	told := make(chan client.GapError, 100)
	k, err := b.dial().Consumer(t.Context(), "hurt", client.ConsumerConfig{
		Subscription: "s", From: protocol.Position{Kind: protocol.Earliest}, OnGap: func(g client.GapError) { told <- g }})
	if err != nil {
		t.Fatal(err)
	}
	for {
		m, err := k.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, m.Offset)
		if err := k.AckConfirmed(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if m.Offset == last {
			break
		}
	}
	for len(told) > 0 {
		gaps = append(gaps, <-told)
	}
	return offsets, gaps
}

// flawless wants the other topics untouched by the damage of one.
func flawless(t testing.TB, b *broker) {
	t.Helper()
	b.holds("whole", 50, sizeKept)
	b.holds("empty", 0, sizeKept)
	if r := b.run(nil, "topic", "verify", "whole"); r.code != 0 {
		t.Errorf("verify of the whole topic: %s%s", r.stdout, r.stderr)
	}
}

// TestDamageFlippedBit flips one bit of a closed segment: that message is named by file and position, the others are
// served, nothing is cut, lag reaches zero and says what was skipped (A2, A10).
func TestDamageFlippedBit(t *testing.T) {
	t.Parallel()
	b := kept300(t)
	path, at := inSegments(t, b.dir, 150, sizeKept)
	if path == segments(t, b.dir)[len(segments(t, b.dir))-1] {
		t.Fatal("message 150 lies in the last segment")
	}
	if err := flipBit(path, (at+100)*8); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.holds("hurt", 300, sizeKept, 150)
	if next := b.describe("hurt").Partitions[0].NextOffset; next != 300 {
		t.Errorf("next offset is %d", next)
	}
	r := b.run(nil, "topic", "verify", "hurt", "-o", "json")
	if r.code != 1 || !strings.Contains(string(r.stdout), path) || !strings.Contains(string(r.stdout), `"from": 150`) {
		t.Errorf("verify ends with %d and says %s%s", r.code, r.stdout, r.stderr)
	}
	r = b.run(nil, "segment", "verify", path)
	if r.code != 1 || !strings.Contains(string(r.stdout)+r.stderr, "150") {
		t.Errorf("segment verify ends with %d and says %s%s", r.code, r.stdout, r.stderr)
	}
	offsets, gaps := consumeHurt(t, b, 299)
	if len(offsets) != 299 || slices.Contains(offsets, 150) {
		t.Errorf("%d messages were consumed", len(offsets))
	}
	if len(gaps) != 1 || gaps[0].From != 150 || gaps[0].To != 151 || gaps[0].Status != "damaged" {
		t.Errorf("the consumer was told of %+v", gaps)
	}
	p := b.describe("hurt").Subscriptions[0].Partitions[0]
	if p.Lag != 0 || p.Skipped != 1 {
		t.Errorf("lag %d, skipped %d", p.Lag, p.Skipped)
	}
	if text := string(b.must(nil, "topic", "describe", "hurt").stdout); !strings.Contains(text, "DAMAGED") || !strings.Contains(text, filepath.Base(path)) {
		t.Errorf("describe does not show the damage:\n%s", text)
	}
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, numbered(149, sizeKept)) || !bytes.Contains(text, numbered(151, sizeKept)) {
		t.Errorf("the damaged file was not kept as it was: %v", err)
	}
	flawless(t, b)
}

// TestDamageWholeSegment fills a closed segment with zeros behind its header (A10).
func TestDamageWholeSegment(t *testing.T) {
	t.Parallel()
	b := kept300(t)
	path, _ := inSegments(t, b.dir, 150, sizeKept)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := zeroFill(path, 200, info.Size()-200); err != nil {
		t.Fatal(err)
	}
	b.start()
	offsets, gaps := consumeHurt(t, b, 299)
	skipped := uint64(0)
	for _, g := range gaps {
		skipped += g.To - g.From
	}
	if skipped == 0 || uint64(len(offsets))+skipped != 300 || slices.Contains(offsets, 150) {
		t.Errorf("%d consumed, gaps %+v", len(offsets), gaps)
	}
	if p := b.describe("hurt").Subscriptions[0].Partitions[0]; p.Lag != 0 || p.Skipped != skipped {
		t.Errorf("lag %d, skipped %d, want 0 and %d", p.Lag, p.Skipped, skipped)
	}
	flawless(t, b)
}

// TestDamageMissingSegment removes a file out of the middle: the range is ORPHANED, new messages go on, a consumer waits
// gap_wait and passes it with a notice; the other topic is untouched (A16).
func TestDamageMissingSegment(t *testing.T) {
	t.Parallel()
	b := kept300(t)
	path, _ := inSegments(t, b.dir, 150, sizeKept)
	if err := os.Rename(path, filepath.Join(t.TempDir(), "aside")); err != nil {
		t.Fatal(err)
	}
	b.start()
	var lost protocol.RangeDescription
	for _, r := range b.describe("hurt").Partitions[0].Ranges {
		if r.Status == "ORPHANED" {
			lost = r
		}
	}
	if lost.Start > 150 || lost.End <= 150 || lost.End > 299 {
		t.Fatalf("no orphaned range holds offset 150: %+v", b.describe("hurt").Partitions[0].Ranges)
	}
	if text := string(b.must(nil, "topic", "describe", "hurt").stdout); !strings.Contains(text, "ORPHANED") {
		t.Errorf("describe does not show the range:\n%s", text)
	}
	if first := sendEach(t, b.produce("hurt"), 300, 5, sizeKept); first < 300 {
		t.Errorf("a new message got offset %d", first)
	}
	from := time.Now()
	offsets, gaps := consumeHurt(t, b, b.describe("hurt").Partitions[0].NextOffset-1)
	if took := time.Since(from); took < time.Second {
		t.Errorf("the gap was passed after %v, gap_wait is 1s", took)
	}
	if len(gaps) != 1 || gaps[0].From != lost.Start || gaps[0].To != lost.End || gaps[0].Status != "damaged" {
		t.Errorf("the consumer was told of %+v, missing are %d to %d", gaps, lost.Start, lost.End)
	}
	if want := 305 - int(lost.End-lost.Start); len(offsets) != want {
		t.Errorf("%d messages were consumed, want %d", len(offsets), want)
	}
	flawless(t, b)
}

// TestDamageSegmentComesBack puts a missing file back before the next start: what was orphaned is served again.
func TestDamageSegmentComesBack(t *testing.T) {
	t.Parallel()
	b := kept300(t)
	path, _ := inSegments(t, b.dir, 150, sizeKept)
	aside := filepath.Join(t.TempDir(), "aside")
	if err := os.Rename(path, aside); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.stop(20 * time.Second)
	text, err := os.ReadFile(aside)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o640); err != nil {
		t.Fatal(err)
	}
	b.start()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, text) {
		t.Errorf("the file that came back was changed: %v", err)
	}
	flawless(t, b)
}

// TestDamageHints cuts, empties and removes the index files that lie beside segments, and cuts the newest segment behind
// its header: every start is over within seconds and nothing that can be proven is lost (A4).
func TestDamageHints(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{env: []string{"DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB"}})
	sendEach(t, b.produce("hurt"), 0, 300, sizeKept)
	b.restart() // sealed only when a new epoch begins
	sendEach(t, b.produce("hurt"), 300, 1, sizeKept)
	b.kill()
	half := func(path string) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	}
	for name, hurt := range map[string]func(path string) error{
		"emptied": func(path string) error { return os.Truncate(path, 0) }, "cut": half, "removed": os.Remove,
		"of another": func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte{1}, 4096), 0o640) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			copyTree(t, b.dir, dir)
			hints := filesUnder(t, dir, func(path string, _ int64) bool { return filepath.Ext(path) == ".idx" })
			for _, path := range hints {
				if err := hurt(filepath.Join(dir, path)); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d index files", len(hints))
			again := startBroker(t, "hints", options{dir: dir})
			again.holds("hurt", 301, sizeKept)
			if r := again.run(nil, "topic", "verify", "hurt"); r.code != 0 {
				t.Errorf("verify: %s%s", r.stdout, r.stderr)
			}
		})
	}
}

// TestDamageLastSegmentCut removes the newest segment of a stopped broker, or leaves only its head: acknowledged messages
// are gone, which is declared; what is left is served, and no offset is given twice (A4, R10).
func TestDamageLastSegmentCut(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(path string) error{
		"removed": os.Remove, "head only": func(path string) error { return os.Truncate(path, 150) },
		"emptied": func(path string) error { return os.Truncate(path, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := kept300(t)
			path, _ := inSegments(t, b.dir, 299, sizeKept)
			if err := hurt(path); err != nil {
				t.Fatal(err)
			}
			b.start()
			got, _ := b.contents("hurt")
			left := uint64(len(got))
			for o := range left {
				if got[o] != string(numbered(int(o), sizeKept)) {
					t.Fatalf("offset %d is %.30q", o, got[o])
				}
			}
			if left == 0 || left >= 300 {
				t.Fatalf("%d messages are left", left)
			}
			if first := sendEach(t, b.produce("hurt"), 300, 3, sizeKept); first < 300 {
				t.Fatalf("offset %d was given twice", first)
			}
			named := false
			for _, r := range b.describe("hurt").Partitions[0].Ranges {
				named = named || (r.Status == "ORPHANED" || r.Status == "DAMAGED") && r.Start <= left && r.End >= 300
			}
			if !named {
				t.Errorf("offsets %d to 299 are not named: %+v", left, b.describe("hurt").Partitions[0].Ranges)
			}
			flawless(t, b)
		})
	}
}

// TestDamageTornTail appends what an unfinished write leaves to the newest segment of a killed broker: it is cut, physically, and does
// not come back with the second restart (A5).
func TestDamageTornTail(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("torn"), 0, 2, 100)
	b.kill()
	all := segments(t, b.dir)
	if err := appendTo(all[len(all)-1], bytes.Repeat([]byte{0xa5}, 20)); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.holds("torn", 2, 100)
	if first := sendEach(t, b.produce("torn"), 2, 1, 100); first != 2 {
		t.Fatalf("the next message got offset %d", first)
	}
	b.restart()
	b.holds("torn", 3, 100)
	if next := b.describe("torn").Partitions[0].NextOffset; next != 3 {
		t.Errorf("next offset is %d", next)
	}
	if r := b.run(nil, "topic", "verify", "torn"); r.code != 0 {
		t.Errorf("verify: %s%s", r.stdout, r.stderr)
	}
}

// TestDamageUnknownFolder: data of a topic that the metadata does not know are named and kept (A12).
func TestDamageUnknownFolder(t *testing.T) {
	t.Parallel()
	b := kept300(t)
	unknown := filepath.Join(b.dir, "wal", strings.Repeat("ab", 16))
	copyTree(t, filepath.Dir(filepath.Dir(segments(t, b.dir)[0])), unknown)
	before := snapshot(t, unknown)
	b.start()
	flawless(t, b)
	b.stop(20 * time.Second)
	after := snapshot(t, unknown)
	if len(before) == 0 || fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("data of an unknown topic were changed")
	}
	text, err := os.ReadFile(b.log.Name())
	if err != nil || !strings.Contains(string(text), strings.Repeat("ab", 16)) {
		t.Errorf("they are not named: %s", text)
	}
}
