package broker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/meta/state"
)

// heldBack gives brokers a cold tier into which nothing goes by itself.
func heldBack(t testing.TB) (change func(*broker.Config), dir string) {
	t.Helper()
	small, dir := inCold(t)
	return func(c *broker.Config) {
		small(c)
		c.Storage.SegmentBytes, c.Storage.SegmentAge = 64<<20, time.Hour
	}, dir
}

// noted keeps what a broker logs.
type noted struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write is io.Writer.
func (n *noted) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(b)
}

func (n *noted) line(part string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for line := range strings.Lines(n.text.String()) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}

// A broker that stands alone exports what it has when it is stopped: nothing is only
// on its disk then, whatever its durability, young or not.
func TestStopExportsTheTails(t *testing.T) {
	const messages = 20
	change, _ := heldBack(t)
	dir, log := t.TempDir(), &noted{}
	logged := func(c *broker.Config) {
		change(c)
		c.Log = slog.New(slog.NewTextHandler(log, nil))
	}
	n := start(t, dir, logged)
	c := dial(t, n)
	for i := range 3 {
		publishLarge(t, c, fmt.Sprintf("tail-%d", i), 0, messages)
	}
	if m := n.Partition("tail-0", 0); m.Catalog.Covers(0, messages) {
		t.Fatal("it was exported before the stop")
	}
	n.close(t)()
	if log.line("the cold tier has all that was here") == "" {
		t.Error("the stop does not say that nothing is left")
	}
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*", "*", "*.seg"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	n = start(t, dir, change)
	for i := range 3 {
		if m := n.Partition(fmt.Sprintf("tail-%d", i), 0); !m.Catalog.Covers(0, messages) {
			t.Errorf("tail-%d is exported up to %d", i, m.ColdEnd())
		}
		wantLarge(t, dial(t, n), fmt.Sprintf("tail-%d", i), messages)
	}
}

// A stop in which the cold tier is away ends in its time, and says what is left.
func TestStopWithTheColdTierAwayEndsInTime(t *testing.T) {
	const limit = 4 * time.Second
	change, cold := heldBack(t)
	dir, log := t.TempDir(), &noted{}
	logged := func(c *broker.Config) {
		change(c)
		c.Peers.Shutdown, c.Log = limit, slog.New(slog.NewTextHandler(log, nil))
	}
	n := start(t, dir, logged)
	publishLarge(t, dial(t, n), "kept", 0, 5)
	if err := os.Rename(cold, cold+".away"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	n.close(t)()
	if took := time.Since(began); took > limit {
		t.Errorf("it took %v, %v are allowed", took, limit)
	}
	if line := log.line("on this disk alone"); !strings.Contains(line, "/default/kept:0") || !strings.Contains(line, "partitions=1") {
		t.Errorf("the stop says %q", line)
	}
	if err := os.Rename(cold+".away", cold); err != nil {
		t.Fatal(err)
	}
	n = start(t, dir, change)
	if m := n.Partition("kept", 0); len(m.Ranges) == 0 || m.Ranges[0].Status != state.RangeSealed || m.Ranges[0].End != 5 {
		t.Errorf("after the stop: %+v", m)
	}
	wantLarge(t, dial(t, n), "kept", 5)
}

// A broker of several that is stopped for good takes nothing along: what it handed
// over is in the cold tier, or with another broker.
func TestStopForGoodTakesNothingAlong(t *testing.T) {
	const messages = 10
	change, _ := heldBack(t)
	f := newFleet(t, 3, change)
	for i := range 6 {
		publishLarge(t, f.dial(0), fmt.Sprintf("t%d", i), 0, messages)
	}
	owner := f.owner("t0", 0)
	f.stop(owner)
	if err := os.RemoveAll(f.nodes[owner].dir); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		wantLarge(t, f.dial((owner+1)%3), fmt.Sprintf("t%d", i), messages)
	}
}
