package export

import (
	"context"
	"errors"
	"fmt"

	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/plan"
	"github.com/danubemq/danube/storage/excerpt"
	"github.com/danubemq/danube/storage/segment"
)

// attempt is one object on its way into the cold tier and its catalogs. While it
// runs it belongs to its goroutine but for what the exporter's lock guards.
type attempt struct {
	reason plan.Reason
	pieces []*piece
	body   cold.Body // the same whenever it is sent; no At: not cut yet
	object Object
	stored bool // the store has all of it, and has said so

	// Guarded by the exporter's lock.
	cancel  context.CancelFunc // of the present run
	began   time.Time          // the present run
	trouble trouble
}

// piece is what an attempt takes of a partition.
type piece struct {
	part   *part
	wanted plan.Piece
	facts  Facts // when it was planned
	entry  Entry
	over   bool  // in the catalog, or never to be
	err    error // why not; nil: it is, or nobody knows
}

// errPassed says that the catalog, the epoch or the broker has moved on without an attempt.
var errPassed = errors.New("the catalog was moved on by others")

// ordinary says that an attempt has ended for a reason that is no fault.
func ordinary(err error) bool {
	return errors.Is(err, errPassed) || errors.Is(err, ErrRemoved) || errors.Is(err, context.Canceled)
}

// attempt makes an attempt of a job. e.mu is held.
func (e *Exporter) attempt(job plan.Job) *attempt {
	a := &attempt{reason: job.Reason}
	for _, w := range job.Pieces {
		p := e.parts[w.ID]
		a.pieces = append(a.pieces, &piece{part: p, wanted: w, facts: p.facts})
		p.attempt = a
	}
	return a
}

// unwanted says that no partition of the attempt is exported here any more. The exporter's lock is held.
func (a *attempt) unwanted() bool {
	return !slices.ContainsFunc(a.pieces, func(x *piece) bool { return !x.part.removed })
}

// waited says that somebody waits for the attempt, which does not run. The exporter's lock is held.
func (a *attempt) waited() bool {
	return slices.ContainsFunc(a.pieces, func(x *piece) bool { return !x.over && (x.facts.Object || x.part.awaited()) })
}

// again is when a kept attempt goes on. The exporter's lock is held.
func (e *Exporter) again(a *attempt) time.Time {
	return a.trouble.last.Add(e.cfg.Plan.Pause(a.trouble.times, a.waited()))
}

// retry begins again with what was kept and has waited long enough, and returns
// when the next one has. It takes no more than half the slots, so that many that
// hang do not hold up what would come through, and leaves the last to those that
// somebody waits for. e.mu is held.
func (e *Exporter) retry(ctx context.Context, jobs *sync.WaitGroup, now time.Time) (next time.Time) {
	var due []*attempt
	for a := range e.kept {
		if e.paused && !a.waited() {
			continue
		}
		if again := e.again(a); now.Before(again) {
			if next.IsZero() || again.Before(next) {
				next = again
			}
			continue
		}
		due = append(due, a)
	}
	slices.SortFunc(due, func(x, y *attempt) int {
		if x.waited() != y.waited() {
			if x.waited() {
				return -1
			}
			return 1
		}
		return x.trouble.last.Compare(y.trouble.last)
	})
	for _, a := range due {
		free := e.cfg.Slots - len(e.running)
		if free == 0 || free == 1 && !a.waited() || e.retrying >= e.cfg.Slots/2 {
			break // the end of what runs wakes the loop
		}
		delete(e.kept, a)
		e.start(ctx, jobs, a)
	}
	return next
}

// start runs an attempt. e.mu is held.
func (e *Exporter) start(ctx context.Context, jobs *sync.WaitGroup, a *attempt) {
	ctx, a.cancel = context.WithCancel(ctx)
	a.began = e.cfg.Now()
	e.running[a] = struct{}{}
	if a.trouble.times > 0 {
		e.retrying++
	}
	jobs.Go(func() { // returns when the attempt has come to an end, or has failed
		defer a.cancel()
		err := e.advance(ctx, a)
		if ctx.Err() != nil {
			a.fail(ctx.Err()) // nobody wants it any more
			err = nil
		}
		e.ended(a, err)
	})
}

// advance takes the steps that an attempt has not taken yet. An error of it says
// that it can go on later; what came of each piece stands with the piece.
func (e *Exporter) advance(ctx context.Context, a *attempt) error {
	e.cfg.At("export.begin")
	if a.body.At == nil {
		if err := e.cut(ctx, a); err != nil {
			return err
		}
		e.cfg.At("export.cut")
	}
	e.passed(a)
	if a.over() {
		return nil
	}
	if !a.stored {
		if err := e.put(ctx, a); err != nil || a.over() {
			return err
		}
		e.cfg.At("export.stored")
	}
	err := e.commit(ctx, a)
	if err == nil {
		e.cfg.At("export.committed")
	}
	return err
}

// over says that nothing of the attempt is open.
func (a *attempt) over() bool {
	return !slices.ContainsFunc(a.pieces, func(x *piece) bool { return !x.over })
}

// fail ends every open piece.
func (a *attempt) fail(err error) {
	for _, x := range a.pieces {
		if !x.over {
			x.over, x.err = true, err
		}
	}
}

// cut takes a segment from each source and makes an object of them.
func (e *Exporter) cut(ctx context.Context, a *attempt) error {
	var segments []*excerpt.Segment
	for _, x := range a.pieces {
		s, err := x.part.source.Cut(ctx, x.wanted.From, x.wanted.To, x.wanted.Most)
		switch {
		case ctx.Err() != nil:
			a.fail(ctx.Err())
			return nil
		case err != nil:
			x.over, x.err = true, fmt.Errorf("cut a segment at offset %d: %w", x.wanted.From, err)
			continue
		}
		x.entry = Entry{ID: x.part.id, Epoch: x.facts.Epoch, Segment: Segment{
			Start: x.wanted.From, End: s.End, Epochs: epochsFrom(s.Epochs, x.wanted.From), Bytes: s.Size, CRC: s.Sum,
			FirstTime: s.FirstTime, LastTime: s.LastTime, Batches: s.Batches, Messages: s.Messages,
		}}
		segments = append(segments, s)
	}
	switch open := a.open(); {
	case len(open) == 1:
		e.own(a, open[0], segments[0])
	case len(open) > 0:
		e.bundle(a, open, segments)
	}
	return nil
}

// open are the pieces that are not over.
func (a *attempt) open() []*piece {
	return slices.DeleteFunc(slices.Clone(a.pieces), func(x *piece) bool { return x.over })
}

// epochsFrom are the epochs of a segment that begins at an offset, which may lie inside its first batch.
func epochsFrom(list []segment.EpochStart, start uint64) []segment.EpochStart {
	out := slices.Clone(list)
	if len(out) > 0 {
		out[0].Start = max(out[0].Start, start)
	}
	return out
}

// own makes the object of one segment.
func (e *Exporter) own(a *attempt, x *piece, s *excerpt.Segment) {
	seg := &x.entry.Segment
	a.object = Object{Own: keys.Segment{
		Topic: x.part.id.Topic, Partition: x.part.id.Partition, Start: seg.Start, End: seg.End,
		Epoch: x.entry.Epoch, Incarnation: e.cfg.Self.Incarnation, Unique: rand.Uint64(),
	}}
	seg.Object = a.object
	a.body = cold.Body{At: s, Size: s.Size, CRC: s.CRC}
}

// bundle makes one object of many segments.
func (e *Exporter) bundle(a *attempt, open []*piece, segments []*excerpt.Segment) {
	self := &e.cfg.Self
	name := keys.Cut{Store: self.Store, Incarnation: self.Incarnation, Number: e.cuts.Add(1), Unique: rand.Uint64()}
	a.object = Object{Cut: name, IsCut: true}
	index := bundle.Index{
		Cluster: self.Cluster(), Store: self.Store, Incarnation: self.Incarnation, Number: name.Number, Created: e.cfg.Now().UnixMilli(),
	}
	var whole excerpt.Parts
	crc := uint32(0)
	for i, x := range open {
		s, seg := segments[i], &x.entry.Segment
		seg.Object, seg.Position = a.object, whole.Size()
		index.Pieces = append(index.Pieces, bundle.Piece{
			Topic: x.part.id.Topic, Partition: x.part.id.Partition, CRC: s.Sum, Start: seg.Start, End: seg.End,
			Epoch: x.entry.Epoch, Position: seg.Position, Bytes: s.Size,
		})
		whole.Add(s, 0, s.Size)
		crc = segment.Join(crc, s.CRC, s.Size)
	}
	tail := index.Append(nil)
	whole.Add(excerpt.Bytes(tail), 0, int64(len(tail)))
	crc = segment.Join(crc, bundle.Checksum(tail), int64(len(tail)))
	a.body = cold.Body{At: &whole, Size: whole.Size(), CRC: crc}
}

// passed ends the pieces that no catalog takes any more: the partition is not
// exported here now, has another epoch, or its catalog ends elsewhere, which may be
// this very attempt's doing.
func (e *Exporter) passed(a *attempt) {
	for _, x := range a.pieces {
		if x.over {
			continue
		}
		e.mu.Lock()
		gone := x.part.removed
		e.mu.Unlock()
		if gone {
			x.over, x.err = true, ErrRemoved
			continue
		}
		f, err := x.part.source.Facts()
		switch {
		case err != nil:
			x.over, x.err = true, fmt.Errorf("look at the log: %w", err)
		case f.Epoch == x.entry.Epoch && f.Next == x.entry.Segment.Start:
		case f.Next >= x.entry.Segment.End:
			x.over = true
		default:
			x.over, x.err = true, errPassed
		}
	}
}

// put sends the object until the store says that it has it (R11).
func (e *Exporter) put(ctx context.Context, a *attempt) error {
	began := e.cfg.Now()
	_, err := e.cfg.Store.Put(ctx, a.object.Key(), a.body)
	e.m.step("put", e.cfg.Now().Sub(began))
	switch {
	case err == nil:
		a.stored = true
		return nil
	case errors.Is(err, cold.Exists), errors.Is(err, cold.Corrupt):
		// The key holds something else, or the bytes to be sent are bad: this object will never be.
		a.fail(err)
		return nil
	}
	return err // nobody knows (R5)
}

// commit proposes what is in the store.
func (e *Exporter) commit(ctx context.Context, a *attempt) error {
	open := a.open()
	entries := make([]Entry, len(open))
	for i, x := range open {
		entries[i] = x.entry
	}
	began := e.cfg.Now()
	errs := e.cfg.Commit(ctx, entries)
	e.m.step("commit", e.cfg.Now().Sub(began))
	var unknown error
	for i, x := range open {
		err := errNoAnswer
		if i < len(errs) {
			err = errs[i]
		}
		switch {
		case err == nil:
			x.over = true
			e.m.exported(a.reason, x.entry.Segment.Bytes)
		case errors.Is(err, ErrRefused):
			x.over, x.err = true, err
		default:
			unknown = err
		}
	}
	if unknown != nil {
		return fmt.Errorf("commit %s: %w", a.object.Key(), unknown)
	}
	return nil
}

var errNoAnswer = errors.New("the proposal was not answered")

// ended sorts in what came of an attempt.
func (e *Exporter) ended(a *attempt, err error) {
	e.mu.Lock()
	now := e.cfg.Now()
	delete(e.running, a)
	if a.trouble.times > 0 {
		e.retrying--
	}
	if err != nil {
		a.trouble.add(now, err)
		e.m.failed(err)
	}
	for _, x := range a.pieces {
		p := x.part
		if p.attempt != a {
			continue // it was let go of before
		}
		e.mark(p)
		switch {
		case !x.over && !p.removed:
			p.trouble.add(now, err)
			continue
		case x.err == nil:
			p.trouble = trouble{}
		case !ordinary(x.err):
			p.trouble.add(now, x.err)
			e.m.failed(x.err)
		}
		p.attempt = nil
	}
	if err != nil && !a.unwanted() {
		e.kept[a] = struct{}{}
	}
	times := a.trouble.times
	e.mu.Unlock()
	if err != nil {
		e.cfg.Log.Warn("not exported, trying again", "object", a.object.Key(), "attempt", times, "err", err)
	}
	for _, x := range a.pieces {
		if x.err != nil && !ordinary(x.err) {
			e.cfg.Log.Warn("not exported", "partition", fmt.Sprintf("%x:%d", x.part.id.Topic, x.part.id.Partition), "offset", x.wanted.From, "err", x.err)
		}
	}
	e.poke()
}
