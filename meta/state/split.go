package state

import (
	"errors"

	"github.com/danubemq/danube/meta/catalog"
)

// Part is a piece of a batched command.
type Part struct {
	Command Command
	First   int // index, in the whole, of the piece's first entry; a cut cursor delta begins the next piece too
}

// Split cuts a batched command into pieces that Encode accepts; any other command is its own only piece. An entry that
// is too large by itself is cut too if it is a cursor delta, which only adds; other entries are never that large.
func Split(c Command) []Part {
	switch c := c.(type) {
	case *OpenPartitions:
		return split(c.Entries, 0, func(e []PartitionOpen) Command { return &OpenPartitions{Owner: c.Owner, Entries: e} })
	case *UpdatePartitions:
		return split(c.Entries, 0, func(e []PartitionUpdate) Command { return &UpdatePartitions{Entries: e} })
	case *MarkRanges:
		return split(c.Entries, 0, func(e []RangeMark) Command { return &MarkRanges{Entries: e} })
	case *GrantPartitions:
		return split(c.Entries, 0, func(e []PartitionGrant) Command { return &GrantPartitions{Entries: e} })
	case *MovePartitions:
		return split(c.Entries, 0, func(e []PartitionMove) Command { return &MovePartitions{Entries: e} })
	case *AbortMoves:
		return split(c.Entries, 0, func(e []MoveAbort) Command { return &AbortMoves{Entries: e} })
	case *HandOver:
		return split(c.Entries, 0, func(e []PartitionHandOver) Command { return &HandOver{Owner: c.Owner, Entries: e} })
	case *CopyRanges:
		return split(c.Entries, 0, func(e []RangeCopy) Command { return &CopyRanges{Entries: e} })
	case *CommitSegments:
		return split(c.Entries, 0, func(e []SegmentCommit) Command { return &CommitSegments{Owner: c.Owner, Entries: e} })
	case *GrantExports:
		return split(c.Entries, 0, func(e []ExportGrant) Command { return &GrantExports{Entries: e} })
	case *SwapSegments:
		return split(c.Entries, 0, func(e []SegmentSwap) Command { return &SwapSegments{Owner: c.Owner, At: c.At, Entries: e} })
	case *CondemnTopic:
		return split(c.Partitions, 0, func(e []uint32) Command { return &CondemnTopic{ID: c.ID, At: c.At, Partitions: e} })
	case *CondemnObjects:
		return split(c.Names, 0, func(e []catalog.Name) Command {
			return &CondemnObjects{Owner: c.Owner, At: c.At, Names: e, Pages: c.Pages}
		})
	case *ForgetObjects:
		return split(c.Names, 0, func(e []catalog.Name) Command { return &ForgetObjects{Names: e} })
	case *MoveCursors:
		return splitCursors(c.Entries, 0)
	}
	return []Part{{Command: c}}
}

func split[E any](entries []E, first int, wrap func([]E) Command) []Part {
	whole := wrap(entries)
	if len(entries) < 2 || fits(whole) {
		return []Part{{whole, first}}
	}
	half := len(entries) / 2
	return append(split(entries[:half], first, wrap), split(entries[half:], first+half, wrap)...)
}

func splitCursors(entries []CursorDelta, first int) []Part {
	whole := &MoveCursors{Entries: entries}
	if fits(whole) {
		return []Part{{whole, first}}
	}
	if half := len(entries) / 2; half > 0 {
		return append(splitCursors(entries[:half], first), splitCursors(entries[half:], first+half)...)
	}
	low, high := entries[0].cut()
	return append(splitCursors([]CursorDelta{low}, first), splitCursors([]CursorDelta{high}, first)...)
}

// cut returns two deltas that together say what d says. The prefix goes with the first.
func (d CursorDelta) cut() (low, high CursorDelta) {
	low, high = d, d
	high.Prefix = 0
	a, c, u := len(d.Acked)/2, len(d.Counts)/2, len(d.Due)/2
	low.Acked, high.Acked = d.Acked[:a], d.Acked[a:]
	low.Counts, high.Counts = d.Counts[:c], d.Counts[c:]
	low.Due, high.Due = d.Due[:u], d.Due[u:]
	return low, high
}

func fits(c Command) bool {
	_, err := Encode(c)
	return !errors.Is(err, ErrTooLarge)
}
