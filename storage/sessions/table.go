// Package sessions is the producer table of a partition: which batches of each
// producer session its log has stored, so that one sent again gets its offset
// and none out of order is stored (R17).
//
// It is pure: no goroutine, clock, lock or I/O. A [Table] belongs to one log and is
// guarded by that log's lock.
package sessions

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

const (
	// window is how many batches of a session are remembered: what a client may
	// have in flight and have to send again.
	window = 64
	// maxSessions is how many sessions a partition remembers, the most recently stored first.
	maxSessions = 10_000
	// sessionAge is how long after its last batch a session is forgotten, in ms
	// of append time, so that every owner of the log forgets the same (R17).
	sessionAge = int64(7 * 24 * time.Hour / time.Millisecond)
)

// ErrOverlap says that a batch is neither new nor one that was stored: its
// sequences overlap what was stored, or its bytes differ. It was not stored.
var ErrOverlap = errors.New("batch overlaps what the session has stored")

// SequenceError says that a batch is not the next of its session. It was not
// stored; the client opens the session again and re-sends from Expected.
type SequenceError struct {
	Expected uint64 // what the session stores next
	Known    bool   // false: the session was not opened, or was forgotten
}

func (e *SequenceError) Error() string {
	if !e.Known {
		return "producer session is not open"
	}
	return fmt.Sprintf("sequence out of order: expected %d", e.Expected)
}

// Key names one producer object of a client.
type Key struct {
	Producer uint64
	Number   uint32
}

// history is what a partition remembers of one session.
type history struct {
	key          Key
	next         uint64         // the sequence that is stored next
	batches      []segment.Sent // ascending, at most window
	lastTime     int64          // append time of the last batch
	older, newer *history       // by when a batch was last stored
}

// Table is the table of R17. The zero value is empty. Not safe for concurrent use.
type Table struct {
	sessions       map[Key]*history
	oldest, newest *history
}

// Open makes or finds a session; the next batch accepted is lowest, or one that
// was stored. now is append time. It returns the last stored sequence, when there is one.
func (p *Table) Open(key Key, lowest uint64, now int64) (last uint64, known bool) {
	h := p.sessions[key]
	if h == nil {
		h = p.add(key)
		h.lastTime = now
	}
	if len(h.batches) == 0 || lowest > h.next {
		h.next = lowest
	}
	if n := len(h.batches); n > 0 {
		b := h.batches[n-1]
		return b.Sequence + uint64(b.Count) - 1, true
	}
	return 0, false
}

func (p *Table) add(key Key) *history {
	if p.sessions == nil {
		p.sessions = make(map[Key]*history)
	}
	h := &history{key: key}
	p.sessions[key] = h
	p.touch(h)
	if len(p.sessions) > maxSessions {
		p.drop(p.oldest)
	}
	return h
}

// Check decides what a batch is: the next of its session (nil, nil), one that
// was stored (the memory of it), or an error.
func (p *Table) Check(b batch.Batch) (*segment.Sent, error) {
	h := p.sessions[Key{b.Producer(), b.Session()}]
	if h == nil {
		return nil, &SequenceError{}
	}
	seq, count := b.Sequence(), uint64(b.Count())
	switch {
	case seq == h.next:
		return nil, nil
	case seq > h.next:
		return nil, &SequenceError{Expected: h.next, Known: true}
	}
	i, found := slices.BinarySearchFunc(h.batches, seq, func(s segment.Sent, seq uint64) int {
		switch {
		case s.Sequence < seq:
			return -1
		case s.Sequence > seq:
			return 1
		}
		return 0
	})
	if !found || uint64(h.batches[i].Count) != count || h.batches[i].CRC != b.BodyCRC() {
		return nil, fmt.Errorf("%w: sequences %d to %d, next is %d", ErrOverlap, seq, seq+count-1, h.next)
	}
	return &h.batches[i], nil
}

// Record remembers a batch that was appended, or that recovery found.
func (p *Table) Record(b batch.Batch) {
	key := Key{b.Producer(), b.Session()}
	h := p.sessions[key]
	if h == nil {
		h = p.add(key)
	}
	s := segment.Sent{
		Sequence: b.Sequence(), Base: b.Base(), AppendTime: b.AppendTime(),
		Count: uint32(b.Count()), CRC: b.BodyCRC(),
	}
	if len(h.batches) == window {
		copy(h.batches, h.batches[1:])
		h.batches = h.batches[:window-1]
	}
	h.batches = append(h.batches, s)
	h.next = s.Sequence + uint64(s.Count)
	h.lastTime = max(h.lastTime, s.AppendTime) // a table that was merged has later sequences with earlier times
	p.touch(h)
	for p.oldest != h && s.AppendTime-p.oldest.lastTime > sessionAge {
		p.drop(p.oldest)
	}
}

// Forget takes back what a batch that was not stored after all had left.
func (p *Table) Forget(b batch.Batch) {
	h := p.sessions[Key{b.Producer(), b.Session()}]
	if h == nil || b.Sequence() >= h.next {
		return
	}
	h.next = b.Sequence()
	for n := len(h.batches); n > 0 && h.batches[n-1].Sequence >= h.next; n-- {
		h.batches = h.batches[:n-1]
	}
}

// Cut forgets every batch at or above an offset.
func (p *Table) Cut(end uint64) {
	p.keep(func(base uint64) bool { return base < end })
}

// keep forgets every batch whose offset is not in what is kept.
func (p *Table) keep(in func(base uint64) bool) {
	for h := p.oldest; h != nil; {
		newer := h.newer
		n := len(h.batches)
		h.batches = slices.DeleteFunc(h.batches, func(s segment.Sent) bool { return !in(s.Base) })
		switch last := len(h.batches) - 1; {
		case last == n-1: // nothing was forgotten
		case last < 0:
			p.drop(h)
		default:
			h.next = h.batches[last].Sequence + uint64(h.batches[last].Count)
		}
		h = newer
	}
}

// Merge adds what another table knows: sessions, and of those that are here too
// the batches whose sequences were not stored here. Of a sequence that both have
// the batch that is here counts.
func (p *Table) Merge(t *segment.Producers) {
	t.Each(func(s *segment.Session) bool {
		p.mergeSession(Key{s.Producer, s.Session}, s.Len(), s.Sent)
		return true
	})
	p.order()
}

// MergeTable is Merge of a table in memory, which is not to be used afterwards.
func (p *Table) MergeTable(t *Table) {
	if len(p.sessions) == 0 {
		*p = *t
		return
	}
	changed := false
	for h := t.oldest; h != nil; h = h.newer {
		if p.mergeSession(h.key, len(h.batches), func(i int) segment.Sent { return h.batches[i] }) {
			changed = true
		}
	}
	if changed {
		p.order()
	}
}

// order puts the sessions in the order of their last batches and forgets those
// that are too old or too many.
func (p *Table) order() {
	all := slices.Collect(maps.Values(p.sessions))
	slices.SortFunc(all, func(a, b *history) int {
		return cmp.Or(cmp.Compare(a.lastTime, b.lastTime), cmp.Compare(a.key.Producer, b.key.Producer), cmp.Compare(a.key.Number, b.key.Number))
	})
	for _, h := range all {
		p.touch(h)
	}
	for len(p.sessions) > maxSessions || p.newest != nil && p.newest.lastTime-p.oldest.lastTime > sessionAge {
		p.drop(p.oldest)
	}
}

// mergeSession adds n batches of a session, ascending, and reports whether one of them was new.
func (p *Table) mergeSession(key Key, n int, sent func(int) segment.Sent) (changed bool) {
	if n == 0 {
		return false
	}
	h := p.sessions[key]
	if h == nil {
		if p.sessions == nil {
			p.sessions = make(map[Key]*history)
		}
		h = &history{key: key}
		p.sessions[key] = h
	}
	for i := range n {
		x := sent(i)
		end := x.Sequence + uint64(x.Count)
		at, _ := slices.BinarySearchFunc(h.batches, x.Sequence, func(b segment.Sent, seq uint64) int { return cmp.Compare(b.Sequence, seq) })
		if at < len(h.batches) && h.batches[at].Sequence < end {
			continue
		}
		if at > 0 && h.batches[at-1].Sequence+uint64(h.batches[at-1].Count) > x.Sequence {
			continue
		}
		h.batches = slices.Insert(h.batches, at, x)
		changed = true
		h.next = max(h.next, end)
		h.lastTime = max(h.lastTime, x.AppendTime)
	}
	if n := len(h.batches) - window; n > 0 {
		h.batches = slices.Delete(h.batches, 0, n)
	}
	return changed
}

// touch makes h the newest.
func (p *Table) touch(h *history) {
	if p.newest == h {
		return
	}
	p.unlink(h)
	h.older, h.newer = p.newest, nil
	if p.newest != nil {
		p.newest.newer = h
	} else {
		p.oldest = h
	}
	p.newest = h
}

func (p *Table) unlink(h *history) {
	if h.older != nil {
		h.older.newer = h.newer
	} else if p.oldest == h {
		p.oldest = h.newer
	}
	if h.newer != nil {
		h.newer.older = h.older
	} else if p.newest == h {
		p.newest = h.older
	}
	h.older, h.newer = nil, nil
}

func (p *Table) drop(h *history) {
	p.unlink(h)
	delete(p.sessions, h.key)
}

// Stored is what a footer keeps of the sessions: the batches below end.
func (p *Table) Stored(end uint64) *segment.Producers {
	out := &segment.Producers{}
	var head [batch.HeaderSize]byte
	for h := p.oldest; h != nil; h = h.newer {
		for _, s := range h.batches {
			if s.Base < end {
				out.Add(fill(head[:], h.key, s))
			}
		}
	}
	return out
}

// asBatch is the header of the batch, as far as it is remembered.
func asBatch(key Key, s segment.Sent) batch.Batch {
	return fill(make([]byte, batch.HeaderSize), key, s)
}

// fill is asBatch in memory of the caller's.
func fill(b batch.Batch, key Key, s segment.Sent) batch.Batch {
	binary.LittleEndian.PutUint64(b[8:], s.Base)
	binary.LittleEndian.PutUint64(b[24:], uint64(s.AppendTime))
	binary.LittleEndian.PutUint32(b[36:], key.Number)
	binary.LittleEndian.PutUint64(b[40:], key.Producer)
	binary.LittleEndian.PutUint64(b[48:], s.Sequence)
	binary.LittleEndian.PutUint32(b[56:], s.Count)
	binary.LittleEndian.PutUint32(b[64:], s.CRC)
	return b
}

// Load takes over what a footer keeps, and returns the newest append time in it.
func (p *Table) Load(t *segment.Producers) (newest int64) {
	var all []*segment.Session
	t.Each(func(s *segment.Session) bool {
		if s.Len() > 0 {
			all = append(all, s)
		}
		return true
	})
	slices.SortFunc(all, func(a, b *segment.Session) int {
		return cmp.Compare(a.Sent(a.Len()-1).Base, b.Sent(b.Len()-1).Base)
	})
	for _, s := range all {
		key := Key{s.Producer, s.Session}
		for i := range s.Len() {
			sent := s.Sent(i)
			newest = max(newest, sent.AppendTime)
			p.Record(asBatch(key, sent))
		}
	}
	return newest
}
