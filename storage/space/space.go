// Package space watches the free space of a directory, so that the log stops to
// take messages before the disk is full, and goes on by itself. No goroutines: it
// looks when it is asked, ten times a second at most.
package space

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/storage/disk"
)

const (
	// reserve is the free space below which the door closes, so that the log is
	// not what takes the last bytes from the metadata store beside it (R20).
	reserve = 8 << 20
	// every is how often free space is looked at while messages come in.
	every = 100 * time.Millisecond
)

// Guard says whether there is space. Safe for concurrent use.
type Guard struct {
	fs   disk.FS
	dir  string
	now  func() time.Time
	log  *slog.Logger
	full atomic.Bool
	next atomic.Int64 // when to look again, ns
	keep uint64       // bytes that stay free
}

// New watches the space of a directory.
func New(fs disk.FS, dir string, now func() time.Time, log *slog.Logger) *Guard {
	s := &Guard{fs: fs, dir: dir, now: now, log: log, keep: reserve}
	if sp, err := fs.Free(dir); err == nil && sp.Total > 0 {
		s.keep = min(s.keep, sp.Total/16)
	}
	return s
}

// Keep is how many bytes are to stay free.
func (s *Guard) Keep() uint64 { return s.keep }

// Full reports what is known, without a look.
func (s *Guard) Full() bool { return s.full.Load() }

// Check reports whether there is no space. It looks at the disk itself, if that is
// due.
func (s *Guard) Check() (full bool) {
	now := s.now().UnixNano()
	if next := s.next.Load(); now >= next && s.next.CompareAndSwap(next, now+int64(every)) {
		s.look()
	}
	return s.full.Load()
}

func (s *Guard) look() {
	sp, err := s.fs.Free(s.dir)
	if err != nil {
		return // the write itself will tell
	}
	full := sp.Free < s.keep
	if s.full.Swap(full) != full {
		state := "space is back, the log takes messages again"
		if full {
			state = "disk full, the log takes no messages until space is back"
		}
		s.log.Warn(state, "dir", s.dir, "free", sp.Free, "total", sp.Total, "reserve", s.keep)
	}
}

// RanOut notes that a write found no space.
func (s *Guard) RanOut(err error) {
	s.next.Store(s.now().UnixNano() + int64(every))
	if !s.full.Swap(true) {
		s.log.Warn("disk full, the log takes no messages until space is back", "err", err)
	}
}
