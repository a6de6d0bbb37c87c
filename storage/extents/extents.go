// Package extents knows of offsets who gave them their values and where they lie:
// [Extents] say which epoch gave which (R19), a [Set] which of them are somewhere,
// as in the cold tier. It is pure.
package extents

import (
	"fmt"
	"math"
	"slices"
	"sort"
)

// Gap says that no message has the offsets [From, To): no epoch gave them. A
// reader steps over it with Seek(To).
type Gap struct{ From, To uint64 }

func (g *Gap) Error() string {
	return fmt.Sprintf("offsets %d to %d were never given to a message", g.From, g.To)
}

// Elsewhere says that the messages [From, To) exist, in other stores than this
// one. A reader never steps over it: they are to be had there, or to be waited for.
type Elsewhere struct{ From, To uint64 }

func (e *Elsewhere) Error() string {
	return fmt.Sprintf("offsets %d to %d lie in another store", e.From, e.To)
}

// Extent says which epoch gives which offsets their value: those in [Start,
// End). End is math.MaxUint64 for the epoch that is still open. Away: another
// store holds them, and what of them is missing here is no damage.
type Extent struct {
	Epoch      uint64
	Start, End uint64
	Away       bool
}

// Extents are in the order of offsets and do not overlap (R19).
type Extents []Extent

// At returns the extent that holds offset, or the gap it lies in.
func (x Extents) At(offset uint64) (Extent, *Gap) {
	i := sort.Search(len(x), func(i int) bool { return x[i].End > offset })
	switch {
	case i == len(x):
		return Extent{}, &Gap{From: offset, To: math.MaxUint64}
	case x[i].Start > offset:
		return Extent{}, &Gap{From: offset, To: x[i].Start}
	}
	return x[i], nil
}

// Begin ends the last extent at end and opens one for the next epoch.
func (x Extents) Begin(epoch, end, start uint64) Extents {
	if n := len(x); n > 0 && x[n-1].End > end {
		x[n-1].End = end
	}
	return append(x, Extent{Epoch: epoch, Start: start, End: math.MaxUint64})
}

// Behind lists where what goes with a log that ends at end may have its place:
// behind the last extent that holds something, or else behind the last. One that
// holds nothing leaves the metadata when it is sealed, and nobody looks for its
// files again.
func (x Extents) Behind(end uint64) (places []Extent) {
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

// Renew is x when list tells anew which epochs give which offsets their value,
// while the last of x is being written: that one stays as it is, unless the list
// has it open too.
func (x Extents) Renew(list []Extent) Extents {
	own := x[len(x)-1]
	known := slices.ContainsFunc(list, func(x Extent) bool { return x.Epoch == own.Epoch && x.End == math.MaxUint64 })
	out := make(Extents, 0, len(list)+1)
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
	return out
}
