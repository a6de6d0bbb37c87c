package state

import (
	"cmp"
	"iter"
)

// decision is the last one about a partition. In the order of decisions, all since an index lie together.
type decision struct {
	index uint64
	about partitionKey
}

func compareDecisions(a, b decision) int {
	if c := cmp.Compare(a.index, b.index); c != 0 {
		return c
	}
	return comparePartitions(a.about, b.about)
}

// Decided returns the Raft index of the last decision about who owns or holds what, or about a store: while it is the
// same, Owned and Held yield partitions of the same epochs, owners, states and ranges as before, of the same topics. After
// a snapshot was restored it is the index of that.
func (v *View) Decided() uint64 { return v.decided }

// Since yields the partitions about which something was decided since an earlier view, those of topics that were deleted
// since included, in the order of the last decision about each. It takes as long as there are such. ok is false if they
// are not all that may have changed: there was no view before, something was decided about a store or about everything, or
// a snapshot was restored. Then look at all.
func (v *View) Since(before *View) (changed iter.Seq[*Partition], ok bool) {
	if before == nil || before.of != v.of || before.decided < v.overall {
		return nil, false
	}
	return func(yield func(*Partition) bool) {
		for d := range v.decisions.From(decision{index: before.decided + 1}) {
			if !yield(v.Partition(d.about.topic, d.about.number)) {
				return
			}
		}
	}, true
}

// differs says whether q, the next record of the same partition, has another owner, or offsets elsewhere.
func (p *Partition) differs(q *Partition) bool {
	if p.Epoch != q.Epoch || p.Owner != q.Owner || p.State != q.State || p.Target != q.Target || len(p.Ranges) != len(q.Ranges) {
		return true
	}
	// A list of ranges is never changed in place.
	return len(p.Ranges) > 0 && &p.Ranges[0] != &q.Ranges[0]
}

// decide notes that the present command decides something about a partition, whose next record p is a copy of the one
// before, or of nothing.
func (s *State) decide(p *Partition) {
	key := partitionKey{p.Topic, p.Number}
	s.decisions.Delete(decision{p.decided, key})
	p.decided, s.decided = s.index, s.index
	s.decisions.Set(decision{p.decided, key}, struct{}{})
}

// decideAll notes that the present command decides something about more than partitions.
func (s *State) decideAll() { s.decided, s.overall = s.index, s.index }
