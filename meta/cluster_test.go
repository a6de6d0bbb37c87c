package meta

import (
	"errors"
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
		cfg.ElectionTimeout = 300 * time.Millisecond
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
		if err := nodes[0].raft.AddVoter(serverID(cfg.Store), transports[i].LocalAddr(), 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new voter is ready", n.Ready)
	}
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			if _, err := nodes[0].Propose(t.Context(), createTopic(i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	index := nodes[0].View().Index()
	for _, n := range nodes {
		if err := n.WaitIndex(t.Context(), index); err != nil {
			t.Fatal(err)
		}
		if n.View().Hash() != nodes[0].View().Hash() {
			t.Fatal("states differ at one index")
		}
	}
	closeNode(t, nodes[0])
	var leader *Node
	eventually(t, "another leader", func() bool {
		for _, n := range nodes[1:] {
			if n.Status().IsLeader {
				leader = n
			}
		}
		return leader != nil
	})
	if err := leader.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if leader.View().TopicCount() != 50 {
		t.Fatalf("%d topics remain", leader.View().TopicCount())
	}
	propose(t, leader, createTopic(50))
}
