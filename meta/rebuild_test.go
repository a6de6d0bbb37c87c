package meta

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

func rebuiltState(t *testing.T, cfg Config) *state.State {
	s, err := state.Rebuild(state.Remains{
		Cluster: state.Cluster{ID: [16]byte{1}, Name: "danube"},
		Run:     state.RegisterStore{Store: cfg.Store, Broker: "n1", Nonce: [16]byte{2}},
		Topics: []state.RemainsTopic{{ID: state.TopicID{3}, Name: "/default/t", Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal}, Partitions: []state.RemainsPartition{
			{Pieces: []state.RemainsPiece{{Epoch: 1, End: 100, Stored: true}}}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRebuiltMetadataLeadsAndGoesOn also over a further restart; what was there before is kept beside it.
func TestRebuiltMetadataLeadsAndGoesOn(t *testing.T) {
	cfg := testConfig(filepath.Join(t.TempDir(), "meta"))
	n := openNode(t, cfg)
	propose(t, n, createTopic(1))
	if _, err := Rebuild(cfg.Dir, cfg.Store, "127.0.0.1:7650", rebuiltState(t, cfg)); !errors.Is(err, ErrInUse) {
		t.Errorf("rebuilt under a running node: %v", err)
	}
	closeNode(t, n)
	database := filepath.Join(cfg.Dir, raftDir, databaseFile)
	if err := os.WriteFile(database, []byte("rotten"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := Rebuild(cfg.Dir, cfg.Store, "127.0.0.1:7650", rebuiltState(t, cfg))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(kept, raftDir, databaseFile)); err != nil || string(b) != "rotten" {
		t.Errorf("kept in %s: %q, %v", kept, b, err)
	}
	cfg.Bootstrapped = true
	for range 2 {
		n = openNode(t, cfg)
		v := n.View()
		if p := v.Partition(state.TopicID{3}, 0); p == nil || p.Ranges[0].End != 100 || v.Cluster().History != 1 {
			t.Fatalf("partition %+v in history %d", p, v.Cluster().History)
		}
		propose(t, n, &state.Tick{})
		closeNode(t, n)
	}
}

// TestRebuildOfNothing makes metadata where there are none, beside nothing.
func TestRebuildOfNothing(t *testing.T) {
	cfg := testConfig(filepath.Join(t.TempDir(), "meta"))
	if kept, err := Rebuild(cfg.Dir, cfg.Store, "127.0.0.1:7650", rebuiltState(t, cfg)); err != nil || kept != "" {
		t.Fatalf("kept %q, %v", kept, err)
	}
	cfg.Bootstrapped = true
	closeNode(t, openNode(t, cfg))
}
