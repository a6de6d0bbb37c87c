package storage

import (
	"context"
	"errors"

	"github.com/danubemq/danube/storage/cold/fetch"
)

// Stream yields the batches of a log in the order of offsets, from this store's
// files and memory where they are, and from the cold tier where they are not, with
// no gap and no overlap: both hold the same whole batches. Not safe for concurrent
// use.
type Stream struct {
	hot  *Reader
	part *fetch.Partition // nil: there is no cold tier, and nothing below is used

	cold   *fetch.Reader // nil until it is needed
	inCold bool          // it was read since the log was
	until  uint64        // below it the log has nothing, so that it is not asked
}

// Stream returns a stream whose first batch is the one that holds from. Without a
// cold tier, nil, it is the log's reader and costs no more.
func (l *Log) Stream(from uint64, cold *fetch.Partition) *Stream {
	return &Stream{hot: l.Reader(from), part: cold}
}

// Offset is the next offset the stream yields.
func (s *Stream) Offset() uint64 { return s.hot.Offset() }

// Seek goes on at another offset.
func (s *Stream) Seek(offset uint64) {
	if offset != s.hot.Offset() {
		s.until = 0
	}
	s.hot.Seek(offset)
}

// Close gives memory back, and what is on its way. It waits for nothing.
func (s *Stream) Close() {
	s.hot.Close()
	if s.cold != nil {
		s.cold.Close()
	}
}

// Next returns the next batches as [Reader.Next] does, those of the cold tier
// included. ctx bounds the wait for those. Further errors are those of
// [fetch.Reader.Next]. The stream has not moved then. *Trimmed comes from the
// catalog alone, which knows where the log begins: that this store has given
// something up says nothing of it.
func (s *Stream) Next(ctx context.Context, maxBytes int) (View, error) {
	if s.part == nil {
		return s.hot.Next(maxBytes)
	}
	var absent error
	if s.hot.Offset() >= s.until {
		v, err := s.hot.Next(maxBytes)
		to, ok := lacks(err)
		if !ok {
			s.leave(err == nil)
			return v, err
		}
		absent, s.until = err, to
	}
	v, err := s.fromCold(ctx, maxBytes)
	if err == nil {
		s.hot.Seek(v.End)
		return v, nil
	}
	s.until = 0
	if absent == nil { // the log may have it by now
		v, err := s.hot.Next(maxBytes)
		if _, ok := lacks(err); !ok {
			s.leave(err == nil)
			return v, err
		}
		absent = err
	}
	return View{}, s.judge(absent, err)
}

// leave gives up what was read ahead from the cold tier, once the log has gone on.
func (s *Stream) leave(found bool) {
	if found && s.inCold {
		s.cold.Close()
		s.inCold = false
	}
}

// lacks reports whether an error of the log says that messages are not here, and
// up to where.
func lacks(err error) (to uint64, ok bool) {
	if e, is := errors.AsType[*Trimmed](err); is {
		return e.LogStart, true
	}
	if e, is := errors.AsType[*Elsewhere](err); is {
		return e.To, true
	}
	if e, is := errors.AsType[*InCold](err); is {
		return e.To, true
	}
	if e, is := errors.AsType[*Damage](err); is {
		return e.To, true
	}
	return 0, false
}

// fromCold reads from the cold tier, and no further ahead than to where the log has
// messages again.
func (s *Stream) fromCold(ctx context.Context, maxBytes int) (View, error) {
	at := s.hot.Offset()
	if s.cold == nil {
		s.cold = s.part.Reader(at)
	}
	s.inCold = true
	s.cold.Seek(at)
	s.cold.Until(s.until)
	return s.cold.Next(ctx, maxBytes)
}

// judge makes one error of what the log and the cold tier said of the same offset.
func (s *Stream) judge(hot, cold error) error {
	damage, damaged := errors.AsType[*Damage](cold)
	here, hurt := errors.AsType[*Damage](hot)
	_, away := errors.AsType[*Elsewhere](hot)
	trimmed, freed := errors.AsType[*Trimmed](hot)
	switch {
	case hurt && damaged: // in both
		return &Damage{From: here.From, To: min(here.To, damage.To), File: here.File, At: here.At, Err: errors.Join(here.Err, damage)}
	case away && damaged: // other stores may have it whole: nobody steps over it
		return errors.Join(hot, cold)
	case !errors.Is(cold, fetch.ErrUncovered):
		return cold
	case freed:
		return s.hot.log.neither(s.hot.Offset(), trimmed.LogStart)
	}
	return hot
}

// neither says what an offset is that this store has given up and the cold tier does
// not cover. The log begins below it, or the catalog would have said so: it is a gap,
// or it lies in other stores.
func (l *Log) neither(offset, start uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := &Gap{From: offset, To: start, Status: RangeSealed}
	for _, r := range l.ranges {
		switch {
		case r.Start > offset:
			g.To = min(g.To, r.Start)
		case r.Open || offset < r.End:
			to := start
			if !r.Open {
				to = min(start, r.End)
			}
			if r.Status == RangeOrphaned || r.Status == RangeLost {
				return &Gap{From: offset, To: to, Status: r.Status}
			}
			return &Elsewhere{From: offset, To: to}
		}
	}
	return g
}

// OffsetOver is OffsetAt over this store and the cold tier, nil for none.
func (l *Log) OffsetOver(ctx context.Context, cold *fetch.Partition, ms int64) (uint64, error) {
	here, err := l.OffsetAt(ms)
	if cold == nil || err != nil {
		return here, err
	}
	there, err := cold.OffsetAt(ctx, ms)
	if errors.Is(err, fetch.ErrUncovered) {
		return here, nil
	}
	if err != nil {
		return 0, err
	}
	return min(here, there), nil
}
