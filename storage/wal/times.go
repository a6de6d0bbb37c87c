package wal

import (
	"errors"
	"slices"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/volume"
)

// OffsetAt is the offset of the first message appended at or after ms (ms since
// 1970), the committed end when there is none.
func (l *Log) OffsetAt(ms int64) (uint64, error) {
	l.mu.Lock()
	start, end, shown := l.ends.start, l.ends.committed, l.ends.shown()
	list := slices.Clone(l.files.list)
	l.mu.Unlock()
	for _, f := range list {
		size, err := f.load(end)
		if err != nil {
			if damage, ok := errors.AsType[*Damage](err); ok && damage != nil {
				continue // what cannot be read has no time
			}
			return 0, err
		}
		offset, ok, err := f.FirstAt(ms, size)
		if err != nil {
			return 0, err
		}
		if ok && offset >= start {
			return min(offset, shown), nil
		}
		if ok {
			return start, nil
		}
	}
	return shown, nil
}

// Retention says what of a log may be given up: what one of its bounds gives up
// goes, whatever the others say. A bound that is zero gives up nothing.
type Retention struct {
	Now   int64  // ms since 1970
	Age   int64  // ms; messages that are older may go
	Bytes int64  // what lies below the newest so many may go
	Acked uint64 // everything below it may go: all who are to read it have done so
}

// RetentionPoint is the highest offset up to which whole segment files may be
// given up. The file that is written to always stays.
func (l *Log) RetentionPoint(r Retention) uint64 {
	l.mu.Lock()
	start, end := l.ends.start, l.ends.committed
	list := slices.Clone(l.files.list)
	current := l.files.current
	l.mu.Unlock()
	sizes := make([]int64, len(list))
	total := int64(0)
	for i, f := range list {
		size, err := f.load(end)
		if err != nil {
			size = 0 // what cannot be read is given up when what follows it is
		}
		sizes[i] = size
		total += size
	}
	point := start
	for i, f := range list {
		if f == current || i == len(list)-1 {
			break
		}
		l.mu.Lock()
		next := f.followed(list[i+1])
		l.mu.Unlock()
		old := r.Age > 0 && sizes[i] > 0 && r.Now-f.LastTime() > r.Age
		large := r.Bytes > 0 && total-sizes[i] >= r.Bytes
		if !old && !large && next > r.Acked {
			break
		}
		total -= sizes[i]
		point = max(point, next)
	}
	return min(point, end)
}

// Bytes is what the log's files hold, footers aside, as far as it is known.
func (l *Log) Bytes() (files int, bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files.list {
		bytes += f.size
	}
	return len(l.files.list), bytes
}

// Verify walks over every message of the log, in its files and then in memory,
// and reports in the order of offsets what is damaged or missing.
func (l *Log) Verify(report func(Damage)) error {
	l.mu.Lock()
	start, end, warm := l.ends.start, l.ends.shown(), l.ends.shown()
	if base, ok := l.tail.Base(); ok {
		warm = min(warm, base)
	}
	known := slices.Clone(l.extents)
	l.mu.Unlock()
	for _, cold := range []bool{true, false} {
		from := start
		if !cold {
			from = max(start, warm)
		}
		for _, x := range known {
			if err := l.verify(max(x.Start, from), min(x.End, end), cold, report); err != nil {
				return err
			}
		}
	}
	return nil
}

// verify walks over [at, stop), which one epoch gave.
func (l *Log) verify(at, stop uint64, cold bool, report func(Damage)) error {
	r := l.Reader(at)
	r.cold = cold
	defer r.Close()
	for r.Offset() < stop {
		at := r.Offset()
		v, err := r.Next(volume.MaxRead)
		if err == nil {
			for rest := v.Data; len(rest) > 0 && err == nil; {
				var b batch.Batch
				if b, err = batch.Check(rest, limits); err != nil {
					report(Damage{From: at, To: v.End, File: "memory", Err: err})
				}
				rest = rest[len(b):]
			}
			v.Release()
			continue
		}
		d, damaged := errors.AsType[*Damage](err)
		trimmed, gone := errors.AsType[*Trimmed](err)
		other, away := errors.AsType[*Elsewhere](err)
		tier, cold := errors.AsType[*InCold](err)
		switch {
		case away:
			r.Seek(other.To)
		case cold:
			r.Seek(tier.To)
		case damaged:
			report(*d)
			r.Seek(d.To)
		case gone: // while this was walking
			r.Seek(trimmed.LogStart)
		case errors.Is(err, ErrEnd):
			return nil
		default:
			return err
		}
	}
	return nil
}
