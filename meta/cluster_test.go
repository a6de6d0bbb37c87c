package meta

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// TestThreeVotersRunTheSameCode: three nodes form a cluster, all come to the same state (I16), whichever of them is
// asked; when the leader goes another leads with nothing lost, and the old one catches up.
func TestThreeVotersRunTheSameCode(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() { propose(t, g.node(i%3), createTopic(i)) })
	}
	wg.Wait()
	if n := g.same(); n != 50 {
		t.Fatalf("%d topics", n)
	}
	leader := g.leader()
	g.kill(leader)
	propose(t, g.node(g.follower()), createTopic(50))
	g.start(leader)
	if n := g.same(); n != 51 {
		t.Fatalf("%d topics remain", n)
	}
}

// TestProposerReadsItsWriteOnAFollower: what a follower proposed is in its own view when Propose returns.
func TestProposerReadsItsWriteOnAFollower(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	n := g.node(g.follower())
	for i := range 20 {
		r := propose(t, n, createTopic(i))
		if v := n.View(); !r.Created || v.Index() < r.Index || v.Topic(createTopic(i).Name) == nil {
			t.Fatalf("view at %d does not show %+v", v.Index(), r)
		}
	}
	leader := g.node(g.leader())
	propose(t, leader, createTopic(20))
	if err := n.Barrier(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n.View().Topic(createTopic(20).Name) == nil {
		t.Fatal("a barrier on a follower does not show what was committed before")
	}
}

// TestWithoutAMajorityNothingIsProposed: the call ends with ctx and says whether something may come of it.
func TestWithoutAMajorityNothingIsProposed(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	n := g.follower()
	g.isolate(n)
	eventually(t, "the follower misses its leader", func() bool { _, ok := g.node(n).Leader(); return !ok })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := g.node(n).Propose(ctx, createTopic(1))
	if !errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("without a leader: %v", err)
	}
	g.heal()
	propose(t, g.node(n), createTopic(1))
}
