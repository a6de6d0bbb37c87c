package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// judgeEpochs holds the ranges of each partition against I10: epochs grow along offsets, and one range is open, the last.
// One epoch may have several, when a part of it was lost or waits for a disk.
func (c *check) judgeEpochs() {
	for part, p := range c.final.parts {
		for i, e := range p.Epochs {
			if i > 0 && (e.Number < p.Epochs[i-1].Number || e.From < p.Epochs[i-1].From) {
				c.complain("I10", fmt.Sprintf("%s: epoch %d begins at %d behind epoch %d at %d", c.part(part), e.Number, e.From, p.Epochs[i-1].Number, p.Epochs[i-1].From))
			}
			if e.Open && i < len(p.Epochs)-1 {
				c.complain("I10", fmt.Sprintf("%s: epoch %d is open and epoch %d follows it", c.part(part), e.Number, p.Epochs[i+1].Number))
			}
		}
	}
}

// still is how long a partition may go without an acknowledgement while another broker is hurt. That broker may have led,
// and an election and a new lease take their time.
const still = 5 * time.Second

// judgeSpared holds each fault against L3: partitions that others own go on. A fault that follows at once may be felt
// before this one is over, so only the time until the next begins counts.
func (c *check) judgeSpared() {
	for i, f := range c.run.faults {
		until := f.end
		if i+1 < len(c.run.faults) && (until < 0 || c.run.faults[i+1].begin < until) {
			until = c.run.faults[i+1].begin
		}
		for _, part := range f.spared {
			if longest, at := c.silence(part, f.begin, until); longest > still {
				c.complain("L3", fmt.Sprintf("%s acknowledged nothing for %v from %v on while broker %s, which does not own it, suffered %q",
					c.part(part), longest.Round(time.Millisecond), at.Round(time.Millisecond), f.broker, f.kind))
			}
		}
	}
}

// silence is the longest time between two moments in which somebody waited for a partition and nothing was acknowledged.
func (c *check) silence(part uint32, from, to time.Duration) (longest, at time.Duration) {
	topic := c.run.names[part].topic
	var acks []time.Duration
	first, last := time.Duration(-1), time.Duration(-1) // of sends that are tried in the time
	for _, p := range c.run.producers {
		if p.topic != topic {
			continue
		}
		for i := range p.sends {
			s := &p.sends[i]
			if s.begin > to || s.end >= 0 && s.end < from {
				continue
			}
			if first < 0 || s.begin < first {
				first = s.begin
			}
			if s.end < 0 {
				last = to
			}
			last = max(last, s.end)
			if s.outcome == acked && s.part == part {
				acks = append(acks, s.end)
			}
		}
	}
	if first < 0 {
		return 0, 0
	}
	begin, end := max(first, from), min(last, to)
	acks = append(acks, begin, end)
	slices.SortFunc(acks, cmp.Compare)
	for i := 1; i < len(acks); i++ {
		a, b := max(acks[i-1], begin), min(acks[i], end)
		if b-a > longest {
			longest, at = b-a, a
		}
	}
	return longest, at
}
