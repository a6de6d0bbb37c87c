package wal

import (
	"fmt"
	"time"
)

// aheadPause is how far a look for what came meanwhile is apart from the next.
const aheadPause = 200 * time.Microsecond

// syncAhead syncs the file of a round that is one large part, and writes what
// is appended meanwhile behind it, so that disk and processor work side by side:
// the next round finds its first bytes in the file already. They are in nobody's
// round yet: nothing promises them, a cut takes them off, and after a power
// loss they are an unfinished write like any other.
func (r *round) syncAhead() error {
	synced := make(chan error, 1)
	p := &r.parts[0]
	go func() { synced <- r.tier.settle([]*file{p.file}) }() // returns when the file is synced
	pause := time.NewTicker(aheadPause)
	defer pause.Stop()
	for more := true; ; {
		if more {
			var err error
			if more, err = r.writeAhead(p); err != nil {
				<-synced
				return err
			}
		}
		select {
		case err := <-synced:
			return err
		case <-pause.C:
		}
	}
}

// writeAhead writes what no round has taken behind the part p of the present
// one; more says that it may be tried again.
func (r *round) writeAhead(p *part) (more bool, err error) {
	l := p.log
	at := p.pos + int64(p.size+l.ahead)
	l.mu.Lock()
	bufs, size := l.tail.Untaken(r.vec[:0], l.ahead)
	more = l.files.current == p.file
	l.mu.Unlock()
	defer clear(bufs)
	r.vec = bufs[:0]
	switch {
	case !more || at+int64(size) > r.tier.config.SegmentBytes:
		return false, nil
	case size < r.direct: // not worth a write of its own
		return true, nil
	}
	r.tier.config.At("commit.ahead")
	if err := p.handle.WriteVec(bufs, at); err != nil {
		if isNoSpace(err) {
			return false, nil // the round whose turn it is will find out, and answer
		}
		return false, fmt.Errorf("write %s: %w", p.file.Handle.Name, err)
	}
	l.ahead += size
	return true, nil
}

// takeAhead tells how many of the part's first bytes lie in its file already.
func (p *part) takeAhead() int {
	n := min(p.log.ahead, p.size)
	p.log.ahead -= n
	return n
}

// dropAhead cuts what was written ahead off a file that is to be closed.
func (t *Tier) dropAhead(f *file) error {
	if f.log.ahead == 0 {
		return nil
	}
	f.log.ahead = 0
	h, err := t.cache.Acquire(&f.Handle, 0)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer t.cache.Release(&f.Handle, true)
	if err := h.Truncate(f.size); err != nil {
		return fmt.Errorf("cut %s at %d: %w", f.Handle.Name, f.size, err)
	}
	return nil
}
