// Package aftermath settles what the process before left of a log directory,
// once, before any partition is opened: the clean marker and the run file are
// read, and after an unclean stop the journal is written back. What it finds it
// tells in [Left]; what each partition lost is found when that is opened. No
// goroutines, no locks. R-numbers are the design's ownership rules.
package aftermath

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/journal"
)

// Config says of which directory, and what this process is.
type Config struct {
	Home   hotdir.Dir
	Store  [16]byte // that the directory belongs to
	BootID string   // of the machine's present run; empty: not known
	Always bool     // this process syncs before it acknowledges
	Log    *slog.Logger
	At     func(step string) // called at named steps
}

// Left is what the process before left, as far as it concerns all partitions.
type Left struct {
	Number   uint64                   // of this process's run
	Clean    map[hotdir.ID]hotdir.End // where partitions ended that were closed cleanly; nil: not cleanly stopped
	Stopped  bool                     // cleanly: all that is there was synced
	Proven   bool                     // what is not found was never acknowledged (R6)
	SameBoot bool                     // the machine runs since then: what was written is there, synced or not
}

// Settle prepares the directory: reads and removes the clean marker, and after an
// unclean stop writes back what the journal covers. When it returns nil, every
// acknowledged byte lies in its segment file, synced.
func Settle(ctx context.Context, c Config) (Left, error) {
	var left Left
	err := c.settle(ctx, &left)
	return left, err
}

func (c *Config) settle(ctx context.Context, left *Left) error {
	fsys := c.Home.FS
	if err := disk.MkdirAll(fsys, c.Home.Topics()); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	before, known := c.readRun()
	fresh := false
	if !known { // it is written before anything else
		list, err := c.Home.Partitions()
		if err != nil {
			return err
		}
		_, err = fsys.Stat(c.Home.Journal()) // it may know of files whose directories are lost
		fresh = len(list) == 0 && errors.Is(err, fs.ErrNotExist)
	}
	*left = Left{Number: before.Number + 1}
	left.SameBoot = known && before.BootID != "" && before.BootID == c.BootID
	left.Proven = fresh || known && before.Always || left.SameBoot
	clean := known && c.readMarker(left, before.Number)
	if err := c.Home.DropMarker(); err != nil {
		return err
	}
	switch err := c.Home.WriteRun(hotdir.Run{Number: left.Number, Always: c.Always, BootID: c.BootID}); {
	case disk.NoSpace(err) && known && before.Always == (c.Always):
		// A full disk stops no start: what the file says of the run before holds
		// for this one too, or errs to the safe side.
		left.Number = before.Number
		c.Log.Warn("no space to write the run file", "file", c.Home.RunFile(), "err", err)
	case err != nil:
		return err
	}
	if clean {
		left.Proven, left.Stopped = true, true
		if err := journal.Check(c.Home, c.Store); err != nil {
			c.Log.Warn("journal was changed after the clean stop; nothing in it is needed, it is discarded", "file", c.Home.Journal(), "err", err)
		}
	} else if err := c.replay(ctx, left); err != nil {
		return err
	}
	switch err := fsys.Remove(c.Home.Journal()); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("remove old journal: %w", err)
	}
	if err := fsys.SyncDir(c.Home.Path); err != nil {
		return fmt.Errorf("remove old journal: %w", err)
	}
	return nil
}

// readRun reads what the run before said of itself; false when nobody knows.
func (c *Config) readRun() (hotdir.Run, bool) {
	r, err := c.Home.ReadRun()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("file is damaged; the end of each partition is taken for not proven", "file", c.Home.RunFile(), "err", err)
	}
	return r, err == nil
}

// readMarker reads where the partitions ended, if the run before stopped cleanly.
func (c *Config) readMarker(left *Left, number uint64) bool {
	ends, err := c.Home.ReadMarker(number)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("clean marker does not count, recovering as after a crash", "file", c.Home.Marker(), "err", err)
	}
	if err != nil {
		return false
	}
	left.Clean = ends
	return true
}

// replay writes back what the journal covers.
func (c *Config) replay(ctx context.Context, left *Left) error {
	r, err := journal.Read(c.Home, c.Store)
	if err != nil || r == nil {
		return err
	}
	defer r.Close()
	if r.Bad != nil {
		c.Log.Error("journal cannot be read; what only it held is lost", "file", c.Home.Journal(), "err", r.Bad)
	}
	if r.Lost > 0 {
		c.Log.Error("journal is damaged; what only it held is lost", "file", c.Home.Journal(), "frame", r.Lost)
	}
	if r.Bad != nil || r.Lost > 0 {
		left.Proven = left.Proven && left.SameBoot
	}
	if r.Files() == 0 {
		return nil
	}
	c.At("replay")
	if err := r.WriteBack(ctx); err != nil {
		return err
	}
	c.Log.Info("wrote back what the journal held", "frames", r.Frames, "files", r.Files())
	return nil
}
