package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cluster"
)

// fleet is several brokers of one cluster in this process.
type fleet struct {
	t     testing.TB
	nodes []*member
}

// member is one place in a fleet: a data directory and addresses that outlive its runs.
type member struct {
	*node
	dir                  string
	client, peer, gossip string
	wire                 *cable // of the peer port
	change               func(*broker.Config)
}

// cable is what a broker's connections to others run over; it can be cut.
type cable struct {
	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]struct{}
}

var errCut = errors.New("the cable is cut")

func (c *cable) add(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut {
		return nil, errors.Join(errCut, conn.Close())
	}
	c.conns[conn] = struct{}{}
	return conn, nil
}

// pull ends every connection and lets no new one come about, until mend.
func (c *cable) pull() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = true
	for conn := range c.conns {
		conn.Close()
	}
	c.conns = map[net.Conn]struct{}{}
}

func (c *cable) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = false
}

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return c.add((&net.Dialer{}).DialContext(ctx, network, address))
}

// wired is a listener on a cable.
type wired struct {
	net.Listener
	c *cable
}

func (w wired) Accept() (net.Conn, error) {
	for {
		conn, err := w.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if conn, err = w.c.add(conn, nil); err == nil {
			return conn, nil
		}
	}
}

// freePort finds an address of this machine that nobody listens on, for TCP and
// UDP. It lies on a loopback address of its own: from 127.0.0.1 a connection may
// leave through any port in the meantime.
func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// newFleet forms a cluster of n brokers.
func newFleet(t testing.TB, n int, change func(*broker.Config)) *fleet {
	t.Helper()
	f := &fleet{t: t}
	for range n {
		f.nodes = append(f.nodes, &member{
			dir: t.TempDir(), client: freePort(t), peer: freePort(t), gossip: freePort(t),
			wire: &cable{conns: map[net.Conn]struct{}{}}, change: change,
		})
	}
	var starting sync.WaitGroup
	for i := range f.nodes {
		starting.Go(func() { f.start(i) })
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return f
}

// config is what member i is started with.
func (f *fleet) config(i int) broker.Config {
	m := f.nodes[i]
	cfg := broker.Config{
		DataDir: m.dir, Name: fmt.Sprintf("n%d", i+1), Election: 200 * time.Millisecond,
		Listen: broker.Listen{Client: m.client, Open: func(network, address string) (net.Listener, error) {
			ln, err := net.Listen(network, address)
			if err == nil && address == m.peer {
				ln = wired{ln, m.wire}
			}
			return ln, err
		}},
		Peers: broker.Peers{
			Join: true, Seeds: []string{f.nodes[0].gossip, f.nodes[len(f.nodes)-1].gossip}, Expect: len(f.nodes), Listen: m.peer, Dial: m.wire.dial,
			Gossip: cluster.Gossip{Bind: m.gossip, Fast: true}, Lease: time.Second, Shutdown: 4 * time.Second,
		},
	}
	if os.Getenv("DANUBE_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("on", cfg.Name)
	}
	if m.change != nil {
		m.change(&cfg)
	}
	return cfg
}

// start runs member i.
func (f *fleet) start(i int) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 30*time.Second)
	defer cancel()
	b, err := broker.Open(ctx, f.config(i))
	if err != nil {
		f.t.Errorf("open n%d: %v", i+1, err)
		return
	}
	run, stop := context.WithCancel(context.Background())
	n := &node{Broker: b, stop: stop, done: make(chan error, 1)}
	go func() { n.done <- b.Run(run) }()
	f.nodes[i].node = n
	f.t.Cleanup(func() { n.abandon(f.t) })
}

// abandon ends a broker that nobody needs any more.
func (n *node) abandon(t testing.TB) {
	if n.done == nil {
		return
	}
	n.stop()
	if err := <-n.done; err != nil {
		t.Errorf("run: %v", err)
	}
	if err := n.Abandon(); err != nil {
		t.Errorf("close: %v", err)
	}
	n.done = nil
}

// stop stops member i in order.
func (f *fleet) stop(i int) {
	f.t.Helper()
	f.nodes[i].close(f.t)()
}

// kill ends member i without a word to anybody: its cable is cut first, so that
// whatever it still says while it ends is not heard.
func (f *fleet) kill(i int) {
	f.t.Helper()
	n := f.nodes[i]
	n.wire.pull()
	n.abandon(f.t)
	n.wire.mend()
}

// dial connects to member i.
func (f *fleet) dial(i int) *client.Client {
	f.t.Helper()
	var all []string
	for k := range f.nodes {
		all = append(all, f.nodes[(i+k)%len(f.nodes)].client)
	}
	c, err := client.Dial(f.t.Context(), all, client.Config{Name: "test"})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	return c
}

// owner returns which member serves a partition of a topic, once one does.
func (f *fleet) owner(topic string, n int) (owner int) {
	f.t.Helper()
	eventually(f.t, "an owner of "+topic, func() bool {
		for i, m := range f.nodes {
			if m.done != nil && m.OwnerOf(topic, n) == fmt.Sprintf("n%d", i+1) {
				owner = i
				return true
			}
		}
		return false
	})
	return owner
}
