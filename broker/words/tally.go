package words

import (
	"fmt"
	"slices"

	"github.com/danubemq/danube/meta/state"
)

// Tally is what the metadata say of brokers and of what is not as it should be.
type Tally struct {
	Owned    map[state.StoreID]int // partitions
	Only     map[state.StoreID]int // ranges whose only copy lies there
	Orphans  int                   // ORPHANED ranges that may come back with a store
	Unplaced int                   // ORPHANED ranges that may lie on any store or on none
	Moves    int                   // partitions that are moving
	NoOwner  int                   // partitions that nobody serves

	pending  map[state.StoreID]int // SEALED ranges whose stores are all away, by the first of them
	orphaned []string              // in words, at most mostNamed of each
	homeless []string
	moving   []string
}

// mostNamed bounds how many partitions a reason names.
const mostNamed = 3

func newTally() *Tally {
	return &Tally{Owned: map[state.StoreID]int{}, Only: map[state.StoreID]int{}, pending: map[state.StoreID]int{}}
}

// Take walks over all partitions.
func Take(view *state.View) *Tally {
	c := newTally()
	for t := range view.Topics("") {
		for m := range view.Partitions(t.ID) {
			c.add(view, t, m)
		}
	}
	return c
}

func (c *Tally) add(view *state.View, t *state.Topic, m *state.Partition) {
	name := fmt.Sprintf("%s:%d", t.Name, m.Number)
	owner := view.Store(m.Owner.Store)
	c.Owned[m.Owner.Store]++
	if !Serves(owner, m) {
		c.NoOwner++
	}
	if m.State == state.Sealing {
		if c.Moves++; len(c.moving) < mostNamed {
			c.moving = append(c.moving, fmt.Sprintf("%s from %s to %s", name, Name(view, m.Owner.Store), Name(view, m.Target.Store)))
		}
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		switch {
		case r.Status != state.RangeOrphaned:
		case len(r.Stores) == 0:
			if c.Unplaced++; len(c.homeless) < mostNamed {
				c.homeless = append(c.homeless, fmt.Sprintf("[%d, %d) of %s", r.Start, r.End, name))
			}
		default:
			if c.Orphans++; len(c.orphaned) < mostNamed {
				c.orphaned = append(c.orphaned, fmt.Sprintf("[%d, %d) of %s, on broker %s", r.Start, r.End, name, names(view, r.Stores)))
			}
		}
		if len(r.Stores) == 1 && r.Status != state.RangeLost {
			c.Only[r.Stores[0]]++
		}
		if r.Status == state.RangeSealed && len(r.Stores) > 0 && !slices.ContainsFunc(r.Stores, func(id state.StoreID) bool {
			s := view.Store(id)
			return s != nil && !s.Clean
		}) {
			c.pending[r.Stores[0]]++
		}
	}
}

// Reasons says in words what of the cluster is not as it should be, as far as the metadata know.
func (c *Tally) Reasons(view *state.View) []string {
	var out []string
	if c.NoOwner > 0 {
		out = append(out, Counted(c.NoOwner, "partition has no owner that serves it", "partitions have no owner that serves them"))
	}
	if c.Orphans > 0 {
		out = append(out, Counted(c.Orphans, "range is orphaned: its", "ranges are orphaned: their")+
			" messages may come back with a broker that is away: "+listed(c.orphaned, c.Orphans))
	}
	if c.Unplaced > 0 {
		out = append(out, Counted(c.Unplaced, "range is orphaned", "ranges are orphaned")+
			": no broker is known to have the messages, and consumers pass over them: "+listed(c.homeless, c.Unplaced))
	}
	if c.Moves > 0 {
		out = append(out, Counted(c.Moves, "partition is moving: ", "partitions are moving: ")+listed(c.moving, c.Moves))
	}
	for s := range view.Stores() {
		if n := c.pending[s.ID]; n > 0 {
			out = append(out, Counted(n, "range is", "ranges are")+" pending until broker "+s.Broker+" is back")
		}
	}
	return out
}
