package wal

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// reserve is the free space below which the door closes, so that the log is
	// not what takes the last bytes from the metadata store beside it (R20).
	reserve = 8 << 20
	// spaceEvery is how often free space is looked at while messages come in.
	spaceEvery = 100 * time.Millisecond
)

// space closes the door while the disk is full and opens it again by itself.
type space struct {
	tier *Tier
	full atomic.Bool
	next atomic.Int64 // when to look again, ns
	keep uint64       // bytes that stay free
}

func (s *space) init(t *Tier) {
	s.tier = t
	s.keep = reserve
	if sp, err := t.config.FS.Free(t.config.Dir); err == nil && sp.Total > 0 {
		s.keep = min(s.keep, sp.Total/16)
	}
}

// check returns ErrFull while there is no space. It looks at the disk at most
// every spaceEvery.
func (s *space) check() error {
	now := s.tier.config.Now().UnixNano()
	if next := s.next.Load(); now >= next && s.next.CompareAndSwap(next, now+int64(spaceEvery)) {
		s.look()
	}
	if s.full.Load() {
		return ErrFull
	}
	return nil
}

func (s *space) look() {
	sp, err := s.tier.config.FS.Free(s.tier.config.Dir)
	if err != nil {
		return // the write itself will tell
	}
	full := sp.Free < s.keep
	if s.full.Swap(full) != full {
		state := "space is back, the log takes messages again"
		if full {
			state = "disk full, the log takes no messages until space is back"
		}
		s.tier.config.Log.Warn(state, "dir", s.tier.config.Dir, "free", sp.Free, "total", sp.Total, "reserve", s.keep)
	}
}

// ranOut closes the door after a write found no space.
func (s *space) ranOut(err error) {
	s.next.Store(s.tier.config.Now().UnixNano() + int64(spaceEvery))
	if !s.full.Swap(true) {
		s.tier.config.Log.Warn("disk full, the log takes no messages until space is back", "err", err)
	}
}

// Full reports whether the door is closed for want of space, and why. It looks
// at the disk as the door does: nobody need send anything for it to open again.
func (t *Tier) Full() error {
	if t.space.check() != nil {
		return fmt.Errorf("%w: less than %d bytes free", ErrFull, t.space.keep)
	}
	return nil
}
