package cluster

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// lead returns the broker that leads the metadata, and the others.
func lead(t *testing.T, brokers []*broker) (leader *broker, others []*broker) {
	t.Helper()
	eventually(t, "a leader", func() bool {
		leader, others = nil, nil
		for _, b := range brokers {
			if _, ok := b.node.Leading(); ok {
				leader = b
			} else {
				others = append(others, b)
			}
		}
		return leader != nil && len(others) == len(brokers)-1
	})
	return leader, others
}

func (b *broker) shut() {
	b.t.Helper()
	if err := errors.Join(b.node.Close(), b.Cluster.Close()); err != nil {
		b.t.Errorf("close %s: %v", b.cfg.Identity.Name, err)
	}
}

// A removed broker that runs on is told so and must stop, though no leader talks to it any more.
func TestRemovedBrokerIsTold(t *testing.T) {
	tests := map[string]bool{"by the leader, at its next renewal": false, "by others, though it hears of no leader": true}
	for name, silent := range tests {
		t.Run(name, func(t *testing.T) {
			brokers := three(t)
			leader, others := lead(t, brokers)
			victim := others[0]
			eventually(t, "its lease", victim.LeaseValid)
			if silent {
				// It was down while it was removed, and starts with metadata that know of nothing.
				victim.shut()
				if err := leader.node.RemoveServer(t.Context(), victim.cfg.Identity.Store); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := leader.node.Propose(t.Context(), &state.RemoveStore{Store: victim.cfg.Identity.Store, Lose: true}); err != nil {
				t.Fatal(err)
			}
			if silent {
				victim.cfg.Seeds = []string{leader.gossip}
				victim.open()
				switch f, err := victim.Form(t.Context()); {
				case errors.Is(err, ErrRemoved): // the others were faster than the start
				case err != nil:
					t.Fatal(err)
				default:
					victim.reopen(f)
				}
			}
			select {
			case <-victim.Failed():
			case <-time.After(10 * time.Second):
				t.Fatal("it was never told")
			}
			if err := victim.Err(); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "was removed from the cluster") {
				t.Errorf("told %v", err)
			}
			if victim.LeaseValid() {
				t.Error("it keeps its lease")
			}
			for _, b := range []*broker{leader, others[1]} {
				if err := b.Err(); err != nil {
					t.Errorf("%s: %v", b.cfg.Identity.Name, err)
				}
			}
		})
	}
}

// reopen opens the metadata as attach does, for a broker that is not expected to get any further.
func (b *broker) reopen(f Formation) {
	b.t.Helper()
	node, err := meta.Open(b.t.Context(), b.metaConfig(f))
	if err != nil {
		b.t.Fatalf("open metadata of %s: %v", b.cfg.Identity.Name, err)
	}
	b.node = node
	b.t.Cleanup(func() { node.Close() })
	b.Opened(node)
}

// After a recovery on one store the other old voters, who together are a majority of what was, do not go on by
// themselves: they are told to stop, elect nobody that the recovered one follows, and come back with their data
// directories when their metadata have been moved away (R22).
func TestOldVotersStopAfterARecovery(t *testing.T) {
	brokers := three(t)
	for _, b := range brokers {
		eventually(t, "a lease", b.LeaseValid)
	}
	for _, b := range brokers {
		b.shut()
	}
	alone, old := brokers[0], brokers[1:]
	if err := meta.Recover(alone.cfg.Dir+"/meta", alone.cfg.Identity.Store, alone.peer); err != nil {
		t.Fatal(err)
	}
	// The old voters are up first and have elected one of them by the time the recovered broker comes.
	for _, b := range brokers {
		b.cfg.Seeds = []string{brokers[0].gossip, brokers[1].gossip, brokers[2].gossip}
	}
	together(old, func(_ int, b *broker) {
		b.open()
		b.reopen(b.form())
	})
	eventually(t, "a leader of what was", func() bool {
		_, one := old[0].node.Leading()
		_, two := old[1].node.Leading()
		return one || two
	})
	terms := old[0].node.Term()
	alone.open()
	alone.attach(alone.form())
	for _, b := range old {
		select {
		case <-b.Failed():
		case <-time.After(10 * time.Second):
			t.Fatalf("%s was never told", b.cfg.Identity.Name)
		}
		err := b.Err()
		if !errors.Is(err, ErrOutdated) || !strings.Contains(err.Error(), "history 1") || !strings.Contains(err.Error(), "docs/runbook.md") {
			t.Errorf("%s was told: %v", b.cfg.Identity.Name, err)
		}
	}
	if leader, ok := alone.node.Leader(); !ok || leader.Store != alone.cfg.Identity.Store {
		t.Errorf("the recovered broker follows %v in term %d, the old voters were in %d", leader, alone.node.Term(), terms)
	}
	for _, b := range old {
		b.shut()
		if err := os.RemoveAll(b.cfg.Dir + "/meta"); err != nil {
			t.Fatal(err)
		}
		b.cfg.Identity.Emptied = true
		f := b.open().form()
		if !f.Join || f.Known || f.ClusterID != alone.ClusterID() {
			t.Fatalf("%s comes back as %+v", b.cfg.Identity.Name, f)
		}
		b.attach(f)
		eventually(t, "a lease in the new history", b.LeaseValid)
		if h := b.node.View().Cluster().History; h != 1 {
			t.Errorf("history %d", h)
		}
	}
	if err := alone.Err(); err != nil {
		t.Errorf("the recovered broker: %v", err)
	}
}

// A voter whose metadata are moved away comes again without the vote it had: what it promised with it is forgotten (R9).
func TestEmptiedVoterComesWithoutItsVote(t *testing.T) {
	brokers := three(t)
	leader, others := lead(t, brokers)
	victim := others[0]
	eventually(t, "its lease", victim.LeaseValid)
	victim.shut()
	if err := os.RemoveAll(victim.cfg.Dir + "/meta"); err != nil {
		t.Fatal(err)
	}
	victim.cfg.Identity.Emptied, victim.cfg.Seeds = true, []string{leader.gossip}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f, err := victim.open().Form(ctx)
	if err != nil || !f.Join || f.Known || f.Voters != nil {
		t.Fatalf("formed %+v, %v", f, err)
	}
	for _, s := range leader.node.Servers() {
		if s.Store == victim.cfg.Identity.Store && s.Voter {
			t.Error("it has the vote of its earlier life")
		}
	}
	victim.attach(f)
	eventually(t, "its lease", victim.LeaseValid)
}

// A store that was removed does not come again with its metadata moved away either, and is told so once.
func TestRemovedStoreIsNotTakenInAgain(t *testing.T) {
	brokers := three(t)
	leader, others := lead(t, brokers)
	victim := others[0]
	eventually(t, "its lease", victim.LeaseValid)
	victim.shut()
	if _, err := leader.node.Propose(t.Context(), &state.RemoveStore{Store: victim.cfg.Identity.Store, Lose: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(victim.cfg.Dir + "/meta"); err != nil {
		t.Fatal(err)
	}
	victim.cfg.Identity.Emptied, victim.cfg.Seeds = true, []string{others[1].gossip} // who passes it on to the leader
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if f, err := victim.open().Form(ctx); !errors.Is(err, ErrRemoved) || !strings.Contains(err.Error(), "start with an empty data directory") {
		t.Errorf("formed %+v, %v", f, err)
	}
}

// Without peers nobody can take a broker in again: metadata that are missing there are damage, as ever.
func TestEmptiedAloneStaysDamage(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), Identity: Identity{Store: store(1), Name: "n1", Cluster: "danube", Had: [16]byte{7}, Emptied: true}}
	c, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if f, err := c.Form(t.Context()); err != nil || !f.Known {
		t.Errorf("formed %+v, %v", f, err)
	}
}

// A broker answers the leader's question from its first moment: that it lives, and later its run.
func TestProbeIsAnsweredFromTheStart(t *testing.T) {
	asking, asked := newBroker(t, 1).open(), newBroker(t, 2)
	asked.cfg.Expect = 1
	asked.open()
	ask := func() (probeAnswer, error) {
		var a probeAnswer
		body, err := peer.Encode(uint64(0))
		if err == nil {
			body, err = asking.peers.Call(t.Context(), peer.Target{Store: asked.cfg.Identity.Store, Addresses: []string{asked.peer}}, opProbe, body)
		}
		if err == nil {
			err = peer.Decode(body, &a)
		}
		return a, err
	}
	if a, err := ask(); err != nil || a.Run != 0 {
		t.Errorf("before it belongs to a cluster: %+v, %v", a, err)
	}
	asked.attach(asked.form())
	if a, err := ask(); err != nil || a.Run == 0 || a.Applied == 0 {
		t.Errorf("with its metadata: %+v, %v", a, err)
	}
}

func BenchmarkLeaseValid(b *testing.B) {
	c := &Cluster{}
	c.cfg.Boottime = boottime
	c.lease.deadline.Store(int64(boottime() + time.Hour))
	for b.Loop() {
		if !c.LeaseValid() {
			b.Fatal("no lease")
		}
	}
}
