// Package storage is the log of a partition over all its tiers, and the store
// that holds the logs of one data directory.
//
// A [Store] owns the directory: its lock, its identity, its write-ahead log. A
// [Log] is one partition: [Log.Append] orders, [Pending.Wait] says when it is
// durable, a [Reader] reads it back. What the metadata knows (which epoch gave
// which offsets, where the log begins) comes in as [Facts]; what recovery found
// comes out as [Recovery]. The rules are those of the design's ownership page.
//
// Locks: a Store's and a Log's own lock are held for field access only; those
// of package wal are taken inside it and call nothing here.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/wal"
)

// SyncMode is when an append counts as durable.
type SyncMode uint8

const (
	// Always syncs before each acknowledgement.
	Always SyncMode = iota
	// Interval acknowledges once the process may die, and syncs beside that
	// every SyncInterval: a power loss loses what lies above Synced.
	Interval
)

// Config of a store. Zero values mean the defaults.
type Config struct {
	FS           disk.FS       // default: the operating system's
	Dir          string        // data directory; required, made when missing
	SegmentBytes int64         // size at which a segment file is closed; default 64 MiB
	SegmentAge   time.Duration // age at which one is closed; default 60 s
	Sync         SyncMode      // default Always
	SyncInterval time.Duration // for Interval; default 100 ms
	MemoryBytes  int64         // tails and read buffers; default 256 MiB
	JournalBytes int64         // most the journal grows to; default 128 MiB, less on a small disk
	Files        int           // open segment files; default 1,024
	BootID       string        // of the machine's present run; empty: not known
	Now          func() time.Time
	At           func(step string) // called at named steps; default nil
	Log          *slog.Logger
	Metrics      prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("storage: Dir is required")
	}
	if c.FS == nil {
		c.FS = disk.OS()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Sync == Interval && c.SyncInterval == 0 {
		c.SyncInterval = 100 * time.Millisecond
	}
	if c.Sync == Always {
		c.SyncInterval = 0
	}
	return c, nil
}

// Store is one data directory. Safe for concurrent use.
type Store struct {
	config Config
	lock   io.Closer
	id     [16]byte
	tier   *wal.Tier

	mu      sync.Mutex
	cluster [16]byte
	history uint16
}

// Open locks the data directory, reads or makes the store's id, and prepares
// the write-ahead log; partitions are recovered one by one by [Store.Log].
// Errors: *disk.LockedError, disk.ErrNetwork, *IdentityError, and of data that a
// newer binary wrote *segment.VersionError, before anything is changed.
func Open(ctx context.Context, config Config) (*Store, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := disk.MkdirAll(config.FS, config.Dir); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	s := &Store{config: config}
	if s.lock, err = config.FS.Lock(lockName(config.Dir)); err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err = checkFormats(config.FS, config.Dir); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", err), s.lock.Close())
	}
	if s.id, err = identify(config.FS, config.Dir); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.tier, err = wal.Open(ctx, wal.Config{
		FS: config.FS, Dir: config.Dir, Store: s.id, BootID: config.BootID,
		SegmentBytes: config.SegmentBytes, SegmentAge: config.SegmentAge, SyncInterval: config.SyncInterval,
		MemoryBytes: config.MemoryBytes, JournalBytes: config.JournalBytes, Files: config.Files,
		Now: config.Now, At: config.At, Header: s.header, Log: config.Log, Metrics: config.Metrics,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open write-ahead log: %w", err), s.lock.Close())
	}
	return s, nil
}

// ID is the store's id, random and kept for the life of the directory (R9).
func (s *Store) ID() [16]byte { return s.id }

// SetCluster says what new segment files carry in their headers.
func (s *Store) SetCluster(id [16]byte, history uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cluster, s.history = id, history
}

func (s *Store) header() ([16]byte, uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cluster, s.history
}

// Delete removes the data of a partition whose topic is gone for good.
func (s *Store) Delete(id PartitionID) error { return s.tier.Delete(id) }

// Partitions lists the partitions that have data on the disk. What the metadata
// does not know is reported, never deleted.
func (s *Store) Partitions() ([]PartitionID, error) { return s.tier.Partitions() }

// Failed is closed when a sync or write failed: nothing is acknowledged any
// more, and the process should give up what it owns and end (R20).
func (s *Store) Failed() <-chan struct{} { return s.tier.Failed() }

// Err is what failed, nil when nothing did.
func (s *Store) Err() error { return s.tier.Err() }

// Full returns an ErrFull while the disk has no space for messages; reads go
// on, and it ends by itself.
func (s *Store) Full() error { return s.tier.Full() }

// Scratch returns memory for batches that are kept nowhere.
func (s *Store) Scratch() Scratch { return s.tier.Scratch() }

// Stats are what health and metrics show of a store.
type Stats = wal.Stats

// Stats returns the counters of the store.
func (s *Store) Stats() Stats { return s.tier.Stats() }

// Close stops cleanly: what was appended is synced, files are sealed, and a
// marker lets the next start trust them. It is idempotent and returns the first
// failure of a sync.
func (s *Store) Close() error {
	return errors.Join(s.tier.Close(), s.lock.Close())
}
