package state

import "slices"

func (c *CreateTopic) apply(s *State) Result {
	if err := c.check(s); err != nil {
		return Result{Err: err}
	}
	if t := s.Topic(c.Name); t != nil {
		if d := t.Settings.Difference(c.Settings); d != "" {
			return Result{Err: refuse(ErrExists, "topic %s exists with other settings: %s", c.Name, d), Topic: t.ID}
		}
		return Result{Topic: t.ID}
	}
	if s.TopicByID(c.ID) != nil {
		return Result{Err: refuse(ErrConflict, "topic id %s is taken", c.ID)}
	}
	s.topics.Set(c.ID, &Topic{ID: c.ID, Name: c.Name, Settings: c.Settings, CreatedAt: c.At})
	s.names.Set(c.Name, c.ID)
	for n := range c.Settings.Partitions {
		p := &Partition{Topic: c.ID, Number: n, Level: c.Settings.Durability}
		if c.Owners != nil {
			p.Epoch = s.nextEpoch(0)
			p.begin(c.Owners[n], 0)
		}
		s.put(*p)
	}
	return Result{Topic: c.ID, Created: true}
}

// check refuses what no state allows, and owners that are over.
func (c *CreateTopic) check(s *State) error {
	namespace, _, err := SplitTopic(c.Name)
	if err != nil {
		return err
	}
	if s.Namespace(namespace) == nil {
		return refuse(ErrNotFound, "no namespace %q", namespace)
	}
	if c.ID == (TopicID{}) {
		return refuse(ErrInvalid, "topic id is zero")
	}
	if err := invalid(c.Settings.Check()); err != nil {
		return err
	}
	if c.Owners != nil && len(c.Owners) != int(c.Settings.Partitions) {
		return refuse(ErrInvalid, "%d owners for %d partitions", len(c.Owners), c.Settings.Partitions)
	}
	for _, o := range c.Owners {
		if err := s.receives(o); err != nil {
			return err
		}
	}
	return nil
}

func (c *SetTopic) apply(s *State) Result {
	t := s.liveTopic(c.ID)
	if t == nil {
		return Result{Err: refuse(ErrNotFound, "no topic with id %s", c.ID)}
	}
	if err := invalid(c.Settings.Check()); err != nil {
		return Result{Err: err}
	}
	if c.Settings.Partitions != t.Settings.Partitions || c.Settings.Reliable != t.Settings.Reliable {
		return Result{Err: refuse(ErrConflict, "topic %s: partitions and reliability are fixed at creation", t.Name)}
	}
	n := *t
	n.Settings = c.Settings
	s.topics.Set(n.ID, &n)
	if n.Settings.Durability != t.Settings.Durability {
		for i := range n.Settings.Partitions {
			s.setLevel(partitionKey{n.ID, i}, n.Settings.Durability)
		}
	}
	return Result{}
}

func (c *DeleteTopic) apply(s *State) Result {
	t := s.TopicByID(c.ID)
	if t == nil || t.Deleted() {
		return Result{} // deleting what is gone is done already
	}
	for _, sub := range slices.Collect(s.Subscriptions(t.ID)) {
		s.deleteSubscription(sub)
	}
	for i := range t.Settings.Partitions {
		p := *s.Partition(t.ID, i)
		s.count(&p, -1)
		s.decide(&p)
		s.partitions.Set(partitionKey{t.ID, i}, &p)
	}
	n := *t
	n.DeletedAt = max(1, c.At)
	s.topics.Set(n.ID, &n)
	s.names.Delete(n.Name)
	return Result{}
}

func (c *PurgeTopic) apply(s *State) Result {
	t := s.TopicByID(c.ID)
	if t == nil {
		return Result{}
	}
	if !t.Deleted() {
		return Result{Err: refuse(ErrConflict, "topic %s is not deleted", t.Name)}
	}
	s.purge(t, c.Store)
	return Result{}
}

// purge strikes a store from a tombstone, which goes with the last one and the last catalog.
func (s *State) purge(t *Topic, store StoreID) {
	left := false
	for i := range t.Settings.Partitions {
		key := partitionKey{t.ID, i}
		p := *s.Partition(t.ID, i)
		p.Ranges = strikeStore(p.Ranges, store)
		left = left || len(p.Ranges) > 0 || p.Catalog != nil
		s.partitions.Set(key, &p)
	}
	if left {
		return
	}
	for i := range t.Settings.Partitions {
		key := partitionKey{t.ID, i}
		s.decisions.Delete(decision{s.Partition(t.ID, i).decided, key})
		s.partitions.Delete(key)
	}
	s.topics.Delete(t.ID)
}

// liveTopic returns a topic that is not deleted, or nil.
func (s *State) liveTopic(id TopicID) *Topic {
	if t := s.TopicByID(id); t != nil && !t.Deleted() {
		return t
	}
	return nil
}
