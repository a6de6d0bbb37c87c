package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// loop is what a subscription's goroutine works with: a reader of the log and
// the stretch it read last. Nobody else touches it.
type loop struct {
	s        *Subscription
	ctx      context.Context // of the goroutine
	reader   *history.Reader
	stop     func() // ends the watch on the log
	timer    *time.Timer
	view     storage.View // whole batches
	rest     []byte       // of the view, from the next batch on
	at       uint64       // base of the next batch of rest
	parts    batch.Parts
	head     protocol.Deliver
	orders   []dispatch.Delivery
	poisoned []dispatch.Poisoned
}

// staleWait is the pause before what the log and the metadata disagree on is
// looked at again.
const staleWait = 2 * time.Millisecond

// errShuttingDown ends subscriptions with the broker.
var errShuttingDown = protocol.Errorf(protocol.CodeShuttingDown, "the broker is shutting down")

// readBytes is how much one read of the log asks for.
const readBytes = 512 << 10

func newLoop(ctx context.Context, s *Subscription) *loop {
	l := &loop{s: s, ctx: ctx, reader: s.part.Past.Reader(ctx, 0), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	l.stop = s.part.Log.Watch(s.wake)
	return l
}

func (l *loop) close() {
	l.stop()
	l.timer.Stop()
	l.drop()
	l.reader.Close()
}

// drop gives the stretch read last back.
func (l *loop) drop() {
	if l.rest != nil {
		l.view.Release()
		l.view, l.rest = storage.View{}, nil
	}
}

// deliver reads the batch that the step names and hands it out.
func (l *loop) deliver(step dispatch.Step) {
	b, err := l.read(step.From)
	if err != nil {
		l.readFailed(step, err)
		return
	}
	s := l.s
	s.mu.Lock()
	s.gapSince, s.gap, s.away = 0, dispatch.Range{}, nil
	l.orders = s.d.Offer(step, dispatch.Batch{Base: b.Base(), Count: uint32(b.Count())}, s.now(), l.orders[:0])
	if len(l.orders) > 0 {
		s.changedQuietly()
	}
	for _, d := range l.orders {
		if o := s.consumers[d.Consumer]; o != nil {
			if err = l.send(b, d, o); err != nil {
				break
			}
		}
	}
	s.mu.Unlock()
	if err != nil {
		// The batch passed its CRCs and lies: nobody can decode it.
		l.skip(b.Base(), b.End(), "damaged", err)
	}
}

// changedQuietly marks the cursor dirty without waking the goroutine. The caller holds mu.
func (s *Subscription) changedQuietly() {
	if !s.dirty {
		s.dirty = true
		s.c.cursors.add(s)
	}
}

// read returns the batch that holds the offset, from the stretch at hand if it is there.
func (l *loop) read(offset uint64) (batch.Batch, error) {
	if l.rest == nil || offset < l.at || offset >= l.view.End {
		l.drop()
		l.reader.Seek(offset)
		view, err := l.reader.Next(readBytes)
		if err != nil {
			return nil, err
		}
		l.view, l.rest, l.at = view, view.Data, view.Base
	}
	for len(l.rest) > 0 {
		b := batch.Batch(l.rest)
		b = b[:b.Len():b.Len()]
		if offset < b.End() {
			l.at = b.Base()
			return b, nil
		}
		l.rest = l.rest[len(b):]
		l.at = b.End()
	}
	return nil, fmt.Errorf("read %s: offset %d is not in the stretch [%d,%d) that was read for it", l.s.part.name(), offset, l.view.Base, l.view.End)
}

// readFailed decides what a failed read of an offset means to the subscription.
func (l *loop) readFailed(step dispatch.Step, err error) {
	var (
		gap     *storage.Gap
		trimmed *storage.Trimmed
		damaged *storage.Damage
		away    *history.AwayError
	)
	switch {
	case errors.Is(err, storage.ErrEnd):
		l.wait(step.Until)
	case errors.As(err, &trimmed):
		l.skip(step.From, trimmed.LogStart, "trimmed", nil)
	case errors.As(err, &gap):
		l.gap(step, gap.From, gap.To)
	case errors.As(err, &damaged):
		l.s.part.Past.SawDamage(*damaged)
		l.orphaned(step, damaged.From, damaged.To, "damaged", err)
	case errors.As(err, &away):
		l.absent(step, away)
	case errors.Is(err, history.ErrStale):
		l.wait(min(step.Until, l.s.now()+int64(staleWait)))
	case errors.Is(err, storage.ErrClosed):
		l.s.Close(errShuttingDown)
	default:
		l.s.c.cfg.Log.Error("log not readable", "partition", l.s.part.name(), "offset", step.From, "err", err)
		l.wait(l.s.now() + int64(time.Second))
	}
}

// absent waits for the broker that holds the messages, however long; describe
// says which.
func (l *loop) absent(step dispatch.Step, away *history.AwayError) {
	s := l.s
	s.mu.Lock()
	if s.away == nil {
		s.c.cfg.Log.Warn("subscription waits for a broker that is away", "subscription", s.Name, "partition", s.part.name(), "offset", step.From, "err", away)
	}
	s.away = away
	s.mu.Unlock()
	l.wait(min(step.Until, s.now()+int64(awayWait)))
}

// awayWait is the pause before a broker that is away is asked again.
const awayWait = 500 * time.Millisecond

// gap passes offsets that no batch holds, by what the metadata says of them.
func (l *loop) gap(step dispatch.Step, from, to uint64) {
	status, to, _, known := l.s.part.Past.GapAt(from, to)
	switch {
	case !known:
		l.wait(min(step.Until, l.s.now()+int64(staleWait)))
	case status == state.RangeOrphaned:
		l.orphaned(step, from, to, l.s.part.Past.OrphanStatus(from), nil)
	case status == state.RangeLost:
		l.skip(from, to, "lost", nil)
	default: // a plain gap: nothing was ever there
		l.s.mu.Lock()
		l.s.d.Gap(dispatch.Range{Start: from, End: to})
		l.s.changedQuietly()
		l.s.mu.Unlock()
	}
}

// skip passes messages that are gone for good: never silently.
func (l *loop) skip(from, to uint64, status string, err error) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d.Gap(dispatch.Range{Start: from, End: to})
	s.skipped += to - from
	s.changedQuietly()
	l.tell(from, to, status, err)
}

// orphaned waits at messages that may come back, then steps over them and
// leaves them unacknowledged (R15, R18).
func (l *loop) orphaned(step dispatch.Step, from, to uint64, status string, err error) {
	s := l.s
	s.mu.Lock()
	now := s.now()
	if s.gapSince == 0 {
		s.gapSince = now
		s.logGap("subscription waits at a gap", from, to, status, err)
	}
	s.gap, s.away = dispatch.Range{Start: from, End: to}, nil
	until := s.gapSince + int64(s.c.cfg.GapWait)
	// The metadata are asked behind the lock: whoever fills holes does so behind it too, once they say that the range is back.
	what, _, accepted, known := s.part.Past.GapAt(from, to)
	back := status == "orphaned" && (!known || what != state.RangeOrphaned)
	if !back && (now >= until || known && accepted) {
		s.gapSince, s.gap = 0, dispatch.Range{}
		s.skipped += to - from
		s.d.Hole(dispatch.Range{Start: from, End: to})
		s.changedQuietly()
		l.tell(from, to, status, err)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	if back {
		until = now + int64(staleWait)
	}
	l.wait(min(step.Until, until))
}

// logGap logs what a subscription does at a gap; err says why it is one, nil where the metadata do.
func (s *Subscription) logGap(what string, from, to uint64, status string, err error) {
	log := s.c.cfg.Log.With("subscription", s.Name, "partition", s.part.name(), "from", from, "to", to, "status", status)
	if err != nil {
		log = log.With("err", err)
	}
	log.Warn(what)
}

// tell sends the gap to every consumer. The caller holds mu.
func (l *loop) tell(from, to uint64, status string, err error) {
	s := l.s
	s.logGap("subscription passes a gap", from, to, status, err)
	for _, o := range s.consumers {
		o.out.Frame(protocol.TypeGap, 0, &protocol.GapNotice{Handle: o.Handle, From: from, To: to, Status: status})
	}
}
