package plan

import (
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// Census is what the leader has to do with, of all partitions. It depends on the view alone: it is taken once, and then
// follows what is decided.
type Census struct {
	View      *state.View
	Stores    []*state.Store                       // not REMOVED, in the order of their ids
	load      map[state.StoreID]int                // partitions it owns or will own: one on its way counts for its target
	owned     map[state.StoreID]int                // partitions it owns, in any state
	serving   map[state.StoreID]int                // those of them that are OPEN or SEALING
	orphaned  map[state.StoreID]int                // partitions with an ORPHANED range, by the first store that may hold it
	idle      map[state.StoreID]int                // partitions that only the store itself can open again, and has not
	leaving   map[state.StoreID]int                // SEALING, by present owner
	Ownerless []*state.Partition                   // its owner cannot serve it: to be granted
	moving    []*state.Partition                   // SEALING, owner alive
	opening   []*state.Partition                   // granted, not yet open, target alive
	drain     map[state.StoreID][]*state.Partition // OPEN, of a draining store
	sole      map[state.StoreID]int                // ranges that no store holds which is to stay, by draining store
}

// Count walks over all partitions of live topics: about two milliseconds for ten thousand.
func Count(v *state.View) *Census {
	c := &Census{
		View: v,
		load: map[state.StoreID]int{}, owned: map[state.StoreID]int{}, serving: map[state.StoreID]int{}, orphaned: map[state.StoreID]int{}, idle: map[state.StoreID]int{},
		leaving: map[state.StoreID]int{}, drain: map[state.StoreID][]*state.Partition{}, sole: map[state.StoreID]int{},
	}
	for s := range v.Stores() {
		if s.Status != state.StoreRemoved {
			c.Stores = append(c.Stores, s)
		}
	}
	draining := c.draining()
	for t := range v.Topics("") {
		for p := range v.Partitions(t.ID) {
			c.count(p, 1)
			if draining {
				c.countSole(p, 1)
			}
		}
	}
	return c
}

// Follow makes c the census of a later view, by what was decided since. It returns false if that is not known: then
// count.
func (c *Census) Follow(v *state.View) bool {
	before := c.View
	changed, ok := v.Since(before)
	if !ok {
		return false
	}
	draining := c.draining()
	count := func(v *state.View, id partitionID, n int) {
		p := v.Partition(id.topic, id.number)
		if p == nil || v.TopicByID(id.topic).Deleted() {
			return
		}
		c.count(p, n)
		if draining {
			c.countSole(p, n)
		}
	}
	c.View = v
	for p := range changed {
		count(before, idOf(p), -1)
		count(v, idOf(p), 1)
	}
	return true
}

// draining says whether any store drains: then it matters what only such stores hold.
func (c *Census) draining() bool { return slices.ContainsFunc(c.Stores, drains) }

func drains(s *state.Store) bool {
	return s.Status == state.StoreDraining || s.Status == state.StoreDrained
}

func gone(s *state.Store) bool {
	return s == nil || s.Status == state.StoreLost || s.Status == state.StoreRemoved
}

// list adds a partition to a list, or if n is negative takes it off.
func list(to []*state.Partition, p *state.Partition, n int) []*state.Partition {
	if n > 0 {
		return append(to, p)
	}
	if i := slices.IndexFunc(to, func(q *state.Partition) bool { return idOf(q) == idOf(p) }); i >= 0 {
		return slices.Delete(to, i, i+1)
	}
	return to
}

// count counts a partition in, n being 1, or out, n being -1.
func (c *Census) count(p *state.Partition, n int) {
	owner := c.View.Store(p.Owner.Store)
	c.owned[p.Owner.Store] += n
	if p.State == state.Open || p.State == state.Sealing {
		c.serving[p.Owner.Store] += n
	}
	for i := range p.Ranges {
		if r := &p.Ranges[i]; r.Status == state.RangeOrphaned && len(r.Stores) > 0 {
			c.orphaned[r.Stores[0]] += n
			break
		}
	}
	if p.State == state.Sealing {
		c.load[p.Target.Store] += n
		c.leaving[p.Owner.Store] += n
	} else {
		c.load[p.Owner.Store] += n
	}
	if gone(owner) {
		c.Ownerless = list(c.Ownerless, p, n)
		return
	}
	latest := owner.Incarnation == p.Owner.Incarnation
	switch p.State {
	case state.Closed:
		// A store that serves opens what it closed by itself, as does its next run. One that stopped or drains does not.
		if owner.Clean || drains(owner) {
			c.Ownerless = list(c.Ownerless, p, n)
		} else {
			c.idle[owner.ID] += n
		}
	case state.Opening:
		if latest && !owner.Clean {
			c.opening = list(c.opening, p, n)
		} else {
			c.Ownerless = list(c.Ownerless, p, n)
		}
	case state.Sealing:
		c.moving = list(c.moving, p, n)
	case state.Open:
		if !latest {
			c.idle[owner.ID] += n
		} else if drains(owner) {
			c.drain[owner.ID] = list(c.drain[owner.ID], p, n)
		}
	}
}

// countSole counts the ranges whose copies all lie on stores that are about to leave or have left.
func (c *Census) countSole(p *state.Partition, n int) {
	for i := range p.Ranges {
		r := &p.Ranges[i]
		if r.Status == state.RangeLost || len(r.Stores) == 0 {
			continue
		}
		stays := false
		for _, id := range r.Stores {
			if s := c.View.Store(id); !gone(s) && !drains(s) {
				stays = true
				break
			}
		}
		if stays {
			continue
		}
		for _, id := range r.Stores {
			c.sole[id] += n
		}
	}
}

// Memory is when this leader first saw what the metadata does not date. A new leader begins with an empty one and gives
// everything its full time again.
type Memory struct {
	runs     map[state.StoreID]sighting
	statuses map[state.StoreID]sighting
	moves    map[partitionID]sighting
	tried    map[partitionID]time.Time // when a move was begun or taken back
}

// sighting is when something was first seen as it is now; mark tells whether it still is the same.
type sighting struct {
	mark  uint64
	since time.Time
}

type partitionID struct {
	topic  state.TopicID
	number uint32
}

func idOf(p *state.Partition) partitionID { return partitionID{p.Topic, p.Number} }

func NewMemory() *Memory {
	return &Memory{
		runs: map[state.StoreID]sighting{}, statuses: map[state.StoreID]sighting{},
		moves: map[partitionID]sighting{}, tried: map[partitionID]time.Time{},
	}
}

// Look dates what is new in the census and forgets what is over.
func (m *Memory) Look(now time.Time, c *Census) {
	for _, s := range c.Stores {
		keep(m.runs, s.ID, s.Incarnation, now)
		mark := s.Incarnation<<8 | uint64(s.Status)<<1
		if s.Clean {
			mark |= 1
		}
		keep(m.statuses, s.ID, mark, now)
	}
	seen := make(map[partitionID]sighting, len(c.moving)+len(c.opening))
	for _, list := range [][]*state.Partition{c.moving, c.opening} {
		for _, p := range list {
			mark := p.Epoch
			if p.State == state.Sealing {
				mark = p.Move // one that was taken back and begun again under the same epoch is another one
			}
			s := m.moves[idOf(p)]
			if s.mark != mark || s.since.IsZero() {
				s = sighting{mark, now}
			}
			seen[idOf(p)] = s
		}
	}
	m.moves = seen
	for id, at := range m.tried {
		if now.Sub(at) > retryTime {
			delete(m.tried, id)
		}
	}
}

func keep(seen map[state.StoreID]sighting, id state.StoreID, mark uint64, now time.Time) {
	if s, ok := seen[id]; !ok || s.mark != mark {
		seen[id] = sighting{mark, now}
	}
}

func (m *Memory) runSince(s *state.Store) time.Time      { return m.runs[s.ID].since }
func (m *Memory) statusSince(s *state.Store) time.Time   { return m.statuses[s.ID].since }
func (m *Memory) moveSince(p *state.Partition) time.Time { return m.moves[idOf(p)].since }
