package wal

import (
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// place is what the file has to be.
func (f *file) place() recovery.Place {
	return recovery.Place{Store: f.log.tier.config.Store, ID: f.log.id, Name: f.handle.Name, Base: f.base, Epoch: f.epoch}
}

// load reads the footer of a file that an earlier run sealed, once, and returns
// how many bytes of it are batches. A file that has no whole footer is scanned.
func (f *file) load(s source) (int64, error) {
	f.log.mu.Lock()
	known, size := f.known, f.size
	f.log.mu.Unlock()
	if known {
		return size, nil
	}
	h, err := f.log.tier.cache.Acquire(&f.handle, 0)
	if err != nil {
		return 0, f.damage(s, err)
	}
	defer f.log.tier.cache.Release(&f.handle, false)
	if _, _, err := f.place().Header(h); err != nil {
		return 0, f.damage(s, err)
	}
	total, err := h.Size()
	if err != nil {
		return 0, f.damage(s, err)
	}
	footer, err := segment.ReadFooter(h, total)
	if err != nil {
		found, serr := f.place().Scan(h, total, nil)
		if serr != nil {
			return 0, f.damage(s, errors.Join(err, serr))
		}
		footer = found.Footer
	}
	f.mu.Lock()
	f.footer = footer
	f.mu.Unlock()
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	f.known, f.size, f.end, f.table = true, footer.DataEnd, footer.End, footer.Batches == 0
	return f.size, nil
}

// holdsNothing says whether the file is known to hold producers and no message.
func (f *file) holdsNothing() bool {
	f.log.mu.Lock()
	defer f.log.mu.Unlock()
	return f.table
}

func (f *file) damage(s source, err error) error {
	return &Damage{From: max(f.base, f.log.Start()), To: s.after, File: f.handle.Name, Err: err}
}

// position is where the search for an offset begins.
func (f *file) position(offset uint64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.footer != nil:
		return f.footer.Find(offset).From
	case f.summary != nil:
		return f.summary.Find(offset).From
	}
	return 0
}

// read returns n bytes of the file at a position in a chunk of its own.
func (f *file) read(at int64, n int) (*memory.Chunk, error) {
	t := f.log.tier
	h, err := t.cache.Acquire(&f.handle, 0)
	if err != nil {
		if f.gone.Load() {
			return nil, &Trimmed{LogStart: f.log.Start()}
		}
		return nil, fmt.Errorf("open segment: %w", err)
	}
	defer t.cache.Release(&f.handle, false)
	c := t.memory.Take(n)
	got, err := h.ReadAt(c.Buf[:n], at)
	c.Buf = c.Buf[:got]
	if err != nil && !(errors.Is(err, io.EOF) && got > 0) {
		c.Release()
		return nil, fmt.Errorf("read %s: %w", f.handle.Name, err)
	}
	t.makeRoom()
	return c, nil
}

// step finds the first whole batch behind a bad place of a file. The reader
// goes on there if it does not lie beyond its next offset.
func (r *Reader) step(s source, at int64, bad error) error {
	f := s.file
	t := f.log.tier
	h, err := t.cache.Acquire(&f.handle, 0)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer t.cache.Release(&f.handle, false)
	scan := segment.NewScanner(h, s.size, segment.Origin{At: at, Base: f.base, FirstEpoch: f.epoch, Epoch: f.epoch})
	for {
		x, err := scan.Next()
		if errors.Is(err, io.EOF) {
			return &Damage{From: r.next, To: s.after, File: f.handle.Name, At: at, Err: bad}
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f.handle.Name, err)
		}
		if x.Kind != segment.Whole || x.Batch.Control() || r.fits(x.Batch, s) != nil {
			continue
		}
		if x.From <= r.next {
			if x.To > r.next {
				r.at = x.At
				return errAgain
			}
			continue
		}
		return &Damage{From: r.next, To: min(x.From, s.after), File: f.handle.Name, At: at, Err: bad}
	}
}

// errAgain says that the reader's place was moved and the read begins again.
var errAgain = errors.New("read again")
