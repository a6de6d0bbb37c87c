package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/danubemq/danube/storage/intake"
)

// Span is a run of offsets that one epoch gave and this store holds: whole,
// checked and synced.
type Span = intake.Span

// Copy takes over the history of a partition from another store (R16), beside,
// below or without a log that is open. Not safe for concurrent use.
type Copy struct {
	tier *Tier
	id   ID
	in   *intake.Copy
}

// Copy begins to copy a partition, or goes on where an earlier copy stopped. One
// copy of a partition at a time; a Log of it may be open.
func (t *Tier) Copy(ctx context.Context, id ID, topic string) (*Copy, error) {
	c := &Copy{tier: t, id: id}
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer t.work.Done()
	t.mu.Lock()
	if t.copies[id] != nil {
		t.mu.Unlock()
		return nil, fmt.Errorf("copy partition %s: it is being copied", id)
	}
	t.copies[id] = c
	j := t.checkpoint.journal
	t.mu.Unlock()
	err := ctx.Err()
	if err == nil && j != nil {
		// What it says of files that were given up must not be lost once others have their names.
		if err = j.Sync(); err != nil {
			t.poison(err)
		}
	}
	if err == nil {
		c.in, err = intake.Open(ctx, intake.Config{
			Home: t.home(), ID: id, Store: t.config.Store, SegmentBytes: t.config.SegmentBytes,
			Header: func(base, epoch uint64) ([]byte, error) { return t.copyHeader(id, topic, base, epoch) },
			Own:    c.own, Failed: c.failed, Final: t.poison, Named: c.insert,
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy partition %s: %w", id, err), c.Close())
	}
	return c, nil
}

// enter holds the tier open; t.work.Done ends it.
func (c *Copy) enter() error {
	t := c.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return t.err
	case t.closed:
		return ErrClosed
	}
	t.work.Add(1)
	return nil
}

// Have lists what the store holds of the partition, its own files included, in
// the order of offsets: what need not be copied. The slice is the caller's.
func (c *Copy) Have() []Span { return c.in.Have() }

// Append takes whole batches back to back, as a Reader of the source gave them,
// in the order of offsets within an epoch. What the store holds already, and
// marks, are passed over; a hole and another epoch begin a new file. Of a batch
// that is wrong, or falls partly into what is held, nothing is stored, but
// everything in front of it is. ErrFull is retriable, with all that [Copy.Have]
// does not list after the next Commit.
func (c *Copy) Append(batches []byte) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.tier.work.Done()
	if c.tier.space.Check() {
		return ErrFull
	}
	return c.in.Append(batches)
}

// Commit makes what was appended durable and known: it is in Have, and an open
// Log of the partition reads it from now on.
func (c *Copy) Commit() error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.tier.work.Done()
	return c.in.Commit()
}

// Close ends the copy. What was not committed is left for the next one to find.
func (c *Copy) Close() error {
	c.tier.mu.Lock()
	if c.tier.copies[c.id] == c {
		delete(c.tier.copies, c.id)
	}
	c.tier.mu.Unlock()
	if c.in == nil {
		return nil
	}
	return c.in.Close()
}

// log is the log of the partition, nil when it is not open.
func (c *Copy) log() *Log {
	c.tier.mu.Lock()
	defer c.tier.mu.Unlock()
	return c.tier.logs[c.id]
}

// own is the epoch of the partition's log.
func (c *Copy) own() (epoch uint64, open bool) {
	l := c.log()
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.door.epoch, true
}

// failed sorts errors of the disk: no space before a sync is retriable, all else
// is final (R20).
func (c *Copy) failed(err error) error {
	if isNoSpace(err) {
		c.tier.space.RanOut(err)
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	c.tier.poison(err)
	return err
}

// insert makes a file known to the partition's log; one that opens later finds
// it by its name.
func (c *Copy) insert(s intake.Segment) {
	c.tier.metrics.files.Inc()
	l := c.log()
	if l == nil {
		return
	}
	l.mu.Lock()
	var old *file
	if !l.door.closed {
		old = l.files.insert(copiedFile(l, s.Name, s.Base, s.Epoch, s.Footer))
	}
	l.mu.Unlock()
	if old != nil {
		if err := c.tier.cache.Drop(&old.Handle); err != nil {
			c.tier.config.Log.Warn("close a file that was replaced", "file", s.Name, "err", err)
		}
	}
}
