package meta

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// clock is a time that only the test moves.
type clock struct{ t atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(0, c.t.Load()) }
func (c *clock) advance(d time.Duration) { c.t.Add(int64(d)) }

func openTestStore(t *testing.T, now func() time.Time) *store {
	t.Helper()
	s, err := openStore(t.TempDir(), newMetrics(), now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.release()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func noSpace() error { return fmt.Errorf("write raft.db: %w", syscall.ENOSPC) }

func reserveSize(s *store) int64 {
	fi, err := os.Stat(filepath.Join(s.dir, reserveFile))
	if err != nil {
		return 0
	}
	return fi.Size()
}

func TestFullDiskCostsTheReserveFirst(t *testing.T) {
	t.Parallel()
	c := &clock{}
	s := openTestStore(t, c.now)
	if reserveSize(s) != reserveBytes || s.lowSpace() {
		t.Fatalf("reserve of %d bytes at first", reserveSize(s))
	}
	calls := 0
	err := s.write(func() error {
		if calls++; reserveSize(s) > 0 {
			return noSpace()
		}
		return nil
	})
	if err != nil || calls != 2 {
		t.Fatalf("write with a reserve: %v after %d calls", err, calls)
	}
	if !s.lowSpace() || reserveSize(s) != 0 {
		t.Fatal("does not say that space is low")
	}
	if err := s.write(noSpace); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("write without a reserve: %v", err)
	}
	// Space is back; not at once, but soon, there is a reserve again.
	if err := s.write(func() error { return nil }); err != nil || !s.lowSpace() {
		t.Fatalf("right after: %v", err)
	}
	c.advance(reserveRetry)
	if err := s.write(func() error { return nil }); err != nil || s.lowSpace() || reserveSize(s) != reserveBytes {
		t.Fatalf("later: %v, reserve of %d bytes", err, reserveSize(s))
	}
}

func TestTermWaitsForSpaceInsteadOfFailing(t *testing.T) {
	t.Parallel()
	s := openTestStore(t, time.Now)
	calls := 0
	err := s.writeUntilSpace(func() error {
		if calls++; calls < 4 {
			return noSpace()
		}
		return nil
	})
	if err != nil || calls != 4 {
		t.Fatalf("%v after %d calls", err, calls)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.writeUntilSpace(noSpace); err != nil {
			t.Errorf("a node that stops: %v", err)
		}
	})
	s.release()
	wg.Wait()
	other := errors.New("input/output error")
	if err := s.writeUntilSpace(func() error { return other }); !errors.Is(err, other) {
		t.Fatalf("another error became %v", err)
	}
}

func TestLeftoversOfSnapshotsGoAtStart(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	n := openNode(t, cfg)
	propose(t, n, createTopic(1))
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)
	left := filepath.Join(cfg.Dir, raftDir, snapshotDir, "9-9-9.tmp")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(left, "state.bin"), []byte("half"))
	n = openNode(t, cfg)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("still there: %v", err)
	}
	if n.View().TopicCount() != 1 {
		t.Fatal("the finished snapshot went too")
	}
}

// TestLogStaysBounded: many cursor commits leave a log of a few hundred entries and a database of a few MiB (A56).
func TestLogStaysBounded(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	n := openNode(t, cfg)
	c := createTopic(1)
	r := propose(t, n, &state.RegisterStore{Store: cfg.Store, Broker: "n1", Nonce: [16]byte{1}})
	c.Owners = []state.Owner{{Store: cfg.Store, Incarnation: r.Incarnation}}
	propose(t, n, c)
	sub := propose(t, n, &state.CreateSubscription{Topic: c.ID, Name: "s", Start: []uint64{0}}).Subscription
	propose(t, n, &state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: c.ID, Epoch: 1, Ceiling: 1 << 40}}})
	for round := range 20 {
		var wg sync.WaitGroup
		for w := range 50 {
			wg.Go(func() {
				d := state.CursorDelta{Subscription: sub, Epoch: 1, Prefix: uint64(round*50 + w)}
				if _, err := n.Propose(t.Context(), &state.MoveCursors{Entries: []state.CursorDelta{d}}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first, err1 := n.store.FirstIndex()
	last, err2 := n.store.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if last < 1000 || last-first > 50+cfg.TrailingLogs {
		t.Fatalf("the log holds %d to %d", first, last)
	}
	fi, err := os.Stat(filepath.Join(cfg.Dir, raftDir, databaseFile))
	if err != nil || fi.Size() > 4<<20 {
		t.Fatalf("the database takes %d bytes: %v", fi.Size(), err)
	}
	if got := n.View().SubscriptionByID(sub).Cursors[0].Prefix; got != 999 {
		t.Fatalf("prefix %d", got)
	}
}
