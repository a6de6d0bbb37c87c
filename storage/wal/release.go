package wal

import (
	"errors"
	"fmt"
	"slices"
)

// InCold says that the messages [From, To) are to be had from the cold tier, and
// not here any more. A reader never steps over it.
type InCold struct{ From, To uint64 }

func (e *InCold) Error() string {
	return fmt.Sprintf("offsets %d to %d lie in the cold tier", e.From, e.To)
}

// orCold makes of damage at an offset that the cold tier has what it is then:
// the place where the messages are to be had.
func (l *Log) orCold(offset uint64, err error) error {
	d, ok := errors.AsType[*Damage](err)
	if !ok {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if end := l.files.cold.End(offset); end > offset {
		return &InCold{From: offset, To: min(d.To, end)}
	}
	return err
}

// Covered tells of what the cold tier has, as a catalog says that this broker has
// applied (R11): what of it is missing or damaged here is to be had there.
func (l *Log) Covered(in []Offsets) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.files.cold = l.files.cold.With(in...)
}

// Release gives up the closed files that lie below an offset and that the cold
// tier has from their first message to their last, [Log.Covered] says, and
// returns how many bytes they had. The start of the log stays: a reader that
// comes there gets *InCold, one that holds a view keeps it. A file of which
// anything is not covered, or belongs to no epoch that the metadata know, stays
// (R13). So do the newest file and the newest that is sealed: its footer tells
// of all producers (R17).
func (l *Log) Release(below uint64) (bytes int64, err error) {
	l.loadBelow(below)
	l.mu.Lock()
	if l.door.closed {
		l.mu.Unlock()
		return 0, ErrClosed
	}
	gone, left := l.releasable(below)
	if len(gone) == 0 {
		l.mu.Unlock()
		return 0, nil
	}
	for _, f := range gone {
		bytes += f.size
	}
	forgotten := gone[len(gone)-1].Base + 1
	n := slices.IndexFunc(left, func(f *file) bool { return f.Base >= forgotten })
	kept := slices.Clone(left[:n]) // the newest file stays, so there is one
	l.files.list = left
	l.mu.Unlock()
	if len(kept) > 0 {
		// The journal forgets what it has of all files in front of an offset: those that stay must not need it.
		if err := l.tier.settle(kept); err != nil {
			l.tier.poison(err)
			return 0, err
		}
	}
	return bytes, l.tier.remove(l.id, forgotten, gone)
}

// loadBelow reads where files end of which that is not known: those that were old already when the log was opened.
func (l *Log) loadBelow(below uint64) {
	l.mu.Lock()
	var list []*file
	for _, f := range l.files.list {
		if !f.known && f.Base < below {
			list = append(list, f)
		}
	}
	l.mu.Unlock()
	for _, f := range list {
		if _, err := f.load(below); err != nil {
			l.tier.config.Log.Warn("file is not given up, its end is not known", "file", f.Handle.Name, "err", err)
		}
	}
}

// releasable divides the files of the log. l.mu is held.
func (l *Log) releasable(below uint64) (gone, left []*file) {
	list := l.files.list
	newest := len(list) - 1
	for newest > 0 && !list[newest].sealed {
		newest--
	}
	for i, f := range list {
		x, gap := l.extents.At(f.Base)
		ok := i < newest && f != l.files.current && f.known && f.end > f.Base && f.end <= below &&
			gap == nil && x.Epoch == f.Epoch && f.end <= x.End && l.files.cold.End(f.Base) >= f.end
		if ok {
			gone = append(gone, f)
		} else {
			left = append(left, f)
		}
	}
	return gone, left
}
