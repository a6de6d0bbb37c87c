package meta

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// store is Raft's log and stable store: a database that is measured, and that gives up a reserve of disk space before
// it runs out (R20). Raft panics if it cannot save a term, so such a write waits for space instead of failing.
type store struct {
	*raftboltdb.BoltStore
	dir     string
	metrics *metrics
	now     func() time.Time
	writes  writes

	mu       sync.Mutex // guards the reserve file and nextTry
	nextTry  time.Time  // when to look again whether the reserve can be made anew
	low      atomic.Bool
	released chan struct{} // closed when the node stops: waiting for space ends
	once     sync.Once
}

// spaceRetry is how often a write that must not fail is tried again while the disk is full.
const spaceRetry = 100 * time.Millisecond

func openStore(dir string, m *metrics, now func() time.Time) (*store, error) {
	db, err := raftboltdb.New(raftboltdb.Options{
		Path: filepath.Join(dir, databaseFile),
		BoltOptions: &bbolt.Options{
			Timeout:        lockTimeout,
			NoFreelistSync: true,
			FreelistType:   bbolt.FreelistMapType,
		},
	})
	if err != nil {
		return nil, err
	}
	s := &store{BoltStore: db, dir: dir, metrics: m, now: now, released: make(chan struct{})}
	s.fillReserve()
	return s, nil
}

// StoreLogs implements raft.LogStore.
func (s *store) StoreLogs(logs []*raft.Log) error {
	start := s.now()
	err := s.write(func() error { return s.BoltStore.StoreLogs(logs) })
	if err != nil {
		return err
	}
	s.metrics.storeTime.Observe(s.now().Sub(start).Seconds())
	s.metrics.storeEntries.Add(float64(len(logs)))
	size := 0
	for _, l := range logs {
		size += len(l.Data)
	}
	s.metrics.storeBytes.Add(float64(size))
	return nil
}

// StoreLog implements raft.LogStore.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// DeleteRange implements raft.LogStore.
func (s *store) DeleteRange(lo, hi uint64) error {
	return s.write(func() error { return s.BoltStore.DeleteRange(lo, hi) })
}

// Set implements raft.StableStore. It holds the vote; one that cannot be saved is not given.
func (s *store) Set(key, val []byte) error {
	return s.write(func() error { return s.BoltStore.Set(key, val) })
}

// SetUint64 implements raft.StableStore. It holds the terms, and waits while the disk is full. Once the node stops it
// pretends to have saved a term rather than let Raft panic: no vote can be saved any more, so none is given in it.
func (s *store) SetUint64(key []byte, val uint64) error {
	return s.writeUntilSpace(func() error { return s.BoltStore.SetUint64(key, val) })
}

func (s *store) writeUntilSpace(f func() error) error {
	var tick *time.Ticker
	for {
		err := s.write(f)
		if !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		if tick == nil {
			tick = time.NewTicker(spaceRetry)
			defer tick.Stop()
		}
		select {
		case <-tick.C:
		case <-s.released:
			return nil
		}
	}
}

// write runs one transaction, and if the disk is full gives up the reserve and runs it once more.
func (s *store) write(f func() error) error {
	defer s.writes.end(s.writes.begin())
	err := f()
	if errors.Is(err, syscall.ENOSPC) && s.dropReserve() {
		err = f()
	}
	if err != nil {
		s.metrics.storeErrors.Inc()
		return err
	}
	if s.low.Load() {
		s.fillReserve()
	}
	return nil
}

// hungAfter is how long a write may take before this broker stops acting as leader (R7).
const hungAfter = time.Second

// hung says whether a write has been under way for so long that the disk must be taken for dead.
func (s *store) hung() bool { return s.writes.oldest() > hungAfter }

// release ends the waiting for space; the node stops.
func (s *store) release() { s.once.Do(func() { close(s.released) }) }

func (s *store) lowSpace() bool { return s.low.Load() }

// snapshotIndex returns the index of the newest snapshot, zero if there is none.
func (s *store) snapshotIndex() uint64 {
	newest, err := newestSnapshot(s.dir)
	if err != nil || newest == nil {
		return 0
	}
	return newest.index
}

// removeLeftovers removes what unfinished snapshots left. No snapshot may be in the making.
func (s *store) removeLeftovers() error { return removeLeftovers(s.dir) }

func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, snapshotDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		folder := filepath.Join(dir, snapshotDir, e.Name())
		remove := strings.HasSuffix(e.Name(), ".tmp")
		if _, _, ok := snapshotName(e); ok {
			lacks, lerr := missing(folder)
			err = errors.Join(err, lerr)
			remove = lacks != ""
		}
		if remove {
			err = errors.Join(err, os.RemoveAll(folder))
		}
	}
	return err
}
