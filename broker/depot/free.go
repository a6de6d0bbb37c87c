package depot

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

// The pauses of the goroutine that frees what is covered.
const (
	freeEvery = 5 * time.Second        // it looks, though no catalog has moved
	freeRest  = 100 * time.Millisecond // and no sooner again than that
)

// pressedAt is the used part of the disk from which everything is exported at once.
const pressedAt = 0.85

// free keeps the logs within the bounds for what the cold tier has too: when a
// catalog moves, and now and then in any case. It returns when ctx ends.
func (d *Depot) free(ctx context.Context) {
	tick := time.NewTicker(freeEvery)
	defer tick.Stop()
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		d.freeNow(ctx)
		d.press()
		rest.Reset(freeRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-d.kick:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// press has everything exported at once while the disk is nearly full.
func (d *Depot) press() {
	space, err := d.cfg.FS.Free(filepath.Dir(d.cfg.Dir))
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.export != nil && err == nil && space.Total > 0 {
		d.export.Pressed(nearlyFull(space))
	}
}

func nearlyFull(s disk.Space) bool { return float64(s.Free) < (1-pressedAt)*float64(s.Total) }

// freeNow frees what is older than it may be and, while the logs are longer than
// they may be, what is the oldest of all: by half the age each time, until that is
// enough or all that is covered has gone.
func (d *Depot) freeNow(ctx context.Context) {
	var logs []*storage.Log
	d.mu.Lock()
	for _, s := range d.sources {
		logs = append(logs, s.log)
	}
	d.mu.Unlock()
	logs = long(logs)
	now := d.cfg.Now()
	age := d.cfg.Limits.LocalAge
	if age > 0 {
		d.release(logs, now.Add(-age))
	}
	if age == 0 {
		age = oldest
	}
	for most := d.cfg.Limits.LocalBytes; most > 0 && ctx.Err() == nil && d.length() > most; age /= 2 {
		if age < youngest {
			age = 0
		}
		d.release(logs, now.Add(-age))
		if age == 0 {
			return
		}
	}
}

// The ages between which what is freed is chosen.
const (
	oldest   = 90 * 24 * time.Hour
	youngest = 250 * time.Millisecond
)

// long are the logs with more files than always stay.
func long(logs []*storage.Log) []*storage.Log {
	out := logs[:0]
	for _, l := range logs {
		if files, _ := l.Bytes(); files > 2 { // two always stay
			out = append(out, l)
		}
	}
	return out
}

// length is how long the logs are, all together.
func (d *Depot) length() (sum int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sources {
		_, n := s.log.Bytes()
		sum += n
	}
	return sum
}

// release frees what was appended before a time. The log gives up only what its
// catalog covers (R13).
func (d *Depot) release(logs []*storage.Log, before time.Time) {
	for _, l := range logs {
		below, err := l.OffsetAt(before.UnixMilli())
		if err == nil {
			var freed int64
			if freed, err = l.Release(below); freed > 0 {
				d.cfg.At("depot.freed")
			}
		}
		if err != nil && !errors.Is(err, storage.ErrClosed) {
			d.cfg.Log.Warn("what the cold tier has is not freed, trying again", "err", err)
		}
	}
}
