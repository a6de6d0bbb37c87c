package wal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/handles"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/space"
	"github.com/danubemq/danube/storage/volume"
)

// limits are what the log takes from a disk.
var limits = segment.Limits()

// Config of a tier. Zero values mean the defaults.
type Config struct {
	FS           disk.FS                             // required
	Dir          string                              // data directory; required, exists, is locked by the caller
	Store        [16]byte                            // id of the store
	BootID       string                              // of the machine's present run; empty: not known
	SegmentBytes int64                               // size at which a segment file is closed; default 64 MiB
	SegmentAge   time.Duration                       // age at which one is closed when the next batch comes; default 60 s
	SyncInterval time.Duration                       // 0: sync before each ack; else how often a sync runs beside the acks
	MemoryBytes  int64                               // tails and read buffers; default 256 MiB
	Files        int                                 // open segment files; default 1,024
	JournalBytes int64                               // most the journal grows to; default 128 MiB, less on a small disk
	Now          func() time.Time                    // default time.Now
	At           func(step string)                   // called at named steps; default nil
	Header       func() (cluster [16]byte, h uint16) // cluster and history for new files; default none
	Log          *slog.Logger                        // default: discard
	Metrics      prometheus.Registerer               // default: none
}

func (c Config) withDefaults() (Config, error) {
	if c.FS == nil || c.Dir == "" {
		return c, errors.New("wal: FS and Dir are required")
	}
	if c.SegmentBytes < 0 || c.SegmentAge < 0 || c.SyncInterval < 0 || c.MemoryBytes < 0 || c.Files < 0 || c.JournalBytes < 0 {
		return c, errors.New("wal: a size, age or count is negative")
	}
	def(&c.SegmentBytes, 64<<20)
	def(&c.SegmentAge, 60*time.Second)
	def(&c.MemoryBytes, 256<<20)
	def(&c.Files, 1024)
	if c.JournalBytes == 0 {
		c.JournalBytes = 128 << 20
		if s, err := c.FS.Free(c.Dir); err == nil {
			c.JournalBytes = min(c.JournalBytes, max(int64(s.Free/16), 256<<10))
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.At == nil {
		c.At = func(string) {}
	}
	if c.Header == nil {
		c.Header = func() ([16]byte, uint16) { return [16]byte{}, 0 }
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Tier is the write-ahead log of one data directory: all its partitions, one
// journal and one commit loop. Safe for concurrent use.
type Tier struct {
	config  Config
	memory  *memory.Pool
	cache   *handles.Cache
	shelf   volume.Shelf
	metrics *metrics
	run     run // what an earlier run of the process left
	space   *space.Guard
	failed  chan struct{}
	work    sync.WaitGroup // commit loop, checkpoint, write-back, journal growth
	round   round          // of the commit loop

	pending atomic.Int64

	mu         sync.Mutex // guards what follows; taken after a log's lock, never before
	wake       sync.Cond  // pending has shrunk, or the tier failed
	logs       map[ID]*Log
	copies     map[ID]*Copy
	commits    commits
	checkpoint checkpoint
	rest       rest
	err        error // what poisoned the tier (R20)
	closed     bool
}

// commits are what the commit loop has before it.
type commits struct {
	queue   []*Log // have something that no round has taken
	running bool
	turns   uint64 // rounds begun
	leaving int    // logs that wait for the present round to end
	loop    func() // commitLoop, made once: starting it allocates nothing
}

// rest is what the sweep looks at.
type rest struct {
	timer *time.Timer
	armed bool
	logs  handles.Link // with a tail, the longest idle first
}

// Open prepares the log of a data directory: after an unclean stop it first
// writes what the journal covers into the segment files, and syncs them.
func Open(ctx context.Context, config Config) (*Tier, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Tier{config: config, failed: make(chan struct{}), logs: make(map[ID]*Log), copies: make(map[ID]*Copy)}
	t.memory = memory.NewPool(config.MemoryBytes)
	t.cache = handles.New(config.FS, config.Files)
	t.shelf = volume.Shelf{FS: config.FS, Store: config.Store, Cache: t.cache, Memory: t.memory, Room: t.makeRoom, Log: config.Log}
	t.rest.logs.Init()
	t.wake.L = &t.mu
	t.commits.loop = t.commitLoop
	t.round.tier, t.round.covered = t, t.round.noteCovered
	t.rest.timer = time.AfterFunc(time.Hour, t.sweep)
	t.rest.timer.Stop()
	t.checkpoint.files = make(map[*file]struct{})
	t.space = space.New(config.FS, config.Dir, config.Now, config.Log)
	if t.metrics, err = newMetrics(config.Metrics, t); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if err := t.recover(ctx); err != nil {
		t.metrics.all.Unregister(config.Metrics)
		return nil, err
	}
	return t, nil
}

// Failed is closed when the tier is poisoned: a sync failed, or a write in a
// way that says nothing about what is on the disk (R20).
func (t *Tier) Failed() <-chan struct{} { return t.failed }

// Err is what poisoned the tier, nil when nothing did.
func (t *Tier) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// poison ends all writing: nothing is acknowledged from here on, whatever a
// later sync may say.
func (t *Tier) poison(err error) {
	err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err = err
	close(t.failed) // before anybody hears of it
	logs := make([]*Log, 0, len(t.logs))
	for _, l := range t.logs {
		logs = append(logs, l)
	}
	j := t.checkpoint.journal
	t.wake.Broadcast()
	t.mu.Unlock()
	if j != nil {
		j.Fail(ErrPoisoned)
	}
	for _, l := range logs {
		l.fail(err)
	}
}

// admit is the part of the door that all partitions share: space, and the
// bytes on their way to the disk.
func (t *Tier) admit() error {
	if t.space.Check() {
		return ErrFull
	}
	if t.pending.Load() <= t.config.MemoryBytes/4 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.pending.Load() > t.config.MemoryBytes/4 && t.err == nil && !t.closed {
		t.wake.Wait()
	}
	return nil // what the log says of itself is asked next
}

// release says that bytes have arrived at the disk, or were cut off.
func (t *Tier) release(bytes int64) {
	limit := t.config.MemoryBytes / 4
	if left := t.pending.Add(-bytes); left <= limit && left+bytes > limit {
		t.mu.Lock()
		t.wake.Broadcast()
		t.mu.Unlock()
	}
}

// enqueue tells the commit loop of a log, and starts the loop when it rests.
func (t *Tier) enqueue(l *Log) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.commits.queue = append(t.commits.queue, l)
	if !t.commits.running {
		t.commits.running = true
		t.work.Add(1)
		go t.commits.loop()
	}
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
func isNoSpace(err error) bool  { return disk.NoSpace(err) }

// Full reports whether the door is closed for want of space, and why. It looks
// at the disk as the door does: nobody need send anything for it to open again.
func (t *Tier) Full() error {
	if t.space.Check() {
		return fmt.Errorf("%w: less than %d bytes free", ErrFull, t.space.Keep())
	}
	return nil
}
