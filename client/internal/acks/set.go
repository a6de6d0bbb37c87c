package acks

import (
	"slices"
	"sort"

	"github.com/danubemq/danube/protocol"
)

// Set is a set of offsets as ascending ranges that do not touch. Adding
// behind the last and removing from the front, which is what happens, cost
// nothing; the rest is a binary search and a shift.
type Set struct {
	r   []protocol.Range
	buf []protocol.Range // what r was cut from
	n   uint64           // offsets in the set
}

// Len is how many offsets are in the set.
func (s *Set) Len() uint64 { return s.n }

// Ranges is the set as it stands: valid until the next change.
func (s *Set) Ranges() []protocol.Range { return s.r }

// find is the index of the first range that ends above offset.
func (s *Set) find(offset uint64) int {
	return sort.Search(len(s.r), func(i int) bool { return s.r[i].To > offset })
}

// Has reports whether offset is in the set.
func (s *Set) Has(offset uint64) bool {
	if len(s.r) == 0 || offset < s.r[0].From || offset >= s.r[len(s.r)-1].To {
		return false
	}
	i := s.find(offset)
	return i < len(s.r) && s.r[i].From <= offset
}

// Add puts the offsets [from, to) into the set.
func (s *Set) Add(from, to uint64) {
	if from >= to {
		return
	}
	last := len(s.r) - 1
	switch {
	case last < 0:
		s.r = append(s.buf[:0], protocol.Range{From: from, To: to})
		s.buf = s.r
		s.n = to - from
		return
	case from == s.r[last].To:
		s.r[last].To = to
		s.n += to - from
		return
	case from > s.r[last].To:
		s.r = append(s.r, protocol.Range{From: from, To: to})
		s.buf = s.r
		s.n += to - from
		return
	}
	// What touches or overlaps [from, to) is r[i:j].
	i := sort.Search(len(s.r), func(i int) bool { return s.r[i].To >= from })
	j := i
	for ; j < len(s.r) && s.r[j].From <= to; j++ {
		from, to = min(from, s.r[j].From), max(to, s.r[j].To)
		s.n -= s.r[j].To - s.r[j].From
	}
	s.n += to - from
	s.r = slices.Replace(s.r, i, j, protocol.Range{From: from, To: to})
	s.buf = s.r
}

// Remove takes one offset out and reports whether it was there.
func (s *Set) Remove(offset uint64) bool {
	if len(s.r) == 0 {
		return false
	}
	i := 0
	if f := s.r[0]; offset < f.From {
		return false
	} else if offset >= f.To {
		if i = s.find(offset); i == len(s.r) || s.r[i].From > offset {
			return false
		}
	}
	s.n--
	switch x := &s.r[i]; {
	case x.To-x.From == 1:
		if i == 0 {
			s.r = s.r[1:]
		} else {
			s.r = slices.Delete(s.r, i, i+1)
		}
	case offset == x.From:
		x.From++
	case offset == x.To-1:
		x.To--
	default:
		rest := protocol.Range{From: offset + 1, To: x.To}
		x.To = offset
		s.r = slices.Insert(s.r, i+1, rest)
		s.buf = s.r
	}
	return true
}

// Cut takes out what lies below end and calls each, if not nil, with it.
func (s *Set) Cut(end uint64, each func(from, to uint64)) {
	for len(s.r) > 0 && s.r[0].From < end {
		from, to := s.r[0].From, min(s.r[0].To, end)
		if s.n -= to - from; to == s.r[0].To {
			s.r = s.r[1:]
		} else {
			s.r[0].From = to
		}
		if each != nil {
			each(from, to)
		}
	}
}

// Join adds all of o.
func (s *Set) Join(o *Set) {
	for _, x := range o.r {
		s.Add(x.From, x.To)
	}
}

// Clear takes everything out.
func (s *Set) Clear() { s.r, s.n = s.buf[:0], 0 }
