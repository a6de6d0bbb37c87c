package meta

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// A snapshot is finished when the entries of its folder are durable too, and not before: Raft gives up the log then.
func TestSnapshotFoldersAreSynced(t *testing.T) {
	cfg, err := testConfig(t.TempDir()).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	rc := cfg.raft()
	rc.Logger = newLogger(slog.New(slog.DiscardHandler))
	s, err := openSnapshots(cfg.Dir, rc)
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("it failed")
	for _, fails := range []error{nil, failed} {
		synced := ""
		s.sync = func(dir string) error {
			if lacks, err := missing(dir); err != nil || lacks != "" {
				t.Errorf("%s is synced without %s, %v", dir, lacks, err)
			}
			synced = filepath.Base(dir)
			return fails
		}
		_, nobody := raft.NewInmemTransport("")
		sink, err := s.Create(raft.SnapshotVersionMax, 10, 1, raft.Configuration{}, 1, nobody)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); !errors.Is(err, fails) {
			t.Errorf("closed with %v, want %v", err, fails)
		}
		if synced != sink.ID() {
			t.Errorf("synced %q, not %q", synced, sink.ID())
		}
	}
}

// Power that is lost before the folder was synced leaves one that lacks files. The log holds what was to be in it: the start
// goes by that, and removes the folder.
func TestUnfinishedSnapshotIsNoDamage(t *testing.T) {
	t.Parallel()
	for _, file := range []string{snapshotMeta, snapshotState} {
		t.Run(file, func(t *testing.T) {
			cfg := testConfig(t.TempDir())
			cfg.TrailingLogs = 1000
			n := openNode(t, cfg)
			for i := range 20 {
				propose(t, n, createTopic(i))
			}
			if err := n.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			closeNode(t, n)
			newest, err := newestSnapshot(filepath.Join(cfg.Dir, raftDir))
			if err != nil || newest == nil {
				t.Fatalf("no snapshot: %v", err)
			}
			if err := os.Remove(filepath.Join(newest.dir, file)); err != nil {
				t.Fatal(err)
			}
			// Raft tries whether it may write there, and leaves this when the power goes in between.
			if err := os.WriteFile(filepath.Join(cfg.Dir, raftDir, snapshotDir, "permTest"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			n = openNode(t, cfg)
			for i := range 20 {
				if n.View().Topic(createTopic(i).Name) == nil {
					t.Errorf("topic %d is gone", i)
				}
			}
			if _, err := os.Stat(newest.dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is still there: %v", err)
			}
			propose(t, n, &state.Tick{})
		})
	}
}
