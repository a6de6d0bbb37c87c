package state

// Commands about the cluster, its stores and its namespaces.

func (c *InitCluster) apply(s *State) Result {
	if c.ID == [16]byte{} {
		return Result{Err: refuse(ErrInvalid, "cluster id is zero")}
	}
	if err := CheckName("cluster", c.Name); err != nil {
		return Result{Err: err}
	}
	if s.cluster.ID == c.ID {
		return Result{}
	}
	if s.cluster.ID != [16]byte{} {
		return Result{Err: refuse(ErrConflict, "cluster already has the id %x", s.cluster.ID)}
	}
	s.cluster.ID, s.cluster.Name = c.ID, c.Name
	return Result{Created: true}
}

func (c *RegisterStore) apply(s *State) Result {
	if c.Store == (StoreID{}) {
		return Result{Err: refuse(ErrInvalid, "store id is zero")}
	}
	if err := CheckName("broker", c.Broker); err != nil {
		return Result{Err: err}
	}
	old := s.Store(c.Store)
	status := StoreActive
	switch {
	case old == nil:
	case old.Status == StoreRemoved:
		return Result{Err: refuse(ErrFenced, "store %s was removed from the cluster", c.Store)}
	case old.Nonce == c.Nonce && old.Status == StoreLost:
		return Result{Err: refuse(ErrFenced, "this run of store %s was declared lost: register a new one", c.Store)}
	case old.Nonce == c.Nonce:
		return Result{Incarnation: old.Incarnation}
	case old.Status != StoreLost:
		status = old.Status
	}
	n := &Store{
		ID: c.Store, Broker: c.Broker, Incarnation: s.nextIncarnation, Nonce: c.Nonce,
		Boot: c.Boot, Addresses: c.Addresses, Status: status,
	}
	s.nextIncarnation++
	s.setStore(n)
	return Result{Incarnation: n.Incarnation}
}

func (c *SetStore) apply(s *State) Result {
	if c.Status >= StoreLost {
		return Result{Err: refuse(ErrInvalid, "a store becomes %s by a command of its own", c.Status)}
	}
	if err := s.fence(c.Owner); err != nil {
		return Result{Err: err}
	}
	n := *s.Store(c.Owner.Store)
	switch {
	case c.Clean:
		n.Clean = true
	case c.Status == StoreDrained && n.Status != StoreDraining && n.Status != StoreDrained:
		return Result{Err: refuse(ErrConflict, "store %s is %s, not draining", n.ID, n.Status)}
	default:
		n.Status = c.Status
	}
	s.setStore(&n)
	return Result{}
}

func (s *State) setStore(n *Store) {
	s.stores.Set(n.ID, n)
	s.decideAll()
}

// fence refuses an owner that is not the latest run on its store, or whose run was declared over (R9).
func (s *State) fence(o Owner) error {
	st := s.Store(o.Store)
	switch {
	case st == nil:
		return refuse(ErrFenced, "store %s is not registered", o.Store)
	case st.Incarnation != o.Incarnation:
		return refuse(ErrFenced, "incarnation %d of store %s is over; the latest is %d", o.Incarnation, o.Store, st.Incarnation)
	case !s.present(o.Store):
		return refuse(ErrFenced, "incarnation %d of store %s is over; the store is %s", o.Incarnation, o.Store, st.Status)
	}
	return nil
}

func (c *NewHistory) apply(s *State) Result {
	if c.History == 0 || c.History != s.cluster.History && c.History-1 != s.cluster.History {
		return Result{Err: refuse(ErrConflict, "the cluster is in history %d: %d does not follow", s.cluster.History, c.History)}
	}
	if c.History == s.cluster.History {
		return Result{}
	}
	s.cluster.History = c.History
	s.decideAll()
	// What the histories before gave out after the state that this one goes on from is not known here (R22).
	first := uint64(c.History) << 32
	s.nextIncarnation, s.nextSub = max(s.nextIncarnation, first), max(s.nextSub, first)
	for p := range values(s.freeze().partitions.All()) {
		s.renew(*p)
	}
	return Result{}
}

func (*Tick) apply(*State) Result { return Result{} }

func (c *CreateNamespace) apply(s *State) Result {
	if err := CheckName("namespace", c.Name); err != nil {
		return Result{Err: err}
	}
	if n := s.Namespace(c.Name); n != nil {
		if n.Limits != c.Limits {
			return Result{Err: refuse(ErrExists, "namespace %s exists with other limits", c.Name)}
		}
		return Result{}
	}
	s.namespaces.Set(c.Name, &Namespace{Name: c.Name, Limits: c.Limits})
	return Result{Created: true}
}

func (c *SetNamespace) apply(s *State) Result {
	if s.Namespace(c.Name) == nil {
		return Result{Err: refuse(ErrNotFound, "no namespace %.300q", c.Name)}
	}
	s.namespaces.Set(c.Name, &Namespace{Name: c.Name, Limits: c.Limits})
	return Result{}
}

func (c *DeleteNamespace) apply(s *State) Result {
	if c.Name == DefaultNamespace {
		return Result{Err: refuse(ErrConflict, "namespace %s cannot be deleted", c.Name)}
	}
	for t := range s.Topics("/" + c.Name + "/") {
		return Result{Err: refuse(ErrConflict, "namespace %s still has topics, %s among them", c.Name, t.Name)}
	}
	s.namespaces.Delete(c.Name)
	return Result{}
}
