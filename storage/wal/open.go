package wal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/intake"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
	"github.com/danubemq/danube/storage/volume"
)

// Opening is what the metadata says of a partition.
type Opening struct {
	ID      ID
	Topic   string // name, for the headers of new files
	Extents []Extent
	Start   uint64 // lowest offset kept
	Floor   uint64 // the log was acknowledged up to here at least
	// Cold is what the cold tier has, by the catalog: what of it is missing or
	// damaged here is no damage.
	Cold []Offsets
}

// Class says what an unclean stop left of a partition (R10).
type Class uint8

// The classes.
const (
	Clean   Class = iota // stopped cleanly, or nothing to find fault with
	Torn                 // an unfinished last write was cut off
	Damaged              // what was durable is wrong or missing
)

func (c Class) String() string { return [...]string{"clean", "torn", "damaged"}[c] }

// Found is what opening a partition found.
type Found struct {
	End     uint64 // offset behind the last message
	Proven  bool   // nothing above End was ever acknowledged (R6)
	Class   Class
	Damaged []Damage
}

// jointsChecked is how many of a partition's newest files are compared with
// their neighbours when it is opened: the time this takes must not grow with
// the log. Older joints are seen when they are read, and by verification.
const jointsChecked = 512

// Log opens a partition: it finds its files, judges what an unclean stop left
// (R10), cuts off a torn tail and syncs what remains. A partition is open once at
// a time: again after [Log.Close] or [Tier.Delete].
func (t *Tier) Log(ctx context.Context, o Opening) (*Log, Found, error) {
	if err := ctx.Err(); err != nil {
		return nil, Found{}, err
	}
	l := &Log{tier: t, id: o.ID, topic: o.Topic, extents: slices.Clone(o.Extents)}
	l.wake.L = &l.mu
	l.ends.start = o.Start
	l.files.cold = l.files.cold.With(o.Cold...)
	l.mu.Lock() // whoever finds it in the map waits until it is open
	defer l.mu.Unlock()
	t.mu.Lock()
	switch old := t.logs[o.ID]; {
	case t.closed:
		t.mu.Unlock()
		return nil, Found{}, ErrClosed
	case t.err != nil:
		t.mu.Unlock()
		return nil, Found{}, t.err
	case old != nil:
		t.mu.Unlock()
		return nil, Found{}, fmt.Errorf("open partition %s: %w", o.ID, ErrOpen)
	}
	t.logs[o.ID] = l
	t.mu.Unlock()
	found, err := l.open(o)
	if err != nil {
		t.mu.Lock()
		delete(t.logs, o.ID)
		t.mu.Unlock()
		return nil, Found{}, fmt.Errorf("open partition %s: %w", o.ID, err)
	}
	return l, found, nil
}

// open recovers the partition. l.mu is held, which nobody else knows of yet.
func (l *Log) open(o Opening) (Found, error) {
	if err := l.listFiles(); err != nil {
		return Found{}, err
	}
	r := opener{log: l, opening: o, found: Found{End: o.Start, Proven: l.tier.endProven(l.id)}}
	if n := len(o.Extents); n > 0 {
		r.found.End = max(r.found.End, o.Extents[n-1].Start)
	}
	for i, x := range o.Extents {
		if err := r.extent(x, i == len(o.Extents)-1); err != nil {
			return Found{}, err
		}
	}
	if r.found.End < o.Floor {
		r.damage(Damage{From: r.found.End, To: o.Floor, File: l.dir(), Err: errors.New("the log was acknowledged up to here and ends before")})
	}
	l.producers = r.producers
	l.ends.lastTime = r.time
	l.door.proven = r.found.Proven
	l.ends.next, l.ends.committed, l.ends.synced = r.found.End, r.found.End, r.found.End
	return r.found, nil
}

func (l *Log) dir() string { return l.tier.dir(l.id) }

// listFiles reads the directory of the partition. What is no segment file is
// named in the log and left alone.
func (l *Log) listFiles() error {
	entries, err := l.tier.config.FS.ReadDir(l.dir())
	if isNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	// After a kill the directories may be there in memory only.
	l.files.anchored.Store(l.tier.run.stopped)
	for _, e := range entries {
		base, epoch, ok := segment.ParseName(e.Name)
		if !ok || e.Dir {
			if !strings.HasSuffix(e.Name, ".idx") && !strings.HasSuffix(e.Name, intake.Suffix) {
				l.tier.config.Log.Warn("not a segment file, left alone", "file", path.Join(l.dir(), e.Name))
			}
			continue
		}
		f := l.file(path.Join(l.dir(), e.Name), base, epoch)
		f.anchored.Store(l.tier.run.stopped)
		l.files.list = append(l.files.list, f)
	}
	slices.SortFunc(l.files.list, func(a, b *file) int {
		return cmp.Or(cmp.Compare(a.Base, b.Base), cmp.Compare(a.Epoch, b.Epoch))
	})
	return nil
}

// opener is the opening of one partition.
type opener struct {
	log       *Log
	opening   Opening
	found     Found
	producers sessions.Table
	upto      uint64 // end of the extent that is being recovered
	covered   uint64 // end of what the cold tier has of it
	time      int64
	ends      map[*file]ending // what was read of how files end
}

// ending is what a closed file says of its end: by its footer, or by the hint beside it.
type ending struct {
	footer *segment.Footer
	sealed bool // it is the footer
	err    error
}

// ending reads how a file ends, once.
func (r *opener) ending(f *file) ending {
	if e, was := r.ends[f]; was {
		return e
	}
	var e ending
	if e.footer, e.err = f.Hint(); e.err == nil && e.footer == nil {
		e.sealed = true
		e.footer, e.err = f.Footer()
	}
	if r.ends == nil {
		r.ends = map[*file]ending{}
	}
	r.ends[f] = e
	return e
}

// damage notes what of a damage the cold tier does not have.
func (r *opener) damage(d Damage) {
	r.log.files.cold.Without(Offsets{From: d.From, To: d.To}, func(o Offsets) {
		d.From, d.To = o.From, o.To
		r.damaged(d)
	})
}

func (r *opener) damaged(d Damage) {
	r.found.Class = Damaged
	r.found.Damaged = append(r.found.Damaged, d)
	r.log.tier.config.Log.Error("damaged", "partition", r.log.id.String(), "from", d.From, "to", d.To, "file", d.File, "at", d.At, "err", d.Err)
}

// extent recovers the files of one epoch; last says that it is the newest.
func (r *opener) extent(x Extent, last bool) error {
	if x.End < r.opening.Start {
		return nil
	}
	r.upto, r.covered = x.End, r.log.files.cold.Within(x)
	var list []*file
	for _, f := range r.log.files.list {
		// What lies behind the end of an extent is another one's, or lost, or may
		// come back: nothing of it is known. But there lie also the producers that
		// were handed over with it, without messages.
		if f.Epoch == x.Epoch && (f.Base < x.End && x.End > r.opening.Start || f.Base == x.End && r.handedOver(f)) {
			list = append(list, f)
		}
	}
	list = r.withoutTables(list)
	at := max(x.Start, r.opening.Start)
	if len(list) > 0 && list[0].Base > at && !x.Away {
		r.damage(Damage{From: at, To: min(list[0].Base, x.End), File: r.log.dir(), Err: volume.ErrMissing})
	}
	for i, f := range list {
		if i < len(list)-1 {
			if len(list)-1-i > jointsChecked || list[i+1].Base <= max(r.opening.Start, x.Start) {
				continue
			}
			if err := r.inner(f, list[i+1].Base, x); err != nil {
				return err
			}
			continue
		}
		end, err := r.newest(f, x, last)
		if err != nil {
			return err
		}
		at = max(at, end)
	}
	at = max(at, r.covered)
	if x.End != math.MaxUint64 {
		if !x.Away {
			r.damage(Damage{From: at, To: x.End, File: r.log.dir(), Err: volume.ErrMissing})
		}
		at = x.End
	}
	r.found.End = max(r.found.End, at)
	return nil
}

// inner looks at a file that others of its epoch follow: it was closed, so its
// footer tells where it ends, unless that was never synced.
func (r *opener) inner(f *file, next uint64, x Extent) error {
	e := r.ending(f)
	if e.err != nil {
		if _, newer := errors.AsType[*segment.VersionError](e.err); newer {
			return e.err
		}
		if end, err := r.full(f, false); err != nil || end >= next || x.Away {
			return err
		} else {
			r.damage(Damage{From: end, To: next, File: f.Handle.Name, At: f.size, Err: volume.ErrMissing})
		}
		return nil
	}
	r.adopt(f, e)
	if e.footer.End < next && !x.Away {
		r.damage(Damage{From: e.footer.End, To: next, File: f.Handle.Name, At: e.footer.DataEnd, Err: volume.ErrMissing})
	}
	return nil
}

// newest looks at the last file of an epoch and returns where the epoch ends.
func (r *opener) newest(f *file, x Extent, last bool) (uint64, error) {
	if m, ok := r.log.tier.cleanEnd(r.log.id); ok && m.Base == f.Base && m.Epoch == f.Epoch {
		if footer, err := f.Footer(); err == nil && footer.End == m.End && footer.DataEnd == m.Size {
			r.adopt(f, ending{footer: footer, sealed: true})
			return footer.End, nil
		}
	}
	if footer, err := f.Hint(); err == nil && footer != nil && !last {
		r.adopt(f, ending{footer: footer})
		return footer.End, nil
	}
	return r.full(f, last && x.End == math.MaxUint64)
}

// handedOver says whether a file holds a producer table and no message.
func (r *opener) handedOver(f *file) bool {
	footer, err := f.Footer()
	return err == nil && footer.Batches == 0
}

// withoutTables takes the files out that hold a producer table and no message, and
// knows what they say: one may lie in the midst of an epoch, when the move that it
// was handed over for was taken back, and what was copied later lies around it.
func (r *opener) withoutTables(list []*file) []*file {
	if len(list) < 2 {
		return list // there is nothing that it could hide
	}
	oldest := list[max(0, len(list)-jointsChecked)].Base // what is older is read when somebody asks for it
	return slices.DeleteFunc(list, func(f *file) bool {
		if f.Base < oldest {
			return false
		}
		e := r.ending(f)
		if e.err != nil || e.footer.Batches > 0 {
			return false
		}
		r.adopt(f, e)
		return true
	})
}

// adopt takes what a file says of its end, and its producer table.
func (r *opener) adopt(f *file, e ending) {
	footer := e.footer
	f.known, f.size, f.end, f.sealed, f.table = true, footer.DataEnd, footer.End, e.sealed, footer.Batches == 0
	r.time = max(r.time, footer.LastTime)
	if table, err := footer.Producers(); err == nil {
		r.remember(table)
	}
	f.Adopt(footer)
}

// remember takes the producer table of a footer.
func (r *opener) remember(table *segment.Producers) {
	var t sessions.Table
	r.time = max(r.time, t.Load(table))
	r.above(t)
}

// above takes what a file tells of producers. The table of a file holds what its
// writer knew, which is not all that the files before it hold: what came back
// lies below epochs that were written without it, and what was copied beside
// others (R15). Of a sequence that was stored twice the later place counts.
func (r *opener) above(t sessions.Table) {
	t.Cut(r.upto)
	t.MergeTable(&r.producers)
	r.producers = t
}

// full scans a file. tail says that it is the last of the epoch that was open:
// there alone the log may end torn.
func (r *opener) full(f *file, tail bool) (uint64, error) {
	t := r.log.tier
	var found sessions.Table
	s, err := f.Scan(func(b batch.Batch) { found.Record(b) })
	if err != nil {
		if _, foreign := errors.AsType[*recovery.ForeignError](err); foreign {
			f.known, f.size, f.end = true, 0, f.Base
			r.log.tier.config.Log.Error("foreign segment file, not served", "file", f.Handle.Name, "err", err)
			r.found.Class = Damaged
			return f.Base, nil
		}
		return 0, err
	}
	for _, d := range s.Damaged {
		r.damage(d)
	}
	f.known, f.size, f.end, f.sealed = true, s.Size, s.End, s.Sealed
	f.table = s.Sealed && s.Footer != nil && s.Footer.Batches == 0
	f.Adopt(s.Footer)
	r.time = max(r.time, s.Time)
	if s.Sealed {
		r.remember(s.Table) // handed over with an epoch, it knows more than the batches here
		return s.End, nil
	}
	r.above(found)
	if s.Torn != nil && tail && max(s.End, r.covered) >= r.opening.Floor {
		if err := r.cut(f, s); err != nil {
			return 0, err
		}
	}
	// What is shown to readers is synced first. A mark saves that: it was written
	// when everything in front of it was durable, here or in the journal, which
	// has been written back since.
	if s.Synced < s.End || r.found.Class != Clean {
		if err := t.settle([]*file{f}); err != nil {
			return 0, err
		}
	}
	r.writeHint(f, s)
	return s.End, nil
}

// cut takes a torn tail off the disk, so that it cannot come back (R10).
func (r *opener) cut(f *file, s *recovery.Found) error {
	t := r.log.tier
	if err := f.Cut(s.Size); err != nil {
		return err
	}
	r.found.Class = max(r.found.Class, Torn)
	t.config.Log.Warn("cut a torn tail", "file", f.Handle.Name, "at", s.Size, "bytes", s.Total-s.Size, "next", s.End, "err", s.Torn)
	s.Torn, s.Total = nil, s.Size
	return nil
}

// worthHint is the size from which a scan costs more than a file beside it.
func (t *Tier) worthHint() int64 { return min(128<<10, t.config.SegmentBytes/8) }

// writeHint keeps the outcome of a scan, so that no later start repeats it.
func (r *opener) writeHint(f *file, s *recovery.Found) {
	if s.Torn != nil || len(s.Damaged) > 0 || !s.Header || s.Size != s.Total || s.Total < r.log.tier.worthHint() {
		return
	}
	f.WriteHint(s.Footer, r.producers.Stored(s.End))
}
