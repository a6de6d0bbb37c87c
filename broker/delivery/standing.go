package delivery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Where a subscription stands, and what moves it from outside.

// Reset follows a committed reset.
func (s *Subscription) Reset(generation, to uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.d.Generation() < generation {
		if err := s.d.Reset(to); err != nil {
			return err
		}
	}
	s.gapSince = 0
	s.changed()
	return nil
}

// Behind reports whether the subscription is of an earlier generation.
func (s *Subscription) Behind(generation uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.Generation() < generation
}

// Numbers are what metrics show of a subscription.
func (s *Subscription) Numbers() (lag, inFlight, skipped uint64) {
	end := s.part.Log.Committed()
	m := s.part.Past.Metadata()
	s.mu.Lock()
	defer s.mu.Unlock()
	return words.Lag(m, end, s.d.Lag), s.d.Explain(s.now()).InFlight, s.skipped
}

// Describe says where a subscription stands on its partition and why it does not move.
func (s *Subscription) Describe() protocol.SubPartition {
	end := s.part.Log.Committed()
	m := s.part.Past.Metadata()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.d.Explain(s.now())
	d := protocol.SubPartition{
		Partition: int(s.part.Number), Cursor: e.Prefix, Lag: words.Lag(m, end, s.d.Lag), Orphaned: words.Orphaned(m, e.Prefix), InFlight: e.InFlight, Redeliver: e.Waiting,
		Ranges: e.Ranges, Skipped: s.skipped, Generation: s.d.Generation(), State: e.Stalled.String(),
		Consumers: []protocol.SubConsumer{},
	}
	switch {
	case len(s.consumers) == 0: // nobody waits
	case s.gapSince != 0:
		left := (s.gapSince + int64(s.c.cfg.GapWait) - s.now()) / 1e9
		d.State = fmt.Sprintf("waiting at a gap: the messages [%d, %d) may come back%s; passes it in %d s",
			s.gap.Start, s.gap.End, s.part.maybeWith(s.gap.Start), max(left, 0))
	case s.away != nil:
		d.State = fmt.Sprintf("waiting for the messages [%d, %d), which lie %s", s.away.From, s.away.To, s.away.Where())
	case d.State == "ready" && e.Fresh >= end && e.Waiting == 0:
		d.State = "at the end of the log"
	}
	if e.RangesHigh {
		d.State += "; nearly too many acknowledged ranges above the oldest unacknowledged message"
	}
	for _, c := range e.Consumers {
		x := protocol.SubConsumer{Name: c.Name, Credit: c.Credit, InFlight: c.InFlight}
		if o := s.consumers[c.ID]; o != nil {
			x.Address = o.client.Address()
		}
		d.Consumers = append(d.Consumers, x)
	}
	return d
}

// Turned hears what became of offsets that were ORPHANED: it fills holes and passes gaps; whoever waits at the gap looks again.
func (s *Subscription) Turned(o *history.Outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if turned := slices.Concat(o.Back, o.None, o.Lost); len(turned) > 0 {
		if slices.ContainsFunc(turned, func(r state.OffsetRange) bool { return r.Start < s.gap.End && s.gap.Start < r.End }) {
			s.gapSince, s.gap = 0, dispatch.Range{} // nobody waits there any more, and at the next gap the time begins anew
		}
		before := s.d.Explain(s.now()).Holes
		for _, r := range o.Back {
			s.d.Fill(dispatch.Range(r))
		}
		for _, r := range o.None {
			s.d.Gap(dispatch.Range(r))
		}
		s.skipped -= min(s.skipped, before-s.d.Explain(s.now()).Holes)
		for _, r := range o.Lost {
			s.d.Gap(dispatch.Range(r))
		}
		s.changedQuietly()
	}
	notify(s.wake)
}

// Standing is the acknowledged prefix, committed or not, and its generation.
func (s *Subscription) Standing() (prefix, generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d.Cursor().Prefix, s.d.Generation()
}

// Consumers is how many are attached.
func (s *Subscription) Consumers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.consumers)
}

// Unsettled reports whether the cursor has changes that are not committed.
func (s *Subscription) Unsettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirty
}

// Lag is how many messages below an offset are not acknowledged.
func (s *Subscription) Lag(offset uint64) uint64 {
	m := s.part.Past.Metadata()
	s.mu.Lock()
	defer s.mu.Unlock()
	return words.Lag(m, offset, s.d.Lag)
}

// Look has whoever waits at a gap look again what became of it.
func (s *Subscription) Look() { notify(s.wake) }

// maybeWith says with which brokers an offset may come back.
func (p *Partition) maybeWith(offset uint64) string {
	names := p.Past.MayReturn(offset)
	if len(names) == 0 {
		return ""
	}
	return " with broker " + strings.Join(names, " or ")
}
