package history

import (
	"cmp"
	"fmt"
	"slices"
)

// stream is what one reader, or all consumers of one subscription, saw of one partition, in the order of time.
type stream struct {
	part   uint32
	name   string
	mode   Mode
	events []streamed
}

type streamed struct {
	event
	consumer int // its place in Run.consumers
}

// judgeConsumers holds deliveries against I7: offsets grow, and every jump is a named gap.
func (c *check) judgeConsumers() {
	for _, s := range c.streams() {
		if s.mode == Shared {
			c.judgeShared(s)
		} else {
			c.judgeInOrder(s)
		}
	}
}

// streams sorts the events of all consumers into one stream for each reader or subscription and partition.
func (c *check) streams() []*stream {
	type key struct {
		name string
		part uint32
	}
	byKey := map[key]*stream{}
	var all []*stream
	for i, k := range c.run.consumers {
		name := "subscription " + k.subscription
		if k.mode == Reader {
			name = fmt.Sprintf("reader %s (%d)", k.name, i)
		}
		for j := range k.events {
			at := key{name, k.events[j].part}
			if byKey[at] == nil {
				byKey[at] = &stream{part: at.part, name: name, mode: k.mode}
				all = append(all, byKey[at])
			}
			byKey[at].events = append(byKey[at].events, streamed{k.events[j], i})
		}
	}
	for _, s := range all {
		slices.SortStableFunc(s.events, func(a, b streamed) int { return cmp.Compare(a.at, b.at) })
	}
	return all
}

// judgeInOrder judges a reader or an exclusive subscription: without what was delivered before and what came late,
// each offset is the next one, or a named gap lies between. A subscription may see an offset again, a reader may not.
func (c *check) judgeInOrder(s *stream) {
	next, lastLate := int64(-1), int64(-1)
	var gaps []Range
	for i := range s.events {
		e := &s.events[i]
		switch {
		case e.kind == seekEvent:
			next, lastLate = e.offset, -1
		case e.kind == gapEvent:
			gaps = append(gaps, Range{From: e.offset, To: e.to})
		case e.kind != readEvent:
		case e.late:
			if e.offset <= lastLate && !e.redelivered {
				c.complain("I7", fmt.Sprintf("%s: %s got late offset %d after late offset %d", c.part(s.part), s.name, e.offset, lastLate))
			}
			lastLate = max(lastLate, e.offset)
		case next < 0 || e.offset == next:
			next = e.offset + 1
		case e.offset < next:
			if s.mode == Reader {
				c.complain("I7", fmt.Sprintf("%s: %s went back from %d to %d", c.part(s.part), s.name, next-1, e.offset))
			}
		default:
			if hole, ok := c.uncovered(s.part, gaps, next, e.offset); ok {
				c.complain("I7", fmt.Sprintf("%s: %s jumped from %d to %d and nothing names %d a gap", c.part(s.part), s.name, next-1, e.offset, hole))
			}
			next = e.offset + 1
		}
	}
}

// uncovered finds the first offset of [from, to) that is in no gap, named to the consumer or by the metadata.
func (c *check) uncovered(part uint32, named []Range, from, to int64) (int64, bool) {
	end := c.end(part)
	at := max(from, end.LogStart)
	for moved := true; moved && at < to; {
		moved = false
		for _, ranges := range [][]Range{named, end.Ranges} {
			for _, r := range ranges {
				if r.From <= at && at < r.To {
					at, moved = r.To, true
				}
			}
		}
	}
	return at, at < to
}

// judgeShared judges a shared subscription: to one consumer, first deliveries come in growing order. After a fault the
// broker may hand out again what it had handed to a connection that died and nobody saw, so order begins anew there.
func (c *check) judgeShared(s *stream) {
	type last struct {
		offset int64
		at     int64
	}
	delivered := map[int64]bool{}
	order := map[int]last{}
	for i := range s.events {
		e := &s.events[i]
		if e.kind == seekEvent {
			clear(delivered)
			clear(order)
		}
		if e.kind != readEvent {
			continue
		}
		again := delivered[e.offset] || e.redelivered || e.late
		delivered[e.offset] = true
		if again {
			continue
		}
		before, ok := order[e.consumer]
		if ok && e.offset < before.offset && !c.faultBetween(before.at, int64(e.at)) {
			c.complain("I7", fmt.Sprintf("%s: %s handed consumer %s offset %d after %d", c.part(s.part), s.name, c.run.consumers[e.consumer].name, e.offset, before.offset))
		}
		order[e.consumer] = last{e.offset, int64(e.at)}
	}
}

// faultBetween says whether a fault began or lasted between two moments.
func (c *check) faultBetween(from, to int64) bool {
	for _, f := range c.run.faults {
		if int64(f.begin) <= to && (f.end < 0 || int64(f.end) >= from) {
			return true
		}
	}
	return false
}

// judgeCursors holds each subscription's end against what its consumers did: nothing below the prefix was left
// undelivered (I7); it is not behind the last confirmation and covers nothing that was not acknowledged (I13).
func (c *check) judgeCursors() {
	for _, end := range c.final.cursors {
		part := c.run.part(end.Topic, end.Partition)
		at := fmt.Sprintf("%s: subscription %s", c.part(part), end.Subscription)
		delivered, acknowledged := map[int64]bool{}, map[int64]bool{}
		upTo, confirmed := int64(-1), int64(-1)
		for _, k := range c.run.consumers {
			if k.subscription != end.Subscription || k.topic != end.Topic {
				continue
			}
			for i := range k.events {
				e := &k.events[i]
				if e.part != part {
					continue
				}
				switch e.kind {
				case readEvent:
					delivered[e.offset] = true
				case ackEvent:
					acknowledged[e.offset] = true
				case ackUpToEvent:
					upTo = max(upTo, e.offset)
				case confirmedEvent:
					confirmed = max(confirmed, e.offset)
				case seekEvent:
					upTo, confirmed = max(upTo, e.offset-1), -1
				}
			}
		}
		if end.Prefix < confirmed {
			c.complain("I13", fmt.Sprintf("%s stands at %d, behind the confirmed %d", at, end.Prefix, confirmed))
		}
		l := c.where[part]
		for offset := max(end.Start, c.end(part).LogStart); offset < end.Prefix; offset++ {
			if !l.served[offset] || c.end(part).status(offset) == Superseded {
				continue
			}
			if !delivered[offset] {
				c.complain("I7", fmt.Sprintf("%s passed offset %d without delivering it", at, offset))
			}
			if !acknowledged[offset] && offset > upTo {
				c.complain("I13", fmt.Sprintf("%s covers offset %d, which nobody acknowledged", at, offset))
			}
		}
	}
}
