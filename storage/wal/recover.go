package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

// run is what the process before left, as far as it concerns all partitions.
type run struct {
	number   uint64
	clean    map[ID]hotdir.End // where partitions ended that were closed cleanly; guarded by the tier's lock
	shut     map[ID]bool       // of them, those closed in this run whose end is proven; guarded alike
	stopped  bool              // cleanly: all that is there was synced
	proven   bool              // what is not found was never acknowledged (R6)
	sameBoot bool              // the machine runs since then: what was written is there, synced or not
}

// home is the directory of the tier.
func (t *Tier) home() hotdir.Dir { return hotdir.Dir{FS: t.config.FS, Path: t.config.Dir} }

// dir is where the segment files of a partition lie.
func (t *Tier) dir(id ID) string { return t.home().Partition(id) }

// Partitions lists what lies on the disk, opened or not.
func (t *Tier) Partitions() ([]ID, error) { return t.home().Partitions() }

// recover prepares the directory: reads and removes the clean marker, and after
// an unclean stop writes back what the journal covers. When it returns nil,
// every acknowledged byte lies in its segment file, synced.
func (t *Tier) recover(ctx context.Context) error {
	fsys := t.config.FS
	if err := disk.MkdirAll(fsys, t.home().Topics()); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	before, known := t.readRun()
	fresh := false
	if !known { // it is written before anything else
		list, err := t.Partitions()
		if err != nil {
			return err
		}
		_, err = fsys.Stat(t.home().Journal()) // it may know of files whose directories are lost
		fresh = len(list) == 0 && isNotExist(err)
	}
	t.run = run{number: before.Number + 1, clean: make(map[ID]hotdir.End), shut: make(map[ID]bool)}
	t.run.sameBoot = known && before.BootID != "" && before.BootID == t.config.BootID
	t.run.proven = fresh || known && before.Always || t.run.sameBoot
	clean := known && t.readMarker(before.Number)
	if err := t.home().DropMarker(); err != nil {
		return err
	}
	switch err := t.home().WriteRun(hotdir.Run{Number: t.run.number, Always: t.config.SyncInterval == 0, BootID: t.config.BootID}); {
	case isNoSpace(err) && known && before.Always == (t.config.SyncInterval == 0):
		// A full disk stops no start: what the file says of the run before holds
		// for this one too, or errs to the safe side.
		t.run.number = before.Number
		t.config.Log.Warn("no space to write the run file", "file", t.home().RunFile(), "err", err)
	case err != nil:
		return err
	}
	if clean {
		t.run.proven, t.run.stopped = true, true
		if err := CheckJournal(fsys, t.config.Dir, t.config.Store); err != nil {
			t.config.Log.Warn("journal was changed after the clean stop; nothing in it is needed, it is discarded", "file", t.home().Journal(), "err", err)
		}
	} else if err := t.replay(ctx); err != nil {
		return err
	}
	switch err := fsys.Remove(t.home().Journal()); {
	case isNotExist(err):
		return nil
	case err != nil:
		return fmt.Errorf("remove old journal: %w", err)
	}
	if err := fsys.SyncDir(t.config.Dir); err != nil {
		return fmt.Errorf("remove old journal: %w", err)
	}
	return nil
}

// readRun reads what the run before said of itself; false when nobody knows.
func (t *Tier) readRun() (hotdir.Run, bool) {
	r, err := t.home().ReadRun()
	if err != nil && !isNotExist(err) {
		t.config.Log.Warn("file is damaged; the end of each partition is taken for not proven", "file", t.home().RunFile(), "err", err)
	}
	return r, err == nil
}

// readMarker reads where the partitions ended, if the run before stopped cleanly.
func (t *Tier) readMarker(number uint64) bool {
	ends, err := t.home().ReadMarker(number)
	if err != nil && !isNotExist(err) {
		t.config.Log.Warn("clean marker does not count, recovering as after a crash", "file", t.home().Marker(), "err", err)
	}
	if err != nil {
		return false
	}
	t.run.clean = ends
	return true
}

// target is one segment file that the journal has something for.
type target struct {
	id          ID
	base, epoch uint64
	pieces      []piece
}

// piece is an entry and where its data lies in the journal.
type piece struct {
	entry entry
	at    int64
}

// replay writes back what the journal covers. Of each file the entries are
// taken in the order they were written; one that is not whole was never
// acknowledged, or lies synced in its file already.
func (t *Tier) replay(ctx context.Context) error {
	f, err := t.config.FS.Open(t.home().Journal(), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	defer f.Close()
	head := make([]byte, journalHead)
	n, _ := f.ReadAt(head, 0) // what cannot be read is no header
	nonce, err := readJournalHead(head[:n], t.config.Store)
	if err != nil {
		if newer, ok := errors.AsType[*segment.VersionError](err); ok {
			return newer
		}
		t.config.Log.Error("journal cannot be read; what only it held is lost", "file", t.home().Journal(), "err", err)
		t.run.proven = t.run.proven && t.run.sameBoot
		return nil
	}
	frames, err := readFrames(f, nonce)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	slices.SortFunc(frames, func(a, b frame) int { return cmp.Compare(a.number, b.number) })
	if n := lostFrame(frames); n > 0 {
		t.config.Log.Error("journal is damaged; what only it held is lost", "file", t.home().Journal(), "frame", n)
		t.run.proven = t.run.proven && t.run.sameBoot
	}
	list := targets(frames)
	if len(list) == 0 {
		return nil
	}
	t.config.At("replay")
	if err := t.replayAll(ctx, f, list); err != nil {
		return fmt.Errorf("replay journal: %w", err)
	}
	t.config.Log.Info("wrote back what the journal held", "frames", len(frames), "files", len(list))
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
		id          ID
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

// replayAll writes back every target, several at once, and syncs the files and
// the directories that lead to them.
func (t *Tier) replayAll(ctx context.Context, journal disk.File, list []*target) error {
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, min(len(list), syncsAtOnce))
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(list) && errs[w] == nil; i = int(next.Add(1)) - 1 {
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = t.replayOne(journal, list[i])
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return t.config.FS.SyncDir(t.home().Topics())
}

// replayOne writes back one file. A file that is not there, or has lost its
// header, is made again only from an entry that brings the header.
func (t *Tier) replayOne(journal disk.File, x *target) (err error) {
	dir := t.dir(x.id)
	name := path.Join(dir, segment.FormatName(x.base, x.epoch))
	f, err := t.config.FS.Open(name, disk.Write)
	if isNotExist(err) {
		if err := mkdirs(t.config.FS, path.Dir(dir), dir); err != nil {
			return err
		}
		f, err = t.config.FS.Open(name, disk.Create)
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
		if _, err := journal.ReadAt(data, p.at); err != nil {
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
	if err := t.config.FS.SyncDir(dir); err != nil {
		return err
	}
	return t.config.FS.SyncDir(path.Dir(dir))
}
