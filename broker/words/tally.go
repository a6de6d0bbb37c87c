package words

import (
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Tally is what the metadata say of brokers and of what is not as it should be.
type Tally struct {
	Owned    map[state.StoreID]int // partitions
	Only     map[state.StoreID]int // ranges whose only copy lies there
	Orphans  int                   // ORPHANED ranges that may come back with a store
	Unplaced int                   // ORPHANED ranges that may lie on any store or on none
	Moves    int                   // partitions that are moving
	NoOwner  int                   // partitions that nobody serves

	Away   []protocol.OrphanRange // the ORPHANED ranges, all of them
	Moving []protocol.MovingStatus

	pending map[state.StoreID]int // SEALED ranges whose stores are all away, by the first of them
	back    []string              // brokers that may come back with what is ORPHANED
}

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
	owner := view.Store(m.Owner.Store)
	c.Owned[m.Owner.Store]++
	if !Serves(owner, m) {
		c.NoOwner++
	}
	if m.State == state.Sealing {
		c.Moves++
		c.Moving = append(c.Moving, protocol.MovingStatus{Topic: t.Name, Partition: int(m.Number), From: Name(view, m.Owner.Store), To: Name(view, m.Target.Store)})
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		if Covered(m, r) {
			continue
		}
		if r.Status == state.RangeOrphaned {
			c.orphan(view, protocol.OrphanRange{Topic: t.Name, Partition: int(m.Number), Start: r.Start, End: r.End}, r.Stores)
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

// orphan lists a range that is ORPHANED, with the brokers of its stores.
func (c *Tally) orphan(view *state.View, r protocol.OrphanRange, stores []state.StoreID) {
	r.Brokers = []string{}
	for _, id := range stores {
		name := Name(view, id)
		if r.Brokers = append(r.Brokers, name); !slices.Contains(c.back, name) {
			c.back = append(c.back, name)
		}
	}
	if c.Away = append(c.Away, r); len(stores) == 0 {
		c.Unplaced++
	} else {
		c.Orphans++
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
			" messages may come back with a broker that is away: "+strings.Join(c.back, ", "))
	}
	if c.Unplaced > 0 {
		out = append(out, Counted(c.Unplaced, "range is orphaned", "ranges are orphaned")+
			": no broker is known to have the messages, and consumers pass over them")
	}
	if c.Moves > 0 {
		out = append(out, Counted(c.Moves, "partition is moving", "partitions are moving"))
	}
	for s := range view.Stores() {
		if n := c.pending[s.ID]; n > 0 {
			out = append(out, Counted(n, "range is", "ranges are")+" pending until broker "+s.Broker+" is back")
		}
	}
	return out
}
