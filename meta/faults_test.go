package meta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// TestEmptiedVoterDoesNotVoteUnderItsOldName: a command is committed by the leader and one follower, both go, the
// follower's disk is emptied, and it comes back at its address beside a voter that never saw the command. The two must
// not make a leader, or the command would be undone (R9).
func TestEmptiedVoterDoesNotVoteUnderItsOldName(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	leader := g.leader()
	laggard, emptied := (leader+1)%3, (leader+2)%3
	g.isolate(laggard)
	propose(t, g.node(leader), createTopic(1))
	g.stop(emptied)
	g.stop(leader)
	g.heal()
	if err := os.RemoveAll(g.configs[emptied].Dir); err != nil {
		t.Fatal(err)
	}
	g.configs[emptied].Store = storeOf(9) // an empty directory has no id, and draws a new one
	g.configs[emptied].Form, g.configs[emptied].Join = nil, true
	g.start(emptied)
	wait(2 * time.Second)
	if _, leads := g.node(laggard).Leading(); leads {
		t.Error("a leader was made with the vote of an emptied disk")
	}
	g.start(leader)
	propose(t, g.node(leader), createTopic(2))
	eventually(t, "the voter that lagged has what was committed", func() bool {
		v := g.node(laggard).View()
		return v.Topic(createTopic(1).Name) != nil && v.Topic(createTopic(2).Name) != nil
	})
	// It comes in as what it is: a new member, once the old one that had its address is out.
	g.onLeader("the old store is out", func(ctx context.Context, n *Node) error { return n.RemoveServer(ctx, storeOf(emptied)) })
	g.onLeader("the new store is added", func(ctx context.Context, n *Node) error {
		return n.AddServer(ctx, Server{Store: storeOf(9), Address: g.configs[emptied].Address})
	})
	g.onLeader("it is promoted", func(ctx context.Context, n *Node) error { return n.Promote(ctx, storeOf(9)) })
	if n := g.same(); n != 2 {
		t.Fatalf("%d topics", n)
	}
}

// register is a command whose doubling would show: each that is applied takes a number, unless it is the same again.
func register(i int) *state.RegisterStore {
	return &state.RegisterStore{Store: state.StoreID{0xee, byte(i), byte(i >> 8)}, Broker: fmt.Sprint(i), Nonce: [16]byte{byte(i), byte(i >> 8), 1}}
}

// registerThrough proposes register(i) through node w, or another while that one does not run, until it is answered.
func (g *group) registerThrough(w, i int) uint64 {
	for {
		n := g.node(w)
		if n == nil {
			n = g.running()[0]
		}
		ctx, cancel := context.WithTimeout(g.t.Context(), 20*time.Second)
		r, err := n.Propose(ctx, register(i))
		cancel()
		if err == nil {
			return r.Incarnation
		}
		if !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnknown) {
			g.t.Errorf("proposal %d: %v", i, err)
			return 0
		}
	}
}

// TestLeadersComeAndGoUnderLoad: proposals through all brokers while leaders are killed, cut off and deposed. What was
// said to be applied is there, once, with the number that was answered, and nothing that was not proposed.
func TestLeadersComeAndGoUnderLoad(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	var next, done atomic.Int64
	stop := make(chan struct{})
	var mu sync.Mutex
	answered := make(map[int]uint64)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				i := int(next.Add(1))
				number := g.registerThrough(w, i)
				mu.Lock()
				answered[i] = number
				mu.Unlock()
				done.Add(1)
			}
		})
	}
	progress := func(what string) {
		t.Helper()
		before := done.Load()
		eventually(t, what, func() bool { return done.Load() > before+30 })
	}
	terms := g.node(g.leader()).Term()
	for round := range 2 {
		progress("proposals go on")
		leader := g.leader()
		g.kill(leader)
		progress("proposals go on without the leader that was killed")
		g.start(leader)
		leader = g.leader()
		g.isolate(leader)
		wait(2 * groupTimeout())
		g.heal()
		progress("proposals go on after the leader was cut off")
		_ = g.node(g.leader()).Transfer(t.Context(), nil) // which may fail, as leadership may have moved
		progress("proposals go on after a transfer")
		if round == 1 {
			_ = g.node(g.follower()).Snapshot(t.Context()) // nothing new, or a configuration that is not applied yet
		}
	}
	close(stop)
	wg.Wait()
	g.ready()
	g.same()
	if now := g.node(g.leader()).Term(); now < terms+2 {
		t.Fatalf("the faults did not bite: term %d became %d", terms, now)
	}
	view := g.node(0).View()
	var numbers []uint64
	for i := 1; i <= int(next.Load()); i++ {
		s := view.Store(register(i).Store)
		if s == nil || s.Incarnation != answered[i] {
			t.Fatalf("command %d was answered %d, the state has %+v", i, answered[i], s)
		}
		numbers = append(numbers, s.Incarnation)
	}
	slices.Sort(numbers)
	if len(slices.Compact(numbers)) != int(next.Load()) || numbers[len(numbers)-1] != uint64(next.Load()) {
		t.Fatalf("%d commands took numbers up to %d", next.Load(), numbers[len(numbers)-1])
	}
	t.Logf("%d commands in %d terms", next.Load(), g.node(g.leader()).Term()-terms+1)
}

// TestCompactedLogsRestartTogether: all brokers stop and start with logs that were cut; the state is the same (A55).
func TestCompactedLogsRestartTogether(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 3)
	for i := range 150 {
		propose(t, g.node(i%3), createTopic(i))
	}
	for i := range 3 {
		if err := g.node(i).Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		propose(t, g.node(i), createTopic(150+i))
	}
	for i := range 3 {
		g.kill(i)
	}
	for i := range 3 {
		g.start(i)
	}
	g.ready()
	if n := g.same(); n != 153 {
		t.Fatalf("%d topics", n)
	}
}
