package wal

import (
	"context"

	"github.com/danubemq/danube/storage/aftermath"
	"github.com/danubemq/danube/storage/hotdir"
)

// run is what the process before left, as far as it concerns all partitions.
type run struct {
	number  uint64
	clean   map[ID]hotdir.End // where partitions ended that were closed cleanly; guarded by the tier's lock
	shut    map[ID]bool       // of them, those closed in this run whose end is proven; guarded alike
	stopped bool              // cleanly: all that is there was synced
	proven  bool              // what is not found was never acknowledged (R6)
}

// home is the directory of the tier.
func (t *Tier) home() hotdir.Dir { return hotdir.Dir{FS: t.config.FS, Path: t.config.Dir} }

// dir is where the segment files of a partition lie.
func (t *Tier) dir(id ID) string { return t.home().Partition(id) }

// Partitions lists what lies on the disk, opened or not.
func (t *Tier) Partitions() ([]ID, error) { return t.home().Partitions() }

// recover settles what the process before left.
func (t *Tier) recover(ctx context.Context) error {
	left, err := aftermath.Settle(ctx, aftermath.Config{
		Home: t.home(), Store: t.config.Store, BootID: t.config.BootID, Always: t.config.SyncInterval == 0, Log: t.config.Log, At: t.config.At,
	})
	t.run = run{number: left.Number, clean: left.Clean, shut: make(map[ID]bool), stopped: left.Stopped, proven: left.Proven}
	if t.run.clean == nil {
		t.run.clean = make(map[ID]hotdir.End)
	}
	return err
}
