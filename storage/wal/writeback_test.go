package wal

import (
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/storage/disk"
)

// pieces is a disk that remembers which ranges of segment files were asked to be
// written back. With hold each write-back ends when hold is closed.
type pieces struct {
	*disk.Memory
	hold chan struct{}
	mu   sync.Mutex
	list []piece
}

type piece struct{ off, end int64 }

type piecesFile struct {
	disk.File
	pieces *pieces
}

func (p *pieces) Open(name string, flags disk.Flags) (disk.File, error) {
	f, err := p.Memory.Open(name, flags)
	if err != nil {
		return nil, err
	}
	return piecesFile{f, p}, nil
}

func (f piecesFile) WriteBack(off, n int64) error {
	f.pieces.mu.Lock()
	f.pieces.list = append(f.pieces.list, piece{off, off + n})
	f.pieces.mu.Unlock()
	if f.pieces.hold != nil {
		<-f.pieces.hold
	}
	return f.File.WriteBack(off, n)
}

func (p *pieces) seen() []piece {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

// TestSegmentsAreWrittenBackInPieces: what only the journal covers is on its way
// to the disk before the checkpoint, once, in order, and in whole blocks; what
// the sync of a large part has written is not asked for again.
func TestSegmentsAreWrittenBackInPieces(t *testing.T) {
	d := &pieces{}
	r := newRig(t, func(c *Config) { d.Memory, c.FS, c.SegmentBytes = c.FS.(*disk.Memory), d, 64<<20 })
	until := func(n int) []piece {
		for range 1 << 14 {
			if list := d.seen(); len(list) >= n {
				return list
			}
			r.mustPut(1, 4<<10)
		}
		t.Fatalf("%d write-backs, want %d", len(d.seen()), n)
		return nil
	}
	until(3)
	r.mustPut(1, 400<<10)
	r.log.mu.Lock()
	large := r.log.files.current.size
	r.log.mu.Unlock()
	list := until(5)
	r.close()
	at := int64(0)
	for i, p := range list {
		if p.end%writeBackUnit != 0 || p.end-p.off < writeBackBytes || p.off < at {
			t.Fatalf("piece %d of %v is too small, no whole block, or begins below %d", i, list, at)
		}
		if p.off != at && p.off != large&^(writeBackUnit-1) {
			t.Fatalf("piece %d of %v does not begin at %d", i, list, at)
		}
		if p.off < large-400<<10 && p.end > large {
			t.Fatalf("piece %d of %v has the large part below %d", i, list, large)
		}
		at = p.end
	}
}

// TestLogClosesBesideItsWriteBack: it does not wait for it, and its file closes behind it.
func TestLogClosesBesideItsWriteBack(t *testing.T) {
	d := &pieces{hold: make(chan struct{})}
	r := newRig(t, func(c *Config) { d.Memory, c.FS, c.SegmentBytes = c.FS.(*disk.Memory), d, 64<<20 })
	for range 200 {
		r.mustPut(1, 4<<10)
	}
	eventually(t, func() bool { return len(d.seen()) == 1 })
	if err := r.log.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(d.seen()); n != 1 || r.tier.cache.Count() != 1 {
		t.Errorf("%d write-backs began, %d files are open", n, r.tier.cache.Count())
	}
	close(d.hold)
	eventually(t, func() bool { return r.tier.cache.Count() == 0 })
	r.close()
}

// TestNoWriteBackWhereSyncsHaveTheirOwnTime: acks that do not wait for the disk have no tail to spare.
func TestNoWriteBackWhereSyncsHaveTheirOwnTime(t *testing.T) {
	d := &pieces{}
	r := newRig(t, func(c *Config) {
		d.Memory, c.FS, c.SegmentBytes, c.SyncInterval = c.FS.(*disk.Memory), d, 64<<20, time.Hour
	})
	r.mustPut(200, 4<<10)
	r.close()
	if list := d.seen(); len(list) > 0 {
		t.Fatalf("write-backs %v", list)
	}
}

// TestFailedWriteBackIsFinal (R20): it tells of bytes that did not reach the disk, as a failed sync does.
func TestFailedWriteBackIsFinal(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes, c.JournalBytes = 64<<20, 16<<20 })
	r.fsys.Fail(func(op, name string) error {
		if op == "writeback" && strings.HasSuffix(name, ".seg") {
			return syscall.EIO
		}
		return nil
	})
	var err error
	for i := 0; i < 200 && err == nil; i++ { // less than what brings a checkpoint, whose sync would fail too
		err = r.put(4 << 10)
	}
	select {
	case <-r.tier.Failed():
	case <-time.After(3 * time.Second): // the sweep's sync would find out later
		t.Fatal("the failure is not told")
	}
	wantErr(t, r.put(100), ErrPoisoned)
	wantErr(t, r.tier.Err(), syscall.EIO)
	wantErr(t, r.tier.Close(), ErrPoisoned)
}
