package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// judgeOrder holds each producer's order against the offsets its messages got: I5.
func (c *check) judgeOrder() {
	type last struct {
		offset int64
		seq    uint64
	}
	for id, places := range c.places {
		highest := map[uint32]last{}
		for seq, at := range places {
			if !at.known {
				continue
			}
			before, ok := highest[at.part]
			if ok && at.offset < before.offset {
				c.complain("I5", fmt.Sprintf("%s: %v lies at %d, behind %v at %d, which was sent first", c.part(at.part),
					value{uint32(id), before.seq}, before.offset, value{uint32(id), uint64(seq)}, at.offset))
				continue
			}
			highest[at.part] = last{at.offset, uint64(seq)}
		}
	}
}

// judgeRealTime holds acknowledged sends of all producers against the clock: one that was acknowledged before another
// began has the lower offset (I6).
func (c *check) judgeRealTime() {
	type sent struct {
		begin, end time.Duration
		offset     int64
		v          value
	}
	byPart := map[uint32][]sent{}
	for _, p := range c.run.producers {
		for seq := range p.sends {
			if s := &p.sends[seq]; s.outcome == acked {
				byPart[s.part] = append(byPart[s.part], sent{s.begin, s.end, s.offset, value{p.id, uint64(seq)}})
			}
		}
	}
	for part, sends := range byPart {
		if c.end(part).ClockBroken {
			continue
		}
		ended := slices.Clone(sends)
		slices.SortFunc(ended, func(a, b sent) int { return cmp.Compare(a.end, b.end) })
		slices.SortFunc(sends, func(a, b sent) int { return cmp.Compare(a.begin, b.begin) })
		var highest *sent
		next := 0
		for i := range sends {
			for ; next < len(ended) && ended[next].end < sends[i].begin; next++ {
				if highest == nil || ended[next].offset > highest.offset {
					highest = &ended[next]
				}
			}
			if highest != nil && sends[i].offset < highest.offset {
				c.complain("I6", fmt.Sprintf("%s: %v got %d although %v was acknowledged at %d before it was sent",
					c.part(part), sends[i].v, sends[i].offset, highest.v, highest.offset))
			}
		}
	}
}
