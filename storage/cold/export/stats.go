package export

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Stats are what health and metrics show of an exporter.
type Stats struct {
	Partitions int           // that are exported here
	Waiting    int           // of them, those with something the cold tier does not have
	Failing    int           // of them, those whose last attempt failed
	Bytes      int64         // that the cold tier does not have, about
	Age        time.Duration // of the oldest message that it does not have; 0: it has all
	Running    int           // attempts under way
	Kept       int           // attempts that go on later
	Paused     bool
	Pressed    bool
	// Degraded says in a line what is wrong, empty when nothing is.
	Degraded string
}

// failing is how long attempts may fail before health says so. Each has been tried many times within itself.
const failing = 15 * time.Second

// Stats returns the present figures.
func (e *Exporter) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.cfg.Now()
	s := Stats{Partitions: len(e.parts), Running: len(e.running), Kept: len(e.kept), Paused: e.paused, Pressed: e.pressed}
	var worst *part
	for _, p := range e.parts {
		if p.why() != nil {
			s.Failing++
			if worst == nil || p.since().Before(worst.since()) {
				worst = p
			}
		}
		if p.facts.End <= p.facts.Next {
			continue
		}
		s.Waiting++
		s.Bytes += p.facts.Bytes
		s.Age = max(s.Age, now.Sub(p.facts.Oldest))
	}
	late := s.Age > e.cfg.Plan.SegmentAge+e.cfg.Late
	switch {
	case worst != nil && (late || now.Sub(worst.since()) > failing):
		s.Degraded = fmt.Sprintf("cold tier: the oldest message that it does not have is %s old, %d partitions fail: %v", s.Age.Round(time.Second), s.Failing, worst.why())
	case late && s.Paused:
		s.Degraded = fmt.Sprintf("cold tier: uploads are paused, the oldest message that it does not have is %s old", s.Age.Round(time.Second))
	case late:
		s.Degraded = fmt.Sprintf("cold tier: the oldest message that it does not have is %s old", s.Age.Round(time.Second))
	}
	return s
}

// since is when things began to go wrong. The exporter's lock is held.
func (p *part) since() time.Time {
	if p.blind.err != nil {
		return p.blind.first
	}
	return p.trouble.first
}

// Problem is a partition that is not exported as it should be.
type Problem struct {
	ID     ID
	Offset uint64 // the catalog ends here, and nothing behind it comes in
	Since  time.Time
	Times  int // attempts that failed
	Err    error
}

// Problems are the partitions that failed and have not succeeded since, the
// longest first, at most so many.
func (e *Exporter) Problems(most int) []Problem {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Problem
	for _, p := range e.parts {
		if err := p.why(); err != nil {
			out = append(out, Problem{ID: p.id, Offset: p.facts.Next, Since: p.since(), Times: max(p.trouble.times, p.blind.times), Err: err})
		}
	}
	slices.SortFunc(out, func(a, b Problem) int {
		return cmp.Or(a.Since.Compare(b.Since), slices.Compare(a.ID.Topic[:], b.ID.Topic[:]), cmp.Compare(a.ID.Partition, b.ID.Partition))
	})
	return out[:min(len(out), most)]
}
