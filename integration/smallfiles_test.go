package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// The two files whose loss no broker may pass over (R9); paths from the data directory.
const (
	storeFile  = "store"
	raftFile   = "meta/raft/raft.db"
	recordFile = "cluster/record"
)

// messagesKept is what the directory of furnish holds, and how large each message is.
const (
	messagesKept = 200
	sizeKept     = 12 << 10
)

// small says yes to every file but the segments: these are the log itself, and have tests of their own.
func small(path string, _ int64) bool { return filepath.Ext(path) != ".seg" }

// furnish makes a data directory with a topic over several segments and epochs and a subscription that stands at 50, and
// stops its broker.
func furnish(t testing.TB, kill bool) *broker {
	t.Helper()
	b := startBroker(t, "n1", options{env: []string{"DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB"}})
	sendEach(t, b.produce("kept"), 0, messagesKept/2, sizeKept)
	b.restart()
	sendEach(t, b.produce("kept"), messagesKept/2, messagesKept/2, sizeKept)
	k, err := b.dial().Consumer(t.Context(), "kept", client.ConsumerConfig{Subscription: "s", From: protocol.Position{Kind: protocol.Earliest}})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		m, err := k.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.AckConfirmed(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if kill {
		b.kill()
	} else {
		b.stop(20 * time.Second)
	}
	return b
}

// checkFurnished wants everything of furnish, and that the broker takes messages and keeps them.
func checkFurnished(t testing.TB, b *broker) {
	t.Helper()
	b.holds("kept", messagesKept, sizeKept)
	d := b.describe("kept")
	if len(d.Subscriptions) != 1 || d.Subscriptions[0].Partitions[0].Cursor != 50 {
		t.Errorf("the subscriptions stand at %+v", d.Subscriptions)
	}
	first := sendEach(t, b.produce("kept"), messagesKept, 5, sizeKept)
	if first < messagesKept {
		t.Fatalf("a new message got offset %d, which was given before", first)
	}
	b.restart()
	got, gaps := b.contents("kept")
	for i := range messagesKept + 5 {
		at := uint64(i)
		if i >= messagesKept {
			at = first + uint64(i-messagesKept)
		}
		if got[at] != string(numbered(i, sizeKept)) {
			t.Fatalf("after one more kill offset %d is %.30q; gaps %v", at, got[at], gaps)
		}
	}
}

// TestSmallFilesDamaged empties every small file of the data directory, one at a time, and fills it with three random
// bytes: the broker starts, serves everything, and names the file when it had a use for it (A7).
func TestSmallFilesDamaged(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		how := map[bool]string{false: "stopped", true: "killed"}[kill]
		made := furnish(t, kill)
		files := filesUnder(t, made.dir, small)
		if len(files) < 6 {
			t.Fatalf("only %q lie there", files)
		}
		for i, file := range files {
			for j, d := range damages()[:2] {
				// A run of CI takes every second pair.
				if os.Getenv("DANUBE_FULL") != "1" && (i+j)%2 == map[bool]int{false: 0, true: 1}[kill] && file != storeFile && file != raftFile {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", how, strings.ReplaceAll(file, "/", "_"), d.name), func(t *testing.T) {
					t.Parallel()
					dir := filepath.Join(t.TempDir(), "data")
					copyTree(t, made.dir, dir)
					path := filepath.Join(dir, file)
					if err := d.hurt(path, rand.New(rand.NewPCG(uint64(i), uint64(j)))); err != nil {
						t.Fatal(err)
					}
					b := newBroker(t, "hurt", options{dir: dir})
					switch file {
					case storeFile:
						refuses(t, b, "store identity "+path, "danube wal adopt "+dir)
						b.must(nil, "wal", "adopt", dir, "--yes")
						b.start()
						checkFurnished(t, b)
					case raftFile:
						refuses(t, b, filepath.Join(dir, raftFile), "cluster rebuild")
					case recordFile: // which cluster this is must not be guessed (R9)
						if err := b.tryStart(readyWithin); err == nil || !strings.Contains(lastLines(b.log.Name(), 3), path) {
							t.Errorf("it started, or does not name the file: %v", err)
						}
					default:
						b.start()
						checkFurnished(t, b)
						namesFile(t, b, file, path, !kill)
					}
				})
			}
		}
	}
}

// namesFile wants the damaged file named in the broker's output, but where its content says nothing that anybody needs.
func namesFile(t testing.TB, b *broker, file, path string, stopped bool) {
	t.Helper()
	switch file {
	case "lock", "meta/raft/reserve": // held by a lock, held for its size
		return
	case "journal":
		if stopped {
			return // a clean stop has emptied it, and the next start throws it away
		}
	}
	if strings.HasSuffix(file, ".tmp") {
		return
	}
	text, err := os.ReadFile(b.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), path) {
		t.Errorf("the log does not name %s:\n%s", path, text)
	}
}

// refuses wants a start that ends with exit code 1 and one clear line, which holds words, and touches nothing.
func refuses(t testing.TB, b *broker, words ...string) {
	t.Helper()
	before := snapshot(t, b.dir)
	if err := b.tryStart(readyWithin); err == nil {
		t.Fatal("the broker started")
	}
	if code, err := b.process.wait(time.Second); err != nil || code != 1 {
		t.Errorf("it ended with %d, %v", code, err)
	}
	text, err := os.ReadFile(b.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if !strings.Contains(string(text), w) {
			t.Errorf("the refusal lacks %q:\n%s", w, text)
		}
	}
	if n := strings.Count(string(text), "danube: "); n != 1 {
		t.Errorf("the refusal has %d lines:\n%s", n, text)
	}
	for file, was := range before {
		// The metadata note each start, before any segment is opened.
		if slices.Contains(words, "reads up to 1") && (file == raftFile || file == "wal/run") {
			continue
		}
		if now := snapshot(t, b.dir)[file]; now != was && file != "lock" {
			t.Errorf("%s was changed", file)
		}
	}
}

// snapshot is the content of every file below dir.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range filesUnder(t, dir, func(string, int64) bool { return true }) {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(b)
	}
	return all
}

// TestSmallFilesMissing: each small file is removed instead.
func TestSmallFilesMissing(t *testing.T) {
	t.Parallel()
	made := furnish(t, true)
	for _, file := range filesUnder(t, made.dir, small) {
		t.Run(strings.ReplaceAll(file, "/", "_"), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			copyTree(t, made.dir, dir)
			if err := os.Remove(filepath.Join(dir, file)); err != nil {
				t.Fatal(err)
			}
			b := newBroker(t, "hurt", options{dir: dir})
			switch file {
			case storeFile:
				refuses(t, b, "danube wal adopt "+dir)
			case raftFile:
				refuses(t, b, filepath.Join(dir, raftFile), "cluster rebuild")
			default:
				b.start()
				checkFurnished(t, b)
			}
		})
	}
}

// TestSmallFilesOlder puts the small files of an earlier moment back, as a restore of a part of a disk does: the real
// end of the log wins, nothing is overwritten (A8).
func TestSmallFilesOlder(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("kept"), 0, 5, 100)
	b.stop(20 * time.Second)
	old := filepath.Join(t.TempDir(), "old")
	copyTree(t, b.dir, old)
	b.start()
	sendEach(t, b.produce("kept"), 5, 5, 100)
	b.kill()
	for _, file := range filesUnder(t, old, small) {
		if file == raftFile {
			continue // older metadata are another matter: offsets may have been given since
		}
		t.Run(strings.ReplaceAll(file, "/", "_"), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			copyTree(t, b.dir, dir)
			text, err := os.ReadFile(filepath.Join(old, file))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, file), text, 0o600); err != nil {
				t.Fatal(err)
			}
			again := startBroker(t, "older", options{dir: dir})
			again.holds("kept", 10, 100)
			if first := sendEach(t, again.produce("kept"), 10, 5, 100); first != 10 {
				t.Fatalf("the next message got offset %d", first)
			}
			again.restart()
			again.holds("kept", 15, 100)
		})
	}
}
