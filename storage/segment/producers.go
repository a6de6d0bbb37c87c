package segment

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/danubemq/danube/protocol/batch"
)

// remembered is how many of the last batches of a session are remembered, so
// that one sent again gets its offset (R17).
const remembered = 64

// Sent is one remembered batch of a session.
type Sent struct {
	Sequence   uint64 // of its first message
	Base       uint64 // offset of its first message
	AppendTime int64  // ms since 1970
	Count      uint32 // messages
	CRC        uint32 // of its body
}

// Session is what the log knows of one producer object.
type Session struct {
	Producer uint64
	Session  uint32
	Last     uint64 // sequence of the last message stored

	sent []Sent // the last batches; once full, a ring whose oldest is at next
	next int
}

// Len is the number of remembered batches, at most remembered.
func (s *Session) Len() int { return len(s.sent) }

// Sent is a remembered batch, 0 the oldest, Len()-1 the newest.
func (s *Session) Sent(i int) Sent { return s.sent[(s.next+i)%len(s.sent)] }

func (s *Session) add(b Sent) {
	s.Last = b.Sequence + uint64(b.Count) - 1
	if len(s.sent) < remembered {
		s.sent = append(s.sent, b)
		return
	}
	s.sent[s.next] = b
	s.next = (s.next + 1) % remembered
}

// sessionKey names a session.
type sessionKey struct {
	producer uint64
	session  uint32
}

// Producers is the producer table of a partition: every session that has a
// message in its log, with the last batches of each. It goes on from segment to
// segment, and each footer holds the whole of it. The zero value is empty. Not
// safe for concurrent use.
type Producers struct {
	sessions map[sessionKey]*Session
}

// Len is the number of sessions.
func (p *Producers) Len() int { return len(p.sessions) }

// Find returns a session, nil for one that has no message in the log. It is
// valid until the table changes.
func (p *Producers) Find(producer uint64, session uint32) *Session {
	return p.sessions[sessionKey{producer, session}]
}

// Add takes a batch that was stored, in the order of offsets. A mark is not taken.
func (p *Producers) Add(b batch.Batch) {
	if b.Control() {
		return
	}
	p.session(sessionKey{b.Producer(), b.Session()}).add(Sent{
		Sequence: b.Sequence(), Base: b.Base(), AppendTime: b.AppendTime(), Count: uint32(b.Count()), CRC: b.BodyCRC(),
	})
}

func (p *Producers) session(k sessionKey) *Session {
	s := p.sessions[k]
	if s == nil {
		if p.sessions == nil {
			p.sessions = make(map[sessionKey]*Session)
		}
		s = &Session{Producer: k.producer, Session: k.session}
		p.sessions[k] = s
	}
	return s
}

// Expire forgets the sessions whose last batch was appended before ms, which has
// to come from the log itself, so that every owner forgets the same (R17).
func (p *Producers) Expire(ms int64) {
	for k, s := range p.sessions {
		if s.Len() == 0 || s.Sent(s.Len()-1).AppendTime < ms {
			delete(p.sessions, k)
		}
	}
}

// Each calls yield with every session, sorted by producer and session, until it
// returns false. It has the form of an iterator.
func (p *Producers) Each(yield func(*Session) bool) {
	list := make([]*Session, 0, len(p.sessions))
	for _, s := range p.sessions {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Session) int {
		return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Session, b.Session))
	})
	for _, s := range list {
		if !yield(s) {
			return
		}
	}
}

// append encodes the table: per session its id, number, and remembered batches,
// each by its distance from the one before.
func (p *Producers) append(dst []byte) []byte {
	p.Each(func(s *Session) bool {
		dst = binary.LittleEndian.AppendUint64(dst, s.Producer)
		dst = binary.LittleEndian.AppendUint32(dst, s.Session)
		dst = binary.LittleEndian.AppendUint64(dst, s.Last)
		dst = binary.AppendUvarint(dst, uint64(s.Len()))
		var before Sent
		for i := range s.Len() {
			b := s.Sent(i)
			dst = binary.AppendUvarint(dst, b.Sequence-before.Sequence)
			dst = binary.AppendUvarint(dst, b.Base-before.Base)
			dst = binary.AppendVarint(dst, b.AppendTime-before.AppendTime)
			dst = binary.AppendUvarint(dst, uint64(b.Count))
			dst = binary.LittleEndian.AppendUint32(dst, b.CRC)
			before = b
		}
		return true
	})
	return dst
}

const (
	minSession = 8 + 4 + 8 + 1 // encoded bytes of a session without batches
	minSent    = 1 + 1 + 1 + 1 + 4
)

// parseProducers is the reverse of append: b holds count sessions and no more.
func parseProducers(b []byte, count int) (*Producers, error) {
	if count > len(b)/minSession {
		return nil, corrupt("%d sessions in %d bytes", count, len(b))
	}
	p := &Producers{sessions: make(map[sessionKey]*Session, count)}
	for range count {
		if len(b) < minSession {
			return nil, corrupt("producer table is cut short")
		}
		k := sessionKey{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:])}
		if p.sessions[k] != nil {
			return nil, corrupt("session %d of producer %d is named twice", k.session, k.producer)
		}
		s := p.session(k)
		s.Last = binary.LittleEndian.Uint64(b[12:])
		n, size := binary.Uvarint(b[20:])
		if size <= 0 || n > remembered || int(n) > (len(b)-20-size)/minSent {
			return nil, corrupt("session %d of producer %d remembers %d batches", k.session, k.producer, n)
		}
		rest, err := s.parse(b[20+size:], int(n))
		if err != nil {
			return nil, err
		}
		b = rest
	}
	if len(b) != 0 {
		return nil, corrupt("%d bytes behind the producer table", len(b))
	}
	return p, nil
}

func (s *Session) parse(b []byte, n int) ([]byte, error) {
	last := s.Last
	s.sent = make([]Sent, 0, n)
	var before Sent
	for range n {
		ok := true
		u := func() uint64 {
			v, size := binary.Uvarint(b)
			if size <= 0 {
				ok = false
				return 0
			}
			b = b[size:]
			return v
		}
		sequence, base := u(), u()
		ms, size := binary.Varint(b)
		if size <= 0 {
			return nil, corrupt("remembered batch")
		}
		b = b[size:]
		count := u()
		if !ok || len(b) < 4 || count == 0 || count > 1<<32-1 {
			return nil, corrupt("remembered batch")
		}
		before = Sent{
			Sequence: before.Sequence + sequence, Base: before.Base + base, AppendTime: before.AppendTime + ms,
			Count: uint32(count), CRC: binary.LittleEndian.Uint32(b),
		}
		b = b[4:]
		s.add(before)
	}
	if n > 0 && s.Last != last {
		return nil, corrupt("last sequence %d of a session that ends at %d", last, s.Last)
	}
	return b, nil
}
