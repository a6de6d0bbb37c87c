package meta

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
)

const (
	snapshotMeta  = "meta.json" // what a snapshot is of
	snapshotState = "state.bin"
)

// snapshots is Raft's store of snapshots. Raft syncs the files of one and the entry of its folder, but not the entries in
// it: after a loss of power a folder could be left without its files, with the log behind it gone.
type snapshots struct {
	*raft.FileSnapshotStore
	dir  string // where the folders are
	sync func(dir string) error
}

func openSnapshots(dir string, cfg *raft.Config) (*snapshots, error) {
	s, err := raft.NewFileSnapshotStoreWithLogger(dir, retainSnapshots, cfg.Logger)
	if err != nil {
		return nil, err
	}
	return &snapshots{s, filepath.Join(dir, snapshotDir), syncDir}, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshots) Create(
	version raft.SnapshotVersion, index, term uint64, servers raft.Configuration, at uint64, peers raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.FileSnapshotStore.Create(version, index, term, servers, at, peers)
	if err != nil {
		return nil, err
	}
	return &snapshotSink{SnapshotSink: sink, store: s}, nil
}

type snapshotSink struct {
	raft.SnapshotSink
	store *snapshots
}

// Close implements io.Closer. Raft gives up the log that the snapshot holds only when it has returned nil.
func (s *snapshotSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return s.store.sync(filepath.Join(s.store.dir, s.ID()))
}

// missing returns the file that a snapshot's folder lacks, empty if it is whole. The power was lost before Close had
// returned, and the log still holds what is in it; or somebody has removed the file.
func missing(dir string) (string, error) {
	for _, name := range []string{snapshotMeta, snapshotState} {
		path := filepath.Join(dir, name)
		if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
			return path, nil
		} else if err != nil {
			return "", err
		}
	}
	return "", nil
}
