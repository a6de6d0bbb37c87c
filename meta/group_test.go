package meta

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// group is a cluster of nodes over real TCP and real files. A node is named by its number, from zero.
type group struct {
	t       testing.TB
	configs []Config

	mu        sync.Mutex
	nodes     []*Node // nil: not running
	addresses map[string]int
	cut       map[[2]int]bool // from, to: nothing passes
	conns     map[net.Conn][2]int
}

func groupTimeout() time.Duration { return 300 * time.Millisecond }

func storeOf(i int) state.StoreID { return state.StoreID{byte(i + 1)} }

// newGroup makes directories and addresses for n nodes and starts none.
func newGroup(t testing.TB, n int) *group {
	g := &group{
		t: t, nodes: make([]*Node, n), addresses: make(map[string]int), cut: make(map[[2]int]bool),
		conns: make(map[net.Conn][2]int),
	}
	for i := range n {
		cfg := testConfig(t.TempDir())
		cfg.Store = storeOf(i)
		cfg.ElectionTimeout = groupTimeout()
		g.configs = append(g.configs, cfg)
		g.readdress(i)
	}
	t.Cleanup(func() {
		for i := range g.nodes {
			g.stop(i)
		}
	})
	return g
}

// startGroup starts n voters that form a cluster, and waits until each is ready.
func startGroup(t testing.TB, n int) *group {
	g := newGroup(t, n)
	for i := range n {
		g.configs[i].Form = g.voters(n)
		g.start(i)
	}
	g.ready()
	return g
}

func (g *group) voters(n int) []Server {
	var voters []Server
	for i := range n {
		voters = append(voters, Server{Store: storeOf(i), Address: g.configs[i].Address, Voter: true})
	}
	return voters
}

// readdress gives a node an address it never had. It lies on a loopback address of its own: on 127.0.0.1 another test or a
// connection could take the port while the node is down.
func (g *group) readdress(i int) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250)))
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.configs[i].Address = l.Addr().String()
	g.addresses[g.configs[i].Address] = i
	if err := l.Close(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *group) start(i int) *Node {
	g.t.Helper()
	cfg := g.configs[i]
	var err error
	if cfg.Listener, err = net.Listen("tcp", cfg.Address); err != nil {
		g.t.Fatal(err)
	}
	cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) { return g.dial(ctx, i, address) }
	cfg.Forward = func(ctx context.Context, to Server, op byte, body []byte) ([]byte, error) {
		return g.forward(ctx, i, to, op, body)
	}
	n, err := Open(context.Background(), cfg)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[i] = n
	return n
}

func (g *group) node(i int) *Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.nodes[i]
}

func (g *group) running() []*Node {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.nodes), func(n *Node) bool { return n == nil })
}

// stop closes a node in good order.
func (g *group) stop(i int) {
	g.mu.Lock()
	n := g.nodes[i]
	g.nodes[i] = nil
	g.mu.Unlock()
	if n != nil {
		if err := n.Close(); err != nil {
			g.t.Errorf("close node %d: %v", i, err)
		}
	}
}

// kill ends a node as the others see a process killed: from one moment on it is not heard any more, in the middle of
// whatever it did. (Raft's own Shutdown would leave calls without an answer for ever, so the node closes in good order
// after that.)
func (g *group) kill(i int) {
	g.isolate(i)
	g.stop(i)
	g.heal()
}

var errCut = errors.New("nothing passes between these two")

func (g *group) dial(ctx context.Context, from int, address string) (net.Conn, error) {
	g.mu.Lock()
	to, ok := g.addresses[address]
	cut := g.cut[[2]int{from, to}]
	g.mu.Unlock()
	if !ok || cut {
		return nil, errCut
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut[[2]int{from, to}] { // since just now
		return nil, errors.Join(errCut, c.Close())
	}
	g.conns[c] = [2]int{from, to}
	return c, nil
}

func (g *group) forward(ctx context.Context, from int, to Server, op byte, body []byte) ([]byte, error) {
	g.mu.Lock()
	i, ok := g.addresses[to.Address]
	var n *Node
	if ok && !g.cut[[2]int{from, i}] && g.configs[i].Store == to.Store {
		n = g.nodes[i]
	}
	g.mu.Unlock()
	if n == nil {
		return nil, errCut
	}
	reply, err := n.Serve(ctx, op, body)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut[[2]int{i, from}] {
		return nil, errCut
	}
	return reply, err
}

// isolate cuts a node off from all others, in both directions.
func (g *group) isolate(i int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for j := range g.nodes {
		if j != i {
			g.cut[[2]int{i, j}], g.cut[[2]int{j, i}] = true, true
		}
	}
	for c, ends := range g.conns {
		if g.cut[ends] {
			c.Close()
			delete(g.conns, c)
		}
	}
}

// heal lets everything pass again.
func (g *group) heal() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.cut)
}

// ready waits until every running node knows a leader and sees commits.
func (g *group) ready() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 30*time.Second)
	defer cancel()
	for _, n := range g.running() {
		if err := n.WaitReady(ctx); err != nil {
			g.t.Fatal(err)
		}
		if err := n.Barrier(ctx); err != nil {
			g.t.Fatal(err)
		}
	}
}

// leader waits for the number of a running node that leads, as at least half of the running ones see it.
func (g *group) leader() int {
	g.t.Helper()
	found := -1
	eventually(g.t, "a leader that the others know", func() bool {
		known := make(map[state.StoreID]int)
		for _, n := range g.running() {
			if s, ok := n.Leader(); ok {
				known[s.Store]++
			}
		}
		for i := range g.configs {
			n := g.node(i)
			if n == nil || known[g.configs[i].Store] < (len(g.running())+1)/2 {
				continue
			}
			if _, leads := n.Leading(); leads {
				found = i
				return true
			}
		}
		return false
	})
	return found
}

// follower returns the number of a running node that does not lead.
func (g *group) follower() int {
	g.t.Helper()
	leader := g.leader()
	for i := range g.nodes {
		if i != leader && g.node(i) != nil {
			return i
		}
	}
	g.t.Fatal("no follower runs")
	return -1
}

// same waits until all running nodes have the same state (I16) and returns the topic count.
func (g *group) same() int {
	g.t.Helper()
	eventually(g.t, "the same state everywhere", func() bool {
		first := g.running()[0].View()
		for _, n := range g.running()[1:] {
			if v := n.View(); v.Index() != first.Index() || v.Hash() != first.Hash() {
				return false
			}
		}
		return true
	})
	return g.running()[0].View().TopicCount()
}
