package storage

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/journal"
	"github.com/danubemq/danube/storage/segment"
)

// The file "store" in the data directory: "DANSTOR\n" · u32 version · store id
// (16) · u32 CRC-32C of what stands before.
const (
	identityMagic   = "DANSTOR\n"
	identityVersion = 1
	identitySize    = len(identityMagic) + 4 + 16 + 4
)

// IdentityError says that a data directory does not know who it is although
// data lies in it: it is served only after an operator's word (R9).
type IdentityError struct {
	File  string   // the file that is missing or damaged
	Found [16]byte // the id that the segment files carry, zero when none can be read
	Err   error
}

func (e *IdentityError) Error() string {
	found := "no segment file names one"
	if e.Found != [16]byte{} {
		found = "the segment files name store " + hex.EncodeToString(e.Found[:])
	}
	return fmt.Sprintf("store identity %s: %v; %s", e.File, e.Err, found)
}

func (e *IdentityError) Unwrap() error { return e.Err }

func lockName(dir string) string     { return path.Join(dir, "lock") }
func identityName(dir string) string { return path.Join(dir, "store") }

// readIdentity reads the id's file. A *segment.VersionError is of a newer release's.
func readIdentity(fsys disk.FS, dir string) ([16]byte, error) {
	raw, err := disk.ReadFile(fsys, identityName(dir))
	if err != nil {
		return [16]byte{}, err
	}
	return parseIdentity(raw)
}

// identify reads the id of the store in dir, or makes one for an empty directory.
func identify(fsys disk.FS, dir string) ([16]byte, error) {
	id, err := readIdentity(fsys, dir)
	if _, newer := errors.AsType[*segment.VersionError](err); err == nil || newer {
		return id, err
	}
	found, data, serr := searchIdentity(fsys, dir)
	if serr != nil {
		return [16]byte{}, fmt.Errorf("read store identity: %w", errors.Join(err, serr))
	}
	if data || !errors.Is(err, fs.ErrNotExist) {
		return [16]byte{}, &IdentityError{File: identityName(dir), Found: found, Err: err}
	}
	if _, err := rand.Read(id[:]); err != nil {
		return id, fmt.Errorf("make store identity: %w", err)
	}
	return id, writeIdentity(fsys, dir, id)
}

func parseIdentity(b []byte) ([16]byte, error) {
	n := identitySize - 4
	switch {
	case len(b) < identitySize, string(b[:len(identityMagic)]) != identityMagic:
		return [16]byte{}, errors.New("not a store identity")
	case binary.LittleEndian.Uint32(b[n:]) != batch.Checksum(b[:n]):
		return [16]byte{}, errors.New("CRC is wrong")
	}
	if v := binary.LittleEndian.Uint32(b[len(identityMagic):]); v != identityVersion {
		return [16]byte{}, &segment.VersionError{What: "store identity", Found: int(v), Known: identityVersion}
	}
	return [16]byte(b[len(identityMagic)+4:]), nil
}

func writeIdentity(fsys disk.FS, dir string, id [16]byte) error {
	b := append([]byte(nil), identityMagic...)
	b = binary.LittleEndian.AppendUint32(b, identityVersion)
	b = append(b, id[:]...)
	b = binary.LittleEndian.AppendUint32(b, batch.Checksum(b))
	if err := disk.WriteFileAtomic(fsys, identityName(dir), b); err != nil {
		return fmt.Errorf("write store identity: %w", err)
	}
	return nil
}

// searchIdentity looks for segment files and the store id most of their headers
// carry; data says that there are segment files at all.
func searchIdentity(fsys disk.FS, dir string) (id [16]byte, data bool, err error) {
	votes := make(map[[16]byte]int)
	err = walkSegments(fsys, dir, func(name string) error {
		data = true
		f, err := fsys.Open(name, 0)
		if err != nil {
			return err
		}
		h, _, err := segment.ReadHeader(f)
		if err == nil {
			votes[h.Store]++
		}
		return f.Close() // a header that cannot be read has no vote
	})
	for x, n := range votes {
		if n > votes[id] {
			id = x
		}
	}
	return id, data, err
}

// HasData reports whether there are segment files below the data directory. It
// needs no open store and changes nothing.
func HasData(fsys disk.FS, dir string) (bool, error) {
	found := false
	err := walkSegments(fsys, dir, func(string) error { found = true; return nil })
	return found, err
}

// walkSegments calls visit with the name of every segment file below dir.
func walkSegments(fsys disk.FS, dir string, visit func(name string) error) error {
	return walkPartitions(fsys, dir, func(names []string) error {
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		return nil
	})
}

// walkPartitions calls visit with the segment files of each partition that has
// any, in the order of their offsets.
func walkPartitions(fsys disk.FS, dir string, visit func(names []string) error) error {
	root := path.Join(dir, "wal")
	topics, err := fsys.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, t := range topics {
		if !t.Dir {
			continue
		}
		parts, err := fsys.ReadDir(path.Join(root, t.Name))
		if err != nil {
			return err
		}
		for _, p := range parts {
			if !p.Dir {
				continue
			}
			files, err := fsys.ReadDir(path.Join(root, t.Name, p.Name))
			if err != nil {
				return err
			}
			var names []string
			for _, f := range files {
				if _, _, ok := segment.ParseName(f.Name); ok {
					names = append(names, path.Join(root, t.Name, p.Name, f.Name))
				}
			}
			if len(names) == 0 {
				continue
			}
			if err := visit(names); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkFormats returns a *segment.VersionError when a newer binary has written
// here, before anything is changed. Of each partition the newest file is looked
// at: what a newer binary wrote is newest somewhere.
func checkFormats(fsys disk.FS, dir string) error {
	newer := func(err error) error {
		if v, ok := errors.AsType[*segment.VersionError](err); ok {
			return v
		}
		return nil // what else is wrong is for recovery to judge
	}
	err := walkPartitions(fsys, dir, func(names []string) error {
		name := names[len(names)-1]
		f, err := fsys.Open(name, 0)
		if err != nil {
			return nil // one partition's damage stops no other
		}
		_, _, err = segment.ReadHeader(f)
		return errors.Join(newer(err), f.Close())
	})
	if err = newer(err); err == nil {
		err = newer(CheckJournal(fsys, dir))
	}
	if err != nil {
		return fmt.Errorf("look into %s: %w", dir, err)
	}
	return nil
}

// CheckJournal reads the header of the journal of a data directory that is not
// in use, and changes nothing. Nil: it is whole, or there is none.
func CheckJournal(fsys disk.FS, dir string) error {
	raw, err := disk.ReadFile(fsys, identityName(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no store, no journal of it
	}
	if err != nil {
		return fmt.Errorf("read store identity: %w", err)
	}
	id, err := parseIdentity(raw)
	if err != nil {
		return fmt.Errorf("read store identity: %w", err)
	}
	return journal.Check(hotdir.Dir{FS: fsys, Path: dir}, id)
}

// Adopt writes the store's id again from what the segment files carry: the
// operator's answer to an *IdentityError. The directory must not be in use.
func Adopt(fsys disk.FS, dir string) (id [16]byte, err error) {
	lock, err := fsys.Lock(lockName(dir))
	if err != nil {
		return id, fmt.Errorf("lock data directory: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	id, data, err := searchIdentity(fsys, dir)
	if err != nil {
		return id, fmt.Errorf("search store identity: %w", err)
	}
	if !data || id == [16]byte{} {
		return id, errors.New("adopt store: no segment file names a store")
	}
	return id, writeIdentity(fsys, dir, id)
}
