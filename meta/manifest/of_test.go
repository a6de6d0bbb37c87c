package manifest

import (
	"reflect"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// applied makes a state of commands.
func applied(t *testing.T, commands ...state.Command) *state.State {
	t.Helper()
	s := state.New()
	for _, c := range commands {
		res := s.Apply(s.Index()+1, c)
		if res.Err != nil {
			t.Fatalf("%T: %v", c, res.Err)
		}
		for _, err := range res.Entries {
			if err != nil {
				t.Fatalf("%T: %v", c, err)
			}
		}
	}
	return s
}

// A manifest says all there is of topics, partitions and subscriptions, and the same state gives the same bytes.
func TestOfSaysWhatTheStateHas(t *testing.T) {
	owner := state.Owner{Store: state.StoreID{9}, Incarnation: 1}
	reliable := state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal}
	s := applied(t,
		&state.InitCluster{ID: id(1), Name: "c"},
		&state.RegisterStore{Store: owner.Store, Broker: "n1", Nonce: id(2)},
		&state.CreateNamespace{Name: "shop"},
		&state.CreateTopic{ID: id(0x70), Name: "/shop/b", Settings: reliable, Owners: []state.Owner{owner}, At: 5},
		&state.CreateTopic{ID: id(0x50), Name: "/shop/c", Settings: reliable, At: 6},
		&state.CreateTopic{ID: id(0x60), Name: "/shop/gone", Settings: reliable, Owners: []state.Owner{owner}, At: 7},
		&state.DeleteTopic{ID: id(0x60), At: 8},
		&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: id(0x70), Epoch: 1, Ceiling: 9000, Floor: 700}}},
		&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: id(0x70), Epoch: 1, LogStart: 50}}},
		&state.CreateSubscription{Topic: id(0x70), Name: "s", Type: state.Shared, Start: []uint64{60}},
		&state.MoveCursors{Entries: []state.CursorDelta{{Subscription: 1, Epoch: 1, Prefix: 80, Acked: state.Offsets{{Start: 90, End: 95}}}}},
	)
	m := Of(s.Freeze(), 77)
	if m.Cluster != s.Cluster() || m.Index != s.Index() || m.Time != 77 || len(m.Namespaces) != 2 {
		t.Errorf("%+v", m)
	}
	if len(m.Topics) != 3 || m.Topics[0].Name != "/shop/c" || !m.Topics[1].Deleted() || m.Topics[2].CreatedAt != 5 || m.Topics[2].Settings != reliable {
		t.Fatalf("topics %+v", m.Topics)
	}
	p := s.Partition(id(0x70), 0)
	want := Partition{Epoch: 1, Ceiling: p.Ceiling, Floor: 700, LogStart: 50, Ranges: []Range{
		{Epochs: []state.EpochStart{{Epoch: 1, Start: 50}}, Start: 50, Lowest: state.LevelLocal},
	}}
	if got := m.Topics[2].Partitions[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("partition %+v, want %+v", got, want)
	}
	if len(m.Subscriptions) != 1 || !reflect.DeepEqual(m.Subscriptions[0], *s.Subscription(id(0x70), "s")) || m.Subscriptions[0].Cursors[0].Prefix != 80 {
		t.Errorf("subscriptions %+v", m.Subscriptions)
	}
	if m.Topic(id(0x61)) != nil || m.Topic(id(0x60)).Name != "/shop/gone" {
		t.Error("topics are not found by their ids")
	}
	if again, err := Decode(encoded(t, m)); err != nil || string(encoded(t, again)) != string(encoded(t, Of(s.Freeze(), 77))) {
		t.Errorf("%v", err)
	}
}
