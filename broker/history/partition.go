package history

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// Served is a partition as whoever serves it has it.
type Served interface {
	// Over reports whether it is served no more.
	Over() bool
	// Hold shuts the door for producers until release is called. Its error says
	// why that cannot be now, as in a move.
	Hold() (release func(), err error)
	// Turned hears what became of offsets that were ORPHANED; it may be nothing.
	Turned(*Outcome)
}

// Partition is a partition that this broker serves under one epoch, with what is
// known of the offsets before that.
type Partition struct {
	h      *History
	served Served
	id     storage.PartitionID
	topic  string // full name
	epoch  uint64
	log    *storage.Log
	told   atomic.Pointer[catalog.Catalog] // what the log knows to be covered

	damaged damages
	urgent  atomic.Bool          // its history is to be copied here without delay
	hidden  atomic.Pointer[span] // offsets that only their own examination reads
	since   time.Time            // when it was first looked at; the goroutine's that brings
	known   []state.Range        // that subscriptions were told of; that goroutine's

	mu       sync.Mutex // guards what follows
	doubts   doubts
	orphaned map[uint64]time.Time // when a reader first came to each ORPHANED range
}

// span is the offsets [from, to).
type span struct{ from, to uint64 }

// Serving is what begins to be served: a partition as the metadata have it in
// the epoch that begins, its topic's full name and its log, in which recovery
// found damage.
type Serving struct {
	Meta    *state.Partition
	Topic   string
	Log     *storage.Log
	Damaged []storage.Damage
}

// Partition makes the past of a partition that begins to be served.
func (h *History) Partition(s Serving, by Served) *Partition {
	p := &Partition{
		h: h, served: by, id: idOf(s.Meta), topic: s.Topic, epoch: s.Meta.Epoch, log: s.Log,
		damaged: damages{list: s.Damaged}, known: s.Meta.Ranges,
	}
	p.Follow(s.Meta)
	return p
}

// Follow tells the log what the catalog covers, once that was applied here (R11),
// and reports whether it is news.
func (p *Partition) Follow(m *state.Partition) (news bool) {
	if p.told.Swap(m.Catalog) == m.Catalog {
		return false
	}
	p.log.Covered(covered(m))
	return true
}

// stream reads the log from an offset on, and the cold tier where the log has nothing.
func (p *Partition) stream(from uint64) *storage.Stream {
	return p.log.Stream(from, p.h.part(p.id))
}

// OffsetAt is the offset of the first message in either tier that was appended at or
// after ms (ms since 1970), the committed end when there is none.
func (p *Partition) OffsetAt(ctx context.Context, ms int64) (uint64, error) {
	n, err := p.log.OffsetOver(ctx, p.h.part(p.id), ms)
	return n, asAway(err, 0, p.log.Committed())
}

// name is the partition as output and errors write it.
func (p *Partition) name() string { return fmt.Sprintf("%s:%d", p.topic, p.id.Partition) }

// floor is what may be reported as acknowledged for good.
func (p *Partition) floor() uint64 { return min(p.log.Committed(), p.log.Synced()) }

// Metadata is the partition as this broker's metadata have it now, nil if they do not.
func (p *Partition) Metadata() *state.Partition {
	return p.h.cfg.Meta.View().Partition(p.id.Topic, p.id.Partition)
}

// CameTo returns when a reader first came to the ORPHANED range that begins at
// start, which may be now.
func (p *Partition) CameTo(start uint64, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.orphaned == nil {
		p.orphaned = map[uint64]time.Time{}
	}
	at, ok := p.orphaned[start]
	if !ok {
		p.orphaned[start] = now
		return now
	}
	return at
}

// GapAt says what became of an offset that the log has no batch for, and up to
// where: the metadata have the word, because the log learns of what came back a
// moment later. ok is false if messages lie there after all: read again.
func (p *Partition) GapAt(from, to uint64) (status state.RangeStatus, end uint64, accepted, ok bool) {
	m := p.Metadata()
	if m == nil || m.Epoch != p.epoch {
		return state.RangeSealed, to, false, false
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		switch {
		case r.Status != state.RangeOpen && r.End <= from:
			continue
		case r.Start > from: // a plain gap up to here
			return state.RangeSealed, min(to, r.Start), false, true
		case r.Status == state.RangeOrphaned, r.Status == state.RangeLost:
			return r.Status, min(to, r.End), r.Accepted, true
		}
		return r.Status, to, false, false
	}
	return state.RangeSealed, to, false, true
}

// MayReturn names the brokers that an ORPHANED offset may come back with; none if
// this store is to have it.
func (p *Partition) MayReturn(offset uint64) []string {
	m := p.Metadata()
	if m == nil {
		return nil
	}
	rg := m.Range(offset)
	if rg == nil || rg.Status != state.RangeOrphaned || slices.Contains(rg.Stores, p.h.cfg.Self().Store) {
		return nil
	}
	var names []string
	for _, id := range rg.Stores {
		names = append(names, p.h.cfg.Peers.Name(id))
	}
	return names
}

// notice tells the partition's subscriptions what became of ORPHANED offsets
// since the last time: holes that were filled are delivered late, those that are
// LOST or hold nothing are passed, and so is what was stored again (R15, R18).
func (p *Partition) notice(m *state.Partition) {
	old := p.known
	if len(old) == len(m.Ranges) && (len(old) == 0 || &old[0] == &m.Ranges[0]) {
		return
	}
	p.known = m.Ranges
	var o Outcome
	for i := range old {
		if old[i].Status == state.RangeOrphaned {
			o.add(&old[i], m)
		} else if old[i].Doubt > 0 {
			o.addAgain(&old[i], m)
		}
	}
	p.served.Turned(&o)
}

// Outcome is what became of offsets that were ORPHANED, or in doubt.
type Outcome struct {
	Back []state.OffsetRange // can be read
	None []state.OffsetRange // hold nothing, or what was stored again
	Lost []state.OffsetRange
}

// add sorts the offsets of a range that was ORPHANED.
func (o *Outcome) add(was *state.Range, m *state.Partition) {
	at := was.Start
	for i := range m.Ranges {
		r := &m.Ranges[i]
		end := r.End
		if r.Status == state.RangeOpen {
			end = max(was.End, r.Start)
		}
		from, to := max(r.Start, at), min(end, was.End)
		if from >= to {
			continue
		}
		if at < from {
			o.None = append(o.None, state.OffsetRange{Start: at, End: from})
		}
		switch r.Status {
		case state.RangeSealed, state.RangeOpen:
			o.Back = append(o.Back, state.OffsetRange{Start: from, End: to})
		case state.RangeLost:
			o.Lost = append(o.Lost, state.OffsetRange{Start: from, End: to})
		}
		at = to
	}
	if at < was.End {
		o.None = append(o.None, state.OffsetRange{Start: at, End: was.End})
	}
	o.addAgain(was, m)
}

// addAgain adds what was stored again of a range.
func (o *Outcome) addAgain(was *state.Range, m *state.Partition) {
	for _, x := range m.Superseded {
		if x.Start < was.End && was.Start < x.End {
			o.None = append(o.None, state.OffsetRange{Start: max(x.Start, was.Start), End: min(x.End, was.End)})
		}
	}
}
