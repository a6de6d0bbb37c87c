package history

import (
	"fmt"
)

// observation is one claim that an offset of a partition holds a value.
type observation struct {
	part    uint32
	offset  int64
	v       value
	sum     uint32
	foreign bool
	by      string // who says so, for the text of a violation
}

// sentAs finds the send of a value, nil when no producer of the run made it.
func (c *check) sentAs(v value) *send {
	if int(v.producer) >= len(c.run.producers) {
		return nil
	}
	p := c.run.producers[v.producer]
	if v.seq >= uint64(len(p.sends)) {
		return nil
	}
	return &p.sends[v.seq]
}

// observe holds one claim against all earlier ones: I2, I3, I4 and I14.
func (c *check) observe(o observation) {
	// Millions of claims pass here: words are made only for a complaint.
	at := func() string { return fmt.Sprintf("%s offset %d", c.part(o.part), o.offset) }
	if o.foreign {
		c.complain("I14", fmt.Sprintf("%s holds bytes that no producer of this run made, says %s", at(), o.by))
		return
	}
	s := c.sentAs(o.v)
	switch {
	case s == nil || s.sum != o.sum:
		c.complain("I14", fmt.Sprintf("%s holds %v, which was never sent like this, says %s", at(), o.v, o.by))
		return
	case s.outcome == notStored:
		c.complain("I2", fmt.Sprintf("%s holds %v, whose send was answered not stored, says %s", at(), o.v, o.by))
	}
	l := c.where[o.part]
	if first, ok := l.held[o.offset]; !ok {
		l.held[o.offset] = held{o.v, o.sum, o.by}
	} else if first.v != o.v {
		c.complain("I3", fmt.Sprintf("%s is %v, says %s, and %v, says %s", at(), first.v, first.by, o.v, o.by))
	}
	if c.end(o.part).status(o.offset) == Superseded {
		return // stored again in a later epoch: its second offset is the one that counts
	}
	seen := &c.places[o.v.producer][o.v.seq]
	switch {
	case !seen.known:
		*seen = place{o.part, o.offset, true}
	case seen.part != o.part || seen.offset != o.offset:
		c.complain("I4", fmt.Sprintf("%v is at %s, says %s, and at %s offset %d", o.v, at(), o.by, c.part(seen.part), seen.offset))
	}
}

// gatherFinal takes in the read-backs and compares the tiers with each other: I9.
func (c *check) gatherFinal() {
	for part, p := range c.final.parts {
		l := c.where[part]
		sums := map[int64]held{}
		for i, t := range p.tiers {
			by := "the read-back of " + t.name
			for _, m := range t.messages {
				if i == 0 {
					l.served[m.offset] = true
				}
				if first, ok := sums[m.offset]; !ok {
					sums[m.offset] = held{m.v, m.sum, t.name}
				} else if first.sum != m.sum {
					c.complain("I9", fmt.Sprintf("%s offset %d has CRC %08x in %s and %08x in %s", c.part(part), m.offset, first.sum, first.by, m.sum, t.name))
				}
				c.observe(observation{part, m.offset, m.v, m.sum, m.foreign, by})
			}
		}
	}
}

func (c *check) gatherSends() {
	for _, p := range c.run.producers {
		for seq := range p.sends {
			s := &p.sends[seq]
			if s.outcome == acked {
				c.observe(observation{part: s.part, offset: s.offset, v: value{p.id, uint64(seq)}, sum: s.sum, by: "its ack"})
			}
		}
	}
}

// gatherReads takes in what consumers were handed. A read before the send began is a value from nowhere as well.
func (c *check) gatherReads() {
	for _, k := range c.run.consumers {
		by := "consumer " + k.name
		for i := range k.events {
			e := &k.events[i]
			if e.kind != readEvent {
				continue
			}
			c.observe(observation{e.part, e.offset, e.v, e.sum, e.foreign, by})
			if s := c.sentAs(e.v); !e.foreign && s != nil && e.at < s.begin {
				c.complain("I14", fmt.Sprintf("%s offset %d: %s read %v before it was sent", c.part(e.part), e.offset, k.name, e.v))
			}
		}
	}
}

// judgeKept holds acks (I1) and reads (I8) against what a reader is served at the end.
func (c *check) judgeKept() {
	type declared struct {
		part   uint32
		status Range
	}
	undue := map[declared]int{}
	missing := func(part uint32, offset int64, v value) bool {
		p := c.end(part)
		if c.where[part].served[offset] || offset < p.LogStart {
			return false
		}
		for _, r := range p.Ranges {
			if offset < r.From || offset >= r.To {
				continue
			}
			switch {
			case r.Status == Superseded:
				second := c.places[v.producer][v.seq]
				return !second.known || !c.where[second.part].served[second.offset]
			case r.Status == PlainGap:
				return true
			case !mayLose(p.Level, c.kinds):
				undue[declared{part, r}]++
			}
			return false
		}
		return true
	}
	for _, p := range c.run.producers {
		for seq := range p.sends {
			if s := &p.sends[seq]; s.outcome == acked && missing(s.part, s.offset, value{p.id, uint64(seq)}) {
				c.complain("I1", fmt.Sprintf("%s offset %d: %v was acknowledged and is gone", c.part(s.part), s.offset, value{p.id, uint64(seq)}))
			}
		}
	}
	for d, n := range undue {
		c.complain("I1", fmt.Sprintf("%s: [%d, %d) is declared %s with %d acknowledged messages, which level %s does not allow after faults %q",
			c.part(d.part), d.status.From, d.status.To, d.status.Status, n, c.end(d.part).Level, c.kinds))
	}
	for _, k := range c.run.consumers {
		for i := range k.events {
			if e := &k.events[i]; e.kind == readEvent && c.sentAs(e.v) != nil && missing(e.part, e.offset, e.v) {
				c.complain("I8", fmt.Sprintf("%s offset %d was read by %s and is readable no more", c.part(e.part), e.offset, k.name))
			}
		}
	}
}
