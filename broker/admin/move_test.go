package admin

import (
	"testing"
	"time"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
)

// A broker that gossip calls dead or suspect is no target of a move, though nobody has declared it lost.
func TestSilentBrokerTakesNothing(t *testing.T) {
	now := time.Unix(100, 0)
	members := []cluster.Member{
		{Store: state.StoreID{1}, State: cluster.Alive, Since: now.Add(-time.Hour)},
		{Store: state.StoreID{2}, State: cluster.Dead, Since: now.Add(-4 * time.Second)},
	}
	for id, want := range map[byte]string{1: "", 2: "broker n takes no topics: it does not answer (dead for 4s)", 3: ""} {
		got := ""
		if err := answers(&state.Store{ID: state.StoreID{id}, Broker: "n"}, members, now); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("store %d: %q, want %q", id, got, want)
		}
	}
}
