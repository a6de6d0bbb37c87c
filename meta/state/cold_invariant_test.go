package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

// checkCold returns the first promise about the cold tier that v breaks.
func checkCold(v *View) error {
	cuts, total := map[catalog.Object]int{}, 0
	for _, p := range v.partitions.All() {
		deleted := v.TopicByID(p.Topic).Deleted()
		if err := checkCatalog(p, deleted); err != nil {
			return fmt.Errorf("catalog of %s: %w\n%s", formatPartition(p), err, formatCatalog(p))
		}
		for name, seg := range names(p) {
			if g := v.GarbageOf(name); g != nil || !v.Named(name) {
				return fmt.Errorf("%v is in a catalog and named=%t, garbage=%v", name, v.Named(name), g)
			}
			if seg.Object.Kind == catalog.Cut {
				cuts[seg.Object]++
			}
		}
	}
	for o, n := range v.objects.Cuts() {
		if total++; cuts[o] != n {
			return fmt.Errorf("a cut is said to be named %d times and is %d times", n, cuts[o])
		}
	}
	if total != len(cuts) {
		return fmt.Errorf("%d cuts are named, %d are said to be", len(cuts), total)
	}
	for g := range v.Garbage() {
		if !g.Name.Valid() || v.Named(g.Name) || g.Reason < catalog.Superseded || g.Reason > catalog.Abandoned {
			return fmt.Errorf("garbage %+v is named=%t", g, v.Named(g.Name))
		}
	}
	return nil
}

// names yields the objects that the catalog of p names, with a segment that says where.
func names(p *Partition) func(yield func(catalog.Name, catalog.Segment) bool) {
	return func(yield func(catalog.Name, catalog.Segment) bool) {
		for s := range p.Catalog.All() {
			if !yield(catalog.NewName(p.Topic, p.Number, s.Object, s.Start, s.End), s) {
				return
			}
		}
		for _, page := range p.Catalog.Pages() {
			s := catalog.Segment{Start: page.Start, End: page.End, Object: page.Object}
			if !yield(catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End), s) {
				return
			}
		}
	}
}

func checkCatalog(p *Partition, deleted bool) error {
	end := uint64(0)
	for _, s := range slices.SortedFunc(spans(p), func(a, b catalog.Segment) int { return int(a.Start) - int(b.Start) }) {
		page := s.Object.Kind == catalog.PageObject
		if s.Start < end || s.Start >= s.End || !page && !s.Valid() {
			return fmt.Errorf("[%d, %d) does not fit", s.Start, s.End)
		}
		end = s.End
		if s.End <= p.LogStart || s.End > p.Ceiling {
			return fmt.Errorf("[%d, %d) lies below the log's start or above the ceiling", s.Start, s.End)
		}
		if deleted {
			continue // its ranges go store by store
		}
		// A segment holds offsets that there are, and a page leaves out none (I11).
		for n := range sample(max(s.Start, p.LogStart), s.End) {
			if r := p.Range(n); (r != nil) != (len(p.Epochs(n, n+1)) > 0) || r == nil && !page {
				return fmt.Errorf("[%d, %d) holds %d, which no range does", s.Start, s.End, n)
			}
		}
	}
	for _, r := range p.Ranges {
		if !r.Exporter.IsZero() && (r.Status != RangeOrphaned || !slices.Contains(r.Stores, r.Exporter.Store)) {
			return fmt.Errorf("range at %d is %s and has an exporter", r.Start, r.Status)
		}
	}
	return nil
}

// sample yields offsets of [from, to), the first and the last among them.
func sample(from, to uint64) func(yield func(uint64) bool) {
	return func(yield func(uint64) bool) {
		for n := from; n+1 < to; n += 4 {
			if !yield(n) {
				return
			}
		}
		if from < to {
			yield(to - 1)
		}
	}
}

func spans(p *Partition) func(yield func(catalog.Segment) bool) {
	return func(yield func(catalog.Segment) bool) {
		for _, s := range names(p) {
			if !yield(s) {
				return
			}
		}
	}
}

// checkColdStep returns what must not happen to the cold tier from one state to the next.
func checkColdStep(before, after *View, c Command) error {
	for _, p := range before.partitions.All() {
		q := after.Partition(p.Topic, p.Number)
		for name := range names(p) {
			// What was named is named, or garbage, or a page lists it, whose checksum the state has compared.
			if _, paged := c.(*PageCatalog); !paged && !after.Named(name) && after.GarbageOf(name) == nil {
				return fmt.Errorf("%v is forgotten", name)
			}
		}
		if q == nil || after.TopicByID(q.Topic).Deleted() {
			continue
		}
		if err := checkCovered(p, q); err != nil {
			return fmt.Errorf("%w:\n%s%s%s%s", err, formatPartition(p), formatCatalog(p), formatPartition(q), formatCatalog(q))
		}
		if commit, ok := c.(*CommitSegments); ok && p.Catalog.Len() < q.Catalog.Len() {
			if err := checkCommit(before, p, q, commit); err != nil {
				return fmt.Errorf("%w:\n%s%s", err, formatPartition(p), formatCatalog(q))
			}
		}
	}
	for g := range before.Garbage() {
		if _, forgotten := c.(*ForgetObjects); after.GarbageOf(g.Name) == nil && !forgotten {
			return fmt.Errorf("garbage %v is forgotten", g.Name)
		}
	}
	return nil
}

// checkCovered: what the catalog covers stays covered, in its range, and readable if it was (R11, R13, R16).
func checkCovered(p, q *Partition) error {
	for s := range spans(p) {
		if !q.Catalog.Covers(max(s.Start, q.LogStart), s.End) {
			return fmt.Errorf("[%d, %d) is not covered any more", s.Start, s.End)
		}
		for n := range sample(max(s.Start, q.LogStart), s.End) {
			was, is := p.Range(n), q.Range(n)
			if was == nil {
				continue // a page lies over it
			}
			if is == nil || was.Epoch(n) != is.Epoch(n) || (was.Status == RangeSealed || was.Status == RangeOpen) && is.Status != was.Status && is.Status != RangeSealed {
				return fmt.Errorf("offset %d, which is covered, is lost sight of", n)
			}
		}
	}
	return nil
}

// checkCommit says whether a commit was the proposer's to make and leaves no hole (R11).
func checkCommit(before *View, p, q *Partition, c *CommitSegments) error {
	e := c.Entries[0]
	r := p.Range(max(e.Segment.Start, p.LogStart))
	st := before.Store(c.Owner.Store)
	if e.Epoch != p.Epoch || st == nil || st.Incarnation != c.Owner.Incarnation || st.Status == StoreLost || st.Status == StoreRemoved {
		return fmt.Errorf("%v committed in epoch %d", c.Owner, e.Epoch)
	}
	if orphan := r.Status == RangeOrphaned; orphan && c.Owner != r.Exporter || !orphan && (c.Owner != p.Owner || p.State == Opening) {
		return fmt.Errorf("%v committed into a range that is %s", c.Owner, r.Status)
	}
	for i := range q.Ranges {
		x := &q.Ranges[i]
		same := x.Start == r.Start
		if x.Start < e.Segment.Start && (same || x.Status == RangeSealed || x.Status == RangeOpen) && !q.Catalog.Covers(x.Start, min(q.end(x), e.Segment.Start)) {
			return fmt.Errorf("segment at %d leaves a hole in [%d, %d)", e.Segment.Start, x.Start, x.End)
		}
	}
	return nil
}

// TestRandomCatalogsKeepTheInvariants drives one partition through exports, merges, pages, retention and garbage while it
// passes from owner to owner, and ends with its deletion. The kinds that were never accepted fail the test.
func TestRandomCatalogsKeepTheInvariants(t *testing.T) {
	accepted := map[string]int{}
	seeds := lives(50)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := newMachine(seeded{t, seed})
		level := Level(1 + 2*(seed%2))
		m.apply(&CreateTopic{ID: topicID(1), Name: "/default/a", Owners: []Owner{{storeID(1), 1}}, Settings: TopicSettings{Partitions: 1, Reliable: true, Durability: level}})
		g := &generator{draw: func(_ string, lo, hi uint64) uint64 { return lo + rng.Uint64N(hi-lo+1) }}
		for i := range 90 {
			g.s = m.s
			p := m.s.Partition(topicID(1), 0)
			var c Command
			switch {
			case p == nil:
				c = g.forget()
			case i == 80:
				c = &DeleteTopic{ID: topicID(1), At: 80}
			case i > 80 && rng.IntN(2) == 0:
				c = &CondemnTopic{ID: topicID(1), At: 90, Partitions: []uint32{0}}
			case rng.IntN(3) == 0 && i < 80:
				c = g.likely()
			default:
				c = g.coldCommand(p)
			}
			if m.step(c) {
				accepted[fmt.Sprintf("%T", c)]++
			}
			if rng.IntN(20) == 0 {
				m.s = roundTrip(m.t, m.s)
			}
		}
	}
	for _, c := range []Command{
		&CommitSegments{}, &GrantExports{}, &SwapSegments{}, &PageCatalog{}, &UnpageCatalog{}, &CondemnTopic{}, &CondemnPage{},
		&CondemnObjects{}, &ForgetObjects{}, &EndAudit{}, &OpenPartitions{}, &RestoreRange{}, &CopyRanges{}, &LoseStore{},
	} {
		if n := accepted[fmt.Sprintf("%T", c)]; n < int(seeds/10) {
			t.Errorf("%T was accepted %d times", c, n)
		}
	}
	t.Log(accepted)
}
