package wal

import (
	"math"
	"sort"
)

// Extent says which epoch gives which offsets their value: those in [Start,
// End). End is math.MaxUint64 for the epoch that is still open. Away: another
// store holds them, and what of them is missing here is no damage.
type Extent struct {
	Epoch      uint64
	Start, End uint64
	Away       bool
}

// extents are in the order of offsets and do not overlap (R19).
type extents []Extent

// at returns the extent that holds offset, or the gap it lies in.
func (x extents) at(offset uint64) (Extent, *Gap) {
	i := sort.Search(len(x), func(i int) bool { return x[i].End > offset })
	switch {
	case i == len(x):
		return Extent{}, &Gap{From: offset, To: math.MaxUint64}
	case x[i].Start > offset:
		return Extent{}, &Gap{From: offset, To: x[i].Start}
	}
	return x[i], nil
}

// begin ends the last extent at end and opens one for the next epoch.
func (x extents) begin(epoch, end, start uint64) extents {
	if n := len(x); n > 0 && x[n-1].End > end {
		x[n-1].End = end
	}
	return append(x, Extent{Epoch: epoch, Start: start, End: math.MaxUint64})
}

// SetAway tells anew which of the extents this store need not hold.
func (l *Log) SetAway(list []Extent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.extents {
		x := &l.extents[i]
		for _, y := range list {
			if y.Epoch == x.Epoch && y.Start == x.Start {
				x.Away = y.Away
			}
		}
	}
}
