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
	s.cluster = Cluster{ID: c.ID, Name: c.Name}
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
	if old != nil && old.Nonce == c.Nonce {
		return Result{Incarnation: old.Incarnation}
	}
	status := StoreActive
	if old != nil {
		if old.Status == StoreRemoved {
			return Result{Err: refuse(ErrFenced, "store %s was removed from the cluster", c.Store)}
		}
		status = old.Status
		if status == StoreLost {
			status = StoreActive
		}
	}
	n := &Store{
		ID: c.Store, Broker: c.Broker, Incarnation: s.nextIncarnation, Nonce: c.Nonce,
		Boot: c.Boot, Addresses: c.Addresses, Status: status,
	}
	s.nextIncarnation++
	s.stores.set(c.Store, n)
	return Result{Incarnation: n.Incarnation}
}

func (c *SetStore) apply(s *State) Result {
	if c.Status > StoreRemoved {
		return Result{Err: refuse(ErrInvalid, "store status %d", c.Status)}
	}
	if err := s.fence(c.Owner); err != nil {
		return Result{Err: err}
	}
	n := *s.Store(c.Owner.Store)
	n.Status, n.Clean = c.Status, c.Clean
	s.stores.set(n.ID, &n)
	return Result{}
}

// fence refuses an owner that is not the latest run on its store (R9).
func (s *State) fence(o Owner) error {
	st := s.Store(o.Store)
	if st == nil {
		return refuse(ErrFenced, "store %s is not registered", o.Store)
	}
	if st.Incarnation != o.Incarnation {
		return refuse(ErrFenced, "incarnation %d of store %s is over; the latest is %d", o.Incarnation, o.Store, st.Incarnation)
	}
	return nil
}

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
	s.namespaces.set(c.Name, &Namespace{Name: c.Name, Limits: c.Limits})
	return Result{Created: true}
}

func (c *SetNamespace) apply(s *State) Result {
	if s.Namespace(c.Name) == nil {
		return Result{Err: refuse(ErrNotFound, "no namespace %.300q", c.Name)}
	}
	s.namespaces.set(c.Name, &Namespace{Name: c.Name, Limits: c.Limits})
	return Result{}
}

func (c *DeleteNamespace) apply(s *State) Result {
	if c.Name == DefaultNamespace {
		return Result{Err: refuse(ErrConflict, "namespace %s cannot be deleted", c.Name)}
	}
	for t := range s.Topics("/" + c.Name + "/") {
		return Result{Err: refuse(ErrConflict, "namespace %s still has topics, %s among them", c.Name, t.Name)}
	}
	s.namespaces.delete(c.Name)
	return Result{}
}
