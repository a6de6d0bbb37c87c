// Package upkeep decides what is to be done for the cold tier once segments are in it: which small neighbours are merged,
// when a catalog is folded into pages, which garbage may be deleted, and what an object is that a listing shows. It is
// pure: facts go in, work comes out. Package keeper does the work. R-numbers are the design's ownership rules.
//
// # What holds
//
//   - A merge stays within one range, takes neighbours as they stand, and makes one segment of at most Most bytes (R12).
//   - Write amplification is bounded: each merge makes a segment at least twice as large as the largest that goes into it,
//     Ratio times as large while the log still grows there, and what has half of Most is not merged any more. So a byte
//     that came in a segment of b bytes is written again at most log2(Most/b) times; in a log that is written to steadily,
//     log of base Ratio, and once more at the end. A piece of a cut is taken apart, whatever that yields, at most once.
//   - Nothing is proposed that the cluster's state refuses for what was known, and when nothing changes proposals end.
//   - Garbage is deleted after its grace, never while an audit is open (R22), and never because of a listing alone: a listed
//     object that nobody knows is condemned first, and only if the run is over that its name tells (R12).
package upkeep

import (
	"cmp"
	"sort"
	"time"

	"github.com/danubemq/danube/meta/catalog"
)

// Limits say when work is worth its cost. Zero values mean the default.
type Limits struct {
	Most     int64         // bytes of the longest merged segment. Default 256 MiB
	Ratio    int64         // how much larger a merged segment is than what it is made of, while the log grows there. Default 8
	Enough   int64         // bytes for which a merge is worth its requests before Patience is over. Default 16 MiB
	Patience time.Duration // how long small segments wait for Enough of them. Default 5 min
	Settled  time.Duration // age from which on neighbours are merged for half the gain, and cuts are taken apart. Default 1 h
	Inputs   int           // segments that go into one merge. Default 1,000
	Hot      int           // segments of a catalog above which the oldest half goes into a page. Default 1,000
	Grace    time.Duration // how long garbage stays for readers of an older catalog. Default 1 h

	// Merges that read cuts are done side by side, so that a cut is read once for many partitions.
	Group      int   // merges in such a job. Default 128
	GroupBytes int64 // bytes that such a job writes. Default 1 GiB
}

// WithDefaults returns the limits with zero fields filled.
func (l Limits) WithDefaults() Limits {
	l.Most = cmp.Or(l.Most, 256<<20)
	l.Ratio = cmp.Or(l.Ratio, 8)
	l.Enough = cmp.Or(l.Enough, 16<<20)
	l.Patience = cmp.Or(l.Patience, 5*time.Minute)
	l.Settled = cmp.Or(l.Settled, time.Hour)
	l.Inputs = cmp.Or(l.Inputs, 1000)
	l.Hot = cmp.Or(l.Hot, 1000)
	l.Grace = cmp.Or(l.Grace, time.Hour)
	l.Group = cmp.Or(l.Group, 128)
	l.GroupBytes = cmp.Or(l.GroupBytes, 1<<30)
	return l
}

// Partition is what the cluster's state says of a partition, of one version of it.
type Partition struct {
	Topic    [16]byte
	Number   uint32
	Epoch    uint64 // now
	Mine     bool   // this broker is the owner in that epoch, and has opened it, and the topic is not deleted
	LogStart uint64
	Catalog  *catalog.Catalog
	Ranges   []Range // all of them, whatever their status, ascending
}

// Range is a run of offsets with one fate. End is exclusive; of the open range it is the ceiling.
type Range struct {
	Start, End uint64
	Epochs     []Epoch // ascending; the first begins where the range does
}

// Epoch says from which offset on an epoch holds.
type Epoch struct{ Epoch, Start uint64 }

// Range returns the range that holds an offset, nil if none does.
func (p *Partition) Range(offset uint64) *Range {
	i := sort.Search(len(p.Ranges), func(i int) bool { return p.Ranges[i].End > offset })
	if i == len(p.Ranges) || p.Ranges[i].Start > offset {
		return nil
	}
	return &p.Ranges[i]
}

// EpochOf returns the epoch whose batch is the value of an offset (R19), zero if no range holds it.
func (p *Partition) EpochOf(offset uint64) uint64 {
	r := p.Range(offset)
	if r == nil {
		return 0
	}
	i := sort.Search(len(r.Epochs), func(i int) bool { return r.Epochs[i].Start > offset })
	return r.Epochs[max(0, i-1)].Epoch
}

// within returns the range that holds all of a segment from the log's start on, nil if none does.
func (p *Partition) within(s catalog.Segment) *Range {
	if r := p.Range(max(s.Start, p.LogStart)); r != nil && s.End <= r.End {
		return r
	}
	return nil
}
