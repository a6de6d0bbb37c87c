package cluster

import (
	"slices"

	"github.com/danubemq/danube/cluster/plan"
	"github.com/danubemq/danube/meta/state"
)

// Place returns n owners for new partitions, spread by load over the active brokers that gossip calls alive; members
// nil: over all active ones. It returns nil if there is none. What gossip is wrong about costs a grant by the leader,
// nothing more.
func Place(v *state.View, members []Member, n int) []state.Owner {
	return plan.Spread(placeable(v, members), n)
}

func placeable(v *state.View, members []Member) []plan.Candidate {
	var out []plan.Candidate
	for s := range v.Stores() {
		if s.Status != state.StoreActive || s.Clean {
			continue
		}
		c := plan.Candidate{Owner: state.Owner{Store: s.ID, Incarnation: s.Incarnation}, Partitions: v.Placed(s.ID)}
		i := slices.IndexFunc(members, func(m Member) bool { return m.Store == s.ID })
		if i >= 0 && members[i].State == Alive {
			c.Bytes = members[i].Load.BytesIn + members[i].Load.BytesOut
		} else if members != nil {
			continue
		}
		out = append(out, c)
	}
	return out
}
