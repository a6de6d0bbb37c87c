package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/memory"
)

// maxSpills is how many blocks wait at most to be written to the disk cache; what
// comes beside them is not kept.
const maxSpills = 8

// spill is the disk cache: one file of slots, written round and round with blocks
// that memory had no more room for. Where which block lies is known in memory
// alone, with its CRC, so that the file is worth nothing to the next process and
// nothing of it is ever synced. It is never longer than its slots. The first error
// of the file ends it: readers go to the store.
type spill struct {
	fsys  disk.FS
	name  string
	file  disk.File
	log   *slog.Logger
	m     *metrics
	write sync.WaitGroup

	mu     sync.Mutex // guards what follows
	slots  []slot
	where  map[spot]int
	next   int
	queue  []spilled
	busy   bool // a goroutine writes
	broken bool // it failed, or was closed
}

// spot is a block by name.
type spot struct {
	of place
	n  int
}

// slot is what lies in one place of the file.
type slot struct {
	spot
	size int // bytes; 0: nothing
	crc  uint32
}

// spilled is a block on its way to the disk, with a reference.
type spilled struct {
	spot
	chunk *memory.Chunk
}

// openSpill makes the file anew. Nil, after a word to the log: it cannot.
func openSpill(cfg *Config, m *metrics) *spill {
	s := &spill{fsys: cfg.FS, name: cfg.Disk, log: cfg.Log, m: m, where: map[spot]int{}, slots: make([]slot, cfg.DiskBytes/blockSize)}
	err := s.fsys.Remove(s.name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		s.file, err = s.fsys.Open(s.name, disk.Exclusive)
	}
	if err != nil || len(s.slots) == 0 {
		s.log.Warn("no disk cache for cold reads", "file", s.name, "bytes", cfg.DiskBytes, "err", err)
		if s.file != nil {
			_ = s.file.Close() // nothing was written
		}
		return nil
	}
	return s
}

// offer takes a block that leaves memory, if there is time to write it. It never waits.
func (s *spill) offer(of place, n int, chunk *memory.Chunk) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := spot{of, n}
	if _, known := s.where[at]; known || s.broken || len(s.queue) >= maxSpills {
		return
	}
	chunk.Retain()
	s.queue = append(s.queue, spilled{at, chunk})
	if !s.busy {
		s.busy = true
		s.write.Go(s.drain) // returns when the queue is empty; close waits
	}
}

func (s *spill) drain() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.busy = false
			s.mu.Unlock()
			return
		}
		x := s.queue[0]
		s.queue = s.queue[1:]
		to, ok := s.take(x.spot)
		s.mu.Unlock()
		if ok {
			s.put(to, x)
		}
		x.chunk.Release()
	}
}

// take empties the slot that is written next. s.mu is held.
func (s *spill) take(at spot) (int, bool) {
	if _, known := s.where[at]; known || s.broken {
		return 0, false
	}
	to := s.next
	s.next = (s.next + 1) % len(s.slots)
	if old := &s.slots[to]; old.size > 0 {
		delete(s.where, old.spot)
		*old = slot{}
	}
	return to, true
}

func (s *spill) put(to int, x spilled) {
	crc := batch.Checksum(x.chunk.Buf)
	if _, err := s.file.WriteAt(x.chunk.Buf, int64(to)*blockSize); err != nil {
		s.fail(err)
		return
	}
	s.m.spilled.Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.broken {
		s.slots[to] = slot{x.spot, len(x.chunk.Buf), crc}
		s.where[x.spot] = to
	}
}

// read fills p with a block, if it lies here as it was written.
func (s *spill) read(of place, n int, p []byte) bool {
	s.mu.Lock()
	at, known := s.where[spot{of, n}]
	var x slot
	if known {
		x = s.slots[at]
	}
	s.mu.Unlock()
	if !known || x.size != len(p) {
		return false
	}
	if _, err := s.file.ReadAt(p, int64(at)*blockSize); err != nil {
		s.fail(err)
		return false
	}
	if batch.Checksum(p) != x.crc { // hurt, or written over since
		s.forget(of, n)
		return false
	}
	return true
}

// forget has a block read from the store again.
func (s *spill) forget(of place, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.where[spot{of, n}]; known {
		delete(s.where, spot{of, n})
		s.slots[at] = slot{}
	}
}

// fail ends the cache and gives its space back.
func (s *spill) fail(err error) {
	s.mu.Lock()
	was := s.broken
	s.broken = true
	clear(s.where)
	s.mu.Unlock()
	if !was {
		s.log.Warn("disk cache of cold reads failed and is done without", "file", s.name, "err", errors.Join(err, s.file.Truncate(0)))
	}
}

// close waits for the writer and removes the file.
func (s *spill) close() error {
	s.mu.Lock()
	s.broken = true
	clear(s.where)
	s.mu.Unlock()
	s.write.Wait()
	err := s.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil // closed before
	}
	if e := s.fsys.Remove(s.name); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, e)
	}
	if err != nil {
		return fmt.Errorf("close disk cache: %w", err)
	}
	return nil
}
