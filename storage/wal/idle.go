package wal

import (
	"math"
	"time"

	"github.com/danubemq/danube/storage/memory"
)

// sweepEvery is how often the tier looks for logs that rest: a tail that was not
// appended to for that long is given back, and files that only the journal
// covers are synced.
const sweepEvery = 5 * time.Second

// touch makes a log the most recently appended one.
func (t *Tier) touch(l *Log) {
	t.mu.Lock()
	l.idle.Owner = l
	t.rest.logs.Push(&l.idle)
	t.mu.Unlock()
}

// makeRoom gives up committed chunks until the budget is kept: of the log that
// was appended to longest ago first, its oldest first. What is on its way to the
// disk stays, and what a reader holds is freed when it lets go.
func (t *Tier) makeRoom() {
	for t.memory.Over() {
		t.mu.Lock()
		link := t.rest.logs.Oldest()
		if link == nil {
			t.mu.Unlock()
			return
		}
		l := link.Owner.(*Log)
		last := t.rest.logs.After(link) == nil
		if !last {
			link.Unlink()
		}
		t.mu.Unlock()
		if last {
			l.mu.Lock()
			dropped := l.tail.Drop(false)
			l.mu.Unlock()
			if !dropped {
				return
			}
			continue
		}
		l.giveUp(t.memory.Over)
	}
}

// Scratch is memory for batches that are in no log.
type Scratch = memory.Scratch

// Scratch returns memory under the tier's budget that holds nothing until it is given something.
func (t *Tier) Scratch() Scratch { return t.memory.Scratch(t.makeRoom) }

// giveUp drops the chunks of the tail that are committed, as long as more says so.
func (l *Log) giveUp(more func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for more() && l.tail.Drop(true) {
	}
}

// armSweep makes a sweep due; one timer serves all partitions.
func (t *Tier) armSweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	every := sweepEvery
	if t.config.SyncInterval > 0 {
		every = min(every, t.config.SyncInterval)
	}
	if !t.rest.armed && !t.closed && t.err == nil {
		t.rest.armed = true
		t.rest.timer.Reset(every)
	}
}

// sweep runs on the timer. It arms itself again while there is anything to do.
func (t *Tier) sweep() {
	t.mu.Lock()
	t.rest.armed = false
	if t.closed || t.err != nil {
		t.mu.Unlock()
		return
	}
	if len(t.checkpoint.files) > 0 && (t.config.SyncInterval > 0 || t.checkpoint.swept) {
		t.startCheckpoint(math.MaxUint64)
	}
	t.checkpoint.swept = true
	var rest []*Log
	for link := t.rest.logs.Oldest(); link != nil; link = t.rest.logs.After(link) {
		rest = append(rest, link.Owner.(*Log))
	}
	t.mu.Unlock()
	busy := false
	for _, l := range rest {
		l.mu.Lock()
		used := l.used
		l.used = false
		for !used && l.tail.Drop(true) {
		}
		_, some := l.tail.Base()
		mark := !used && l.unmarked && !l.queued && !l.door.closed && t.config.SyncInterval == 0
		l.queued = l.queued || mark
		l.mu.Unlock()
		if mark {
			t.enqueue(l)
		}
		if !some {
			t.mu.Lock()
			l.idle.Unlink()
			t.mu.Unlock()
		} else {
			busy = true
		}
	}
	t.mu.Lock()
	busy = busy || len(t.checkpoint.files) > 0
	t.mu.Unlock()
	if busy {
		t.armSweep()
	}
}

// Stats are what health and metrics show of a tier.
type Stats struct {
	Memory       int64 // bytes of tails and read buffers
	Pending      int64 // bytes on their way to the disk
	OpenFiles    int
	JournalBytes int64 // size of the journal
	JournalUsed  int64 // of it, what covers files that are not synced
	Full         bool
	Partitions   int // opened
}

// Stats returns the counters of the tier.
func (t *Tier) Stats() Stats {
	size, used := t.journalBytes()
	t.mu.Lock()
	n := len(t.logs)
	t.mu.Unlock()
	return Stats{
		Memory: t.memory.Used(), Pending: t.pending.Load(), OpenFiles: t.cache.Count(),
		JournalBytes: size, JournalUsed: used, Full: t.space.Full(), Partitions: n,
	}
}
