package meta

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/hashicorp/raft"
)

// TestThreeVotersRunTheSameCode: two more nodes join, all three come to the same state (I16), and when the leader goes
// another leads with nothing lost.
func TestThreeVotersRunTheSameCode(t *testing.T) {
	t.Parallel()
	nodes, transports := make([]*Node, 3), make([]*raft.InmemTransport, 3)
	for i := range nodes {
		cfg := testConfig(t.TempDir())
		cfg.Store = state.StoreID{byte(i + 1)}
		cfg.ElectionTimeout = 600 * time.Millisecond
		_, transports[i] = raft.NewInmemTransport(raft.ServerAddress(cfg.Store.String()))
		cfg.Transport = transports[i]
		cfg.Join = i > 0
		for j := range i {
			transports[i].Connect(transports[j].LocalAddr(), transports[j])
			transports[j].Connect(transports[i].LocalAddr(), transports[i])
		}
		if i == 0 {
			nodes[i] = openNode(t, cfg)
			continue
		}
		n, err := Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		nodes[i] = n
		if n.Ready() {
			t.Fatal("a node that nobody added is ready")
		}
		if _, err := n.Propose(t.Context(), createTopic(1)); !errors.Is(err, ErrNotLeader) {
			t.Fatalf("a node that nobody added: %v", err)
		}
		eventually(t, "the new voter is added", func() bool {
			return leaderOf(nodes).raft.AddVoter(serverID(cfg.Store), transports[i].LocalAddr(), 0, 0).Error() == nil
		})
		eventually(t, "the new voter is ready", n.Ready)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			proposeToLeader(t, nodes, createTopic(i))
		})
	}
	wg.Wait()
	leader := leaderOf(nodes)
	index := leader.View().Index()
	for _, n := range nodes {
		if err := n.WaitIndex(t.Context(), index); err != nil {
			t.Fatal(err)
		}
		if n.View().Hash() != leader.View().Hash() {
			t.Fatal("states differ at one index")
		}
	}
	closeNode(t, leader)
	nodes = slices.DeleteFunc(nodes, func(n *Node) bool { return n == leader })
	proposeToLeader(t, nodes, createTopic(50))
	if n := leaderOf(nodes).View().TopicCount(); n != 51 {
		t.Fatalf("%d topics remain", n)
	}
}

// leaderOf returns the node that leads, or the first if none does.
func leaderOf(nodes []*Node) *Node {
	for _, n := range nodes {
		if n != nil && n.Status().IsLeader {
			return n
		}
	}
	return nodes[0]
}

// proposeToLeader proposes until it is known to be applied, whoever leads: a command twice is a command once (R5).
func proposeToLeader(t *testing.T, nodes []*Node, c state.Command) {
	eventually(t, "the command is applied", func() bool {
		_, err := leaderOf(nodes).Propose(t.Context(), c)
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) {
			t.Errorf("propose: %v", err)
			return true
		}
		return err == nil
	})
}
