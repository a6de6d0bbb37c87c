// Package disk is the one way in which the log touches files. It has two
// implementations: [OS], the operating system, and [Memory], in which a power
// loss keeps, drops or tears every page and directory entry that was not
// synced, writes fail and space ends.
//
// Names are slash-separated paths. Errors are *fs.PathError or wrap what
// errors.Is compares with fs.ErrNotExist, fs.ErrExist, syscall.ENOSPC,
// syscall.EIO and the like, in both implementations alike.
//
// What a caller may rely on after a power loss is what POSIX promises and no
// more: bytes and size of a file after its own Datasync, an entry of a
// directory after SyncDir of that directory. A rename leaves the old or the new
// entry, never neither.
package disk

import (
	"errors"
	"fmt"
	"io"
)

// Flags say how [FS.Open] opens. The zero value opens an existing file to read.
type Flags uint8

const (
	// Write allows writing beside reading.
	Write Flags = 1 << iota
	// Create makes the file when it is missing; it implies Write.
	Create
	// Exclusive makes the file and fails with fs.ErrExist when it is there; it implies Create.
	Exclusive
)

// File is an open file. It is safe for concurrent use; Close waits for the
// calls in flight, and calls after it return fs.ErrClosed.
type File interface {
	readWriterAt
	syncer
	io.Closer
	// WriteVec writes the buffers one behind the other from off on, in one
	// system call where the system can. An error leaves any part written. The
	// buffers are neither changed nor kept.
	WriteVec(bufs [][]byte, off int64) error
	// Truncate sets the size; a longer file ends in zeros.
	Truncate(size int64) error
	// Size is the length in bytes.
	Size() (int64, error)
}

// syncer is bringing to stable storage what was written.
type syncer interface {
	// Datasync returns nil when everything written by calls that returned before
	// it began is on stable storage, the size included. A failure is final (R20):
	// every later Datasync of this handle returns the same error.
	Datasync() error
	// WriteBack asks that n bytes from off on begin their way to stable storage,
	// so that a later Datasync finds little left to do. It promises nothing, and
	// does nothing where the system cannot. A failure is one of Datasync too, and
	// as final (R20).
	WriteBack(off, n int64) error
}

// readWriterAt is reading and writing at a position, as in package io.
type readWriterAt interface {
	// ReadAt is io.ReaderAt: fewer bytes than asked for come with an error, io.EOF at the end.
	io.ReaderAt
	// WriteAt writes all of p or returns an error; then any part of p may have been written.
	io.WriterAt
}

// Entry is what a directory says of a file or directory in it.
type Entry struct {
	Name string // the last element of its path
	Dir  bool
	Size int64 // bytes, 0 for a directory
}

// Dirs are the operations on directories. What they change is durable only
// after SyncDir of each directory whose entries changed.
type Dirs interface {
	// Mkdir makes one directory; its parent must exist.
	Mkdir(name string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(name string) ([]Entry, error)
	// Stat describes one file or directory.
	Stat(name string) (Entry, error)
	// Rename moves a file or directory, replacing a file at to.
	Rename(from, to string) error
	// Remove deletes a file or an empty directory.
	Remove(name string) error
	// SyncDir makes the entries of a directory durable. A failure is final (R20).
	SyncDir(name string) error
}

// links gives a file a further name.
type links interface {
	// Link makes to another name of the file from, and fails with fs.ErrExist when
	// to is there. Of several that link to one name at once, from any number of
	// machines, one succeeds. The entry is durable after SyncDir of to's directory.
	Link(from, to string) error
}

// FS is a file system. It is safe for concurrent use.
type FS interface {
	Dirs
	links
	// Open opens a regular file.
	Open(name string, flags Flags) (File, error)
	// Lock takes the exclusive lock on the file name, made when missing, until
	// the returned Closer is closed or the process ends. It writes the process
	// id into the file. *LockedError: another process holds it. ErrNetwork: the
	// file lies on a network file system, whose locks and syncs are not to be
	// relied on.
	Lock(name string) (io.Closer, error)
	// Free tells how much the file system that holds dir can still take.
	Free(dir string) (Space, error)
}

// Space is the room of a file system in bytes.
type Space struct {
	Free  uint64 // what an ordinary user may still write
	Total uint64
}

// ErrNetwork says that a lock was refused because its file lies on a network file system.
var ErrNetwork = errors.New("network file system")

// LockedError says who holds a lock.
type LockedError struct {
	Name string // the lock file
	PID  int    // the holder, 0 when the file does not say
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is locked by another process", e.Name)
	}
	return fmt.Sprintf("%s is locked by process %d", e.Name, e.PID)
}

// networkError says which kind of network file system was refused.
func networkError(kind string) error { return fmt.Errorf("%w (%s)", ErrNetwork, kind) }
