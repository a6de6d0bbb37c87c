package broker_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// inCold gives brokers a folder as the cold tier, small segments, and little room beside.
func inCold(t testing.TB) (change func(*broker.Config), dir string) {
	t.Helper()
	dir = t.TempDir()
	return func(c *broker.Config) {
		c.Memory = 8 << 20
		c.Storage.SegmentBytes, c.Storage.SegmentAge = 128<<10, 200*time.Millisecond
		c.Storage.Durable = broker.Durable{URL: "file://" + dir, LocalBytes: 512 << 10}
	}, dir
}

// objects are the segments that lie in the cold tier.
func objects(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.HasSuffix(path, ".seg") {
			names = append(names, path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

// bytesOf is how long the segment files of a data directory are.
func bytesOf(t testing.TB, dir string) (sum int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*", "*", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// coveredTo waits until the catalog of a topic covers all up to an offset.
func coveredTo(t testing.TB, n *node, topic string, to uint64) {
	t.Helper()
	eventually(t, "the catalog covers it", func() bool {
		m := n.Partition(topic, 0)
		return m != nil && m.Catalog.Covers(0, to)
	})
}

// wantLarge reads a topic as a fresh reader, byte for byte.
func wantLarge(t testing.TB, c *client.Client, topic string, n int) {
	t.Helper()
	got, gaps := readAll(t, c, topic)
	if len(got) != n || len(gaps) > 0 {
		t.Fatalf("%d messages, want %d; gaps %v", len(got), n, gaps)
	}
	for i := range got {
		if got[i] != string(large(i)) {
			t.Fatalf("message %d is another", i)
		}
	}
}

// What was exported is freed on the disk, but for little, and is read from the cold
// tier as if it were here: from the beginning, from a time, after a restart, and by
// a verification, which names what is flipped there.
func TestExportedMessagesAreReadFromTheColdTier(t *testing.T) {
	t.Parallel()
	const messages = 100 // of 32 KiB
	change, cold := inCold(t)
	dir := t.TempDir()
	began := time.Now()
	n := start(t, dir, change)
	c := dial(t, n)
	publishLarge(t, c, "kept", 0, messages)
	coveredTo(t, n, "kept", messages)
	eventually(t, "what is covered is freed", func() bool { return bytesOf(t, dir) <= 640<<10 })
	wantLarge(t, c, "kept", messages)
	r, err := c.Reader(t.Context(), "kept", client.ReaderConfig{From: protocol.Position{Kind: protocol.AtTime, Time: began.UnixMilli()}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.Next(t.Context()); err != nil || m.Offset != 0 {
		t.Errorf("from the time of the first message: offset %d, %v", m.Offset, err)
	}
	r.Close()
	n.close(t)()
	n = start(t, dir, change)
	c = dial(t, n)
	wantLarge(t, c, "kept", messages)
	publishLarge(t, c, "kept", messages, messages+10)
	wantLarge(t, c, "kept", messages+10)
	if v := verify(t, c, "kept"); len(v.Findings) > 0 || v.Messages != messages+10 {
		t.Errorf("verified: %+v", v)
	}
	a, err := c.Admin().ClusterAudit(t.Context())
	if err != nil || len(a.Findings) > 0 || len(a.Tallies) == 0 || !a.Tallies[0].Sound {
		t.Errorf("audit: %+v, %v", a, err)
	}
	if err := os.WriteFile(filepath.Join(cold, "stray"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	a, err = c.Admin().ClusterAudit(t.Context())
	if err != nil || len(a.Findings) != 1 || a.Findings[0].Key != "stray" {
		t.Errorf("audit with a stray object: %+v, %v", a, err)
	}
	flip(t, objects(t, cold), 3)
	n.close(t)() // with what it has read
	n = start(t, dir, change)
	v := verify(t, dial(t, n), "kept")
	if len(v.Findings) != 1 || v.Findings[0].Tier != "cold" || v.Findings[0].From > 3 || v.Findings[0].To <= 3 {
		t.Errorf("verified with a flipped bit: %+v", v.Findings)
	}
}

// After a new history began, nothing that earlier ones may have known of is deleted
// before somebody has looked, which an audit asks for and a word ends (R22).
func TestAuditIsAwaitedAfterANewHistory(t *testing.T) {
	t.Parallel()
	change, _ := inCold(t)
	n := start(t, t.TempDir(), change)
	admin := dial(t, n).Admin()
	awaited := func(want bool) {
		t.Helper()
		var a *protocol.AuditReport
		eventually(t, "the cold tier is at work", func() (done bool) {
			var err error
			a, err = admin.ClusterAudit(t.Context())
			return err == nil
		})
		if a.Awaited != want {
			t.Errorf("audit: %+v, want awaited: %v", a, want)
		}
	}
	awaited(false)
	if err := n.NewHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaited(true)
	if err := admin.ClusterAudited(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaited(false)
}

// flip flips a bit of message i where it lies.
func flip(t testing.TB, files []string, i int) {
	t.Helper()
	mark := string(large(i)[:40])
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(string(text), mark)
		if at < 0 {
			continue
		}
		text[at+30] ^= 1
		if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, text, 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("message %d lies nowhere", i)
}

// A move exports what is missing before it hands over: the target copies nothing, the
// files of the one before go, and all can be read through any broker.
func TestMoveWithAColdTierCopiesNothing(t *testing.T) {
	t.Parallel()
	const messages = 40
	change, _ := inCold(t)
	f := newFleet(t, 2, func(c *broker.Config) {
		change(c)
		c.Storage.SegmentAge = time.Hour // nothing is exported unless somebody waits for it
		c.Storage.SegmentBytes = 64 << 20
	})
	publishLarge(t, f.dial(0), "moved", 0, messages)
	from := f.owner("moved", 0)
	f.move("moved", 1-from)
	m := f.nodes[1-from].Partition("moved", 0)
	if !m.Catalog.Covers(0, messages) {
		t.Fatalf("handed over before all was exported: up to %d", m.ColdEnd())
	}
	eventually(t, "the files of the owner before go", func() bool { return len(f.nodes[from].segments(t)) == 0 })
	if n := bytesOf(t, f.nodes[1-from].dir); n > 64<<10 {
		t.Errorf("%d bytes at the target", n)
	}
	wantLarge(t, f.dial(from), "moved", messages)
	publishLarge(t, f.dial(from), "moved", messages, messages+5)
	wantLarge(t, f.dial(1-from), "moved", messages+5)
}

// The owner's process and disk are gone: the next one serves all that was exported,
// knows of its producers, and opens at the ceiling; what may have lain above is ORPHANED.
func TestTakeoverServesWhatWasExported(t *testing.T) {
	t.Parallel()
	const messages = 40
	change, _ := inCold(t)
	f := newFleet(t, 3, change)
	publishLarge(t, f.dial(0), "lost", 0, messages)
	lost := f.owner("lost", 0)
	raw := rawDial(t, f.nodes[lost].client)
	ok := raw.openFrom("lost", 0)
	stored := raw.send(ok, 0)
	coveredTo(t, f.nodes[lost].node, "lost", messages+1)
	f.kill(lost)
	if err := os.RemoveAll(f.nodes[lost].dir); err != nil {
		t.Fatal(err)
	}
	var owner int
	eventually(t, "another broker serves", func() bool {
		for i, m := range f.nodes {
			if m.done != nil && m.Serves("lost", 0) > 1 {
				owner = i
				return true
			}
		}
		return false
	})
	m := f.nodes[owner].Partition("lost", 0)
	r := m.Range(0)
	if r == nil || r.Status != state.RangeSealed || r.End != messages+1 {
		t.Fatalf("what was exported is %+v of %v", r, statuses(m))
	}
	if tail := m.Range(messages + 1); tail == nil || tail.Status != state.RangeOrphaned {
		t.Errorf("what lies above is %+v", tail)
	}
	c, err := client.Dial(t.Context(), []string{f.nodes[owner].client}, client.Config{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var got []string
	cons := consumer(t, c, "lost", client.ConsumerConfig{Subscription: "s", From: earliest})
	for range messages {
		got = append(got, string(receive(t, cons).Payload))
	}
	for i := range got {
		if got[i] != string(large(i)) {
			t.Fatalf("message %d is another", i)
		}
	}
	closeConsumer(t, cons)
	again := rawDial(t, f.nodes[owner].client)
	if p := again.send(again.openFrom("lost", 0), 0); !p.Duplicate || p.Base != stored.Base {
		t.Errorf("what was exported is stored again, at %d: %+v", p.Base, p)
	}
	eventually(t, "the doubt about what was exported ends, and nobody else is to keep it", func() bool {
		m := f.nodes[owner].Partition("lost", 0)
		return !slices.ContainsFunc(m.Ranges, func(r state.Range) bool {
			return r.Status == state.RangeSealed && r.Start == 0 && (len(r.Stores) > 0)
		})
	})
}

// The owner is lost with a tail that was not exported, and comes back: the tail is read
// again, in its place, and exported from the next owner, in front of what came since.
func TestTailThatComesBackIsExported(t *testing.T) {
	t.Parallel()
	const messages = 20
	change, _ := inCold(t)
	f := newFleet(t, 3, func(c *broker.Config) {
		change(c)
		c.Storage.SegmentBytes, c.Storage.SegmentAge = 64<<20, time.Hour // nothing is exported by itself
		c.GapWait = 10 * time.Millisecond
	})
	publishLarge(t, f.dial(0), "tail", 0, messages)
	lost, owner := f.takenOver("tail")
	publishLarge(t, f.dial(owner), "tail", messages, messages+5)
	f.start(lost)
	eventually(t, "the tail is back, and in the catalog", func() bool {
		m := f.nodes[owner].Partition("tail", 0)
		return m.Range(0) != nil && m.Range(0).Status == state.RangeSealed && m.Catalog.Covers(0, messages)
	})
	wantLarge(t, f.dial(owner), "tail", messages+5)
	if v := verify(t, f.dial(owner), "tail"); len(v.Findings) > 0 || v.Messages != messages+5 {
		t.Errorf("verified: %+v", v)
	}
}
