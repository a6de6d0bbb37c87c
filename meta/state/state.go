package state

import "fmt"

// State is the state machine. It is not safe for concurrent use; views are.
type State struct {
	View
	stopped error
}

// New returns the state of a cluster in which nothing has happened yet.
func New() *State {
	s := &State{View: newView()}
	s.namespaces.Set(DefaultNamespace, &Namespace{Name: DefaultNamespace})
	return s
}

// DefaultNamespace is the namespace of a topic whose name has no slash. It exists from the beginning.
const DefaultNamespace = "default"

// Freeze returns the state as it is now, in time that does not depend on its size.
func (s *State) Freeze() *View { return s.freeze() }

// Stopped returns why the state machine applies nothing more, nil if it does.
func (s *State) Stopped() error { return s.stopped }

// Apply carries out a command that was committed at index; indexes grow from call to call.
func (s *State) Apply(index uint64, c Command) Result {
	if s.stopped != nil {
		return Result{Err: s.stopped, Index: index}
	}
	s.index = index
	r := c.apply(s)
	r.Index = index
	return r
}

// ApplyBytes is Apply for an encoded command. Bytes that this release cannot read stop the state machine for good: it
// answers ErrNewerCommand or ErrDamaged from then on, and the caller must take no snapshot of it.
func (s *State) ApplyBytes(index uint64, b []byte) Result {
	if s.stopped != nil {
		return Result{Err: s.stopped, Index: index}
	}
	c, err := Decode(b)
	if err != nil {
		s.stopped = fmt.Errorf("apply index %d: %w", index, err)
		return Result{Err: s.stopped, Index: index}
	}
	return s.Apply(index, c)
}

// each applies the n entries of a batched command.
func each(n int, apply func(i int) error) Result {
	var r Result
	for i := range n {
		err := apply(i)
		if err != nil && r.Entries == nil {
			r.Entries = make([]error, n)
		}
		if err != nil {
			r.Entries[i] = err
		}
	}
	return r
}
