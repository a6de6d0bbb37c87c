// Package hotdir is the directory of the hot tier: where the files of each
// partition lie, and the two small files that one run leaves to the next.
//
// [Dir] names files and lists partitions; [Run] says what a run promised while it
// ran, and the clean marker, a map of [End], where partitions stood when it
// stopped. What follows from them is judged by package wal (R6, R10).
package hotdir

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"

	"github.com/danubemq/danube/storage/disk"
)

// ID names a partition.
type ID struct {
	Topic     [16]byte
	Partition uint32
}

func (id ID) String() string { return fmt.Sprintf("%x:%d", id.Topic, id.Partition) }

// Dir is a data directory, as far as it is the hot tier's. It is a value.
type Dir struct {
	FS   disk.FS
	Path string
}

// Journal is the name of the journal.
func (d Dir) Journal() string { return path.Join(d.Path, "journal") }

// Topics is the directory in which there is one of each topic.
func (d Dir) Topics() string { return path.Join(d.Path, "wal") }

// Partition is where the segment files of a partition lie.
func (d Dir) Partition(id ID) string {
	return path.Join(d.Topics(), fmt.Sprintf("%x", id.Topic), fmt.Sprint(id.Partition))
}

// Make makes the directories of a partition, as far as they are missing, below
// that of all topics, which it does not make again: whoever deletes a data
// directory under a broker wants it gone. It syncs nothing.
func (d Dir) Make(id ID) error {
	dir := d.Partition(id)
	for _, name := range []string{path.Dir(dir), dir} {
		if err := d.FS.Mkdir(name); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// MakeDurable is Make, and the directories are durable when it returns nil.
func (d Dir) MakeDurable(id ID) error {
	if err := d.Make(id); err != nil {
		return err
	}
	if err := d.FS.SyncDir(d.Topics()); err != nil {
		return err
	}
	return d.FS.SyncDir(path.Dir(d.Partition(id)))
}

// Partitions lists what lies on the disk.
func (d Dir) Partitions() ([]ID, error) {
	topics, err := d.FS.ReadDir(d.Topics())
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var list []ID
	for _, x := range topics {
		raw, err := hex.DecodeString(x.Name)
		if err != nil || len(raw) != 16 || !x.Dir {
			continue
		}
		parts, err := d.FS.ReadDir(path.Join(d.Topics(), x.Name))
		if err != nil {
			return nil, fmt.Errorf("list partitions: %w", err)
		}
		for _, p := range parts {
			if n, err := strconv.ParseUint(p.Name, 10, 32); err == nil && p.Dir {
				list = append(list, ID{Topic: [16]byte(raw), Partition: uint32(n)})
			}
		}
	}
	return list, nil
}
