package state

import (
	"fmt"
	"slices"
)

// generator draws commands that mostly fit the state it sees.
type generator struct {
	draw  func(label string, lo, hi uint64) uint64
	s     *State
	shelf *shelf
}

func (g *generator) n(label string, lo, hi uint64) uint64 {
	if hi < lo {
		hi = lo
	}
	return g.draw(label, lo, hi)
}

func (g *generator) owner() Owner {
	o := Owner{Store: storeID(g.n("store", 1, 3))}
	if st := g.s.Store(o.Store); st != nil {
		o.Incarnation = st.Incarnation - g.n("stale", 0, 10)/10
	}
	return o
}

func (g *generator) command() Command {
	topic, part := topicID(g.n("topic", 1, 3)), uint32(g.n("partition", 0, 1))
	p := g.s.Partition(topic, part)
	if p == nil {
		set := TopicSettings{Partitions: 2, Reliable: true, Durability: Level(g.n("level", 1, 3))}
		c := &CreateTopic{ID: topic, Name: fmt.Sprintf("/default/t%d", topic[15]), Settings: set}
		if g.n("owned", 0, 1) == 1 {
			c.Owners = []Owner{g.owner(), g.owner()}
		}
		return c
	}
	epoch := p.Epoch - min(p.Epoch, g.n("old", 0, 20)/20)
	switch what := g.n("what", 0, 4); {
	case what > 3:
		return g.coldCommand(p)
	case what > 1:
		return g.ownerCommand(p, epoch)
	}
	switch g.n("kind", 0, 13) {
	case 0:
		return &RegisterStore{Store: storeID(g.n("store", 1, 3)), Broker: "b", Nonce: [16]byte{byte(g.n("nonce", 0, 255))}}
	case 1, 2:
		end := g.n("end", p.Floor, p.Ceiling)
		if p.State == Closed {
			end = p.Floor
		}
		return &OpenPartitions{Owner: g.owner(), Entries: []PartitionOpen{
			{Topic: topic, Partition: part, Epoch: epoch, End: end - g.n("below", 0, 5)/5, Tail: Tail(g.n("tail", 0, 4))},
		}}
	case 3, 4:
		u := PartitionUpdate{Topic: topic, Partition: part, Epoch: epoch, Ceiling: p.Ceiling + g.n("more", 0, 50)}
		u.Floor = g.n("floor", 0, u.Ceiling)
		u.LogStart = g.n("start", 0, max(u.Floor, p.Floor))
		if g.n("seal", 0, 9) == 0 {
			u.Seal, u.End = true, g.n("end", max(u.Floor, p.Floor), u.Ceiling)
		}
		return &UpdatePartitions{Entries: []PartitionUpdate{u}}
	case 5, 6:
		from := g.n("from", p.LogStart, p.Ceiling)
		m := RangeMark{Topic: topic, Partition: part, Epoch: epoch, From: from, To: g.n("to", from, p.Ceiling), Status: RangeStatus(g.n("status", 0, 3))}
		m.Accepted = m.Status >= RangeOrphaned && g.n("accept", 0, 1) == 1
		return &MarkRanges{Entries: []RangeMark{m}}
	case 7:
		if g.n("delete", 0, 9) == 0 {
			return &DeleteTopic{ID: topic}
		}
		return &PurgeTopic{ID: topic, Store: storeID(g.n("store", 1, 3))}
	case 8:
		return &SetTopic{ID: topic, Settings: TopicSettings{Partitions: 2, Reliable: true, Durability: Level(g.n("level", 1, 3))}}
	case 9:
		start := []uint64{g.n("start", 0, 2000), g.n("start", 0, 2000)}
		return &CreateSubscription{Topic: topic, Name: fmt.Sprintf("s%d", g.n("name", 0, 2)), Start: start}
	}
	return g.cursorCommand(topic, part, p)
}

func (g *generator) ownerCommand(p *Partition, epoch uint64) Command {
	topic, part := p.Topic, p.Number
	switch g.n("which", 0, 16) {
	case 0, 1:
		return &LoseStore{Owner: g.owner()}
	case 2:
		return &RemoveStore{Store: storeID(g.n("store", 1, 3)), Lose: g.n("lose", 0, 1) == 1}
	case 3, 4:
		return &GrantPartitions{Entries: []PartitionGrant{{topic, part, epoch, g.owner()}}}
	case 5, 6:
		return &MovePartitions{Entries: []PartitionMove{{topic, part, epoch, g.owner()}}}
	case 7:
		return &AbortMoves{Entries: []MoveAbort{{topic, part, epoch, p.Move * g.n("named", 0, 1)}}}
	case 8, 9, 10:
		to := p.Target
		if g.n("other", 0, 9) == 0 {
			to = g.owner()
		}
		return &HandOver{Owner: p.Owner, Entries: []PartitionHandOver{{topic, part, epoch, p.Move - min(p.Move, g.n("stale", 0, 9)/9), g.n("end", p.Floor, p.Floor+20), to}}}
	case 11, 12:
		r := g.span(p)
		c := RangeCopy{Topic: topic, Partition: part, Epoch: epoch, From: r.Start, To: r.End, Add: storeID(g.n("add", 0, 3))}
		for i := range g.n("drops", 0, 2) {
			c.Drop = append(c.Drop, storeID(g.n("drop", 1, 2)+i))
		}
		return &CopyRanges{Entries: []RangeCopy{c}}
	case 13, 14, 15:
		r := g.span(p)
		c := &RestoreRange{Topic: topic, Partition: part, Epoch: epoch, From: r.Start, To: r.End, End: g.n("end", r.Start, r.End), Adopt: g.n("adopt", 0, 5) == 0}
		if g.n("whole", 0, 1) == 0 {
			c.End = c.To
		}
		for i := range g.n("holders", 0, 2) {
			c.Stores = append(c.Stores, storeID(g.n("holder", 1, 2)+i))
		}
		if c.End > c.From && g.n("superseded", 0, 1) == 0 {
			from := g.n("first", c.From, c.End-1)
			c.Superseded = Offsets{{Start: from, End: g.n("last", from+1, c.End)}}
		}
		return c
	}
	if g.n("history", 0, 20) == 0 {
		return &NewHistory{History: g.s.Cluster().History + 1}
	}
	return &OpenPartitions{Owner: p.Owner, Entries: []PartitionOpen{{topic, part, epoch, g.end(p), Tail(g.n("tail", 0, 3))}}}
}

// likely draws a command about partition 0 of topic 1 that its state calls for, and now and then any other.
func (g *generator) likely() Command {
	topic := topicID(1)
	p := g.s.Partition(topic, 0)
	if g.n("any", 0, 3) == 0 {
		return g.ownerCommand(p, p.Epoch)
	}
	for id := uint64(1); id <= 3; id++ {
		if st := g.s.Store(storeID(id)); st.Status == StoreLost && g.n("return", 0, 3) == 0 {
			return &RegisterStore{Store: st.ID, Broker: "b", Nonce: [16]byte{byte(st.Incarnation), 7}}
		}
	}
	owner, to := p.Owner, g.owner()
	switch {
	case g.s.fence(owner) != nil && p.State != Open || !g.s.present(owner.Store):
		return &GrantPartitions{Entries: []PartitionGrant{{topic, 0, p.Epoch, to}}}
	case p.State == Closed || p.State == Opening || g.s.fence(owner) != nil:
		owner.Incarnation = g.s.Store(owner.Store).Incarnation
		o := PartitionOpen{Topic: topic, Epoch: p.Epoch, End: g.end(p), Tail: Tail(g.n("tail", 0, 3))}
		if open := p.OpenRange(); open == nil {
			o.Tail = TailProven
		} else if open.Stores[0] != owner.Store {
			o.End, o.Tail = open.Start, TailOrphaned
		}
		return &OpenPartitions{Owner: owner, Entries: []PartitionOpen{o}}
	case p.State == Sealing && g.n("hand over", 0, 2) > 0:
		return &HandOver{Owner: owner, Entries: []PartitionHandOver{{topic, 0, p.Epoch, p.Move, g.n("end", p.Floor, p.Floor+20), p.Target}}}
	case p.State == Open && g.n("move", 0, 2) == 0:
		return &MovePartitions{Entries: []PartitionMove{{topic, 0, p.Epoch, to}}}
	}
	switch g.n("life", 0, 5) {
	case 0, 1:
		floor := g.n("floor", p.Floor, min(p.Ceiling, p.Floor+30))
		u := PartitionUpdate{Topic: topic, Epoch: p.Epoch, Floor: floor, Ceiling: p.Ceiling + g.n("more", 0, 50)}
		u.Seal, u.End = g.n("seal", 0, 6) == 0, floor
		if g.n("trim", 0, 5) == 0 {
			u.LogStart = g.n("start", p.LogStart, floor)
		}
		return &UpdatePartitions{Entries: []PartitionUpdate{u}}
	case 2:
		return g.cursorCommand(topic, 0, p)
	case 3:
		if c := g.comeBack(p); c != nil {
			return c
		}
		r := g.span(p)
		return &MarkRanges{Entries: []RangeMark{{Topic: topic, Epoch: p.Epoch, From: r.Start, To: r.End, Status: RangeStatus(g.n("status", 1, 3))}}}
	}
	return g.ownerCommand(p, p.Epoch)
}

// comeBack takes back an orphaned range with what its present stores have of it, nil if there is none.
func (g *generator) comeBack(p *Partition) Command {
	for _, r := range p.Ranges {
		if r.Status != RangeOrphaned || !slices.ContainsFunc(r.Stores, g.s.present) {
			continue
		}
		c := &RestoreRange{Topic: p.Topic, Epoch: p.Epoch, From: r.Start, End: r.End, To: r.End}
		for _, id := range r.Stores {
			if g.s.present(id) {
				c.Stores = append(c.Stores, id)
			}
		}
		if r.Tail {
			c.End = g.n("end", r.Start, r.End)
		}
		if c.From < c.End && g.n("superseded", 0, 1) == 0 {
			from := g.n("first", c.From, c.End-1)
			c.Superseded = Offsets{{Start: from, End: g.n("last", from+1, c.End)}}
		}
		return c
	}
	return nil
}

// end draws where the open range of p may end.
func (g *generator) end(p *Partition) uint64 {
	open := p.OpenRange()
	switch {
	case open == nil:
		return p.Floor
	case g.n("nothing", 0, 1) == 0:
		return open.Start
	}
	return g.n("end", p.Floor, p.Ceiling)
}

// span draws offsets, mostly those of one range.
func (g *generator) span(p *Partition) OffsetRange {
	if len(p.Ranges) > 0 && g.n("one", 0, 3) > 0 {
		if r := p.Ranges[g.n("range", 0, uint64(len(p.Ranges)-1))]; r.Status != RangeOpen {
			o := OffsetRange{Start: r.Start, End: r.End}
			if g.n("part", 0, 2) == 0 {
				o.Start = g.n("from", r.Start, r.End-1)
			}
			return o
		}
	}
	from := g.n("from", p.LogStart, p.Ceiling)
	return OffsetRange{Start: from, End: g.n("to", from, p.Ceiling)}
}

func (g *generator) cursorCommand(topic TopicID, part uint32, p *Partition) Command {
	var sub *Subscription
	for s := range g.s.Subscriptions(topic) {
		if sub = s; g.n("this", 0, 1) == 0 {
			break
		}
	}
	if sub == nil {
		start := make([]uint64, g.s.TopicByID(topic).Settings.Partitions)
		start[0] = p.LogStart
		return &CreateSubscription{Topic: topic, Name: "s0", Start: start}
	}
	switch g.n("what", 0, 20) {
	case 0:
		return &DeleteSubscription{Subscription: sub.ID}
	case 1:
		c := &ResetSubscription{Subscription: sub.ID}
		for range g.n("resets", 1, 3) {
			n := uint32(g.n("of", 0, 2))
			c.Entries = append(c.Entries, CursorReset{Partition: n, Start: g.n("start", 0, 2000), Generation: sub.Cursors[n%uint32(len(sub.Cursors))].Generation + g.n("next", 0, 1)})
		}
		return c
	}
	d := CursorDelta{Subscription: sub.ID, Partition: part, Epoch: p.Epoch, Generation: sub.Cursors[part].Generation, Prefix: g.n("prefix", 0, p.Ceiling/4)}
	at := g.n("at", 0, p.Ceiling)
	for range g.n("acks", 0, 6) {
		start := at + g.n("gap", 1, 20)
		at = start + g.n("length", 1, 20)
		d.Acked = append(d.Acked, OffsetRange{Start: start, End: at})
	}
	at = d.Prefix
	for range g.n("counts", 0, 4) {
		at += g.n("gap", 1, 20)
		d.Counts = append(d.Counts, OffsetNumber{Offset: at, Number: g.n("count", 1, 5)})
		d.Due = append(d.Due, OffsetNumber{Offset: at, Number: g.n("due", 0, 100)})
	}
	return &MoveCursors{Entries: []CursorDelta{d}}
}
