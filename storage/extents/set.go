package extents

import (
	"cmp"
	"slices"
)

// Run is a run of offsets, [From, To).
type Run struct{ From, To uint64 }

// Set is a set of offsets: runs that are sorted, of which none touches another.
// The zero value is empty.
type Set []Run

// End is the end of the run that holds an offset, the offset itself when none does.
func (s Set) End(offset uint64) uint64 {
	i, _ := slices.BinarySearchFunc(s, offset, func(o Run, n uint64) int {
		if o.To <= n {
			return -1
		}
		return 1
	})
	if i == len(s) || s[i].From > offset {
		return offset
	}
	return s[i].To
}

// Within is the highest end of what the set has of an extent, 0 when it has nothing.
func (s Set) Within(x Extent) (end uint64) {
	for _, o := range s {
		if o.From < x.End && x.Start < o.To {
			end = min(o.To, x.End)
		}
	}
	return end
}

// With is the set and more offsets.
func (s Set) With(more ...Run) Set {
	all := slices.Concat(s, more)
	slices.SortFunc(all, func(a, b Run) int { return cmp.Compare(a.From, b.From) })
	out := all[:0]
	for _, o := range all {
		switch n := len(out); {
		case o.From >= o.To:
		case n > 0 && o.From <= out[n-1].To:
			out[n-1].To = max(out[n-1].To, o.To)
		default:
			out = append(out, o)
		}
	}
	return out
}

// Without calls yield with what of a run the set does not have.
func (s Set) Without(o Run, yield func(Run)) {
	for at := o.From; at < o.To; {
		if end := s.End(at); end > at {
			at = end
			continue
		}
		next := o.To
		for _, x := range s {
			if x.From > at {
				next = min(next, x.From)
				break
			}
		}
		yield(Run{at, next})
		at = next
	}
}
