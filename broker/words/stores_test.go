package words

import (
	"strings"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// The store of a disk that was emptied is lost and has the name of the broker
// that is there: who names the broker means the one that is there. Where a
// mistake cannot be taken back both are named.
func TestBrokerNamedIsTheOneThatIsThere(t *testing.T) {
	s, at := state.New(), uint64(0)
	apply := func(c state.Command) state.Result {
		at++
		r := s.Apply(at, c)
		if r.Err != nil {
			t.Fatalf("apply %T: %v", c, r.Err)
		}
		return r
	}
	register := func(id byte, name string) state.Owner {
		r := apply(&state.RegisterStore{Store: state.StoreID{id}, Broker: name, Nonce: [16]byte{id}, Boot: "b"})
		return state.Owner{Store: state.StoreID{id}, Incarnation: r.Incarnation}
	}
	apply(&state.InitCluster{ID: [16]byte{1}, Name: "test"})
	emptied, gone := register(0xa1, "n1"), register(0xa2, "n2")
	register(0xb1, "n1")
	register(0xa3, "n3")
	register(0xb3, "n3")
	apply(&state.LoseStore{Owner: emptied})
	apply(&state.LoseStore{Owner: gone})
	view := s.Freeze()
	for name, want := range map[string]string{"n1": "b1", "a1": "a1", "n2": "a2", "n3": "", "n4": "", "b": ""} {
		got, err := StoreNamed(view, name)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s means %s", name, got.ID)
		case want != "" && (err != nil || !strings.HasPrefix(got.ID.String(), want)):
			t.Errorf("%s means %v, %v; want %s", name, got, err, want)
		}
	}
	all, err := StoresNamed(view, "n1")
	if err != nil || len(all) != 2 {
		t.Fatalf("n1 may mean %v, %v", all, err)
	}
	if _, err := Only("n1", all); err == nil || !strings.Contains(err.Error(), "(lost)") {
		t.Errorf("to remove n1: %v", err)
	}
}
