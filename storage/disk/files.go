package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
)

// tempSuffix ends the name of a file that WriteFileAtomic has not finished.
const tempSuffix = ".tmp"

// NoSpace reports whether an error says that the disk, or a quota, is full.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// ReadFile returns all bytes of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.Open(name, 0)
	if err != nil {
		return nil, err
	}
	data, err := readAll(f)
	return data, errors.Join(err, f.Close())
}

func readAll(f File) ([]byte, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	n, err := f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return data[:n], err
}

// WriteFileAtomic makes or replaces a small file so that after a crash at any
// moment it holds the old bytes or the new, and the new once this returned nil.
// It leaves name + ".tmp" behind when it is interrupted; the next call takes
// that over. One writer a name at a time. An error of a sync is final (R20).
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	temp := name + tempSuffix
	f, err := fsys.Open(temp, Create)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := errors.Join(fill(f, data), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.Rename(temp, name); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func fill(f File, data []byte) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Datasync()
}

// MkdirAll makes a directory and the missing ones above it. All of them are
// durable when it returns nil, also one that was there before but may not have
// been synced: the parent of name is always synced.
func MkdirAll(fsys FS, name string) error {
	parent := path.Dir(name)
	err := fsys.Mkdir(name)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist) && parent != name:
		if err := MkdirAll(fsys, parent); err != nil {
			return err
		}
		if err := fsys.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	case errors.Is(err, fs.ErrExist):
		e, err := fsys.Stat(name)
		if err != nil {
			return err
		}
		if !e.Dir {
			return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
		}
	default:
		return err
	}
	if parent == name {
		return nil
	}
	return fsys.SyncDir(parent)
}

// RemoveAll deletes a file, or a directory and what is below it. A name that is
// not there is no error. Nothing is synced.
func RemoveAll(fsys FS, name string) error {
	e, err := fsys.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.Dir {
		entries, err := fsys.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := RemoveAll(fsys, path.Join(name, e.Name)); err != nil {
				return err
			}
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
