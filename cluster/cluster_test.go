package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// store returns a store id that sorts by n.
func store(n byte) state.StoreID { return state.StoreID{0: n, 15: 1} }

// broker is one broker of a test, with a data directory that outlives its runs.
type broker struct {
	t      testing.TB
	cfg    Config
	peer   string // address of the last run, kept for the next
	gossip string
	*Cluster
	node *meta.Node
}

// anyPort is on a loopback address of its own: on 127.0.0.1 another test or a connection could take a port while its broker
// is down.
func anyPort() string {
	return fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}

func newBroker(t testing.TB, n byte) *broker {
	t.Helper()
	return &broker{t: t, peer: anyPort(), gossip: anyPort(), cfg: Config{
		Dir:      t.TempDir(),
		Identity: Identity{Store: store(n), Name: fmt.Sprintf("n%d", n), Cluster: "danube"},
		Gossip:   Gossip{Fast: true},
		Lease:    time.Second,
		Log:      slog.New(slog.NewTextHandler(io.Discard, nil)),
	}}
}

// open starts a run.
func (b *broker) open() *broker {
	b.t.Helper()
	cfg := b.cfg
	var err error
	if cfg.PeerListener, err = net.Listen("tcp", b.peer); err != nil {
		b.t.Fatal(err)
	}
	cfg.Gossip.Bind = b.gossip
	if b.Cluster, err = Open(b.t.Context(), cfg); err != nil {
		b.t.Fatal(err)
	}
	b.peer, b.gossip = cfg.PeerListener.Addr().String(), b.GossipAddress()
	run := b.Cluster
	b.t.Cleanup(func() {
		if err := run.Close(); err != nil {
			b.t.Errorf("close: %v", err)
		}
	})
	return b
}

// form forms and fails the test if that takes too long.
func (b *broker) form() Formation {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	f, err := b.Form(ctx)
	if err != nil {
		b.t.Errorf("form %s: %v", b.cfg.Identity.Name, err)
	}
	return f
}

func (b *broker) metaConfig(f Formation) meta.Config {
	cfg := meta.Config{
		Dir: b.cfg.Dir + "/meta", Store: b.cfg.Identity.Store, Form: f.Voters, Join: f.Join, Bootstrapped: f.Known,
		Listener: b.RaftListener(), Dial: b.RaftDial, ElectionTimeout: 200 * time.Millisecond,
	}
	cfg.Forward = func(ctx context.Context, to meta.Server, op byte, body []byte) ([]byte, error) {
		return b.Call(ctx, to.Store, "meta", append([]byte{op}, body...))
	}
	return cfg
}

// attach opens the metadata and registers, as a broker does after forming.
func (b *broker) attach(f Formation) {
	b.t.Helper()
	node, err := meta.Open(b.t.Context(), b.metaConfig(f))
	if err != nil {
		b.t.Fatalf("open metadata of %s: %v", b.cfg.Identity.Name, err)
	}
	b.node = node
	b.Opened(node)
	b.t.Cleanup(func() { node.Close() })
	b.Handle("meta", func(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
		return node.Serve(ctx, body[0], body[1:])
	})
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	r, err := node.Propose(ctx, &state.RegisterStore{
		Store: b.cfg.Identity.Store, Broker: b.cfg.Identity.Name, Nonce: newClusterID(), Addresses: state.Addresses{Peer: b.peer},
	})
	if err != nil {
		b.t.Fatalf("register %s: %v", b.cfg.Identity.Name, err)
	}
	if err := b.Attach(node, state.Owner{Store: b.cfg.Identity.Store, Incarnation: r.Incarnation}); err != nil {
		b.t.Fatal(err)
	}
}

// together runs f for every broker side by side.
func together(brokers []*broker, f func(i int, b *broker)) {
	var wg sync.WaitGroup
	for i, b := range brokers {
		wg.Go(func() { f(i, b) })
	}
	wg.Wait()
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	for !f() {
		select {
		case <-tick.C:
		case <-late.C:
			t.Fatalf("never: %s", what)
		}
	}
}

// three starts three brokers that form a cluster and attaches their metadata.
func three(t testing.TB) []*broker {
	t.Helper()
	brokers := []*broker{newBroker(t, 3), newBroker(t, 1), newBroker(t, 2)}
	for i, b := range brokers {
		b.cfg.Expect = 3
		for _, other := range brokers[:i] {
			b.cfg.Seeds = append(b.cfg.Seeds, other.gossip)
		}
		b.open()
	}
	formations := make([]Formation, len(brokers))
	together(brokers, func(i int, b *broker) { formations[i] = b.form() })
	for i, f := range formations {
		if f.ClusterID != formations[0].ClusterID || f.ClusterID == [16]byte{} || len(f.Voters) != 3 || f.Join || f.Known {
			t.Fatalf("broker %d formed %+v, broker 0 %+v", i, f, formations[0])
		}
	}
	together(brokers, func(i int, b *broker) { b.attach(formations[i]) })
	return brokers
}

func TestThreeBrokersFormOneCluster(t *testing.T) {
	brokers := three(t)
	for _, b := range brokers {
		eventually(t, "a lease for "+b.cfg.Identity.Name, b.LeaseValid)
	}
	eventually(t, "everybody alive with the cluster's id", func() bool {
		for _, b := range brokers {
			for _, m := range b.Members() {
				if m.State != Alive || m.Cluster != b.ClusterID() {
					return false
				}
			}
		}
		return true
	})

	fourth := newBroker(t, 4)
	fourth.cfg.Seeds = []string{brokers[0].gossip}
	f := fourth.open().form()
	if !f.Join || f.ClusterID != brokers[0].ClusterID() || f.Voters != nil {
		t.Fatalf("the fourth formed %+v", f)
	}
	fourth.attach(f)
	eventually(t, "a lease for the fourth", fourth.LeaseValid)

	// A restart at another address, which the cluster learns from the broker itself.
	fourth.node.Close()
	fourth.Close()
	fourth.peer, fourth.gossip = anyPort(), anyPort()
	f = fourth.open().form()
	if !f.Known {
		t.Errorf("after a restart the fourth formed %+v", f)
	}
	fourth.attach(f)
	eventually(t, "a lease for the fourth at its new address", fourth.LeaseValid)
	eventually(t, "its new address in Raft", func() bool {
		for _, s := range brokers[1].node.Servers() {
			if s.Store == fourth.cfg.Identity.Store {
				return s.Address == fourth.peer
			}
		}
		return false
	})
}
