package dispatch

import "slices"

const (
	nodeMax = 128 // runs in a node; one more splits it
	nodeMin = nodeMax / 4

	spareMin = 4 // emptied nodes kept in any case
)

// runlist is an ordered map from disjoint stretches of offsets to their fate:
// a sequence of small sorted slices. Finding is two binary searches, changing
// moves at most one node, and a hundred thousand scattered acknowledgements
// are a few megabytes. Slices of emptied nodes are used again, so that a list
// that keeps its size allocates nothing.
type runlist struct {
	nodes []node
	spare [][]run
	count [kinds]int    // runs of each kind
	soon  [timers]int64 // lower bound over all runs
}

// node bounds are lower bounds: adding lowers them, removing leaves them, and
// the search that found nothing makes them exact again.
type node struct {
	runs  []run
	end   uint64 // of the last run
	soon  [timers]int64
	flags mark // at least the dirt of its runs
}

// pos is the place of a run; it is good until the next change of the list.
type pos struct{ node, i int }

func newRunlist() runlist { return runlist{soon: [timers]int64{never, never}} }

func (l *runlist) clear() {
	for len(l.nodes) > 0 {
		l.drop(len(l.nodes) - 1)
	}
	l.count = [kinds]int{}
	l.soon = [timers]int64{never, never}
}

// find returns the first run that ends above off.
func (l *runlist) find(off uint64) pos {
	lo, hi := 0, len(l.nodes)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); l.nodes[m].end > off {
			hi = m
		} else {
			lo = m + 1
		}
	}
	if lo == len(l.nodes) {
		return pos{lo, 0}
	}
	p := pos{node: lo}
	runs := l.nodes[lo].runs
	lo, hi = 0, len(runs)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); runs[m].end > off {
			hi = m
		} else {
			lo = m + 1
		}
	}
	p.i = lo
	return p
}

// at returns the run at p, nil beyond the last.
func (l *runlist) at(p pos) *run {
	if p.node == len(l.nodes) {
		return nil
	}
	return &l.nodes[p.node].runs[p.i]
}

func (l *runlist) next(p pos) pos {
	if p.i++; p.i == len(l.nodes[p.node].runs) {
		return pos{p.node + 1, 0}
	}
	return p
}

// prev returns the place before p and whether there is one.
func (l *runlist) prev(p pos) (pos, bool) {
	switch {
	case p.i > 0:
		p.i--
	case p.node > 0:
		p.node--
		p.i = len(l.nodes[p.node].runs) - 1
	default:
		return p, false
	}
	return p, true
}

// touch brings the node's summary up to date after a change of the run at p.
func (l *runlist) touch(p pos) {
	n := &l.nodes[p.node]
	r := &n.runs[p.i]
	n.end = n.runs[len(n.runs)-1].end
	n.flags |= r.flags & (dirty | sent)
	for t := range timers {
		if at := r.time(t); at < n.soon[t] {
			n.soon[t] = at
			l.soon[t] = min(l.soon[t], at)
		}
	}
}

// insert puts r before p, or at the end of p's node, and returns its place.
func (l *runlist) insert(p pos, r run) pos {
	l.count[r.kind]++
	if p.node == len(l.nodes) {
		if p.node > 0 && len(l.nodes[p.node-1].runs) < nodeMax {
			p = pos{p.node - 1, len(l.nodes[p.node-1].runs)}
		} else {
			l.grow(p.node, nil)
		}
	}
	if len(l.nodes[p.node].runs) == nodeMax {
		p = l.split(p)
	}
	n := &l.nodes[p.node]
	n.runs = slices.Insert(n.runs, p.i, r)
	l.touch(p)
	return p
}

// split makes room in the full node of p. At the end of the list it opens an
// empty node instead of halving one: offsets mostly grow.
func (l *runlist) split(p pos) pos {
	half := nodeMax / 2
	if p.i == nodeMax && p.node == len(l.nodes)-1 {
		half = nodeMax
	}
	n := &l.nodes[p.node]
	soon, flags, tail := n.soon, n.flags, n.runs[half:]
	n.runs = n.runs[:half]
	n.end = n.runs[half-1].end
	l.grow(p.node+1, tail)
	if half < nodeMax {
		l.nodes[p.node+1].soon, l.nodes[p.node+1].flags = soon, flags
	}
	if p.i > half || half == nodeMax {
		return pos{p.node + 1, p.i - half}
	}
	return p
}

// grow puts a node with a copy of runs at index i.
func (l *runlist) grow(i int, runs []run) {
	var buf []run
	if k := len(l.spare); k > 0 {
		buf, l.spare = l.spare[k-1], l.spare[:k-1]
	} else if len(l.nodes) > 0 {
		buf = make([]run, 0, nodeMax) // the only node of a quiet subscription stays small
	}
	n := node{runs: append(buf, runs...), soon: [timers]int64{never, never}}
	if len(runs) > 0 {
		n.end = runs[len(runs)-1].end
	}
	l.nodes = slices.Insert(l.nodes, i, n)
}

// delete removes the run at p.
func (l *runlist) delete(p pos) {
	n := &l.nodes[p.node]
	l.count[n.runs[p.i].kind]--
	n.runs = slices.Delete(n.runs, p.i, p.i+1)
	if len(n.runs) == 0 {
		l.drop(p.node)
		return
	}
	n.end = n.runs[len(n.runs)-1].end
	if len(n.runs) >= nodeMin || p.node+1 == len(l.nodes) {
		return
	}
	if m := &l.nodes[p.node+1]; len(n.runs)+len(m.runs) <= nodeMax-nodeMin {
		n.runs = append(n.runs, m.runs...)
		n.end = m.end
		n.flags |= m.flags
		for t := range timers {
			n.soon[t] = min(n.soon[t], m.soon[t])
		}
		l.drop(p.node + 1)
	}
}

// drop removes the node at i and keeps its memory, but never much more than
// the list itself has: a burst of scattered acknowledgements is not paid for
// ever after.
func (l *runlist) drop(i int) {
	l.spare = append(l.spare, l.nodes[i].runs[:0])
	l.nodes = slices.Delete(l.nodes, i, i+1)
	for k := len(l.spare); k > len(l.nodes)+spareMin; k-- {
		l.spare[k-1] = nil
		l.spare = l.spare[:k-1]
	}
}

// cover adds r where no run is, joined to its neighbours if they are alike.
func (l *runlist) cover(r run) {
	p := l.find(r.start)
	after := l.at(p)
	q, ok := l.prev(p)
	switch {
	case ok && joins(l.at(q), &r):
		before := l.at(q)
		before.end = r.end
		before.flags |= r.flags
		l.touch(q)
		l.mergeNext(q)
	case after != nil && joins(&r, after):
		after.start = r.start
		after.flags |= r.flags
		l.touch(p)
	default:
		l.insert(p, r)
	}
}

// mergeNext joins the run at p with the one after it if they are alike.
func (l *runlist) mergeNext(p pos) {
	q := l.next(p)
	r, s := l.at(p), l.at(q)
	if s == nil || !joins(r, s) {
		return
	}
	r.end = s.end
	r.flags |= s.flags
	l.touch(p)
	l.delete(q)
}

// change gives the part [a, b) of the run at p the fate of to.
func (l *runlist) change(p pos, a, b uint64, to run) {
	to.start, to.end = a, b
	r := l.at(p)
	switch {
	case same(r, &to):
		r.flags |= to.flags
		l.touch(p)
	case a == r.start && b == r.end:
		l.count[r.kind]--
		l.count[to.kind]++
		*r = to
		l.touch(p)
		l.mergeNext(p)
		if q, ok := l.prev(p); ok {
			l.mergeNext(q)
		}
	case a == r.start:
		r.start = b
		if q, ok := l.prev(p); ok && joins(l.at(q), &to) {
			before := l.at(q)
			before.end = b
			before.flags |= to.flags
			l.touch(q)
			return
		}
		l.insert(p, to)
	case b == r.end:
		r.end = a
		l.touch(p)
		q := l.next(p)
		if after := l.at(q); after != nil && joins(&to, after) {
			after.start = a
			after.flags |= to.flags
			l.touch(q)
			return
		}
		l.insert(pos{p.node, p.i + 1}, to)
	default:
		right := *r
		right.start = b
		r.end = a
		q := l.insert(pos{p.node, p.i + 1}, to)
		l.insert(pos{q.node, q.i + 1}, right)
	}
}

// cut removes the part [a, b) of the run at p.
func (l *runlist) cut(p pos, a, b uint64) {
	r := l.at(p)
	switch {
	case a == r.start && b == r.end:
		l.delete(p)
	case a == r.start:
		r.start = b
	case b == r.end:
		r.end = a
		l.touch(p)
	default:
		right := *r
		right.start = b
		r.end = a
		l.insert(pos{p.node, p.i + 1}, right)
	}
}

// timed returns the first run that ends above off and whose time for t has
// come.
func (l *runlist) timed(t timer, off uint64, now int64) (pos, bool) {
	if l.soon[t] > now {
		return pos{}, false
	}
	for k := l.find(off).node; k < len(l.nodes); k++ {
		n := &l.nodes[k]
		if n.soon[t] > now {
			continue
		}
		exact := int64(never)
		for i := range n.runs {
			r := &n.runs[i]
			at := r.time(t)
			if at <= now && r.end > off {
				return pos{k, i}, true
			}
			exact = min(exact, at)
		}
		n.soon[t] = exact
	}
	return pos{}, false
}

// earliest returns the first time for t of any run, never if there is none.
func (l *runlist) earliest(t timer) int64 {
	best := int64(never)
	for k := range l.nodes {
		n := &l.nodes[k]
		if n.soon[t] >= best {
			continue
		}
		n.soon[t] = never
		for i := range n.runs {
			n.soon[t] = min(n.soon[t], n.runs[i].time(t))
		}
		best = min(best, n.soon[t])
	}
	l.soon[t] = best
	return best
}
