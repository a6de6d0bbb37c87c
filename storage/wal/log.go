package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/extents"
	"github.com/danubemq/danube/storage/handles"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/sessions"
)

// maxPending is how many bytes of one log may be on their way to the disk
// before Append blocks.
const maxPending = 8 << 20

// ID names a partition.
type ID = hotdir.ID

// The answers of [Log.Append] and [Pending.Wait]. All but ErrPoisoned and
// ErrLost mean at the door that the batch was not stored; the error of a Wait
// always means that nobody knows (R5).
var (
	// ErrNotOpen says that no epoch has begun.
	ErrNotOpen = errors.New("partition is not open for writing")
	// ErrPaused says that the partition is about to move; it is retriable.
	ErrPaused = errors.New("partition is paused")
	// ErrCeiling says that the offsets up to the ceiling are used up (R3).
	ErrCeiling = errors.New("ceiling reached")
	// ErrFull says that the disk has no space; it is retriable. From Wait: the
	// batch was cut off again, and the client sends it again under the same sequence.
	ErrFull = errors.New("no space left for the log")
	// ErrPoisoned says that a sync or write failed; nothing is acknowledged any more (R20).
	ErrPoisoned = errors.New("log failed and takes no more writes")
	// ErrOpen says that a partition that is to be opened is open already.
	ErrOpen = errors.New("it is open")
	// ErrClosed says that the log was closed.
	ErrClosed = errors.New("log is closed")
)

// Log is the hot tier of one partition: it gives offsets, makes them durable
// and reads them back. Safe for concurrent use.
type Log struct {
	tier  *Tier
	id    ID
	topic string

	mu        sync.Mutex // guards all below, and the chunks of the tail
	wake      sync.Cond  // ends moved, or the door changed
	door      door
	ends      ends
	tail      memory.Tail
	producers sessions.Table
	files     files
	extents   extents.Extents
	queued    bool // the commit loop knows that something is pending
	ahead     int  // bytes of what no round has taken that lie in the current file already; the commit loop's
	used      bool // appended to since the last sweep
	unmarked  bool // no mark stands behind its last batch
	cuts      []uint64
	watchers  []chan<- struct{}
	idle      handles.Link // place among the logs with a tail; guarded by the tier's lock
	retired   retired
}

// door is who may append.
type door struct {
	open    bool
	paused  bool
	closed  bool
	proven  bool // nothing above the end was ever acknowledged (R6)
	epoch   uint64
	ceiling uint64
	err     error // final
}

// ends are the offsets that move, start <= synced, committed <= next.
type ends struct {
	start     uint64 // lowest offset kept
	next      uint64
	committed uint64 // what lies below is settled here
	synced    uint64
	lastTime  int64 // append time of the last batch, ms

	held  bool   // acknowledgements wait for the cold tier
	cover uint64 // then they are given below it, and nothing above is read
}

// shown is the acknowledged prefix: what readers see and producers are told of (R1).
func (e *ends) shown() uint64 {
	if e.held {
		return min(e.committed, e.cover)
	}
	return e.committed
}

// Hold has acknowledgements wait for the cold tier, or not: nothing at or above cover,
// which its catalog has as applied, is acknowledged or read. While an epoch is open
// what was shown once stays so.
func (l *Log) Hold(held bool, cover uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.ends
	if l.door.open {
		cover = max(cover, e.shown())
	}
	if e.held == held && (!held || e.cover == cover) {
		return
	}
	e.held, e.cover = held, cover
	l.notify()
}

// Pending is a batch on its way to the disk. It is a value and may be copied.
type Pending struct {
	log        *Log
	Base       uint64 // offset of the first message
	AppendTime int64  // ms since 1970
	Duplicate  bool   // it was stored before, at Base
	end        uint64
	cut        int // how often the log had been cut back when this was appended
}

// Begin opens the door for one epoch whose first offset is start, at or above
// everything the log holds. Offsets up to ceiling may be given.
func (l *Log) Begin(epoch, start, ceiling uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.door.err != nil:
		return l.door.err
	case l.door.closed:
		return ErrClosed
	case epoch <= l.door.epoch && l.door.epoch != 0, epoch == 0:
		return fmt.Errorf("begin epoch %d: the log is at epoch %d", epoch, l.door.epoch)
	case start < l.ends.next:
		return fmt.Errorf("begin epoch %d at %d: the log ends at %d", epoch, start, l.ends.next)
	case ceiling < start:
		return fmt.Errorf("begin epoch %d at %d: the ceiling is %d", epoch, start, ceiling)
	case l.ends.committed != l.ends.next:
		return fmt.Errorf("begin epoch %d: offsets %d to %d are still on their way", epoch, l.ends.committed, l.ends.next)
	}
	l.files.begin(epoch, start)
	l.extents = l.extents.Begin(epoch, l.ends.next, start)
	l.door.open, l.door.epoch, l.door.ceiling = true, epoch, ceiling
	l.door.paused, l.door.proven = false, true
	l.ends.next, l.ends.committed, l.ends.synced = start, start, start
	return nil
}

// SetCeiling raises the ceiling of the epoch; a lower one is ignored (R3).
func (l *Log) SetCeiling(c uint64) {
	l.mu.Lock()
	l.door.ceiling = max(l.door.ceiling, c)
	l.mu.Unlock()
}

// OpenSession opens a producer's session, or opens it again: the batch accepted
// next is the one with sequence lowest, or one that is stored already. It
// returns the last sequence stored, when there is one (R17).
func (l *Log) OpenSession(producer uint64, number uint32, lowest uint64) (last uint64, known bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.admits(); err != nil {
		return 0, false, err
	}
	now := max(l.tier.config.Now().UnixMilli(), l.ends.lastTime)
	last, known = l.producers.Open(sessions.Key{Producer: producer, Number: number}, lowest, now)
	return last, known, nil
}

// admits says why the door is closed. l.mu is held.
func (l *Log) admits() error {
	switch {
	case l.door.err != nil:
		return l.door.err
	case l.door.closed:
		return ErrClosed
	case !l.door.open:
		return ErrNotOpen
	case l.door.paused:
		return ErrPaused
	}
	return nil
}

// Append orders a copy of b, which the caller has checked, behind everything
// that the log holds, and returns at once; [Pending.Wait] says when it is
// durable. It blocks while too much is on its way to the disk. Errors mean that
// nothing was stored, ErrPoisoned that nobody knows.
func (l *Log) Append(b batch.Batch) (Pending, error) {
	if err := l.tier.admit(); err != nil {
		return Pending{}, err
	}
	l.mu.Lock()
	for l.tail.Pending() > maxPending && l.admits() == nil {
		l.wake.Wait()
	}
	p, err := l.append(b)
	notify := err == nil && !p.Duplicate && !l.queued
	if notify {
		l.queued = true
	}
	l.mu.Unlock()
	if notify {
		l.tier.enqueue(l)
	}
	return p, err
}

// append does what Append says with l.mu held.
func (l *Log) append(b batch.Batch) (Pending, error) {
	if err := l.admits(); err != nil {
		return Pending{}, err
	}
	known, err := l.producers.Check(b)
	if err != nil {
		return Pending{}, err
	}
	if known != nil {
		return Pending{
			log: l, Base: known.Base, AppendTime: known.AppendTime, Duplicate: true,
			end: known.Base + uint64(known.Count), cut: len(l.cuts),
		}, nil
	}
	count := uint64(b.Count())
	if l.ends.next+count > l.door.ceiling || l.ends.next+count < l.ends.next {
		return Pending{}, fmt.Errorf("%w: %d messages from offset %d on, ceiling %d", ErrCeiling, count, l.ends.next, l.door.ceiling)
	}
	now := max(l.tier.config.Now().UnixMilli(), l.ends.lastTime) // never backwards (R13)
	stamped := l.tail.Add(l.tier.memory, b, l.ends.next)
	stamped.Stamp(batch.Stamp{Base: l.ends.next, Epoch: l.door.epoch, AppendTime: now, Synced: l.ends.synced})
	l.producers.Record(stamped)
	p := Pending{log: l, Base: l.ends.next, AppendTime: now, end: l.ends.next + count, cut: len(l.cuts)}
	l.ends.next = p.end
	l.ends.lastTime = now
	l.used = true
	l.tier.pending.Add(int64(len(b)))
	return p, nil
}

// Wait returns nil once the batch and everything before it is durable, in the
// order of offsets (R1). An error means that nobody knows (R5).
func (p Pending) Wait() error {
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if done, err := p.outcome(); done {
			return err
		}
		l.wake.Wait()
	}
}

// Start is the lowest offset kept.
func (l *Log) Start() uint64 { return l.read(func(e *ends) uint64 { return e.start }) }

// Next is the offset the next message gets.
func (l *Log) Next() uint64 { return l.read(func(e *ends) uint64 { return e.next }) }

// Committed is the committed end (R1): what lies below may be read and was acknowledged.
func (l *Log) Committed() uint64 { return l.read((*ends).shown) }

// Settled is the end of what is durable here, whether it is acknowledged or waits for
// the cold tier.
func (l *Log) Settled() uint64 { return l.read(func(e *ends) uint64 { return e.committed }) }

// Synced is the end of what survives a power loss; it differs from Committed with Interval only.
func (l *Log) Synced() uint64 { return l.read(func(e *ends) uint64 { return e.synced }) }

// Ceiling is the ceiling of the epoch.
func (l *Log) Ceiling() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.door.ceiling
}

func (l *Log) read(get func(*ends) uint64) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return get(&l.ends)
}

// Watch sends on ch, without ever blocking, when the committed end has moved or
// the log was closed, until stop is called.
func (l *Log) Watch(ch chan<- struct{}) (stop func()) {
	l.mu.Lock()
	l.watchers = append(l.watchers, ch)
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.watchers, ch); i >= 0 {
			l.watchers = slices.Delete(l.watchers, i, i+1)
		}
	}
}

// notify wakes waiters and watchers. l.mu is held.
func (l *Log) notify() {
	l.wake.Broadcast()
	for _, ch := range l.watchers {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// fail closes the door for good: what is pending gets err (R20).
func (l *Log) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.door.err == nil {
		l.door.err = err
		l.notify()
	}
}

// cutBack takes back everything above the committed end, which could not be
// written: the door then gives those offsets again, and whoever waits for them
// gets ErrFull. The sequences are forgotten with them (R17).
func (l *Log) cutBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	cut := l.tail.Pending()
	l.tail.Cut(l.producers.Forget)
	l.tier.release(int64(cut))
	l.cuts = append(l.cuts, l.ends.committed)
	l.ends.next = l.ends.committed
	l.queued = false
	l.ahead = 0 // its bytes were cut off with the rest
	l.notify()
}
