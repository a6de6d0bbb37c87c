package wal

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/danubemq/danube/storage/disk"
)

const (
	journalFirst = 4 << 20   // bytes zero-filled at first need
	journalSpans = 4         // spans the first fill is cut into
	fillStep     = 256 << 10 // bytes zero-filled between two syncs while the journal grows
)

// journal is the one file that makes small commit rounds durable: zero-filled,
// so that a sync has no metadata to write, and recycled. It is cut into spans;
// a span is used again only when every segment file that it covers was synced
// by itself. Only the commit loop appends; fill and cleaned come from beside it.
type journal struct {
	file   disk.File
	nonce  uint64
	number uint64 // of the last frame
	pos    int64  // where the next frame begins
	span   int64  // bytes of a span
	uses   []uint64
	use    uint64 // number of the span in use; grows for ever

	mu      sync.Mutex
	wake    sync.Cond // cleaned or failed changed
	size    int64     // bytes in use
	filled  int64     // bytes zero-filled, taken into use when the journal comes round
	most    int64
	growing bool
	cleaned uint64 // spans up to this use may be overwritten
	failed  bool
}

// errJournalSpace says that a frame is larger than the journal takes.
var errJournalSpace = errors.New("frame does not fit the journal")

// createJournal makes a new journal of at most most bytes. It gets its name when
// all of it is synced: a journal without a header is one that was damaged.
func createJournal(fsys disk.FS, name string, store [16]byte, most int64) (*journal, error) {
	temp := name + ".tmp"
	if err := fsys.Remove(temp); err != nil && !isNotExist(err) {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	f, err := fsys.Open(temp, disk.Exclusive)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	first := min(journalFirst, most)
	j := &journal{file: f, pos: journalBlock, span: first / journalSpans, size: first, filled: first, most: most}
	j.wake.L = &j.mu
	j.uses = make([]uint64, journalSpans)
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
		if gone := fsys.Remove(temp); gone != nil && !isNotExist(gone) {
			err = errors.Join(err, gone)
		}
		return nil, err
	}
	return j, nil
}

// lay writes the header and the zeros behind it, and syncs them.
func (j *journal) lay(store [16]byte, first int64) error {
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
	if _, err := j.file.WriteAt(appendJournalHead(nil, store, j.nonce), 0); err != nil {
		return err
	}
	return j.file.Datasync()
}

// largest is how many bytes of data and entries one frame may hold.
func (j *journal) largest() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size / journalSpans
}

// place finds room for a frame of n bytes and returns where it begins and the
// use of the span it begins in. It waits for spans that are not clean yet.
func (j *journal) place(n int64) (pos int64, use uint64, err error) {
	n = (n + journalBlock - 1) / journalBlock * journalBlock
	j.mu.Lock()
	defer j.mu.Unlock()
	if n > j.size/journalSpans {
		return 0, 0, errJournalSpace
	}
	if j.pos+n > j.size {
		for j.filled >= j.size+j.span { // grow instead of coming round
			j.size += j.span
			j.uses = append(j.uses, 0)
		}
		if j.pos+n > j.size {
			j.pos = journalBlock
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
func (j *journal) enter(span int) error {
	for j.uses[span] > j.cleaned && !j.failed {
		j.wake.Wait()
	}
	if j.failed {
		return ErrPoisoned
	}
	j.use++
	j.uses[span] = j.use
	return nil
}

// clean says that every file which the spans up to use cover was synced.
func (j *journal) clean(use uint64) {
	j.mu.Lock()
	j.cleaned = max(j.cleaned, use)
	j.mu.Unlock()
	j.wake.Broadcast()
}

// fail lets whoever waits for a clean span go.
func (j *journal) fail() {
	j.mu.Lock()
	j.failed = true
	j.mu.Unlock()
	j.wake.Broadcast()
}

// due returns the use up to which files should be synced now, 0 for none: half
// the spans behind the writer, so that it does not have to wait for one.
func (j *journal) due() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.use-j.cleaned > uint64(len(j.uses)/2) {
		return j.use - 1
	}
	return 0
}

// shouldGrow reports, once, that the journal is half through its space and may get more.
func (j *journal) shouldGrow() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.growing || j.filled >= j.most || j.pos < j.size/2 {
		return false
	}
	j.growing = true
	return true
}

// grow doubles what is zero-filled. No space is no error: the journal stays as it is.
func (j *journal) grow() error {
	j.mu.Lock()
	from, to := j.filled, min(2*j.filled, j.most)
	j.mu.Unlock()
	zeros := make([]byte, fillStep)
	var err error
	for at := from; at < to && err == nil; at += fillStep {
		if _, err = j.file.WriteAt(zeros[:min(fillStep, to-at)], at); err == nil {
			err = j.file.Datasync()
		} else if isNoSpace(err) {
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

// bytes is the size in use, and how much of it covers files that are not synced.
func (j *journal) bytes() (size, used int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size, min(j.size, int64(j.use-j.cleaned)*j.span)
}

// current is the number of the span in use.
func (j *journal) current() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.use
}
