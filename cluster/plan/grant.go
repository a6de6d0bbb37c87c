package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// grants gives every partition whose owner cannot serve it to a broker that can (section 4 of the ownership rules).
func (p *planning) grants() {
	var due, stuck []*state.Partition
	for _, part := range p.c.Ownerless {
		if p.due(part) {
			due = append(due, part)
		}
	}
	for _, part := range p.c.opening {
		if since := p.f.Memory.moveSince(part); p.now.Sub(since) > moveTime {
			p.note(part.Owner.Store, "%s has not opened %s in %v", p.name(part.Owner.Store), p.partition(part), waited(p.now.Sub(since)))
			stuck = append(stuck, part)
		}
	}
	if len(due)+len(stuck) == 0 {
		return
	}
	targets, wait := p.targets(0)
	if wait {
		return
	}
	if len(targets.candidates) == 0 {
		p.note(state.StoreID{}, "no active broker can take what has no owner: %s", counted(len(due), "partition"))
		return
	}
	for batch := range slices.Chunk(due, grantBatch) {
		c := &state.GrantPartitions{}
		for _, part := range batch {
			c.Entries = append(c.Entries, grantOf(part, targets.take(holders(part))))
		}
		p.do(Action{Kind: grant, Count: len(batch), Command: c, Reason: p.whyGranted(batch)})
	}
	p.regrant(stuck, targets)
}

// regrant passes what a target has not opened in time to another one (L2).
func (p *planning) regrant(stuck []*state.Partition, targets scale) {
	c := &state.GrantPartitions{}
	for _, part := range stuck {
		if to, ok := targets.takeOther(part.Owner.Store); ok && len(c.Entries) < grantBatch {
			c.Entries = append(c.Entries, grantOf(part, to))
		}
	}
	if len(c.Entries) > 0 {
		p.do(Action{
			Kind: grant, Count: len(c.Entries), Command: c,
			Reason: fmt.Sprintf("not opened for %v by the broker that it was given to", moveTime),
		})
	}
}

func grantOf(part *state.Partition, to state.Owner) state.PartitionGrant {
	return state.PartitionGrant{Topic: part.Topic, Partition: part.Number, Epoch: part.Epoch, To: to}
}

// due says whether a partition is to be granted now. A store that stopped cleanly has a lease's time to come back: when
// a whole cluster restarts, whoever is up first must not take over everything.
func (p *planning) due(part *state.Partition) bool {
	owner := p.c.View.Store(part.Owner.Store)
	if gone(owner) || part.State != state.Closed || !owner.Clean {
		return true
	}
	since := p.f.Memory.statusSince(owner)
	if p.f.Since.After(since) {
		since = p.f.Since
	}
	return p.now.Sub(since) >= p.f.Lease
}

// holders are the stores that can open a partition without a loss, if that is known to matter: the open range of
// a grant that came to nothing may lie on a store that has returned.
func holders(part *state.Partition) []state.StoreID {
	if n := len(part.Ranges); n > 0 && part.State == state.Opening {
		return part.Ranges[n-1].Stores
	}
	return nil
}

func (p *planning) whyGranted(batch []*state.Partition) string {
	owners := map[state.StoreID]int{}
	first := batch[0].Owner.Store
	for _, part := range batch {
		owners[part.Owner.Store]++
	}
	owner := p.c.View.Store(first)
	var why string
	switch {
	case first == (state.StoreID{}):
		why = "never had an owner"
	case owner == nil || owner.Status == state.StoreRemoved:
		why = "owner " + p.name(first) + " was removed"
	case owner.Status == state.StoreLost:
		why = "owner " + owner.Broker + " is lost"
	case owner.Clean:
		why = "owner " + owner.Broker + " is stopped"
	case drains(owner):
		why = "owner " + owner.Broker + " drains"
	default:
		why = "target " + owner.Broker + " restarted"
	}
	if n := len(owners) - 1; n > 0 {
		why += fmt.Sprintf(", and %d others", n)
	}
	return why
}

// targets are the brokers that may be given partitions: active, leased, answering, and with the current index applied, if
// that has been the current one for longer than trust. wait says that some have not applied it yet and may in a moment.
func (p *planning) targets(trust time.Duration) (s scale, wait bool) {
	for _, st := range p.c.Stores {
		if st.Status != state.StoreActive || st.Clean || !p.leased(st) || p.f.Peers[st.ID].Failures > 0 {
			continue
		}
		peer := p.f.Peers[st.ID]
		if peer.Applied < p.f.Index && p.now.Sub(p.f.IndexAt) >= trust {
			wait = wait || p.now.Sub(p.f.IndexAt) < spreadTime
			p.note(st.ID, "%s is given nothing: it has applied index %d, not yet %d", p.called(st), peer.Applied, p.f.Index)
			continue
		}
		s.candidates = append(s.candidates, Candidate{
			Owner: state.Owner{Store: st.ID, Incarnation: st.Incarnation}, Partitions: p.c.load[st.ID], Bytes: peer.Bytes,
		})
	}
	return s, wait
}

// aborts takes back moves that cannot end: the target is gone, the owner began a new run, or nothing moved for too long.
func (p *planning) aborts() {
	c := &state.AbortMoves{}
	var reason string
	for _, part := range p.c.moving {
		why := p.whyAborted(part)
		if why == "" {
			continue
		}
		if len(c.Entries) == 0 {
			reason = p.partition(part) + ": " + why
		}
		c.Entries = append(c.Entries, state.MoveAbort{
			Topic: part.Topic, Partition: part.Number, Epoch: part.Epoch, Move: part.Move,
		})
	}
	if len(c.Entries) == 0 {
		return
	}
	if n := len(c.Entries) - 1; n > 0 {
		reason += fmt.Sprintf("; and %d others", n)
	}
	p.do(Action{Kind: abort, Count: len(c.Entries), Command: c, Reason: reason})
}

func (p *planning) whyAborted(part *state.Partition) string {
	owner, target := p.c.View.Store(part.Owner.Store), p.c.View.Store(part.Target.Store)
	switch {
	case owner.Incarnation != part.Owner.Incarnation:
		return "owner " + owner.Broker + " restarted" // and opens it again as after any restart
	case gone(target):
		return "target " + p.name(part.Target.Store) + " is gone"
	case target.Incarnation != part.Target.Incarnation:
		return "target " + target.Broker + " restarted"
	case target.Clean:
		return "target " + target.Broker + " is stopped"
	case p.now.Sub(p.f.Memory.moveSince(part)) > moveTime:
		return fmt.Sprintf("no progress for %v on the way from %s to %s", moveTime, owner.Broker, target.Broker)
	}
	return ""
}

func (p *planning) partition(part *state.Partition) string {
	name := part.Topic.String()
	if t := p.c.View.TopicByID(part.Topic); t != nil {
		name = t.Name
	}
	return fmt.Sprintf("%s[%d]", name, part.Number)
}

// drains moves partitions off draining brokers, a few at a time, and says when one is empty.
func (p *planning) drains() {
	var targets scale
	var known bool
	for _, s := range p.c.Stores {
		if !drains(s) {
			continue
		}
		if p.drained(s) {
			continue
		}
		free := p.f.DrainParallel - p.c.leaving[s.ID]
		parts := p.movable(s.ID, free)
		if len(parts) == 0 {
			continue
		}
		if !known {
			targets, _ = p.targets(saidTime)
			known = true
		}
		if len(targets.candidates) == 0 {
			p.note(s.ID, "%s drains but no active broker can take its partitions", p.called(s))
			continue
		}
		c := &state.MovePartitions{}
		for _, part := range parts {
			c.Entries = append(c.Entries, state.PartitionMove{
				Topic: part.Topic, Partition: part.Number, Epoch: part.Epoch, To: targets.take(nil),
			})
		}
		p.do(Action{
			Kind: move, Store: s.ID, Count: len(parts), Command: c,
			Reason: fmt.Sprintf("%s drains, %s left", s.Broker, counted(p.c.owned[s.ID], "partition")),
		})
	}
}

// drained says whether there is nothing to move off a store, and declares it DRAINED once nothing is only there.
func (p *planning) drained(s *state.Store) bool {
	if p.c.owned[s.ID] > 0 {
		return false
	}
	if s.Status == state.StoreDrained {
		return true
	}
	if n := p.c.sole[s.ID]; n > 0 {
		p.note(s.ID, "%s owns nothing more; still to be copied from it: %s", p.called(s), counted(n, "range"))
		return true
	}
	p.do(Action{
		Kind: drained, Store: s.ID, Reason: "owns nothing, and all it holds is elsewhere too",
		Command: &state.SetStore{
			Owner: state.Owner{Store: s.ID, Incarnation: s.Incarnation}, Status: state.StoreDrained,
		},
	})
	return true
}

// movable returns up to n partitions of a draining store that no move was begun of just now.
func (p *planning) movable(id state.StoreID, n int) []*state.Partition {
	var parts []*state.Partition
	for _, part := range p.c.drain[id] {
		if len(parts) >= n {
			break
		}
		if at, ok := p.f.Memory.tried[idOf(part)]; ok && p.now.Sub(at) < retryTime {
			continue
		}
		parts = append(parts, part)
	}
	return parts
}

// Remember dates the moves that an action began or took back. A partition that a drain moved and that is where it was has
// had its move taken back by its owner, which can be sooner than the next look.
func (m *Memory) Remember(now time.Time, a Action) {
	switch c := a.Command.(type) {
	case *state.AbortMoves:
		for _, e := range c.Entries {
			m.tried[partitionID{e.Topic, e.Partition}] = now
		}
	case *state.MovePartitions:
		for _, e := range c.Entries {
			m.tried[partitionID{e.Topic, e.Partition}] = now
		}
	}
}
