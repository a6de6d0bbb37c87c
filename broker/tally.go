package broker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/state"
)

// tally is what the metadata say of brokers and of what is not as it should be.
type tally struct {
	owned    map[state.StoreID]int
	only     map[state.StoreID]int // ranges whose only copy lies there
	orphaned []string              // in words, at most mostNamed of them
	orphans  int
	homeless []string // ORPHANED ranges that may lie on any store or on none, in words, at most mostNamed of them
	unplaced int
	moving   []string
	moves    int
	pending  map[state.StoreID]int // SEALED ranges whose stores are all away, by the first of them
	noOwner  int
}

// mostNamed bounds how many partitions a reason names.
const mostNamed = 3

func newTally() *tally {
	return &tally{owned: map[state.StoreID]int{}, only: map[state.StoreID]int{}, pending: map[state.StoreID]int{}}
}

// takeTally walks over all partitions.
func takeTally(view *state.View) *tally {
	c := newTally()
	for t := range view.Topics("") {
		for m := range view.Partitions(t.ID) {
			c.add(view, t, m)
		}
	}
	return c
}

func (c *tally) add(view *state.View, t *state.Topic, m *state.Partition) {
	name := fmt.Sprintf("%s:%d", t.Name, m.Number)
	owner := view.Store(m.Owner.Store)
	c.owned[m.Owner.Store]++
	if !serves(owner, m) {
		c.noOwner++
	}
	if m.State == state.Sealing {
		if c.moves++; len(c.moving) < mostNamed {
			c.moving = append(c.moving, fmt.Sprintf("%s from %s to %s", name, nameIn(view, m.Owner.Store), nameIn(view, m.Target.Store)))
		}
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		switch {
		case r.Status != state.RangeOrphaned:
		case len(r.Stores) == 0:
			if c.unplaced++; len(c.homeless) < mostNamed {
				c.homeless = append(c.homeless, fmt.Sprintf("[%d, %d) of %s", r.Start, r.End, name))
			}
		default:
			if c.orphans++; len(c.orphaned) < mostNamed {
				c.orphaned = append(c.orphaned, fmt.Sprintf("[%d, %d) of %s, on broker %s", r.Start, r.End, name, namesIn(view, r.Stores)))
			}
		}
		if len(r.Stores) == 1 && r.Status != state.RangeLost {
			c.only[r.Stores[0]]++
		}
		if r.Status == state.RangeSealed && len(r.Stores) > 0 && !slices.ContainsFunc(r.Stores, func(id state.StoreID) bool {
			s := view.Store(id)
			return s != nil && !s.Clean
		}) {
			c.pending[r.Stores[0]]++
		}
	}
}

func nameIn(view *state.View, id state.StoreID) string {
	if s := view.Store(id); s != nil {
		return s.Broker
	}
	return id.String()
}

func namesIn(view *state.View, ids []state.StoreID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = nameIn(view, id)
	}
	return strings.Join(names, " and ")
}

// reasons says in words what of the cluster is not as it should be, as far as the metadata know.
func (c *tally) reasons(view *state.View) []string {
	var out []string
	if c.noOwner > 0 {
		out = append(out, counted(c.noOwner, "partition has no owner that serves it", "partitions have no owner that serves them"))
	}
	if c.orphans > 0 {
		out = append(out, counted(c.orphans, "range is orphaned: its", "ranges are orphaned: their")+
			" messages may come back with a broker that is away: "+listed(c.orphaned, c.orphans))
	}
	if c.unplaced > 0 {
		out = append(out, counted(c.unplaced, "range is orphaned", "ranges are orphaned")+
			": no broker is known to have the messages, and consumers pass over them: "+listed(c.homeless, c.unplaced))
	}
	if c.moves > 0 {
		out = append(out, counted(c.moves, "partition is moving: ", "partitions are moving: ")+listed(c.moving, c.moves))
	}
	for s := range view.Stores() {
		if n := c.pending[s.ID]; n > 0 {
			out = append(out, counted(n, "range is", "ranges are")+" pending until broker "+s.Broker+" is back")
		}
	}
	return out
}

// listed is what is named of n things, and how many more there are.
func listed(named []string, n int) string {
	out := strings.Join(named, "; ")
	if n > len(named) {
		out += fmt.Sprintf("; and %d more", n-len(named))
	}
	return out
}

// counted says how many there are, in words that fit one or several.
func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
