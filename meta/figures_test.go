//go:build figures

package meta

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// TestFigureProposalAmongTenThousandTopics: three brokers with ten thousand topics, over TCP and with every sync. An
// ordinary proposal (a broker's report on one partition) through the leader and through a follower.
func TestFigureProposalAmongTenThousandTopics(t *testing.T) {
	const topics, proposals = 10_000, 2000
	const median, tail = 3 * time.Millisecond, 20 * time.Millisecond
	slack := time.Duration(1)
	if n, err := strconv.Atoi(os.Getenv("FIGURES_SLACK")); err == nil && n > 1 {
		slack = time.Duration(n)
	}
	g := newGroup(t, 3)
	for i := range 3 {
		g.configs[i].SnapshotThreshold, g.configs[i].TrailingLogs = 0, 0
		g.configs[i].ElectionTimeout = 0
		g.configs[i].Form = g.voters(3)
		g.start(i)
	}
	g.ready()
	leader, follower := g.node(g.leader()), g.node(g.follower())
	owner := state.Owner{Store: storeOf(0)}
	owner.Incarnation = propose(t, leader, &state.RegisterStore{Store: owner.Store, Broker: "n1", Nonce: [16]byte{1}}).Incarnation
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < topics; i += 64 {
				c := createTopic(i)
				c.Owners = []state.Owner{owner}
				propose(t, leader, c)
			}
		})
	}
	wg.Wait()
	if n := g.same(); n != topics {
		t.Fatalf("%d topics", n)
	}
	for name, n := range map[string]*Node{"leader": leader, "follower": follower} {
		took := make([]time.Duration, 0, proposals)
		for i := range proposals {
			began := time.Now()
			p := n.View().Partition(createTopic(i).ID, 0)
			r := propose(t, n, &state.UpdatePartitions{Entries: []state.PartitionUpdate{
				{Topic: p.Topic, Epoch: p.Epoch, Ceiling: p.Ceiling + 1000},
			}})
			took = append(took, time.Since(began))
			if err := r.Entry(0); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(took)
		p50, p99 := took[proposals/2], took[proposals*99/100]
		t.Logf("through the %s: median %v, 99th percentile %v, slowest %v", name, p50, p99, took[proposals-1])
		if p50 > median*slack || p99 > tail*slack {
			t.Errorf("through the %s: median %v and 99th percentile %v, at most %v and %v", name, p50, p99, median*slack, tail*slack)
		}
	}
}
