package state

import (
	"errors"

	"github.com/danubemq/danube/meta/catalog"
)

// Commands about objects that nobody needs any more (R12).

// trim gives up what the catalog of p has below start.
func (s *State) trim(p *Partition, start uint64, why catalog.Garbage) {
	rest, segments, pages := p.Catalog.Trim(start)
	p.Catalog = rest
	for _, seg := range segments {
		s.release(p, seg, why)
	}
	for _, page := range pages {
		why.Name, why.Page = catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End), &page
		s.discard(why)
	}
}

func (c *CondemnTopic) apply(s *State) Result {
	t := s.TopicByID(c.ID)
	if t == nil {
		return Result{} // its tombstone went with the last of it
	}
	if !t.Deleted() {
		return Result{Err: refuse(ErrConflict, "topic %s is not deleted", t.Name)}
	}
	r := each(len(c.Partitions), func(i int) error {
		if s.Partition(t.ID, c.Partitions[i]) == nil {
			return refuse(ErrNotFound, "topic %s has no partition %d", t.Name, c.Partitions[i])
		}
		p := *s.Partition(t.ID, c.Partitions[i])
		s.trim(&p, maxOffset, catalog.Garbage{Since: c.At, Reason: catalog.Deleted})
		s.partitions.Set(partitionKey{t.ID, p.Number}, &p)
		return nil
	})
	s.purge(t, StoreID{})
	return r
}

func (c *CondemnPage) apply(s *State) Result {
	if s.Named(c.Page) {
		return Result{Err: refuse(ErrConflict, "%v is in use", c.Page)}
	}
	return Result{Err: refused(s.objects.CondemnPage(c.Page, c.Content))}
}

// refused makes a refusal of what package catalog says.
func refused(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, catalog.ErrDamaged):
		return invalid(err)
	}
	return refuse(ErrConflict, "%v", err)
}

func (c *CondemnObjects) apply(s *State) Result {
	if !c.Owner.IsZero() {
		if err := s.fence(c.Owner); err != nil {
			return Result{Err: err}
		}
	}
	read, err := catalog.ReadPages(c.Pages, s.catalogOf)
	if err != nil {
		return Result{Err: refused(err)}
	}
	return each(len(c.Names), func(i int) error { return s.condemn(c, c.Names[i], read) })
}

func (s *State) condemn(c *CondemnObjects, name catalog.Name, read catalog.Lists) error {
	o := name.Object
	switch {
	case !name.Valid():
		return refuse(ErrInvalid, "%v is no name of an object", name)
	case s.GarbageOf(name) != nil:
		return nil
	case s.lives(o.Incarnation) && o.Incarnation != c.Owner.Incarnation, o.Incarnation >= s.nextIncarnation:
		// It may be on its way into a catalog. Only who made it knows that it is not, and from then on it is refused there.
		return refuse(ErrConflict, "run %d, which made %v, is not over", o.Incarnation, name)
	case s.Auditing() && o.Incarnation < uint64(s.cluster.History)<<32:
		return refuse(ErrConflict, "%v is of an earlier history, whose audit has not ended", name)
	}
	if err := s.objects.Condemn(name, s.catalogOf(name.Topic, name.Partition), read, c.At); err != nil {
		return refused(err)
	}
	s.discard(*s.GarbageOf(name))
	return nil
}

func (c *ForgetObjects) apply(s *State) Result {
	return each(len(c.Names), func(i int) error {
		return refused(s.objects.Forget(c.Names[i], s.lives(c.Names[i].Object.Incarnation)))
	})
}

func (c *EndAudit) apply(s *State) Result {
	if c.History != s.cluster.History {
		return Result{Err: refuse(ErrConflict, "the cluster is in history %d, not %d", s.cluster.History, c.History)}
	}
	s.cluster.Audited = c.History
	return Result{}
}
