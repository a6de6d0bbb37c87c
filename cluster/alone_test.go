package cluster

import (
	"testing"
	"time"

	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// A broker without peer port and gossip is a cluster of one: it forms, leads, grants itself the lease, and goes on
// under a new run of its store.
func TestAloneBrokerHasALease(t *testing.T) {
	c, err := Open(t.Context(), Config{
		Dir: t.TempDir(), Identity: Identity{Store: store(1), Name: "n1", Cluster: "danube"}, Lease: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := c.Form(t.Context())
	if err != nil || f.ClusterID == [16]byte{} || f.Known {
		t.Fatalf("formed %+v, %v", f, err)
	}
	if m := c.Members(); len(m) != 1 || m[0].Store != store(1) || m[0].State != Alive {
		t.Errorf("members: %+v", m)
	}
	node, err := meta.Open(t.Context(), meta.Config{Dir: t.TempDir(), Store: store(1), ElectionTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	if err := node.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	register := func(nonce byte) state.Owner {
		r, err := node.Propose(t.Context(), &state.RegisterStore{Store: store(1), Broker: "n1", Nonce: [16]byte{nonce}})
		if err != nil {
			t.Fatal(err)
		}
		return state.Owner{Store: store(1), Incarnation: r.Incarnation}
	}
	if err := c.Attach(node, register(1)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lease", c.LeaseValid)
	again := register(2)
	eventually(t, "the end of the lease", func() bool { return !c.LeaseValid() })
	c.Reattach(again)
	eventually(t, "the new run's lease", c.LeaseValid)
}

func TestAloneBrokerTakesNoSeeds(t *testing.T) {
	_, err := Open(t.Context(), Config{
		Dir: t.TempDir(), Identity: Identity{Store: store(1), Name: "n1", Cluster: "danube"}, Seeds: []string{"127.0.0.1:1"},
	})
	if err == nil {
		t.Error("opened with seeds and nothing to reach them by")
	}
}
