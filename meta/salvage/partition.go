package salvage

import (
	"cmp"
	"math"
	"slices"

	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/offsets"
	"github.com/danubemq/danube/meta/state"
)

// partition is one, and all that is left of it.
type partition struct {
	known  *manifest.Partition // nil: in no manifest
	pieces []*Piece
	local  []*Local

	start uint64 // of the log
	zones []zone // ascending, disjoint
}

// zone is a run of offsets of one epoch.
type zone struct {
	epoch      uint64
	start, end uint64
	told       bool // by the manifest: all of its offsets were given out
}

// plan makes of it what the state is made of.
func (p *partition) plan() (state.RemainsPartition, []Left, []Seam) {
	out := state.RemainsPartition{Seen: p.highest()}
	if p.known != nil {
		out.Epoch, out.Superseded = p.known.Epoch, p.known.Superseded
	}
	p.start = p.logStart()
	p.zones = p.allZones()
	var fit []*Piece
	var left []Left
	for _, piece := range p.pieces {
		if why := p.judge(piece); why != 0 {
			left = append(left, Left{piece, why})
			continue
		}
		fit = append(fit, piece)
	}
	taken, spare := choose(fit, p.start)
	for _, piece := range spare {
		left = append(left, Left{piece, Covered})
	}
	for _, piece := range taken {
		out.Segments = append(out.Segments, piece.Segment)
	}
	out.LogStart = p.start
	out.Pieces = p.remains(taken)
	return out, left, seams(taken, spare, p.start)
}

// seams are the offsets that only pieces have which overlap with others.
func seams(taken, spare []*Piece, start uint64) (out []Seam) {
	var held []offsets.Range
	for _, piece := range taken {
		held = append(held, offsets.Range{Start: piece.Segment.Start, End: piece.Segment.End})
	}
	covered := offsets.Joined(held)
	for _, piece := range spare {
		for at := max(piece.Segment.Start, start); at < piece.Segment.End; {
			from, above := covered.Fold(at) // the next offset that nobody has
			to := piece.Segment.End
			if len(above) > 0 {
				to = min(to, above[0].Start)
			}
			if from < to {
				out = append(out, Seam{piece, from, to})
				covered = covered.Union(offsets.Set{{Start: from, End: to}})
			}
			at = max(from, to)
		}
	}
	return out
}

// highest is the highest end that anything names: what is given out next lies far above it (R22).
func (p *partition) highest() (end uint64) {
	if p.known != nil {
		end = p.known.Ceiling
	}
	for _, piece := range p.pieces {
		end = max(end, piece.Segment.End)
	}
	for _, l := range p.local {
		end = max(end, l.End)
	}
	return end
}

// logStart is where the log begins: as the manifest says, else where anything does.
func (p *partition) logStart() uint64 {
	if p.known != nil {
		return p.known.LogStart
	}
	start := uint64(math.MaxUint64)
	for _, piece := range p.pieces {
		start = min(start, piece.Segment.Start)
	}
	for _, l := range p.local {
		start = min(start, l.Start)
	}
	if start == math.MaxUint64 {
		return 0
	}
	return start
}

// stretches yields every run of offsets of one epoch that anything claims to hold.
func (p *partition) stretches(yield func(epoch, start, end uint64)) {
	for _, piece := range p.pieces {
		piece.stretches(yield)
	}
	for _, l := range p.local {
		yield(l.Epoch, l.Start, l.End)
	}
}

func (p *Piece) stretches(yield func(epoch, start, end uint64)) {
	for i, e := range p.Epochs {
		end := p.Segment.End
		if i+1 < len(p.Epochs) {
			end = min(end, p.Epochs[i+1].Start)
		}
		if start := max(e.Start, p.Segment.Start); start < end {
			yield(e.Epoch, start, end)
		}
	}
}

// allZones says which epoch gives which offsets their value: those that the manifest tells, and behind them, in what was
// open then, the newest that has an offset, from its own first one on (R19, R22).
func (p *partition) allZones() []zone {
	told, from, least := p.told()
	first := map[uint64]uint64{}
	if from < math.MaxUint64 && least > 0 {
		first[least] = from
	}
	p.stretches(func(epoch, start, end uint64) {
		if epoch < least || start < end && end <= from || start == end && start < from {
			return
		}
		start = max(start, from)
		if at, ok := first[epoch]; !ok || start < at {
			first[epoch] = start
		}
	})
	var behind []zone
	for epoch, start := range first {
		behind = append(behind, zone{epoch: epoch, start: start})
	}
	slices.SortFunc(behind, func(a, b zone) int { return cmp.Compare(b.epoch, a.epoch) })
	cut := uint64(math.MaxUint64)
	for i := range behind {
		behind[i].end = cut
		cut = min(cut, behind[i].start)
	}
	slices.Reverse(behind)
	var all []zone
	for _, z := range slices.Concat(told, behind) {
		if z.start = max(z.start, p.start); z.start < z.end {
			all = append(all, z)
		}
	}
	return all
}

// told is what the manifest says: zones, from where on it says nothing, and the least epoch that what lies there can have.
func (p *partition) told() (zones []zone, from, least uint64) {
	if p.known == nil {
		return nil, 0, 0
	}
	least = p.known.Epoch + 1
	from = p.known.Floor // of a closed partition its end
	for i := range p.known.Ranges {
		r := &p.known.Ranges[i]
		for j, e := range r.Epochs {
			end := r.End
			switch {
			case j+1 < len(r.Epochs):
				end = r.Epochs[j+1].Start
			case r.Status == state.RangeOpen:
				return zones, e.Start, e.Epoch
			}
			if n := len(zones); n > 0 && zones[n-1].epoch == e.Epoch && zones[n-1].end == e.Start {
				zones[n-1].end = end
			} else {
				zones = append(zones, zone{epoch: e.Epoch, start: e.Start, end: end, told: true})
			}
			from = max(from, end)
		}
	}
	return zones, from, least
}

// zoneAt returns the zone of an offset, or the next one.
func (p *partition) zoneAt(n uint64) (zone, bool) {
	i, _ := slices.BinarySearchFunc(p.zones, n, func(z zone, n uint64) int {
		if z.end <= n {
			return -1
		}
		return 1
	})
	if i == len(p.zones) {
		return zone{}, false
	}
	return p.zones[i], true
}

// judge says why a piece cannot be catalogued: each of its offsets must have the epoch that it has there. Zero: it can.
func (p *partition) judge(piece *Piece) (why Why) {
	if piece.Segment.End <= p.start {
		return Trimmed
	}
	piece.stretches(func(epoch, start, end uint64) {
		if start = max(start, p.start); start >= end || why == Replaced {
			return
		}
		z, ok := p.zoneAt(start)
		switch {
		case ok && z.start <= start && z.epoch == epoch && end <= z.end:
		case ok && z.start < end && z.epoch > epoch, ok && z.epoch == epoch && p.newer(z.end, end):
			why = Replaced
		default:
			why = Unknown
		}
	})
	return why
}

// newer says whether an offset of [start, end) lies in a zone.
func (p *partition) newer(start, end uint64) bool {
	z, ok := p.zoneAt(start)
	return ok && z.start < end
}

// choose takes pieces that do not overlap: from the start of the log, and behind each hole anew, those that go on from each
// other the furthest; of equal ways that with the fewest, and the latest made. What was in the catalog is such a way.
func choose(fit []*Piece, start uint64) (taken, spare []*Piece) {
	begins := func(p *Piece) uint64 { return max(p.Segment.Start, start) }
	slices.SortStableFunc(fit, func(a, b *Piece) int {
		s, t := &a.Segment, &b.Segment
		return cmp.Or(
			cmp.Compare(begins(a), begins(b)), cmp.Compare(s.End, t.End), cmp.Compare(t.Object.Kind, s.Object.Kind),
			cmp.Compare(s.Object.Incarnation, t.Object.Incarnation), s.Object.Compare(t.Object), cmp.Compare(a.Key, b.Key),
		)
	})
	in := make([]bool, len(fit))
	for i := 0; i < len(fit); {
		var end uint64
		for _, j := range furthest(fit[i:], begins) {
			in[i+j] = true
			end = max(end, fit[i+j].Segment.End)
		}
		for i < len(fit) && begins(fit[i]) < end {
			i++
		}
	}
	for i, piece := range fit {
		if in[i] {
			taken = append(taken, piece)
		} else {
			spare = append(spare, piece)
		}
	}
	return taken, spare
}

// furthest returns the indexes of the pieces, from where the first one begins on, that go on from each other the furthest.
func furthest(fit []*Piece, begins func(*Piece) uint64) (way []int) {
	// step is how an offset is reached: by a piece, the last of so many.
	type step struct{ piece, count int }
	at := begins(fit[0])
	reached, end := map[uint64]step{at: {-1, 0}}, at
	for i, p := range fit {
		from := begins(p)
		if from > end {
			break
		}
		before, ok := reached[from]
		if !ok {
			continue
		}
		now, there := reached[p.Segment.End]
		if !there || before.count+1 <= now.count {
			reached[p.Segment.End] = step{i, before.count + 1}
		}
		end = max(end, p.Segment.End)
	}
	for end > at {
		i := reached[end].piece
		way = append(way, i)
		end = begins(fit[i])
	}
	slices.Reverse(way)
	return way
}

// remains are the offsets that there are and those that are lost, zone by zone.
func (p *partition) remains(taken []*Piece) []state.RemainsPiece {
	covered := offsets.Set{}
	for _, piece := range taken {
		covered = covered.Extend(offsets.Range{Start: max(piece.Segment.Start, p.start), End: piece.Segment.End})
	}
	stored := p.storedByEpoch()
	var out []state.RemainsPiece
	for i, z := range p.zones {
		here := within(stored[z.epoch], z)
		found := within(covered, z).Union(here)
		end := p.endOf(i, found)
		at := z.start
		for _, r := range found {
			out = appendLost(out, z.epoch, at, r.Start)
			out = append(out, held(z.epoch, r, here)...)
			at = r.End
		}
		out = appendLost(out, z.epoch, at, end)
	}
	return out
}

// endOf is where the offsets of a zone end of which something was found, or is known to have been.
func (p *partition) endOf(i int, found offsets.Set) uint64 {
	z, end := p.zones[i], p.zones[i].start
	if n := len(found); n > 0 {
		end = found[n-1].End
	}
	open := p.open()
	object := open.level == state.LevelObject
	switch last := i+1 == len(p.zones); {
	case z.told:
		return z.end
	case last && z.epoch == open.epoch && !object:
		return max(end, p.known.Ceiling) // what was acknowledged behind the last object was on a disk
	case last, object, z.end == end+state.HistoryGap: // such a gap an earlier rebuild has left: nothing was ever there
		return end
	}
	return z.end
}

// open is the epoch that was open when the manifest was made, zero if none was.
func (p *partition) open() opened {
	if p.known == nil || len(p.known.Ranges) == 0 {
		return opened{}
	}
	r := &p.known.Ranges[len(p.known.Ranges)-1]
	if r.Status != state.RangeOpen {
		return opened{}
	}
	return opened{r.Epochs[len(r.Epochs)-1].Epoch, r.Lowest}
}

type opened struct {
	epoch uint64
	level state.Level // the lowest in force
}

// storedByEpoch is what the store itself holds.
func (p *partition) storedByEpoch() map[uint64]offsets.Set {
	runs := map[uint64][]offsets.Range{}
	for _, l := range p.local {
		if l.Start < l.End {
			runs[l.Epoch] = append(runs[l.Epoch], offsets.Range{Start: l.Start, End: l.End})
		}
	}
	out := map[uint64]offsets.Set{}
	for epoch, list := range runs {
		slices.SortFunc(list, func(a, b offsets.Range) int { return cmp.Compare(a.Start, b.Start) })
		out[epoch] = offsets.Joined(list)
	}
	return out
}

// within is the part of a set in a zone.
func within(set offsets.Set, z zone) (out offsets.Set) {
	for _, r := range set {
		if r.Start, r.End = max(r.Start, z.start), min(r.End, z.end); r.Start < r.End {
			out = append(out, r)
		}
	}
	return out
}

// held are pieces of a run that is there, cut where the store begins or ends to hold it.
func held(epoch uint64, r offsets.Range, here offsets.Set) (out []state.RemainsPiece) {
	at := r.Start
	for _, h := range here {
		if h.End <= r.Start || h.Start >= r.End {
			continue
		}
		if at < h.Start {
			out = append(out, state.RemainsPiece{Epoch: epoch, Start: at, End: h.Start})
		}
		out = append(out, state.RemainsPiece{Epoch: epoch, Start: h.Start, End: h.End, Stored: true})
		at = h.End
	}
	if at < r.End {
		out = append(out, state.RemainsPiece{Epoch: epoch, Start: at, End: r.End})
	}
	return out
}

func appendLost(out []state.RemainsPiece, epoch, start, end uint64) []state.RemainsPiece {
	if start >= end {
		return out
	}
	return append(out, state.RemainsPiece{Epoch: epoch, Start: start, End: end, Lost: true})
}
