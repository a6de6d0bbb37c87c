package words

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// StoreNamed returns the store that a person means: by the broker's name, or by
// the first digits of the store's id. Of several of one name it is the one that
// is not lost: a disk that was emptied is no broker any more. Lost ones beside
// another, and removed ones, are found by their id alone.
func StoreNamed(view *state.View, name string) (*state.Store, error) {
	all, err := StoresNamed(view, name)
	if err != nil {
		return nil, err
	}
	there := slices.DeleteFunc(slices.Clone(all), func(s *state.Store) bool { return s.Status == state.StoreLost })
	if len(there) == 1 {
		return there[0], nil
	}
	return Only(name, all)
}

// StoresNamed returns all stores that a name may mean, at least one.
func StoresNamed(view *state.View, name string) ([]*state.Store, error) {
	if name == "" {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "no broker is named")
	}
	var byName, byID []*state.Store
	for s := range view.Stores() {
		if s.Broker == name && s.Status != state.StoreRemoved {
			byName = append(byName, s)
		}
		if strings.HasPrefix(s.ID.String(), strings.ToLower(name)) {
			byID = append(byID, s)
		}
	}
	switch {
	case len(byName) > 0:
		return byName, nil
	case len(byID) > 0:
		return byID, nil
	}
	return nil, protocol.Errorf(protocol.CodeBadRequest, "there is no broker %q; broker list names those there are", name)
}

// Only returns the one store there is, or asks which of them is meant.
func Only(name string, found []*state.Store) (*state.Store, error) {
	if len(found) == 1 {
		return found[0], nil
	}
	var ids []string
	for _, s := range found {
		ids = append(ids, s.ID.String()+" ("+Status(s)+")")
	}
	return nil, protocol.Errorf(protocol.CodeBadRequest, "%q means several brokers: name one by its store: %s", name, strings.Join(ids, ", "))
}

// Takes says why a broker cannot be given partitions, nil if it can.
func Takes(s *state.Store) error {
	if s.Status == state.StoreActive && !s.Clean {
		return nil
	}
	hint := ""
	if s.Status == state.StoreDraining || s.Status == state.StoreDrained {
		hint = "danube broker activate " + s.Broker + " ends the drain"
	} else if s.Status != state.StoreRemoved {
		hint = "start it again, or name another: danube broker list shows which are active"
	}
	return &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("broker %s takes no topics: it is %s", s.Broker, Status(s)), Hint: hint}
}

// Status is the state of a store as people read it.
func Status(s *state.Store) string {
	if s.Clean && (s.Status == state.StoreActive || s.Status == state.StoreDraining || s.Status == state.StoreDrained) {
		return "stopped"
	}
	return s.Status.String()
}

// Serves says whether the owner of a partition is there to serve it.
func Serves(s *state.Store, m *state.Partition) bool {
	return s != nil && s.Status != state.StoreLost && s.Status != state.StoreRemoved && !(s.Clean && m.State == state.Closed)
}

// Name is how people call a store: by the name of its broker.
func Name(view *state.View, id state.StoreID) string {
	if s := view.Store(id); s != nil {
		return s.Broker
	}
	return id.String()
}
