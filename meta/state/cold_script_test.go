package state

import (
	"fmt"
	"strings"

	"github.com/danubemq/danube/meta/catalog"
)

// The words of scripts that are about the cold tier. An object is named by its kind and its number, as cut3, own4, page5; a
// segment by its offsets and its object, as 10-20:own4.

func (sc *script) object(word string, o Owner) catalog.Object {
	var kind catalog.Kind
	name := strings.TrimRight(word, "0123456789")
	switch name {
	case "own":
		kind = catalog.Own
	case "cut":
		kind = catalog.Cut
	case "page":
		return catalog.Object{Kind: catalog.PageObject, Incarnation: o.Incarnation, Unique: sc.number(word[len(name):])}
	default:
		sc.t.Fatalf("no object is called %q", word)
	}
	return testSegment(0, 1, sc.number(word[len(name):]), o, kind).Object
}

func (sc *script) number(word string) uint64 {
	return args{sc.t, map[string]string{"n": word}}.num("n")
}

func (sc *script) segment(word string, o Owner) catalog.Segment {
	span, object, _ := strings.Cut(word, ":")
	from, to, _ := strings.Cut(span, "-")
	obj := sc.object(object, o)
	s := testSegment(sc.number(from), sc.number(to), 0, o, obj.Kind)
	s.Object = obj
	return s
}

// name is what an object is called of which word says offsets too, unless it is a cut.
func (sc *script) name(a args, word string, o Owner) catalog.Name {
	if !strings.Contains(word, ":") {
		return catalog.Name{Object: sc.object(word, o)}
	}
	s := sc.segment(word, o)
	return catalog.NewName(topicID(a.num("topic")), uint32(a.num("partition")), s.Object, s.Start, s.End)
}

// maker is the run that made what a line names: that of "by", with its incarnation, else the latest of "store".
func (sc *script) maker(a args) Owner {
	if by := a.pairs("by", "/"); by != nil {
		return Owner{storeID(by[0][0]), by[0][1]}
	}
	return sc.named("store", a)
}

func (sc *script) coldCommand(name string, a args) Command {
	topic, part, epoch := topicID(a.num("topic")), uint32(a.num("partition")), a.num("epoch")
	owner, at := sc.named("store", a), int64(a.num("at"))
	switch name {
	case "commit":
		seg := sc.segment(a.m["segment"], sc.maker(a))
		e := SegmentCommit{Topic: topic, Partition: part, Epoch: epoch, Segment: seg}
		for _, p := range a.pairs("epochs", "@") {
			e.Epochs = append(e.Epochs, EpochStart{p[0], p[1]})
		}
		if p := sc.s.Partition(topic, part); p != nil && !a.has("epochs") {
			e.Epochs = p.Epochs(max(seg.Start, p.LogStart), seg.End)
		}
		return &CommitSegments{Owner: owner, Entries: []SegmentCommit{e}}
	case "grant-export":
		return &GrantExports{Entries: []ExportGrant{{topic, part, epoch, a.num("from"), a.num("end"), sc.named("to", a)}}}
	case "swap":
		e := SegmentSwap{Topic: topic, Partition: part, Epoch: epoch}
		for word := range strings.SplitSeq(a.m["in"], ",") {
			s := sc.segment(word, sc.maker(a))
			e.Inputs = append(e.Inputs, catalog.Input{Start: s.Start, Object: s.Object})
		}
		for word := range strings.SplitSeq(a.m["out"], ",") {
			e.Outputs = append(e.Outputs, sc.segment(word, owner))
		}
		return &SwapSegments{Owner: owner, At: at, Entries: []SegmentSwap{e}}
	case "page":
		var list []catalog.Segment
		for word := range strings.SplitSeq(a.m["of"], ",") {
			list = append(list, sc.segment(word, sc.maker(a)))
		}
		page, content := catalog.NewPage(topic, part, list, sc.object(a.m["object"], owner))
		sc.contents[catalog.NewName(topic, part, page.Object, page.Start, page.End)] = content
		return &PageCatalog{owner, topic, part, epoch, page}
	case "unpage":
		n := sc.name(a, a.m["page"], sc.maker(a))
		return &UnpageCatalog{owner, topic, part, epoch, n.Start, n.Object, sc.contents[n], at}
	}
	return sc.garbageCommand(name, a)
}

func (sc *script) garbageCommand(name string, a args) Command {
	topic, at := topicID(a.num("topic")), int64(a.num("at"))
	switch name {
	case "condemn-topic":
		c := &CondemnTopic{ID: topic, At: at}
		for _, n := range a.nums("partitions") {
			c.Partitions = append(c.Partitions, uint32(n))
		}
		return c
	case "condemn-page":
		n := sc.name(a, a.m["page"], sc.maker(a))
		content := sc.contents[n]
		if a.has("damaged") {
			content = content[:len(content)-1]
		}
		return &CondemnPage{n, content}
	case "condemn":
		c := &CondemnObjects{At: at, Names: []catalog.Name{sc.name(a, a.m["object"], sc.maker(a))}}
		if a.has("page") {
			c.Pages = [][]byte{sc.contents[sc.name(a, a.m["page"], sc.owner(a.num("read-by")))]}
		}
		if a.has("store") {
			c.Owner = sc.named("store", a)
		}
		return c
	case "forget":
		return &ForgetObjects{Names: []catalog.Name{sc.name(a, a.m["object"], sc.maker(a))}}
	case "end-audit":
		return &EndAudit{uint16(a.num("history"))}
	}
	return nil
}

// showCold prints garbage, and what follows from a catalog.
func (sc *script) showCold(a args) string {
	var b strings.Builder
	if a.has("garbage") {
		for g := range sc.s.Garbage() {
			where := ""
			if g.Name.Object.Kind != catalog.Cut {
				where = fmt.Sprintf(" %d:%d [%d, %d)", g.Name.Topic[15], g.Name.Partition, g.Name.Start, g.Name.End)
			}
			fmt.Fprintf(&b, "garbage %s%s since=%d %s", formatObject(g.Name.Object), where, g.Since, g.Reason)
			if g.Page != nil {
				fmt.Fprintf(&b, " lists=%d", g.Page.Count)
			}
			if g.Gone {
				b.WriteString(" gone")
			}
			b.WriteString("\n")
		}
	}
	if a.has("cold") {
		for p := range sc.s.Partitions(topicID(a.num("cold"))) {
			fmt.Fprintf(&b, "%d:%d cold-end=%d", p.Topic[15], p.Number, p.ColdEnd())
			if from, to, ok := p.NextExport(); ok {
				fmt.Fprintf(&b, " export=[%d, %d)", from, to)
			}
			for _, r := range p.Ranges {
				if from, to, ok := p.NextOrphan(r.Exporter); ok && r.Status == RangeOrphaned {
					fmt.Fprintf(&b, " orphan=[%d, %d)", from, to)
					break
				}
			}
			end, tail := p.Takeover()
			fmt.Fprintf(&b, " takeover=%d/%d\n", end, tail)
		}
	}
	return b.String()
}

func formatObject(o catalog.Object) string {
	switch o.Kind {
	case catalog.Cut:
		return fmt.Sprintf("cut%d(%d/%d)", o.Number, o.Store[15], o.Incarnation)
	case catalog.PageObject:
		return fmt.Sprintf("page%d(%d)", o.Unique, o.Incarnation)
	}
	return fmt.Sprintf("own%d(%d)", o.Unique, o.Incarnation)
}

func formatCatalog(p *Partition) string {
	var b strings.Builder
	for _, page := range p.Catalog.Pages() {
		fmt.Fprintf(&b, "  page [%d, %d) %s of %d\n", page.Start, page.End, formatObject(page.Object), page.Count)
	}
	for s := range p.Catalog.All() {
		fmt.Fprintf(&b, "  segment [%d, %d) %s\n", s.Start, s.End, formatObject(s.Object))
	}
	return b.String()
}
