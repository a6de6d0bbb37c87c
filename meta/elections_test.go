package meta

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// TestElectionsOverTime holds what needs real time to pass in quiet: beside it no other test of the package runs.
func TestElectionsOverTime(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"a hung disk of the leader elects another": hungDiskOfTheLeader,
		"a returned server hears at once":          returnedServerHearsAtOnce,
		"an isolated server disturbs nobody":       func(t *testing.T) { cutOff(t, false) },
		"a removed server disturbs nobody":         func(t *testing.T) { cutOff(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// wait lets real time pass in which nothing must happen.
func wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// hang makes every write of a node's database last until the returned function is called, from the moment it has
// reached the disk: the lock of the reserve is looked for at the end of each write while space is said to be low.
func hang(s *store) (release func()) {
	s.mu.Lock()
	s.low.Store(true)
	return s.mu.Unlock
}

// hungDiskOfTheLeader: heartbeats stop, another leads, proposals go on, also those that were under way;
// when the write returns the old leader follows (A53, R7).
func hungDiskOfTheLeader(t *testing.T) {
	g := newGroup(t, 3)
	reg := prometheus.NewPedanticRegistry()
	for i := range 3 {
		g.configs[i].Form = g.voters(3)
		if i == 0 {
			g.configs[i].Registerer = reg
		}
		g.start(i)
	}
	g.ready()
	g.onLeader("the first leads", func(ctx context.Context, n *Node) error {
		if first := storeOf(0); n.cfg.Store != first {
			return n.Transfer(ctx, &first)
		}
		return nil
	})
	if leader := g.leader(); leader != 0 {
		t.Fatalf("%d leads", leader)
	}
	old := g.node(0)
	release := hang(old.store)
	release = sync.OnceFunc(release)
	defer release()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if _, err := g.node(1+i%2).Propose(ctx, createTopic(i)); err != nil {
				t.Errorf("propose past the hung disk: %v", err)
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	took := time.Since(began)
	t.Logf("proposed past the hung disk after %v", took)
	if _, leads := old.Leading(); leads || old.Healthy().OldestWrite < hungAfter {
		t.Fatalf("the leader with the hung disk still leads: %+v", old.Healthy())
	}
	if s, ok := old.Leader(); ok {
		t.Fatalf("the hung broker sends requests to %v", s)
	}
	if age := gauge(t, reg, "danube_raft_oldest_write_seconds"); age < hungAfter.Seconds() {
		t.Errorf("the metric says %v s", age)
	}
	leader := g.leader()
	release()
	eventually(t, "the old leader follows", func() bool {
		s, ok := old.Leader()
		return ok && s.Store == storeOf(leader) && old.Healthy().OldestWrite < hungAfter
	})
	propose(t, old, createTopic(3))
	if n := g.same(); n != 4 {
		t.Fatalf("%d topics", n)
	}
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// returnedServerHearsAtOnce: the longer a server was away, the longer Raft waits between attempts, up to ten
// seconds; a broker that comes back must not wait for that.
func returnedServerHearsAtOnce(t *testing.T) {
	g := startGroup(t, 3)
	i := g.follower()
	g.kill(i)
	for j := range 20 {
		propose(t, g.node(g.leader()), createTopic(j))
	}
	wait(3 * time.Second) // Raft's own next attempt would come up to 2.5 s later
	g.start(i)
	began := time.Now()
	g.same()
	if took := time.Since(began); took > time.Second {
		t.Errorf("caught up after %v", took)
	}
}

// cutOff: a server is cut off for two seconds, in which it would like to be elected, perhaps removed meanwhile, and back
// again: term and leader stay (A54).
func cutOff(t *testing.T, remove bool) {
	g := startGroup(t, 3)
	i := g.follower()
	g.isolate(i)
	leader := g.leader()
	n := g.node(leader)
	if remove {
		g.onLeader("it is removed", func(ctx context.Context, n *Node) error { return n.RemoveServer(ctx, storeOf(i)) })
	}
	term := n.Term()
	wait(2 * time.Second)
	if g.node(i).Term() > term {
		t.Errorf("the isolated server is in term %d, the others in %d", g.node(i).Term(), term)
	}
	g.heal()
	wait(time.Second)
	propose(t, n, createTopic(1))
	if now, leads := n.Leading(); !leads || now != term {
		t.Fatalf("term %d became %d, leads: %v", term, n.Term(), leads)
	}
	if !remove && g.same() != 1 {
		t.Fatal("the isolated server did not catch up")
	}
	if remove && g.node(i).View().TopicCount() != 0 {
		t.Fatal("a removed server still gets commands")
	}
}
