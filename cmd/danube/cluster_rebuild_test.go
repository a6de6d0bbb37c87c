package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/offline"
)

// offlineCommand runs a command on a stopped broker's directory.
func offlineCommand(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	s := newShell()
	if code := s.call(t, args...); code != want {
		t.Fatalf("danube %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, s.out.String(), s.err.String())
	}
	return s.out.String(), s.err.String()
}

// filled makes a data directory of a stopped broker with two topics, several epochs and a subscription.
func filled(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for run := range 2 {
		b := startStandalone(t, dir)
		for i := range 3 {
			b.danube(fail.Done, "", "produce", "orders", "--partitions", "3", "--count", "30", "--key", fmt.Sprintf("k%d-%d", run, i))
		}
		b.danube(fail.Done, fmt.Sprintf("first %d\nsecond %d\n", run, run), "produce", "lines")
		b.danube(fail.Done, "", "subscription", "create", "lines", "s")
		b.stop()
	}
	return dir
}

// TestRebuildReadsEverythingAgain: the database destroyed, everything comes back at its offset, and what follows is far above
// and under epochs of a new history; a second rebuild goes on from there.
func TestRebuildReadsEverythingAgain(t *testing.T) {
	dir := filled(t)
	b := startStandalone(t, dir)
	before, _ := b.danube(fail.Done, "", "consume", "orders", "--from", "earliest", "--count", "180", "-o", "json")
	b.stop()
	database := filepath.Join(dir, "meta", "raft", "raft.db")
	for history := 1; history <= 2; history++ {
		if err := os.WriteFile(database, []byte("rotten"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, said := offlineCommand(t, fail.Failed, "standalone", "--data-dir", dir, "--client-port", "0", "--http-port", "0"); !strings.Contains(said, "danube cluster rebuild") {
			t.Errorf("a start with a rotten database says %s", said)
		}
		dry, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", dir, "--data-dir", dir, "--dry-run", "-o", "json")
		var rep offline.Rebuilt
		if err := json.Unmarshal([]byte(dry), &rep); err != nil || rep.History != history || len(rep.Partitions) != 4 || len(rep.Problems) > 0 {
			t.Errorf("dry run %d: %v\n%s", history, err, dry)
		}
		if text, err := os.ReadFile(database); err != nil || string(text) != "rotten" {
			t.Fatalf("a dry run changed the database: %v", err)
		}
		offlineCommand(t, fail.Usage, "cluster", "rebuild", "--from", dir, "--data-dir", dir) // nobody confirms
		said, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", dir, "--data-dir", dir, "--yes")
		for _, want := range []string{fmt.Sprintf("in history %d", history), fmt.Sprintf("is kept in %s.lost-%d", filepath.Join(dir, "meta"), history), "subscriptions", "retention", "/default/lines"} {
			if !strings.Contains(said, want) {
				t.Errorf("says\n%swithout %q", said, want)
			}
		}
		b = startStandalone(t, dir)
		after, _ := b.danube(fail.Done, "", "consume", "orders", "--from", "earliest", "--count", "180", "-o", "json")
		if sameLines(after) != sameLines(before) {
			t.Errorf("history %d: read %d bytes again of %d", history, len(after), len(before))
		}
		if got, _ := b.danube(fail.Done, "", "consume", "lines", "--from", "earliest", "--count", "4", "-o", "raw"); got != "first 0\nsecond 0\nfirst 1\nsecond 1\n" {
			t.Errorf("history %d: lines are %q", history, got)
		}
		ack, _ := b.danube(fail.Done, "", "produce", "lines", fmt.Sprintf("in history %d", history), "-o", "json")
		var stored struct{ Offset uint64 }
		if err := json.Unmarshal([]byte(ack), &stored); err != nil || stored.Offset < uint64(history)<<32 {
			t.Errorf("history %d: stored at %d, %v", history, stored.Offset, err)
		}
		if d, _ := b.danube(fail.Done, "", "topic", "describe", "lines", "-o", "json"); strings.Contains(d, "LOST") || !strings.Contains(d, fmt.Sprintf(`"epoch": %d,`, history<<48|2)) {
			t.Errorf("history %d: %s", history, d)
		}
		b.danube(fail.Done, "", "topic", "verify", "lines")
		b.stop()
	}
}

// sameLines is text with its lines sorted: partitions come in any order.
func sameLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestRebuildRefuses what it cannot do right.
func TestRebuildRefuses(t *testing.T) {
	dir := filled(t)
	other := t.TempDir()
	if _, said := offlineCommand(t, fail.Usage, "cluster", "rebuild", "--from", other, "--data-dir", dir); !strings.Contains(said, "are not those of the data directory") {
		t.Errorf("says %s", said)
	}
	if _, said := offlineCommand(t, fail.Usage, "cluster", "rebuild", "--data-dir", dir); !strings.Contains(said, "--from is missing") {
		t.Errorf("says %s", said)
	}
	if _, said := offlineCommand(t, fail.Usage, "cluster", "rebuild", "--from", dir, "--data-dir", dir); !strings.Contains(said, "can be read; replace them") {
		t.Errorf("of metadata that are whole it says %s", said)
	}
	if _, said := offlineCommand(t, fail.Failed, "cluster", "rebuild", "--from", other, "--data-dir", other, "--yes"); !strings.Contains(said, "store identity") {
		t.Errorf("of an empty directory it says %s", said)
	}
	startStandalone(t, dir)
	if _, said := offlineCommand(t, fail.Failed, "cluster", "rebuild", "--from", dir, "--data-dir", dir, "--yes"); !strings.Contains(said, "is in use by process") {
		t.Errorf("of a running broker it says %s", said)
	}
}

// TestRecoverMakesTheOnlyVoter of one that lost the others, which goes on alone in a new history.
func TestRecoverMakesTheOnlyVoter(t *testing.T) {
	dir := filled(t)
	offlineCommand(t, fail.Usage, "cluster", "recover", "--data-dir", dir)
	said, _ := offlineCommand(t, fail.Done, "cluster", "recover", "--data-dir", dir, "--yes")
	if !strings.Contains(said, "is the only voter, in a new history") || !strings.Contains(said, "danube broker remove") {
		t.Errorf("says %s", said)
	}
	b := startStandalone(t, dir)
	got, _ := b.danube(fail.Done, "", "cluster", "status")
	b.says(got, "leader      n1")
	if got, _ := b.danube(fail.Done, "", "consume", "lines", "--from", "earliest", "--count", "4", "-o", "raw"); strings.Count(got, "\n") != 4 {
		t.Errorf("lines are %q", got)
	}
	if _, said := offlineCommand(t, fail.Failed, "cluster", "recover", "--data-dir", dir, "--yes"); !strings.Contains(said, "the broker must be stopped") {
		t.Errorf("of a running broker it says %s", said)
	}
	b.stop()
	if err := os.WriteFile(filepath.Join(dir, "meta", "raft", "raft.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, said := offlineCommand(t, fail.Failed, "cluster", "recover", "--data-dir", dir, "--yes"); !strings.Contains(said, "danube cluster rebuild --from") {
		t.Errorf("of a lost database it says %s", said)
	}
}
