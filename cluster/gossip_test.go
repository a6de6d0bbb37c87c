package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// alone is a broker of a cluster of its own.
func alone(t testing.TB, n byte) *broker {
	t.Helper()
	b := newBroker(t, n).open()
	if f := b.form(); len(f.Voters) != 1 || f.Join {
		t.Fatalf("formed %+v", f)
	}
	return b
}

func (b *broker) sees(other *broker) bool {
	return slices.ContainsFunc(b.Members(), func(m Member) bool {
		return m.Store == other.cfg.Identity.Store && m.State != Dead
	})
}

// TestTwoClustersNeverMerge: brokers of two clusters that are pointed at each other stay apart and say why, and a free
// broker with a seed in each brings neither into the other.
func TestTwoClustersNeverMerge(t *testing.T) {
	x, y := alone(t, 1), alone(t, 2)
	x.Close()
	var said spoken
	x.cfg.Seeds, x.cfg.Log = []string{y.gossip, y.gossip}, slog.New(slog.NewTextHandler(&said, nil))
	x.open()
	eventually(t, "a word about the other cluster", func() bool {
		missing, _ := x.seeds.state()
		return len(missing) == 2 && strings.Contains(missing[0], "both are named")
	})
	between := newBroker(t, 3)
	between.cfg.Seeds = []string{x.gossip, y.gossip}
	between.open()
	eventually(t, "the free broker stays with one of them", func() bool {
		missing, _ := between.seeds.state()
		return len(missing) == 1 && strings.Contains(missing[0], "both are named")
	})
	if x.sees(y) || y.sees(x) {
		t.Error("two clusters have merged")
	}
	eventually(t, "a warning", func() bool { return strings.Contains(said.String(), "level=WARN") })
	if text := said.String(); strings.Count(text, "level=WARN") != 1 || !strings.Contains(text, "seeds are of another cluster") || !strings.Contains(text, y.gossip) {
		t.Errorf("of the seeds of another cluster it says\n%s", text)
	}
	if x.ClusterID() == y.ClusterID() {
		t.Error("one id for two clusters")
	}
	if _, err := x.Call(t.Context(), y.cfg.Identity.Store, "x", nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a call into the other cluster: %v", err)
	}
}

// TestGossipKeys: without the key nobody gets in, and with it everybody does.
func TestGossipKeys(t *testing.T) {
	a, b, c := newBroker(t, 1), newBroker(t, 2), newBroker(t, 3)
	key := []byte("0123456789abcdef")
	a.cfg.Gossip.Key, b.cfg.Gossip.Key = key, key
	a.cfg.Load = func() Load { return Load{Partitions: 7, BytesIn: 1.5} }
	a.open()
	b.cfg.Seeds, c.cfg.Seeds = []string{a.gossip}, []string{a.gossip}
	b.open()
	c.open()
	eventually(t, "those with the key see each other, and the load", func() bool {
		return a.sees(b) && b.sees(a) && slices.ContainsFunc(b.Members(), func(m Member) bool { return m.Load.Partitions == 7 })
	})
	<-c.seeds.tried
	if missing, _ := c.seeds.state(); len(missing) != 1 || a.sees(c) || c.sees(a) {
		t.Errorf("without the key: missing %q", missing)
	}
}

// TestSeedsAreTriedForEver: a broker whose seed is down waits and says for whom; when it comes, both form.
func TestSeedsAreTriedForEver(t *testing.T) {
	a, b := newBroker(t, 1), newBroker(t, 2)
	b.open() // takes ports, and gives them back
	b.Close()
	a.cfg.Seeds, a.cfg.Expect = []string{b.gossip}, 2
	b.cfg.Expect = 2
	a.open()
	ctx, cancel := context.WithCancel(t.Context())
	formed := make(chan error, 1)
	go func() { // returns when the forming ends
		_, err := a.Form(ctx)
		formed <- err
	}()
	eventually(t, "the seed named", func() bool { return strings.Contains(a.Status().Phase, "waiting for seeds "+b.gossip) })
	cancel()
	if err := <-formed; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), b.gossip) {
		t.Errorf("cancelled forming: %v", err)
	}
	b.open()
	formations := make([]Formation, 2)
	together([]*broker{a, b}, func(i int, b *broker) { formations[i] = b.form() })
	if formations[0].ClusterID != formations[1].ClusterID || len(formations[0].Voters) != 2 {
		t.Errorf("formed %+v and %+v", formations[0], formations[1])
	}
}

// TestCopyOfADataDirectoryIsRefused: the original goes on, the copy is told.
func TestCopyOfADataDirectoryIsRefused(t *testing.T) {
	original, other := newBroker(t, 1), newBroker(t, 2)
	f := original.open().form()
	original.attach(f)
	other.cfg.Seeds = []string{original.gossip}
	other.open()
	eventually(t, "they see each other", func() bool { return original.sees(other) && other.sees(original) })
	copied := newBroker(t, 1)
	if err := os.CopyFS(copied.cfg.Dir, os.DirFS(original.cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	copied.cfg.Seeds = []string{other.gossip}
	copied.open()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	eventually(t, "the copy found out", func() bool { return copied.Err() != nil })
	<-copied.Failed()
	if _, err := copied.Form(ctx); !errors.Is(err, ErrDuplicate) {
		t.Errorf("the copy formed: %v", err)
	}
	if original.Err() != nil {
		t.Errorf("the original gives way: %v", original.Err())
	}
}

// TestEmptiedVoterComesBackAsANewStore: at the old address answers another store; it is not taken for the old one, and
// joins as a new one while the old one goes.
func TestEmptiedVoterComesBackAsANewStore(t *testing.T) {
	brokers := three(t)
	eventually(t, "a leader", func() bool {
		_, ok := brokers[0].node.Leader()
		return ok
	})
	var gone *broker
	for _, b := range brokers {
		if _, leads := b.node.Leading(); !leads {
			gone = b
		}
	}
	var stays []*broker
	for _, b := range brokers {
		if b != gone {
			stays = append(stays, b)
		}
	}
	gone.node.Close()
	gone.Close()
	empty := newBroker(t, 9)
	empty.peer, empty.gossip = gone.peer, gone.gossip
	empty.cfg.Seeds = []string{stays[0].gossip}
	empty.open()
	if conn, err := stays[0].RaftDial(t.Context(), gone.peer); err == nil {
		conn.Close()
		t.Error("another store was taken for the voter that is gone")
	}
	f := empty.form()
	if !f.Join || f.ClusterID != stays[0].ClusterID() {
		t.Fatalf("formed %+v", f)
	}
	empty.attach(f)
	eventually(t, "a lease", empty.LeaseValid)
	eventually(t, "the old store out of Raft, the new one in without a vote", func() bool {
		servers := stays[0].node.Servers()
		return !slices.ContainsFunc(servers, func(s meta.Server) bool { return s.Store == gone.cfg.Identity.Store }) &&
			slices.ContainsFunc(servers, func(s meta.Server) bool { return s.Store == empty.cfg.Identity.Store && !s.Voter })
	})
}

func TestOpenRefuses(t *testing.T) {
	tests := map[string]struct {
		change func(*Config)
		want   string
	}{
		"wildcard peer":   {func(c *Config) { c.Identity.Addresses.Peer = "0.0.0.0:7650" }, "is a wildcard"},
		"wildcard gossip": {func(c *Config) { c.Gossip.Bind = "[::]:0" }, "is a wildcard"},
		"gossip by name":  {func(c *Config) { c.Gossip.Bind = "localhost:0" }, "must be an IP address"},
		"short key":       {func(c *Config) { c.Gossip.Key = []byte("short") }, "5 bytes"},
		"long addresses":  {func(c *Config) { c.Identity.Addresses.HTTP = strings.Repeat("a", 500) + ":1" }, "at most 512 fit"},
		"bad name":        {func(c *Config) { c.Identity.Name = "a b" }, "broker name"},
		"other metadata":  {func(c *Config) { c.Identity.Had = [16]byte{1} }, "the metadata 01"},
		"damaged record": {func(c *Config) {
			if err := os.WriteFile(filepath.Join(c.Dir, recordDir, recordFile), []byte(recordHead+"abcdefgh"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "damaged"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBroker(t, 1)
			if err := saveRecord(b.cfg.Dir, founding.Record{Cluster: [16]byte{2}}); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			b.cfg.PeerListener, b.cfg.Gossip.Bind = l, "127.0.0.1:0"
			test.change(&b.cfg)
			c, err := Open(t.Context(), b.cfg)
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// TestStandaloneStaysOfItsCluster: metadata that are there already decide the cluster's id.
func TestStandaloneStaysOfItsCluster(t *testing.T) {
	b := newBroker(t, 1)
	b.cfg.Identity.Had = [16]byte{5}
	b.cfg.Expect, b.cfg.Seeds = 3, []string{"127.0.0.1:1"}
	f := b.open().form()
	if f.ClusterID != b.cfg.Identity.Had || !f.Known {
		t.Errorf("formed %+v", f)
	}
}

func TestTableOfMembers(t *testing.T) {
	now := time.UnixMilli(1_000_000)
	tb := table{self: store(1), members: map[state.StoreID]*seen{}}
	tb.put(store(1), card{Run: 1}, "a:1", now)
	tb.put(store(2), card{Run: 2, Name: "n2"}, "b:1", now)
	tb.note(note{Store: store(2), Run: 2, Seq: 2, Load: Load{Partitions: 5}})
	tb.note(note{Store: store(2), Run: 2, Seq: 1, Load: Load{Partitions: 4}}) // late
	tb.note(note{Store: store(2), Run: 1, Seq: 9, Load: Load{Partitions: 3}}) // of an earlier run
	state := func(after time.Duration) (Member, MemberState) {
		m := tb.list(now.Add(after), time.Second)[1]
		return m, m.State
	}
	if m, s := state(time.Second); s != Alive || m.Load.Partitions != 5 || m.Name != "n2" {
		t.Errorf("%+v", m)
	}
	if m, s := state(1500 * time.Millisecond); s != Suspect || m.Since != now.Add(time.Second) {
		t.Errorf("silent for long: %+v", m)
	}
	tb.lost(store(2), now.Add(2*time.Second))
	if m, s := state(9 * time.Second); s != Dead || m.Since != now.Add(2*time.Second) {
		t.Errorf("gone: %+v", m)
	}
	tb.put(store(2), card{Run: 3}, "c:1", now.Add(3*time.Second))
	if m, s := state(3 * time.Second); s != Alive || m.Load != (Load{}) || m.Gossip != "c:1" {
		t.Errorf("back in another run: %+v", m)
	}
	for i := range 2 * maxDead {
		id := store(3)
		id[1], id[2] = byte(i), byte(i>>8)
		tb.put(id, card{}, "x:1", now)
		tb.lost(id, now)
	}
	if n := len(tb.members); n > maxDead+2 {
		t.Errorf("%d members are remembered", n)
	}
}
