package wal

import (
	"fmt"

	"github.com/danubemq/danube/storage/disk"
)

const (
	// writeBackBytes is how much of a segment file the journal covers before the
	// file's write-back begins. Left to the checkpoint, all of it would be written
	// at once, and each round of those milliseconds would wait behind it.
	writeBackBytes = 256 << 10
	// writeBackUnit is what a write-back ends at: the block that is still written to stays.
	writeBackUnit = 4 << 10
)

// writeBack begins, beside the commit loop, to write back what rounds have left
// of a part's file. Nothing counts on it: what is durable, only a sync says. But a
// failure of it is one of a sync (R20). One runs at a time: while the disk is
// behind, the next piece grows instead.
func (r *round) writeBack(p *part) error {
	t, f, files := r.tier, p.file, &p.log.files
	from, to := files.started, (p.pos+int64(p.size))&^(writeBackUnit-1)
	if p.direct {
		files.started = to // its sync has just written it
		return nil
	}
	if to-from < writeBackBytes || t.config.SyncInterval > 0 || r.writingBack.Load() {
		return nil
	}
	// Acquired here and not beside the loop: whoever closes the log waits for the
	// round. After that the file would be opened once more, and stay open.
	h, err := t.cache.Acquire(&f.Handle, disk.Write)
	if isNotExist(err) && f.Gone.Load() {
		return nil // the partition was deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("open to write back: %w", err)
	}
	files.started = to
	r.writingBack.Store(true)
	t.work.Go(func() { // returns when the write-back has begun
		defer r.writingBack.Store(false)
		err := h.WriteBack(from, to-from)
		t.cache.Release(&f.Handle, false)
		if err != nil {
			t.poison(fmt.Errorf("write back %s: %w", f.Handle.Name, err))
		}
	})
	return nil
}
