package wal

import (
	"math"
	"slices"
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

// behind lists where what goes with a log that ends at end may have its place:
// behind the last extent that holds something, or else behind the last. One that
// holds nothing leaves the metadata when it is sealed, and nobody looks for its
// files again.
func (x extents) behind(end uint64) (places []Extent) {
	for _, e := range slices.Backward(x) {
		if e.End = min(e.End, end); e.Start < e.End {
			places = append(places, e)
			break
		}
	}
	if n := len(x); n > 0 {
		last := x[n-1]
		last.End = end
		places = append(places, last)
	}
	return places
}

// SetExtents tells anew which epochs give which offsets their value, once that
// has changed: offsets that came back, that others took over, or whose files are
// here now. The epoch that is being written stays as the log knows it, unless
// the list has it open too.
func (l *Log) SetExtents(list []Extent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.door.open || len(l.extents) == 0 {
		l.extents = slices.Clone(list)
		return
	}
	own := l.extents[len(l.extents)-1]
	known := slices.ContainsFunc(list, func(x Extent) bool { return x.Epoch == own.Epoch && x.End == math.MaxUint64 })
	out := make(extents, 0, len(list)+1)
	for _, x := range list {
		switch {
		case x.Epoch == own.Epoch && known:
			out = append(out, x)
		case x.Epoch != own.Epoch && x.Start < own.Start:
			x.End = min(x.End, own.Start)
			out = append(out, x)
		}
	}
	if !known {
		out = append(out, own)
	}
	l.extents = out
}
