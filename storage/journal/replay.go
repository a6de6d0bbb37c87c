package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

// filesAtOnce is how many files are written back side by side.
const filesAtOnce = 16

// target is one segment file that the journal has something for.
type target struct {
	id          hotdir.ID
	base, epoch uint64
	pieces      []piece
}

// piece is an entry and where its data lies in the journal.
type piece struct {
	entry entry
	at    int64
}

// Contents are what a journal of an earlier run holds.
type Contents struct {
	Bad    error  // what is wrong with its head: nothing can be read. Nil: it can
	Lost   uint64 // number of a frame that was synced and has gone bad, 0 for none
	Frames int    // that are whole

	home hotdir.Dir
	file disk.File
	list []*target
}

// Check reads the header of the journal in a data directory and changes
// nothing. Nil: it is whole, or there is none. Errors: *segment.VersionError of a
// newer format; what else is wrong with it, or with reading it.
func Check(home hotdir.Dir, store [16]byte) error {
	f, err := home.FS.Open(home.Journal(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	head := make([]byte, headSize)
	n, err := f.ReadAt(head, 0)
	if err == nil || errors.Is(err, io.EOF) {
		_, err = readHead(head[:n], store)
	}
	return errors.Join(err, f.Close())
}

// Read reads the journal in a data directory, nil when there is none, and changes
// nothing. The caller closes what it returns. Errors: *segment.VersionError of a
// newer format, those of reading.
func Read(home hotdir.Dir, store [16]byte) (*Contents, error) {
	f, err := home.FS.Open(home.Journal(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	c := &Contents{home: home, file: f}
	head := make([]byte, headSize)
	n, _ := f.ReadAt(head, 0) // what cannot be read is no header
	nonce, err := readHead(head[:n], store)
	if newer, ok := errors.AsType[*segment.VersionError](err); ok {
		return nil, errors.Join(newer, f.Close())
	}
	if c.Bad = err; err != nil {
		return c, nil
	}
	frames, err := readFrames(f, nonce)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read journal: %w", err), f.Close())
	}
	slices.SortFunc(frames, func(a, b frame) int { return cmp.Compare(a.number, b.number) })
	c.Frames, c.Lost, c.list = len(frames), lostFrame(frames), targets(frames)
	return c, nil
}

// Close closes the file.
func (c *Contents) Close() error { return c.file.Close() }

// Files is how many segment files the journal has something for.
func (c *Contents) Files() int { return len(c.list) }

// WriteBack puts what the journal holds into the segment files and syncs them, and
// the directories that lead to them. Of each file the entries are taken in the
// order they were written; one that is not whole was never acknowledged, or lies
// synced in its file already. To do it again changes nothing.
func (c *Contents) WriteBack(ctx context.Context) error {
	if err := c.writeAll(ctx); err != nil {
		return fmt.Errorf("replay journal: %w", err)
	}
	return nil
}

// lostFrame returns the number of a frame that was synced and is not there, 0
// when there is none. Between two laps numbers are missing, because frames were
// overwritten; and at the head those of a write that a power loss cut short.
// But a round begins only when the one before is synced: what is missing in
// front of two rounds of the newest lap has gone bad.
func lostFrame(frames []frame) uint64 {
	rounds := 0 // behind the place looked at
	head := int64(0)
	if n := len(frames); n > 0 {
		head = frames[n-1].data // what lies above is of laps before, and being overwritten
	}
	for i := len(frames) - 1; i > 0; i-- {
		if frames[i].entries[0].kind == entryData {
			rounds++
		}
		gap := frames[i].number != frames[i-1].number+1
		if gap && frames[i].data > frames[i-1].data && frames[i].data <= head && rounds > 1 {
			return frames[i].number - 1
		}
	}
	return 0
}

// targets groups the entries of frames, which are in the order they were
// written, by file, without those of files that were given up afterwards.
func targets(frames []frame) []*target {
	type key struct {
		id          hotdir.ID
		base, epoch uint64
	}
	byFile := make(map[key]*target)
	var list []*target
	for _, fr := range frames {
		at := fr.data
		for _, e := range fr.entries {
			if e.kind == entryGone {
				for k := range byFile {
					if k.id == e.id && k.base < e.base {
						byFile[k].pieces = nil
					}
				}
				continue
			}
			k := key{e.id, e.base, e.epoch}
			x := byFile[k]
			if x == nil {
				x = &target{id: e.id, base: e.base, epoch: e.epoch}
				byFile[k] = x
				list = append(list, x)
			}
			x.pieces = append(x.pieces, piece{e, at})
			at += int64(e.length)
		}
	}
	return slices.DeleteFunc(list, func(x *target) bool { return len(x.pieces) == 0 })
}

// writeAll writes back every target, several at once, and syncs the files and
// the directories that lead to them.
func (c *Contents) writeAll(ctx context.Context) error {
	list := c.list
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, min(len(list), filesAtOnce))
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list) && errs[w] == nil; i = int(next.Add(1)) - 1 {
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = c.writeOne(list[i])
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.home.FS.SyncDir(c.home.Topics())
}

// writeOne writes back one file. A file that is not there, or has lost its
// header, is made again only from an entry that brings the header.
func (c *Contents) writeOne(x *target) (err error) {
	dir := c.home.Partition(x.id)
	name := path.Join(dir, segment.FormatName(x.base, x.epoch))
	f, err := c.home.FS.Open(name, disk.Write)
	if errors.Is(err, fs.ErrNotExist) {
		if err := c.home.Make(x.id); err != nil {
			return err
		}
		f, err = c.home.FS.Open(name, disk.Create)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if h, _, err := segment.ReadHeader(f); err == nil && h.Copied {
		return nil // what the journal has is of a file that had this name before it
	}
	for _, p := range x.pieces {
		data := make([]byte, p.entry.length)
		if _, err := c.file.ReadAt(data, p.at); err != nil {
			return fmt.Errorf("read journal: %w", err)
		}
		if !checkEntry(p.entry, data) {
			continue
		}
		have := make([]byte, len(data))
		if n, _ := f.ReadAt(have, p.entry.pos); n == len(have) && string(have) == string(data) {
			continue
		}
		if _, err := f.WriteAt(data, p.entry.pos); err != nil {
			return err
		}
	}
	if err := f.Datasync(); err != nil {
		return err
	}
	if err := c.home.FS.SyncDir(dir); err != nil {
		return err
	}
	return c.home.FS.SyncDir(path.Dir(dir))
}
