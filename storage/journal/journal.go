// Package journal is the one file that makes small commit rounds durable, for all
// partitions of a store: zero-filled, so that its sync has no metadata to write,
// and used again and again. frame.go has its bytes, DESIGN.md of package storage
// why it is as it is.
//
// A round is a [Frame]: [Journal.Put] writes it, [Journal.Sync] makes it durable.
// The file is cut into spans. Each use of a span has a number; a span is used
// again only when [Journal.Clean] has said that every segment file it covers was
// synced by itself. After a kill or a power loss [Read] finds what an earlier run
// left, and [Contents.WriteBack] puts it into the segment files.
//
// It has no goroutine. Locks, in the order they are taken: that of the frames,
// held while one is placed and written, then the journal's own.
package journal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"

	"github.com/danubemq/danube/storage/disk"
)

const (
	firstFill = 4 << 20   // Bytes zero-filled at first need
	spans     = 4         // spans the first fill is cut into
	fillStep  = 256 << 10 // Bytes zero-filled between two syncs while the journal grows
)

// Journal is an open journal. Safe for concurrent use.
type Journal struct {
	file  disk.File
	nonce uint64
	zeros []byte // a block

	frames sync.Mutex // held while a frame is placed and written; guards number
	number uint64     // of the last frame
	pos    int64      // where the next frame begins
	span   int64      // Bytes of a span
	uses   []uint64
	use    uint64 // number of the span in use; grows for ever

	mu      sync.Mutex
	wake    sync.Cond // cleaned or failed changed
	size    int64     // Bytes in use
	filled  int64     // Bytes zero-filled, taken into use when the journal comes round
	most    int64
	growing bool
	cleaned uint64 // spans up to this use may be overwritten
	failed  error
}

// ErrSpace says that a frame is larger than the journal takes.
var ErrSpace = errors.New("frame does not fit the journal")

// Create makes a new journal of at most most bytes. It gets its name when
// all of it is synced: a journal without a header is one that was damaged.
func Create(fsys disk.FS, name string, store [16]byte, most int64) (*Journal, error) {
	temp := name + ".tmp"
	if err := fsys.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	f, err := fsys.Open(temp, disk.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	first := min(firstFill, most)
	j := &Journal{file: f, zeros: make([]byte, Block), pos: Block, span: first / spans, size: first, filled: first, most: most}
	j.wake.L = &j.mu
	j.uses = make([]uint64, spans)
	j.use, j.uses[0] = 1, 1
	err = j.lay(store, first)
	if err == nil {
		err = fsys.Rename(temp, name)
	}
	if err == nil {
		err = fsys.SyncDir(path.Dir(name))
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("create journal: %w", err), f.Close())
		if gone := fsys.Remove(temp); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
		return nil, err
	}
	return j, nil
}

// lay writes the header and the zeros behind it, and syncs them.
func (j *Journal) lay(store [16]byte, first int64) error {
	var nonce [8]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return err
	}
	j.nonce = binary.LittleEndian.Uint64(nonce[:])
	zeros := make([]byte, min(first, 1<<20))
	for at := int64(0); at < first; at += int64(len(zeros)) {
		if _, err := j.file.WriteAt(zeros[:min(int64(len(zeros)), first-at)], at); err != nil {
			return err
		}
	}
	if _, err := j.file.WriteAt(appendHead(nil, store, j.nonce), 0); err != nil {
		return err
	}
	return j.file.Datasync()
}

// Largest is how many bytes one frame may have, also of a journal of at most most
// bytes that is not made yet.
func Largest(most int64) int64 { return min(firstFill, most) / spans }

// Sync makes durable what was put.
func (j *Journal) Sync() error { return j.file.Datasync() }

// Close closes the file, and syncs nothing.
func (j *Journal) Close() error { return j.file.Close() }

// Largest is how many bytes of data and entries one frame may hold.
func (j *Journal) Largest() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size / spans
}

// place finds room for a frame of n bytes and returns where it begins and the
// use of the span it begins in. It waits for spans that are not clean yet.
func (j *Journal) place(n int64) (pos int64, use uint64, err error) {
	n = (n + Block - 1) / Block * Block
	j.mu.Lock()
	defer j.mu.Unlock()
	if n > j.size/spans {
		return 0, 0, ErrSpace
	}
	if j.pos+n > j.size {
		for j.filled >= j.size+j.span { // Grow instead of coming round
			j.size += j.span
			j.uses = append(j.uses, 0)
		}
		if j.pos+n > j.size {
			j.pos = Block
			if err := j.enter(0); err != nil {
				return 0, 0, err
			}
		}
	}
	pos = j.pos
	first := int(pos / j.span)
	if j.uses[first] != j.use {
		if err := j.enter(first); err != nil {
			return 0, 0, err
		}
	}
	use = j.use
	for s := first + 1; s <= int((pos+n-1)/j.span); s++ {
		if err := j.enter(s); err != nil {
			return 0, 0, err
		}
	}
	j.pos = pos + n
	return pos, use, nil
}

// enter begins a new use of a span once its last one is clean. j.mu is held.
func (j *Journal) enter(span int) error {
	for j.uses[span] > j.cleaned && j.failed == nil {
		j.wake.Wait()
	}
	if j.failed != nil {
		return j.failed
	}
	j.use++
	j.uses[span] = j.use
	return nil
}

// Clean says that every file which the spans up to use cover was synced.
func (j *Journal) Clean(use uint64) {
	j.mu.Lock()
	j.cleaned = max(j.cleaned, use)
	j.mu.Unlock()
	j.wake.Broadcast()
}

// Fail lets whoever waits for a clean span go, now and later, with err.
func (j *Journal) Fail(err error) {
	j.mu.Lock()
	j.failed = err
	j.mu.Unlock()
	j.wake.Broadcast()
}

// Due returns the use up to which files should be synced now, 0 for none: half
// the spans behind the writer, so that it does not have to wait for one.
func (j *Journal) Due() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.use-j.cleaned > uint64(len(j.uses)/2) {
		return j.use - 1
	}
	return 0
}

// ShouldGrow reports, once, that the journal is half through its space and may get more.
func (j *Journal) ShouldGrow() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.growing || j.filled >= j.most || j.pos < j.size/2 {
		return false
	}
	j.growing = true
	return true
}

// Grow doubles what is zero-filled. No space is no error: the journal stays as it is.
func (j *Journal) Grow() error {
	j.mu.Lock()
	from, to := j.filled, min(2*j.filled, j.most)
	j.mu.Unlock()
	zeros := make([]byte, fillStep)
	var err error
	for at := from; at < to && err == nil; at += fillStep {
		if _, err = j.file.WriteAt(zeros[:min(fillStep, to-at)], at); err == nil {
			err = j.file.Datasync()
		} else if disk.NoSpace(err) {
			to, err = at, nil
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.growing = false
	if to <= from || to < min(2*from, j.most) {
		j.most = j.filled // no room for more: do not try again
	}
	j.filled = max(j.filled, to)
	return err
}

// Bytes is the size in use, and how much of it covers files that are not synced.
func (j *Journal) Bytes() (size, used int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size, min(j.size, int64(j.use-j.cleaned)*j.span)
}

// Current is the number of the span in use.
func (j *Journal) Current() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.use
}
