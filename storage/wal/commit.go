package wal

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/journal"
)

const (
	// maxRound is how many bytes of one log, and of all logs together, one round takes.
	maxRound = 8 << 20
	// directBytes is the size from which a log's part of a round is made durable
	// by syncing its segment file alone: written once instead of twice, and from
	// here on no slower than the journal (DESIGN.md has the table).
	directBytes = 256 << 10
	// journalRetry is how long no space for a journal is taken for granted.
	journalRetry = 10 * time.Second
	// marksAtOnce is how many logs of a round get their mark right behind it. Of
	// larger rounds most logs go on at once; those that rest get it from the sweep.
	marksAtOnce = 16
	// headerRoom is what the header of a new file may take in a frame of the journal.
	headerRoom = 1 << 10
	// syncsAtOnce is how many files are synced side by side.
	syncsAtOnce = 16
)

// part is what one log has in a round.
type part struct {
	log      *Log
	file     *file
	handle   disk.File
	pos      int64 // in the file
	from, to int   // its buffers in round.bufs
	head     int   // bytes of file header in front
	size     int   // bytes, the header included
	end      uint64
	direct   bool // durable by the sync of its own file
	err      error
}

// round is one turn of the commit loop: take what is pending, write it, make it
// durable, wake who waits. Its buffers are kept from turn to turn.
type round struct {
	tier    *Tier
	journal *journal.Journal
	logs    []*Log
	rest    []*Log // of them, those with nothing to write but their mark
	parts   []part
	bufs    [][]byte
	frame   journal.Frame
	covered func(use uint64) // noteCovered, made once
	vec     [][]byte
	markBuf []byte
	retry   time.Time // when to try again to make a journal for which there was no space
	direct  int       // size from which a part goes to its file alone

	writingBack atomic.Bool // a write-back runs; begun by the loop alone
}

// commitLoop runs rounds; it returns when nothing is pending or the tier failed.
// While one round syncs, the next gathers in the tails.
func (t *Tier) commitLoop() {
	defer t.work.Done()
	r := &t.round
	for {
		t.mu.Lock()
		t.commits.turns++
		if t.commits.leaving > 0 {
			t.wake.Broadcast()
		}
		if len(t.commits.queue) == 0 || t.err != nil {
			t.commits.running = false
			t.mu.Unlock()
			return
		}
		n := min(len(t.commits.queue), max(t.config.Files/2, 1))
		r.logs = append(r.logs[:0], t.commits.queue[:n]...)
		t.commits.queue = slices.Delete(t.commits.queue, 0, n)
		t.mu.Unlock()
		if err := r.turn(); err != nil {
			t.poison(err)
		}
	}
}

// turn runs one round over r.logs. An error poisons the tier: what was in the
// round is then neither stored nor not stored.
func (r *round) turn() error {
	t := r.tier
	began := time.Now()
	r.parts, r.bufs, r.rest = r.parts[:0], r.bufs[:0], r.rest[:0]
	t.config.At("commit.gather")
	total := r.gather()
	if err := r.openFiles(); err != nil {
		return err
	}
	if err := r.write(); err != nil {
		return err
	}
	t.config.At("commit.written")
	if t.config.SyncInterval == 0 {
		if err := r.sync(); err != nil {
			return err
		}
	} else {
		r.later()
	}
	t.config.At("commit.synced")
	r.complete()
	t.metrics.round(len(r.parts), total, time.Since(began))
	return r.after()
}

// gather takes the pending bytes of the round's logs: of all together maxRound,
// and of small parts what one frame of the journal holds. Logs that have more,
// or did not get a turn, go back into the queue.
func (r *round) gather() (total int) {
	most := r.tier.largestFrame()
	r.direct = int(min(directBytes, most/2))
	left := int(most) - journal.FrameHead
	for _, l := range r.logs {
		if total >= maxRound || left < r.direct+journal.EntrySize+headerRoom && total > 0 {
			r.tier.requeue(l)
			continue
		}
		p := part{log: l, from: len(r.bufs)}
		l.mu.Lock()
		r.bufs, p.size, p.end = l.tail.Gather(r.bufs, maxRound-total)
		l.queued = l.tail.More()
		again := l.queued
		fresh := 0
		if l.files.current == nil {
			fresh = headerRoom
		}
		l.mu.Unlock()
		if again {
			r.tier.requeue(l)
		}
		if p.size == 0 {
			r.rest = append(r.rest, l)
		}
		if p.to = len(r.bufs); p.size > 0 {
			total += p.size
			if p.size < r.direct {
				left -= p.size + journal.EntrySize + fresh
			}
			r.parts = append(r.parts, p)
		}
	}
	return total
}

// largestFrame is how many bytes one frame of the journal may have, also of the
// journal that is not made yet.
func (t *Tier) largestFrame() int64 {
	if j := t.round.journal; j != nil {
		return j.Largest()
	}
	return journal.Largest(t.config.JournalBytes)
}

func (t *Tier) requeue(l *Log) {
	t.mu.Lock()
	t.commits.queue = append(t.commits.queue, l)
	t.mu.Unlock()
}

// openFiles gives every part its file, closing and making segment files as needed.
func (r *round) openFiles() error {
	for i := range r.parts {
		p := &r.parts[i]
		if err := r.tier.prepare(p); err != nil {
			if !isNoSpace(err) {
				return err
			}
			p.err = err
		}
	}
	return nil
}

// write puts every part into its segment file. What finds no space is cut off
// again and answered; nothing of it was synced or went elsewhere.
func (r *round) write() error {
	keep := r.parts[:0]
	for i := range r.parts {
		p := &r.parts[i]
		if p.err == nil {
			r.vec = r.vec[:0]
			if p.head > 0 {
				r.vec = append(r.vec, p.file.header)
			}
			r.vec = append(r.vec, r.bufs[p.from:p.to]...)
			if ahead := p.takeAhead(); ahead < p.size {
				p.err = p.handle.WriteVec(behind(r.vec, ahead), p.pos+int64(ahead))
			}
			clear(r.vec)
		}
		if p.err == nil {
			keep = append(keep, *p)
			continue
		}
		if !isNoSpace(p.err) {
			return fmt.Errorf("write %s: %w", p.file.Handle.Name, p.err)
		}
		if err := r.undo(p); err != nil {
			return err
		}
	}
	clear(r.parts[len(keep):])
	r.parts = keep
	return nil
}

// behind is bufs without its first n bytes. It changes bufs.
func behind(bufs [][]byte, n int) [][]byte {
	for n > 0 {
		if n < len(bufs[0]) {
			bufs[0] = bufs[0][n:]
			break
		}
		n -= len(bufs[0])
		bufs = bufs[1:]
	}
	return bufs
}

// undo cuts a part that found no space off its file and out of its log.
func (r *round) undo(p *part) error {
	if p.handle != nil {
		if err := p.handle.Truncate(p.pos); err != nil {
			return fmt.Errorf("cut %s at %d: %w", p.file.Handle.Name, p.pos, err)
		}
		r.tier.cache.Release(&p.file.Handle, true)
	}
	r.tier.space.RanOut(p.err)
	r.tier.metrics.full.Inc()
	p.log.cutBack()
	return nil
}

// later notes the files of a round that is acknowledged before it is synced.
func (r *round) later() {
	t := r.tier
	t.mu.Lock()
	for i := range r.parts {
		t.checkpoint.add(r.parts[i].file, 1)
	}
	t.mu.Unlock()
}

// complete moves the ends of the round's logs and wakes who waits.
func (r *round) complete() {
	t := r.tier
	for i := range r.parts {
		p := &r.parts[i]
		t.cache.Release(&p.file.Handle, !p.direct || p.log.ahead > 0)
		p.file.Add(r.bufs[p.from:p.to])
		l := p.log
		l.mu.Lock()
		before := l.tail.Pending()
		l.tail.Commit()
		done := before - l.tail.Pending()
		p.file.size, p.file.end = p.pos+int64(p.size), p.end
		p.file.header = nil
		l.ends.committed = p.end
		if t.config.SyncInterval == 0 {
			l.ends.synced = p.end
		}
		l.unmarked = true
		l.notify()
		l.mu.Unlock()
		t.release(int64(done))
	}
}

// after does what the waiters need not wait for: marks, write-back, the
// budget of the tails, and the work beside the loop that is due.
func (r *round) after() error {
	t := r.tier
	few := len(r.parts) <= marksAtOnce
	for i := range r.parts {
		p := &r.parts[i]
		if few {
			if err := r.mark(p.log); err != nil {
				return err
			}
		}
		if err := r.writeBack(p); err != nil {
			return err
		}
		t.touch(p.log)
		*p = part{}
	}
	for _, l := range r.rest {
		if err := r.mark(l); err != nil {
			return err
		}
	}
	clear(r.rest)
	clear(r.bufs)
	for _, l := range r.logs {
		if err := t.leaveBehind(l); err != nil {
			return err
		}
	}
	t.makeRoom()
	if r.journal == nil {
		t.armSweep()
		return nil
	}
	t.mu.Lock()
	t.checkpointDue()
	t.mu.Unlock()
	if r.journal.ShouldGrow() {
		j := r.journal
		t.work.Go(func() { // returns when the journal has grown, or cannot
			if err := j.Grow(); err != nil {
				t.poison(fmt.Errorf("grow journal: %w", err))
			}
		})
	}
	t.armSweep()
	return nil
}

// mark writes "synced up to n" behind the last batch of a log that has nothing
// more to write (R10), so that a last batch gone bad is not taken for a torn
// one. The mark is not synced, and the next batch of the file takes its place.
func (r *round) mark(l *Log) error {
	l.mu.Lock()
	f, wanted := l.files.current, l.unmarked && !l.tail.More() && r.tier.config.SyncInterval == 0
	end, last := l.ends.committed, l.ends.lastTime
	if wanted = wanted && f != nil && f.size > 0; wanted {
		l.unmarked = false
	}
	l.mu.Unlock()
	if !wanted {
		return nil
	}
	h, err := r.tier.cache.Acquire(&f.Handle, disk.Write)
	if isNotExist(err) && f.Gone.Load() {
		return nil // the partition was deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	r.markBuf = batch.AppendMark(r.markBuf[:0], f.Epoch, end, last)
	_, err = h.WriteAt(r.markBuf, f.size)
	r.tier.cache.Release(&f.Handle, true)
	if isNoSpace(err) {
		return nil // a mark that is missing costs nothing but the proof
	}
	return err
}
