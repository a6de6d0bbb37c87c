package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	page   = 4096
	sector = 512
)

// journal remembers how to undo everything that was not synced yet: the bytes below each write and truncation since
// the last sync of that file, and each change of a directory since the last sync of that directory. Files are known by
// inode and directories by open handles, so that a later rename leads nobody astray.
//
// Its lock is held over a change and its record together.
type journal struct {
	mu      sync.Mutex
	grave   string // where removed entries wait, on the same file system, until their removal is synced
	buried  int
	files   map[fileID]*dirty
	dirs    map[fileID]*os.File
	entries []entry
}

type fileID struct{ dev, ino uint64 }

// dirty is a file with unsynced changes.
type dirty struct {
	f       *os.File
	patches []patch
}

// patch is what stood at a place before a change, and how long the file was.
type patch struct {
	at, length int64 // the bytes that the change touched
	old        []byte
	size       int64
}

// entry is one unsynced change of a directory. A new name has no from, a removed one no to.
type entry struct {
	from, to *name
	over     string // the grave of what the change removed, "" if nothing
}

type name struct {
	dir *os.File
	id  fileID
	is  string
}

func newJournal(grave string) (*journal, error) {
	if err := os.MkdirAll(grave, 0o755); err != nil {
		return nil, fmt.Errorf("make grave: %w", err)
	}
	return &journal{grave: grave, files: map[fileID]*dirty{}, dirs: map[fileID]*os.File{}}, nil
}

func identify(fd int) (fileID, int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileID{}, 0, err
	}
	return fileID{uint64(st.Dev), st.Ino}, st.Size, nil
}

// before records what a change of length bytes at an offset is about to hide; a truncation is a change from its new
// size to the end. It returns the size before.
func (j *journal) before(fd int, at, length int64) (int64, error) {
	id, size, err := identify(fd)
	if err != nil {
		return 0, err
	}
	d := j.files[id]
	if d == nil {
		// The caller's handle may be write-only: the old bytes are read through one of ours.
		f, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDWR, 0)
		if err != nil {
			return 0, err
		}
		d = &dirty{f: f}
		j.files[id] = d
	}
	p := patch{at: at, length: length, size: size}
	if n := min(size-at, length); n > 0 {
		p.old = make([]byte, n)
		if _, err := d.f.ReadAt(p.old, at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
	}
	d.patches = append(d.patches, p)
	return size, nil
}

// synced forgets the changes of a file: they are durable.
func (j *journal) synced(fd int) error {
	id, _, err := identify(fd)
	if err != nil {
		return err
	}
	if d := j.files[id]; d != nil {
		delete(j.files, id)
		return d.f.Close()
	}
	return nil
}

// at opens the directory of a name, once for each directory.
func (j *journal) at(path string) (*name, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	id, _, err := identify(int(dir.Fd()))
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	if known := j.dirs[id]; known != nil {
		if err := dir.Close(); err != nil {
			return nil, err
		}
		dir = known
	}
	j.dirs[id] = dir
	return &name{dir: dir, id: id, is: filepath.Base(path)}, nil
}

// created records a new name.
func (j *journal) created(path string) error {
	to, err := j.at(path)
	if err != nil {
		return err
	}
	j.entries = append(j.entries, entry{to: to})
	return nil
}

// remove buries a name instead of removing it.
func (j *journal) remove(path string) error {
	from, err := j.at(path)
	if err != nil {
		return err
	}
	over, err := j.bury(from)
	if err != nil {
		return err
	}
	j.entries = append(j.entries, entry{from: from, over: over})
	return nil
}

// rename moves a name; what stood at the new one is buried.
func (j *journal) rename(oldPath, newPath string) error {
	from, err := j.at(oldPath)
	if err != nil {
		return err
	}
	to, err := j.at(newPath)
	if err != nil {
		return err
	}
	var over string
	if _, err := os.Lstat(newPath); err == nil {
		if over, err = j.bury(to); err != nil {
			return err
		}
	}
	if err := unix.Renameat(int(from.dir.Fd()), from.is, int(to.dir.Fd()), to.is); err != nil {
		return errors.Join(err, j.dig(over, to))
	}
	j.entries = append(j.entries, entry{from: from, to: to, over: over})
	return nil
}

func (j *journal) bury(n *name) (string, error) {
	j.buried++
	grave := filepath.Join(j.grave, strconv.Itoa(j.buried))
	return grave, unix.Renameat(int(n.dir.Fd()), n.is, unix.AT_FDCWD, grave)
}

func (j *journal) dig(grave string, n *name) error {
	if grave == "" {
		return nil
	}
	return unix.Renameat(unix.AT_FDCWD, grave, int(n.dir.Fd()), n.is)
}

// dirSynced forgets the changes of a directory: they are durable, and what they removed is gone. A rename between two
// directories is durable with the one that holds the new name.
func (j *journal) dirSynced(path string) error {
	n, err := j.at(filepath.Join(path, "x"))
	if err != nil {
		return err
	}
	j.entries = slices.DeleteFunc(j.entries, func(e entry) bool {
		holder := e.to
		if holder == nil {
			holder = e.from
		}
		if holder.id != n.id {
			return false
		}
		if e.over != "" {
			err = errors.Join(err, os.RemoveAll(e.over))
		}
		return true
	})
	return err
}

// lose takes the power away: every unsynced change is undone, newest first. With rnd some survive, as on a real disk:
// the older part of the changes of directories, and of the file data any pages, some of them torn between sectors.
// It says how many changes of files and directories were pending.
func (j *journal) lose(rnd *rand.Rand) (files, entries int, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	entries = len(j.entries)
	keep := 0
	if rnd != nil {
		keep = rnd.IntN(entries + 1)
	}
	for i := entries - 1; i >= keep; i-- {
		err = errors.Join(err, j.undo(j.entries[i]))
	}
	// In the order of inodes, so that one seed gives one outcome.
	ids := make([]fileID, 0, len(j.files))
	for id := range j.files {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b fileID) int { return int(int64(a.ino) - int64(b.ino)) })
	for _, id := range ids {
		d := j.files[id]
		files += len(d.patches)
		err = errors.Join(err, d.lose(rnd), d.f.Close())
	}
	for _, dir := range j.dirs {
		err = errors.Join(err, dir.Close())
	}
	j.entries, j.files, j.dirs = nil, map[fileID]*dirty{}, map[fileID]*os.File{}
	return files, entries, errors.Join(err, os.RemoveAll(j.grave), os.MkdirAll(j.grave, 0o755))
}

func (j *journal) undo(e entry) error {
	var err error
	switch {
	case e.from == nil:
		_, err = j.bury(e.to)
	case e.to == nil:
		err = j.dig(e.over, e.from)
		if errors.Is(err, unix.ENOENT) && !removed(e.from.dir) {
			return err
		}
	default:
		err = unix.Renameat(int(e.to.dir.Fd()), e.to.is, int(e.from.dir.Fd()), e.from.is)
		err = errors.Join(err, j.dig(e.over, e.to))
	}
	// A name that a later, durable change took away needs no undoing.
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// removed says whether a directory is gone for good.
func removed(dir *os.File) bool {
	var st unix.Stat_t
	return unix.Fstat(int(dir.Fd()), &st) == nil && st.Nlink == 0
}

// lose brings a file back to its synced state, and with rnd leaves some of the newer pages in it.
func (d *dirty) lose(rnd *rand.Rand) error {
	newer := map[int64][]byte{}
	if rnd != nil {
		for _, p := range d.patches {
			for at := p.at / page * page; at < p.at+p.length; at += page {
				b := make([]byte, page)
				n, err := d.f.ReadAt(b, at)
				if err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				newer[at] = b[:n]
			}
		}
	}
	for _, p := range slices.Backward(d.patches) {
		if _, err := d.f.WriteAt(p.old, p.at); err != nil {
			return err
		}
		if err := d.f.Truncate(p.size); err != nil {
			return err
		}
	}
	for _, at := range slices.Sorted(maps.Keys(newer)) {
		b := newer[at]
		switch rnd.IntN(5) {
		case 0, 1:
			continue
		case 2:
			b = b[:min(len(b), rnd.IntN(page/sector)*sector)]
		}
		if len(b) == 0 {
			continue
		}
		if _, err := d.f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}
