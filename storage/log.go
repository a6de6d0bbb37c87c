package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/sessions"
	"github.com/danubemq/danube/storage/wal"
)

// The nouns of the log that are those of the write-ahead log.
type (
	// PartitionID names a partition.
	PartitionID = wal.ID
	// Pending is a batch on its way to the disk; its Wait says when it arrived.
	Pending = wal.Pending
	// View is a run of whole batches in memory, to be released once.
	View = wal.View
	// Scratch is memory for batches that are in no log, under the same budget.
	Scratch = wal.Scratch
	// Class says what an unclean stop left (R10).
	Class = wal.Class
	// Damage is a range of offsets that cannot be read, with file and position.
	Damage = wal.Damage
	// InCold says that messages are to be had from the cold tier; no reader steps over it.
	InCold = wal.InCold
	// Offsets is a run of offsets.
	Offsets = wal.Offsets
	// Backlog is what a log holds that the cold tier is to get.
	Backlog = wal.Backlog
	// Trimmed says that an offset lies below the start of the log.
	Trimmed = wal.Trimmed
	// Retention says what of a log may be given up; see [wal.Retention].
	Retention = wal.Retention
	// SequenceError says which sequence a session stores next.
	SequenceError = sessions.SequenceError
	// Sessions is a producer table (R17): what each session has stored.
	Sessions = sessions.Table
)

// The classes of R10.
const (
	Clean   = wal.Clean
	Torn    = wal.Torn
	Damaged = wal.Damaged
)

// Errors of appends and reads. All but ErrPoisoned mean from Append that the
// batch was not stored, and from Wait that nobody knows (R5).
var (
	ErrNotOpen  = wal.ErrNotOpen
	ErrCeiling  = wal.ErrCeiling
	ErrFull     = wal.ErrFull
	ErrOverlap  = sessions.ErrOverlap
	ErrPoisoned = wal.ErrPoisoned
	ErrClosed   = wal.ErrClosed
	ErrEnd      = wal.ErrEnd
	ErrOpen     = wal.ErrOpen // from [Store.Log]: the partition is open
)

// Status is what became of a range.
type Status uint8

// The statuses of R15.
const (
	RangeOpen Status = iota
	RangeSealed
	RangeOrphaned
	RangeLost
)

func (s Status) String() string { return [...]string{"OPEN", "SEALED", "ORPHANED", "LOST"}[s&3] }

// EpochStart says from which offset on an epoch holds within its range.
type EpochStart struct{ Epoch, Start uint64 }

// Range is a run of offsets and what became of it. An open one has no End. Away:
// other stores hold it, and what of it is missing in this one is no damage.
type Range struct {
	Start, End uint64
	Open       bool
	Status     Status
	Epochs     []EpochStart
	Away       bool
}

// Facts are what the metadata says of a partition.
type Facts struct {
	ID       PartitionID
	Topic    string // name, for the headers of new files
	Ranges   []Range
	LogStart uint64
	Floor    uint64 // highest acknowledged end the owner has reported
	// Cold is what the catalog covers: what of it is not here is no damage.
	Cold []Offsets
}

// Recovery is what opening a partition found (R10).
type Recovery struct {
	End     uint64 // offset behind the last message
	Proven  bool   // nothing above End was acknowledged (R6)
	Class   Class
	Damaged []Damage
}

// Gap says that no message is to be had at [From, To): offsets that were never
// given (RangeSealed), may come back (RangeOrphaned), or are lost (RangeLost). A
// reader steps over it with Seek(To).
type Gap struct {
	From, To uint64
	Status   Status
}

func (g *Gap) Error() string {
	return fmt.Sprintf("no messages at offsets %d to %d: %s", g.From, g.To, g.Status)
}

// Log is one partition over its tiers. Safe for concurrent use.
type Log struct {
	*wal.Log

	mu     sync.Mutex
	ranges []Range
}

// Log opens a partition: recovers it after an unclean stop, and judges what it
// found by range of offsets. A partition is open once at a time: again after Close.
func (s *Store) Log(ctx context.Context, f Facts) (*Log, Recovery, error) {
	l, found, err := s.tier.Log(ctx, wal.Opening{
		ID: f.ID, Topic: f.Topic, Extents: extentsOf(f.Ranges), Start: f.LogStart, Floor: f.Floor, Cold: f.Cold,
	})
	if err != nil {
		return nil, Recovery{}, err
	}
	return &Log{Log: l, ranges: f.Ranges}, Recovery(found), nil
}

// extentsOf flattens ranges into the epochs that give offsets their values
// (R19). ORPHANED and LOST ranges give none.
func extentsOf(ranges []Range) []wal.Extent {
	var list []wal.Extent
	for _, r := range ranges {
		if r.Status == RangeOrphaned || r.Status == RangeLost {
			continue
		}
		for i, e := range r.Epochs {
			x := wal.Extent{Epoch: e.Epoch, Start: e.Start, End: r.End, Away: r.Away}
			if r.Open {
				x.End = math.MaxUint64
			}
			if i+1 < len(r.Epochs) {
				x.End = r.Epochs[i+1].Start
			}
			if x.Start < x.End {
				list = append(list, x)
			}
		}
	}
	return list
}

// SetRanges tells of ranges that have changed since the log was opened: what came
// back is read, gaps are named by what became of them, and what another store
// holds is known. Who reads meanwhile may meet a gap that is none any more: what
// lies in a range is never one, so whoever passes gaps looks at the ranges again.
func (l *Log) SetRanges(ranges []Range) {
	l.Log.SetExtents(extentsOf(ranges))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranges = ranges
}

// Extend is SetRanges for a log that is not begun and whose last range has grown
// in another store, up to end; see [wal.Log.Extend].
func (l *Log) Extend(ranges []Range, end uint64) error {
	if err := l.Log.Extend(extentsOf(ranges), end); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ranges = ranges
	return nil
}

// gap names the front part of a gap: as far as one thing became of it.
func (l *Log) gap(g *wal.Gap) *Gap {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := &Gap{From: g.From, To: g.To, Status: RangeSealed}
	for _, r := range l.ranges {
		if r.Status != RangeOrphaned && r.Status != RangeLost {
			continue
		}
		switch {
		case r.Start > g.From:
			out.To = min(out.To, r.Start)
		case g.From < r.End:
			return &Gap{From: g.From, To: min(g.To, r.End), Status: r.Status}
		}
	}
	return out
}

// Reader yields the batches of a log in the order of offsets. Not safe for
// concurrent use.
type Reader struct {
	*wal.Reader
	log *Log
}

// Reader returns a reader whose first batch is the one that holds from.
func (l *Log) Reader(from uint64) *Reader { return &Reader{Reader: l.Log.Reader(from), log: l} }

// Next returns the next batches: as many as lie together and fit maxBytes, but
// at least one, and none at or above the committed end (R1). Errors: ErrEnd,
// ErrClosed, *Gap, *Trimmed, *InCold, *Elsewhere, *Damage; the reader has not moved then.
func (r *Reader) Next(maxBytes int) (View, error) {
	v, err := r.Reader.Next(maxBytes)
	if err == nil {
		return v, nil
	}
	if g, ok := errors.AsType[*wal.Gap](err); ok {
		return v, r.log.gap(g)
	}
	return v, err
}

// Append orders a copy of b, which the caller has checked, behind everything the
// log holds; see [wal.Log.Append].
func (l *Log) Append(b batch.Batch) (Pending, error) { return l.Log.Append(b) }
