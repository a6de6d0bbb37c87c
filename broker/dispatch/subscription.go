package dispatch

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ConsumerID names one session of a consumer. The shell gives it out, never
// zero and never twice on a subscription, so that what an earlier session
// says late is not taken for the word of the present one.
type ConsumerID uint32

// Consumer is what Join is told.
type Consumer struct {
	ID       ConsumerID
	Name     string   // a join under the same name takes the session over; "" never does
	Priority int      // for Failover
	Filters  []string // globs over the key, for KeyShared
	// NoReceipts: this consumer does not report what its application has
	// received. Each delivery then counts, and its ack timeout runs, from
	// the moment it was sent.
	NoReceipts bool
}

// member is a joined consumer.
type member struct {
	Consumer
	credit uint64
	held   uint64
	top    uint64 // above every offset it was given for the first time
	paused bool
}

// Subscription is the delivery state of one subscription on one partition.
// It is not safe for concurrent use.
type Subscription struct {
	cfg        Config
	generation uint64
	prefix     uint64 // every offset below is acknowledged or a gap
	fresh      uint64 // no offset in [prefix, fresh) is fresh
	high       uint64 // above every offset ever delivered or acknowledged
	runs       runlist
	msgs       [kinds]uint64 // offsets of each kind above the prefix

	members []*member // in the order of joining
	byID    map[ConsumerID]*member
	turn    int    // whose turn it is
	credit  uint64 // of all members that are not paused

	stored uint64 // prefix as it is committed
	reset  bool   // the generation is not committed yet
	out    outstanding
}

// outstanding is the delta that is out.
type outstanding struct {
	taken      bool
	generation uint64
	prefix     uint64
}

// New returns the state that a cursor describes: nothing it acknowledges is
// delivered again, all else is. Holes and gaps are no part of a cursor: the
// shell declares those at or above the prefix (Hole, Gap) before it delivers.
func New(cfg Config, c Cursor) (*Subscription, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Subscription{cfg: cfg, runs: newRunlist(), byID: map[ConsumerID]*member{}}
	if err := s.load(&c); err != nil {
		return nil, err
	}
	return s, nil
}

// Generation is the number that deliveries made now carry.
func (s *Subscription) Generation() uint64 { return s.generation }

// NeedsKeys reports whether Offer must be given the messages' keys.
func (s *Subscription) NeedsKeys() bool { return s.cfg.Policy == KeyShared }

// Join adds a consumer without credit. If one of the same name is there, its
// session is over as by Leave and its id is returned for the shell to close;
// otherwise the id is zero. An exclusive subscription that is taken refuses
// with *OccupiedError.
func (s *Subscription) Join(c Consumer, now int64) (ConsumerID, error) {
	if c.ID == 0 || s.byID[c.ID] != nil {
		return 0, fmt.Errorf("join consumer %d: id is not new", c.ID)
	}
	if err := Supported(s.cfg.Policy, c.Filters); err != nil {
		return 0, err
	}
	var old ConsumerID
	for _, m := range s.members {
		if c.Name != "" && m.Name == c.Name {
			old = m.ID
		}
	}
	if old == 0 && s.cfg.Policy == Exclusive && len(s.members) > 0 {
		return 0, &OccupiedError{Name: s.members[0].Name}
	}
	if old != 0 {
		s.remove(old, false, now)
	}
	m := &member{Consumer: c}
	s.members = append(s.members, m)
	s.byID[c.ID] = m
	return old, nil
}

// Leave ends a consumer's session at now; what it holds goes to others, at
// the old offsets and in order, at once.
//
// clean says that the client closed in order, so that what it has not
// reported as received no application saw: those deliveries do not count, and
// where others were given messages above them they come late (I7).
// After a lost connection a first delivery counts in any case, a later one
// only if it was reported: a client reports a message whose delivery number
// is above one before it hands it out. So the message that kills every
// consumer reaches its limit, and those that were merely prefetched behind it
// do not (A61).
func (s *Subscription) Leave(id ConsumerID, clean bool, now int64) error {
	if s.byID[id] == nil {
		return fmt.Errorf("leave consumer %d: %w", id, ErrUnknownConsumer)
	}
	s.remove(id, clean, now)
	return nil
}

// Detach ends all sessions in order, for a planned shutdown or move. The
// delta taken after it holds all there is to keep.
func (s *Subscription) Detach(now int64) {
	for len(s.members) > 0 {
		s.remove(s.members[0].ID, true, now)
	}
}

// Grant allows n more messages to be sent to a consumer.
func (s *Subscription) Grant(id ConsumerID, n uint32) error {
	m := s.byID[id]
	if m == nil {
		return fmt.Errorf("grant credit to consumer %d: %w", id, ErrUnknownConsumer)
	}
	more := min(uint64(n), math.MaxInt64-m.credit)
	m.credit += more
	if !m.paused {
		s.credit += more
	}
	return nil
}

// Pause holds deliveries to a consumer back, whatever credit it has, because
// its connection takes no more, or lets them go on. An unknown id is ignored.
func (s *Subscription) Pause(id ConsumerID, paused bool) {
	m := s.byID[id]
	switch {
	case m == nil || m.paused == paused:
		return
	case paused:
		s.credit -= m.credit
	default:
		s.credit += m.credit
	}
	m.paused = paused
}

func (s *Subscription) remove(id ConsumerID, clean bool, now int64) {
	i := slices.IndexFunc(s.members, func(m *member) bool { return m.ID == id })
	m := s.members[i]
	for off := s.prefix; m.held > 0; {
		r := s.runs.at(s.runs.find(off))
		off = r.end
		if r.kind == held && r.consumer == id {
			s.giveBack(*r, clean, now)
		}
	}
	s.Pause(id, true)
	s.members = slices.Delete(s.members, i, i+1)
	delete(s.byID, id)
	if s.turn > i {
		s.turn--
	}
}

// Reset moves the cursor to an offset, back or forth. It begins a new
// generation: what was delivered before can no longer be acknowledged, and no
// older delta is committed any more. Credit stays as it is. As after New, the
// shell declares holes and gaps at or above the offset anew.
func (s *Subscription) Reset(to uint64) error {
	if s.generation == math.MaxUint64 {
		return errors.New("reset subscription: generations are used up")
	}
	s.generation++
	s.runs.clear()
	s.msgs = [kinds]uint64{}
	s.prefix, s.fresh, s.high = to, to, to
	s.reset = true
	for _, m := range s.members {
		m.held, m.top = 0, 0
	}
	return nil
}

// tally moves n offsets from the books of one run to those of another.
func (s *Subscription) tally(r *run, n uint64, add bool) {
	if !add {
		n = -n
	}
	s.msgs[r.kind] += n
	if r.kind == held {
		s.byID[r.consumer].held += n
	}
}

// recast gives [a, b) of the run at p a new fate.
func (s *Subscription) recast(p pos, a, b uint64, to run) {
	s.tally(s.runs.at(p), b-a, false)
	s.tally(&to, b-a, true)
	s.runs.change(p, a, b, to)
}

// cut forgets [a, b) of the run at p.
func (s *Subscription) cut(p pos, a, b uint64) {
	s.tally(s.runs.at(p), b-a, false)
	s.runs.cut(p, a, b)
}

// cover gives fresh offsets their first fate.
func (s *Subscription) cover(r run) {
	s.tally(&r, r.end-r.start, true)
	s.runs.cover(r)
}

// paint gives the fate of to to the offsets of r that are at or above the
// prefix and fresh, or in a run that over accepts.
func (s *Subscription) paint(r Range, to run, over func(*run) bool) {
	for off := max(r.Start, s.prefix); off < r.End; {
		p := s.runs.find(off)
		u := s.runs.at(p)
		switch {
		case u == nil || u.start >= r.End:
			to.start, to.end = off, r.End
			off = r.End
			s.cover(to)
		case u.start > off:
			to.start, to.end = off, u.start
			off = u.start
			s.cover(to)
		default:
			a := off
			off = min(u.end, r.End)
			if over(u) {
				s.recast(p, a, off, to)
			}
		}
	}
}

// fold moves the prefix over the acknowledged runs that it has reached.
func (s *Subscription) fold() {
	for {
		p := s.runs.find(s.prefix)
		r := s.runs.at(p)
		if r == nil || r.start > s.prefix || r.kind != acked {
			break
		}
		end := r.end
		s.cut(p, s.prefix, end)
		s.prefix = end
	}
	s.fresh = max(s.fresh, s.prefix)
}

// firstFresh returns the lowest offset nobody was given.
func (s *Subscription) firstFresh() uint64 {
	for {
		r := s.runs.at(s.runs.find(s.fresh))
		if r == nil || r.start > s.fresh {
			return s.fresh
		}
		s.fresh = r.end
	}
}

// spent reports whether so many deliveries are all that a message gets.
func (s *Subscription) spent(count uint16) bool {
	return s.cfg.Poison != Block && int(count) > s.cfg.MaxRedeliveries
}
