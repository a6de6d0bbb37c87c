package wal

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/journal"
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
		if err := journal.Check(t.home(), t.config.Store); err != nil {
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

// replay writes back what the journal covers.
func (t *Tier) replay(ctx context.Context) error {
	c, err := journal.Read(t.home(), t.config.Store)
	if err != nil || c == nil {
		return err
	}
	defer c.Close()
	if c.Bad != nil {
		t.config.Log.Error("journal cannot be read; what only it held is lost", "file", t.home().Journal(), "err", c.Bad)
	}
	if c.Lost > 0 {
		t.config.Log.Error("journal is damaged; what only it held is lost", "file", t.home().Journal(), "frame", c.Lost)
	}
	if c.Bad != nil || c.Lost > 0 {
		t.run.proven = t.run.proven && t.run.sameBoot
	}
	if c.Files() == 0 {
		return nil
	}
	t.config.At("replay")
	if err := c.WriteBack(ctx); err != nil {
		return err
	}
	t.config.Log.Info("wrote back what the journal held", "frames", c.Frames, "files", c.Files())
	return nil
}
