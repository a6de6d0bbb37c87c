package meta

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// TestRestoreBeginsANewHistoryEverywhere: the state of the backup on every broker, in a history above both its own and
// the present one, across restarts too; a broker that was away gets it as well (R22).
func TestRestoreBeginsANewHistoryEverywhere(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	propose(t, g.node(0), &state.InitCluster{ID: [16]byte{7}, Name: "c"})
	propose(t, g.node(0), createTopic(1))
	var backup bytes.Buffer
	if err := g.node(0).Backup(&backup); err != nil {
		t.Fatal(err)
	}
	propose(t, g.node(0), &state.NewHistory{History: 1})
	for i := range 60 {
		propose(t, g.node(0), createTopic(2+i))
	}
	away := g.follower()
	g.stop(away)
	restore := func(ctx context.Context, n *Node) error { return n.Restore(ctx, bytes.NewReader(backup.Bytes())) }
	g.onLeader("the backup is restored", restore)
	check := func() {
		t.Helper()
		n := g.same()
		if c := g.running()[0].View().Cluster(); n != 1 || c.History != 2 || c.ID != [16]byte{7} {
			t.Fatalf("%d topics, %+v", n, c)
		}
	}
	check()
	g.start(away)
	check()
	propose(t, g.node(away), createTopic(100))
	for i := range 3 {
		g.stop(i)
	}
	for i := range 3 {
		g.start(i)
	}
	g.ready()
	if n := g.same(); n != 2 {
		t.Fatalf("%d topics after a restart", n)
	}
	for i := range 100 {
		propose(t, g.node(i%3), createTopic(200+i))
	}
	g.onLeader("the backup is restored again", restore)
	if n, c := g.same(), g.node(0).View().Cluster(); n != 1 || c.History != 3 {
		t.Fatalf("%d topics, %+v", n, c)
	}
}

// TestWrongBackupChangesNothing: a bit wrong, a byte missing, another cluster's, a later release's, or none at all.
func TestWrongBackupChangesNothing(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t.TempDir()))
	propose(t, n, createTopic(1))
	var b bytes.Buffer
	if err := n.Backup(&b); err != nil {
		t.Fatal(err)
	}
	good := b.Bytes()
	other := openNode(t, testConfig(t.TempDir()))
	propose(t, other, &state.InitCluster{ID: [16]byte{8}, Name: "c"})
	propose(t, n, &state.InitCluster{ID: [16]byte{7}, Name: "c"})
	var foreign bytes.Buffer
	if err := other.Backup(&foreign); err != nil {
		t.Fatal(err)
	}
	newer := slices.Clone(good)
	newer[len(backupMagic)]++
	flipped := slices.Clone(good)
	flipped[len(flipped)/2] ^= 4
	before := n.View().Hash()
	for name, c := range map[string]struct {
		backup []byte
		want   error
	}{
		"empty":                {nil, state.ErrDamaged},
		"another file":         {bytes.Repeat([]byte("x"), 100), state.ErrDamaged},
		"cut":                  {good[:len(good)-1], state.ErrDamaged},
		"a bit is wrong":       {flipped, state.ErrDamaged},
		"of a later release":   {newer, state.ErrNewerCommand},
		"of another cluster":   {foreign.Bytes(), ErrForeign},
		"made before the id":   {good, ErrForeign},
		"something after it":   {append(slices.Clone(good), 0), state.ErrDamaged},
		"only the head and no": {good[:backupHead], state.ErrDamaged},
	} {
		if err := n.Restore(t.Context(), bytes.NewReader(c.backup)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n.View().Hash() != before {
		t.Fatal("the state changed")
	}
	propose(t, n, createTopic(2))
}

// TestRecoverMakesALoneVoterOfTheRest: two of three are lost; what the third has goes on under it alone, in a new
// history, and others join anew.
func TestRecoverMakesALoneVoterOfTheRest(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	for i := range 100 {
		propose(t, g.node(i%3), createTopic(i))
	}
	g.same()
	survivor := g.follower()
	if err := g.node(survivor).Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	propose(t, g.node(survivor), createTopic(100))
	cfg := g.configs[survivor]
	if err := Recover(cfg.Dir, cfg.Store, cfg.Address); !errors.Is(err, ErrInUse) {
		t.Fatalf("recover under a running broker: %v", err)
	}
	for i := range 3 {
		g.stop(i)
	}
	if err := Recover(cfg.Dir, storeOf(7), cfg.Address); !errors.Is(err, ErrForeign) {
		t.Fatalf("recover another store's: %v", err)
	}
	g.readdress(survivor)
	cfg = g.configs[survivor]
	if err := Recover(cfg.Dir, cfg.Store, cfg.Address); err != nil {
		t.Fatal(err)
	}
	n := g.start(survivor)
	g.ready()
	if c := n.View().Cluster(); n.View().TopicCount() != 101 || c.History != 1 {
		t.Fatalf("%d topics, %+v", n.View().TopicCount(), c)
	}
	if s := n.Servers(); len(s) != 1 || s[0] != (Server{cfg.Store, cfg.Address, true}) {
		t.Fatalf("members %+v", s)
	}
	fresh := (survivor + 1) % 3
	g.configs[fresh].Dir, g.configs[fresh].Store, g.configs[fresh].Form = t.TempDir(), storeOf(8), nil
	g.join(fresh)
	g.onLeader("it is promoted", func(ctx context.Context, n *Node) error { return n.Promote(ctx, storeOf(8)) })
	propose(t, g.node(fresh), createTopic(101))
	if n := g.same(); n != 102 {
		t.Fatalf("%d topics", n)
	}
}

func TestRecoverNeedsMetadata(t *testing.T) {
	t.Parallel()
	err := Recover(t.TempDir(), storeOf(0), "127.0.0.1:1")
	if _, damaged := errors.AsType[*DamagedError](err); !damaged {
		t.Fatalf("an empty directory: %v", err)
	}
}
