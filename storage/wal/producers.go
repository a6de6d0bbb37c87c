package wal

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

// session names one producer object of a client.
type session struct {
	producer uint64
	number   uint32
}

// stored is what a session remembers of one batch.
type stored struct {
	sequence uint64
	offset   uint64
	time     int64
	count    uint32
	crc      uint32
}

// history is what a partition remembers of one session.
type history struct {
	key          session
	next         uint64   // the sequence that is stored next
	batches      []stored // ascending, at most window
	lastTime     int64    // append time of the last batch
	older, newer *history // by when a batch was last stored
}

// producers is the table of R17. Its lock is that of its log. The zero value is
// an empty table.
type producers struct {
	sessions       map[session]*history
	oldest, newest *history
}

// open makes or finds a session; the next batch accepted is lowest, or one that
// was stored. now is append time. It returns the last stored sequence, when there is one.
func (p *producers) open(key session, lowest uint64, now int64) (last uint64, known bool) {
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
		return b.sequence + uint64(b.count) - 1, true
	}
	return 0, false
}

func (p *producers) add(key session) *history {
	if p.sessions == nil {
		p.sessions = make(map[session]*history)
	}
	h := &history{key: key}
	p.sessions[key] = h
	p.touch(h)
	if len(p.sessions) > maxSessions {
		p.drop(p.oldest)
	}
	return h
}

// check decides what a batch is: the next of its session (nil, nil), one that
// was stored (the memory of it), or an error.
func (p *producers) check(b batch.Batch) (*stored, error) {
	h := p.sessions[session{b.Producer(), b.Session()}]
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
	i, found := slices.BinarySearchFunc(h.batches, seq, func(s stored, seq uint64) int {
		switch {
		case s.sequence < seq:
			return -1
		case s.sequence > seq:
			return 1
		}
		return 0
	})
	if !found || uint64(h.batches[i].count) != count || h.batches[i].crc != b.BodyCRC() {
		return nil, fmt.Errorf("%w: sequences %d to %d, next is %d", ErrOverlap, seq, seq+count-1, h.next)
	}
	return &h.batches[i], nil
}

// record remembers a batch that was appended, or that recovery found.
func (p *producers) record(b batch.Batch) {
	key := session{b.Producer(), b.Session()}
	h := p.sessions[key]
	if h == nil {
		h = p.add(key)
	}
	s := stored{
		sequence: b.Sequence(), offset: b.Base(), time: b.AppendTime(),
		count: uint32(b.Count()), crc: b.BodyCRC(),
	}
	if len(h.batches) == window {
		copy(h.batches, h.batches[1:])
		h.batches = h.batches[:window-1]
	}
	h.batches = append(h.batches, s)
	h.next = s.sequence + uint64(s.count)
	h.lastTime = s.time
	p.touch(h)
	for p.oldest != h && s.time-p.oldest.lastTime > sessionAge {
		p.drop(p.oldest)
	}
}

// forget takes back what a batch that was not stored after all had left.
func (p *producers) forget(b batch.Batch) {
	h := p.sessions[session{b.Producer(), b.Session()}]
	if h == nil || b.Sequence() >= h.next {
		return
	}
	h.next = b.Sequence()
	for n := len(h.batches); n > 0 && h.batches[n-1].sequence >= h.next; n-- {
		h.batches = h.batches[:n-1]
	}
}

// merge adds what another table knows: sessions, and of those that are here too
// the batches whose sequences were not stored here. Of a sequence that both have
// the batch that is here counts.
func (p *producers) merge(t *segment.Producers) {
	t.Each(func(s *segment.Session) bool {
		if s.Len() > 0 {
			p.mergeSession(s)
		}
		return true
	})
	all := slices.Collect(maps.Values(p.sessions))
	slices.SortFunc(all, func(a, b *history) int {
		return cmp.Or(cmp.Compare(a.lastTime, b.lastTime), cmp.Compare(a.key.producer, b.key.producer), cmp.Compare(a.key.number, b.key.number))
	})
	for _, h := range all {
		p.touch(h)
	}
	for len(p.sessions) > maxSessions || p.newest != nil && p.newest.lastTime-p.oldest.lastTime > sessionAge {
		p.drop(p.oldest)
	}
}

func (p *producers) mergeSession(s *segment.Session) {
	key := session{s.Producer, s.Session}
	h := p.sessions[key]
	if h == nil {
		if p.sessions == nil {
			p.sessions = make(map[session]*history)
		}
		h = &history{key: key}
		p.sessions[key] = h
	}
	for i := range s.Len() {
		x := s.Sent(i)
		end := x.Sequence + uint64(x.Count)
		at, _ := slices.BinarySearchFunc(h.batches, x.Sequence, func(b stored, seq uint64) int { return cmp.Compare(b.sequence, seq) })
		if at < len(h.batches) && h.batches[at].sequence < end {
			continue
		}
		if at > 0 && h.batches[at-1].sequence+uint64(h.batches[at-1].count) > x.Sequence {
			continue
		}
		h.batches = slices.Insert(h.batches, at, stored{sequence: x.Sequence, offset: x.Base, time: x.AppendTime, count: x.Count, crc: x.CRC})
		h.next = max(h.next, end)
		h.lastTime = max(h.lastTime, x.AppendTime)
	}
	if n := len(h.batches) - window; n > 0 {
		h.batches = slices.Delete(h.batches, 0, n)
	}
}

// touch makes h the newest.
func (p *producers) touch(h *history) {
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

func (p *producers) unlink(h *history) {
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

func (p *producers) drop(h *history) {
	p.unlink(h)
	delete(p.sessions, h.key)
}

// table is what a footer keeps of the sessions: the batches below end.
func (p *producers) table(end uint64) *segment.Producers {
	out := &segment.Producers{}
	for h := p.oldest; h != nil; h = h.newer {
		for _, s := range h.batches {
			if s.offset < end {
				out.Add(s.asBatch(h.key))
			}
		}
	}
	return out
}

// asBatch is the header of the batch, as far as it is remembered.
func (s stored) asBatch(key session) batch.Batch {
	b := batch.Batch(make([]byte, batch.HeaderSize))
	binary.LittleEndian.PutUint64(b[8:], s.offset)
	binary.LittleEndian.PutUint64(b[24:], uint64(s.time))
	binary.LittleEndian.PutUint32(b[36:], key.number)
	binary.LittleEndian.PutUint64(b[40:], key.producer)
	binary.LittleEndian.PutUint64(b[48:], s.sequence)
	binary.LittleEndian.PutUint32(b[56:], s.count)
	binary.LittleEndian.PutUint32(b[64:], s.crc)
	return b
}

// load takes over what a footer keeps, and returns the newest append time in it.
func (p *producers) load(t *segment.Producers) (newest int64) {
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
		key := session{s.Producer, s.Session}
		for i := range s.Len() {
			sent := s.Sent(i)
			newest = max(newest, sent.AppendTime)
			p.record(stored{sequence: sent.Sequence, offset: sent.Base, time: sent.AppendTime, count: sent.Count, crc: sent.CRC}.asBatch(key))
		}
	}
	return newest
}
