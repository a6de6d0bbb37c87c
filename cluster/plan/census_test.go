package plan

import (
	"maps"
	"slices"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// differs names what of two censuses of one view is not the same, "" if nothing is.
func (c *Census) differs(d *Census) string {
	counts := func(c *Census) map[string]map[state.StoreID]int {
		return map[string]map[state.StoreID]int{
			"load": c.load, "owned": c.owned, "serving": c.serving, "orphaned": c.orphaned, "idle": c.idle, "leaving": c.leaving, "sole": c.sole,
		}
	}
	lists := func(c *Census) map[string][]*state.Partition {
		all := map[string][]*state.Partition{"ownerless": c.Ownerless, "moving": c.moving, "opening": c.opening}
		for id, list := range c.drain {
			all["drain "+id.String()] = list
		}
		return all
	}
	some := func(counts map[state.StoreID]int) map[state.StoreID]int {
		m := maps.Clone(counts)
		maps.DeleteFunc(m, func(_ state.StoreID, n int) bool { return n == 0 })
		return m
	}
	for what, m := range counts(c) {
		if !maps.Equal(some(m), some(counts(d)[what])) {
			return what
		}
	}
	ids := func(list []*state.Partition) map[partitionID]uint64 {
		m := map[partitionID]uint64{}
		for _, p := range list {
			m[idOf(p)] = p.Epoch<<32 | p.Move
		}
		return m
	}
	mine, its := lists(c), lists(d)
	for what := range its {
		mine[what] = append([]*state.Partition(nil), mine[what]...)
	}
	for what, list := range mine {
		if len(list) != len(its[what]) || !maps.Equal(ids(list), ids(its[what])) {
			return what
		}
	}
	if !slices.Equal(c.Stores, d.Stores) {
		return "stores"
	}
	return ""
}

// A census follows what is decided about partitions, and knows when that is not enough.
func TestCensusFollowsDecisions(t *testing.T) {
	w := newScene(t, 3)
	for n := 1; n <= 3; n++ {
		w.topic(n, 1, 2, 3)
	}
	c := Count(w.state.Freeze())
	for what, do := range map[string]func(){
		"a topic made":    func() { w.topic(4, 1, 1) },
		"a topic deleted": func() { w.apply(&state.DeleteTopic{ID: topicN(2), At: 1}) },
		"a move": func() {
			w.apply(&state.MovePartitions{Entries: []state.PartitionMove{{Topic: topicN(1), Epoch: 1, To: w.run(2)}}})
		},
		"a ceiling": func() {
			w.apply(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: topicN(3), Epoch: 1, Ceiling: 1 << 20}}})
		},
	} {
		do()
		v := w.state.Freeze()
		if !c.Follow(v) {
			t.Fatalf("%s: not followed", what)
		}
		if d := c.differs(Count(v)); d != "" {
			t.Errorf("%s: counted anew it differs in %s", what, d)
		}
	}
	w.apply(&state.SetStore{Owner: w.run(1), Status: state.StoreDraining})
	if c.Follow(w.state.Freeze()) {
		t.Error("followed although a store drains now")
	}
}
