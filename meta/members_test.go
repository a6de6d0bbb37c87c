package meta

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// onLeader runs a change of the members on whoever leads, until it succeeds or its error is one that does not pass.
func (g *group) onLeader(what string, f func(ctx context.Context, n *Node) error) {
	g.t.Helper()
	eventually(g.t, what, func() bool {
		err := f(g.t.Context(), g.node(g.leader()))
		if err != nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrUnknown) && !errors.Is(err, ErrBusy) &&
			!errors.Is(err, ErrNoQuorum) {
			g.t.Errorf("%s: %v", what, err)
			return true
		}
		return err == nil
	})
}

// join starts node i as one that waits to be added, and adds it.
func (g *group) join(i int) {
	g.t.Helper()
	g.configs[i].Join = true
	g.start(i)
	g.onLeader("a server is added", func(ctx context.Context, n *Node) error {
		return n.AddServer(ctx, Server{Store: g.configs[i].Store, Address: g.configs[i].Address})
	})
}

func (g *group) voterCount() int {
	voters := 0
	for _, s := range g.node(g.leader()).Servers() {
		if s.Voter {
			voters++
		}
	}
	return voters
}

// TestJoinedServerGetsASnapshotAndThenAVote: a new node gets the state from a snapshot, because the log is cut, proposes
// as a non-voter, and is a voter after Promote; Demote takes the vote back.
func TestJoinedServerGetsASnapshotAndThenAVote(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 4)
	for i := range 3 {
		g.configs[i].Form = g.voters(3)
		g.start(i)
	}
	g.ready()
	for i := range 100 {
		propose(t, g.node(i%3), createTopic(i))
	}
	leader := g.node(g.leader())
	if err := leader.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first, err := leader.store.FirstIndex(); err != nil || first < 50 {
		t.Fatalf("the log begins at %d: %v", first, err)
	}
	g.join(3)
	eventually(t, "the new node is ready", g.node(3).Ready)
	if n := g.same(); n != 100 {
		t.Fatalf("%d topics", n)
	}
	propose(t, g.node(3), createTopic(100))
	if n := g.voterCount(); n != 3 {
		t.Fatalf("%d voters", n)
	}
	g.onLeader("a server is promoted", func(ctx context.Context, n *Node) error { return n.Promote(ctx, storeOf(3)) })
	if n := g.voterCount(); n != 4 {
		t.Fatalf("%d voters after the promotion", n)
	}
	g.onLeader("a server is demoted", func(ctx context.Context, n *Node) error { return n.Demote(ctx, storeOf(3)) })
	if n := g.voterCount(); n != 3 {
		t.Fatalf("%d voters after the demotion", n)
	}
	g.stop(3)
	g.start(3)
	propose(t, g.node(3), createTopic(101))
	if n := g.same(); n != 102 {
		t.Fatalf("%d topics", n)
	}
}

// TestServerOutOfReachGetsNoVote: it would count for the majority and could not be one of it.
func TestServerOutOfReachGetsNoVote(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 2)
	g.start(0)
	g.ready()
	n := g.node(0)
	if err := n.AddServer(t.Context(), Server{Store: storeOf(1), Address: g.configs[1].Address}); err != nil {
		t.Fatal(err)
	}
	if err := n.Promote(t.Context(), storeOf(1)); !errors.Is(err, ErrNoQuorum) {
		t.Fatalf("promote a server that does not run: %v", err)
	}
	if err := n.Promote(t.Context(), storeOf(7)); !errors.Is(err, ErrNotMember) {
		t.Fatalf("promote nobody: %v", err)
	}
	propose(t, n, createTopic(1))
}

// TestChangesThatWouldEndTheMajorityAreRefused: with one voter of three gone, another cannot be taken away, the lost one
// can.
func TestChangesThatWouldEndTheMajorityAreRefused(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	leader := g.leader()
	n := g.node(leader)
	gone, other := (leader+1)%3, (leader+2)%3
	g.kill(gone)
	eventually(t, "the lost voter is missed", func() bool { return n.silence(storeOf(gone)) > quorumFresh })
	for what, f := range map[string]func(context.Context, state.StoreID) error{"demote": n.Demote, "remove": n.RemoveServer} {
		if err := f(t.Context(), storeOf(other)); !errors.Is(err, ErrNoQuorum) {
			t.Errorf("%s a voter that is needed: %v", what, err)
		}
		if err := f(t.Context(), storeOf(leader)); !errors.Is(err, ErrNotMember) {
			t.Errorf("%s the leader itself: %v", what, err)
		}
	}
	if err := n.RemoveServer(t.Context(), storeOf(gone)); err != nil {
		t.Fatalf("remove the lost voter: %v", err)
	}
	if err := n.RemoveServer(t.Context(), storeOf(gone)); err != nil {
		t.Fatalf("remove it again: %v", err)
	}
	propose(t, g.node(other), createTopic(1))
	if len(n.Servers()) != 2 || n.Healthy().LastContact > quorumFresh {
		t.Fatalf("%v, %+v", n.Servers(), n.Healthy())
	}
}

// TestFollowerChangesNobody: every change of the members is the leader's.
func TestFollowerChangesNobody(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	i := g.follower()
	n, ctx := g.node(i), t.Context()
	for what, err := range map[string]error{
		"add":      n.AddServer(ctx, Server{Store: storeOf(5), Address: "127.0.0.1:1"}),
		"promote":  n.Promote(ctx, storeOf(0)),
		"demote":   n.Demote(ctx, storeOf(0)),
		"remove":   n.RemoveServer(ctx, storeOf(0)),
		"transfer": n.Transfer(ctx, nil),
		"restore":  n.Restore(ctx, nil),
	} {
		if !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTransferGoesWhereItIsSent: to a voter that is named, never to a non-voter.
func TestTransferGoesWhereItIsSent(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 4)
	for i := range 3 {
		g.configs[i].Form = g.voters(3)
		g.start(i)
	}
	g.ready()
	g.join(3)
	leader := g.leader()
	n := g.node(leader)
	changed, term := n.Leadership(), n.Term()
	third := storeOf(3)
	if err := n.Transfer(t.Context(), &third); !errors.Is(err, ErrNotMember) {
		t.Fatalf("to a non-voter: %v", err)
	}
	if _, leads := n.Leading(); !leads || n.Term() != term {
		t.Fatal("leadership moved all the same")
	}
	to := (leader + 1) % 3
	target := storeOf(to)
	g.onLeader("leadership is handed over", func(ctx context.Context, n *Node) error {
		if n.cfg.Store == target {
			return nil
		}
		return n.Transfer(ctx, &target)
	})
	if got := g.leader(); got != to {
		t.Fatalf("%d leads, not %d", got, to)
	}
	<-changed
	propose(t, n, createTopic(1))
}

// TestServerWithANewAddressIsFound: a voter comes back at another address, is found there, and is a voter still. The
// members say where it is once it has registered there.
func TestServerWithANewAddressIsFound(t *testing.T) {
	t.Parallel()
	g := newGroup(t, 3)
	var moved atomic.Pointer[Server]
	for i := range 3 {
		g.configs[i].Form = g.voters(3)
		g.configs[i].Resolve = func(store state.StoreID) (string, bool) {
			if m := moved.Load(); m != nil && m.Store == store {
				return m.Address, true
			}
			return "", false
		}
		g.start(i)
	}
	g.ready()
	i := g.follower()
	g.stop(i)
	g.readdress(i)
	now := Server{Store: g.configs[i].Store, Address: g.configs[i].Address, Voter: true}
	moved.Store(&now)
	g.start(i)
	r := register(i)
	r.Store, r.Addresses.Peer = now.Store, now.Address
	propose(t, g.node(i), r)
	g.onLeader("what is known already is added again", func(ctx context.Context, n *Node) error { return n.AddServer(ctx, now) })
	if s, ok := g.node(g.leader()).server(now.Store); !ok || s != now {
		t.Fatalf("%+v, want %+v", s, now)
	}
	g.same()
}

// TestAllMoveAtOnce: every server has a new address, and finds the others because Resolve knows where they are.
func TestAllMoveAtOnce(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	propose(t, g.node(0), createTopic(1))
	for i := range 3 {
		g.stop(i)
		g.readdress(i)
	}
	now := make(map[state.StoreID]string)
	for i := range 3 {
		now[storeOf(i)] = g.configs[i].Address
	}
	for i := range 3 {
		g.configs[i].Resolve = func(s state.StoreID) (string, bool) { a, ok := now[s]; return a, ok }
		g.start(i)
	}
	propose(t, g.node(g.follower()), createTopic(2))
	if n := g.same(); n != 2 {
		t.Fatalf("%d topics", n)
	}
}
