package state

import (
	"slices"

	"github.com/danubemq/danube/meta/catalog"
)

// shelf is what a test keeps of the cold tier: what pages' objects hold, and names that were ever made.
type shelf struct {
	contents map[catalog.Name][]byte
	made     []catalog.Name
	unique   uint64
	cuts     map[uint64]uint64 // by run: the number of the next cut
}

// make returns a segment that o has made, as its name says; a cut's number goes up by one.
func (g *generator) make(p *Partition, start, end uint64, o Owner) catalog.Segment {
	g.shelf.unique++
	s := testSegment(start, end, g.shelf.unique, o, catalog.Kind(g.n("kind", 1, 2)))
	if s.Object.Kind == catalog.Cut {
		s.Object.Number = g.shelf.cuts[o.Incarnation]
		if g.n("one cut more", 0, 1) == 1 || s.Object.Number == 0 {
			g.shelf.cuts[o.Incarnation]++
			s.Object.Number++
		}
		s.Object.Unique = s.Object.Number // pieces of one cut name one object
		s.Position = int64(start)
	}
	g.shelf.made = append(g.shelf.made, catalog.NewName(p.Topic, p.Number, s.Object, s.Start, s.End))
	return s
}

// coldCommand draws a command about the cold tier that mostly fits p.
func (g *generator) coldCommand(p *Partition) Command {
	if g.shelf == nil {
		g.shelf = &shelf{contents: map[catalog.Name][]byte{}, cuts: map[uint64]uint64{}}
	}
	away := slices.ContainsFunc(p.Ranges, func(r Range) bool {
		return r.Status == RangeOrphaned && slices.ContainsFunc(r.Stores, g.s.present)
	})
	if away && g.n("bring it back", 0, 1) == 0 {
		return []func(*Partition) Command{g.export, g.commit, g.back}[g.n("how", 0, 2)](p)
	}
	switch g.n("cold", 0, 15) {
	case 0, 1, 2, 3, 4:
		return g.commit(p)
	case 5:
		return g.export(p)
	case 6, 7:
		return g.swap(p)
	case 8:
		return g.page(p)
	case 9:
		return g.unpage(p)
	case 10:
		return g.condemn(p)
	case 11:
		return g.condemnPage()
	case 12:
		return g.forget()
	case 13:
		if p.State == Opening && g.s.fence(p.Owner) == nil {
			end, tail := p.Takeover()
			return &OpenPartitions{Owner: p.Owner, Entries: []PartitionOpen{{p.Topic, p.Number, p.Epoch, end, tail}}}
		}
		return g.drop(p)
	case 14:
		u := PartitionUpdate{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, At: int64(g.n("at", 1, 100)), Floor: g.n("floor", p.Floor, min(p.Ceiling, p.Floor+30))}
		if u.LogStart = p.LogStart; g.n("far", 0, 3) == 0 {
			u.LogStart = g.n("start", p.LogStart, min(p.Floor, p.LogStart+20))
		}
		return &UpdatePartitions{Entries: []PartitionUpdate{u}}
	}
	return g.back(p)
}

func (g *generator) commit(p *Partition) Command {
	owner := p.Owner
	from, to, ok := p.NextExport()
	if g.n("orphan", 0, 1) == 1 {
		for _, r := range p.Ranges {
			if f, t, found := p.NextOrphan(r.Exporter); found && r.Status == RangeOrphaned {
				owner, from, to, ok = r.Exporter, f, t, true
			}
		}
	}
	if !ok {
		from, to = g.n("from", p.LogStart, p.Ceiling), p.Ceiling
	}
	if g.n("wrong start", 0, 12) == 0 {
		from = g.n("from", 0, p.Ceiling)
	}
	if to = min(to, from+g.n("length", 1, 40)); g.n("wrong end", 0, 20) == 0 {
		to = from + g.n("length", 0, 500)
	}
	if from >= to {
		to = from + 1
	}
	if g.n("wrong owner", 0, 20) == 0 {
		owner = g.owner()
	}
	e := SegmentCommit{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch - min(p.Epoch, g.n("old", 0, 20)/20), Segment: g.make(p, from, to, owner)}
	if e.Epochs = p.Epochs(max(from, p.LogStart), to); g.n("wrong epochs", 0, 20) == 0 && len(e.Epochs) > 0 {
		e.Epochs[0].Epoch++
	}
	return &CommitSegments{Owner: owner, Entries: []SegmentCommit{e}}
}

// export grants the export of an orphaned range to a store that may hold it.
func (g *generator) export(p *Partition) Command {
	for _, r := range p.Ranges {
		if i := slices.IndexFunc(r.Stores, g.s.present); r.Status == RangeOrphaned && i >= 0 {
			o := Owner{r.Stores[i], g.s.Store(r.Stores[i]).Incarnation}
			return &GrantExports{Entries: []ExportGrant{{p.Topic, p.Number, p.Epoch, r.Start, r.End, o}}}
		}
	}
	r := g.span(p)
	return &GrantExports{Entries: []ExportGrant{{p.Topic, p.Number, p.Epoch, r.Start, r.End, g.owner()}}}
}

// some draws neighbours of the catalog of p.
func (g *generator) some(p *Partition, most uint64, fits func(catalog.Segment) bool) (run []catalog.Segment) {
	list := slices.Collect(p.Catalog.All())
	if len(list) == 0 {
		return nil
	}
	for _, s := range list[g.n("first", 0, uint64(len(list)-1)):] {
		if n := len(run); uint64(n) == most || n > 0 && run[n-1].End != s.Start || !fits(s) {
			break
		}
		run = append(run, s)
	}
	return run
}

func (g *generator) swap(p *Partition) Command {
	run := g.some(p, g.n("most", 1, 5), func(catalog.Segment) bool { return true })
	if run == nil {
		return g.commit(p)
	}
	e := SegmentSwap{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch}
	for _, s := range run {
		e.Inputs = append(e.Inputs, catalog.Input{Start: s.Start, Object: s.Object})
	}
	last := run[len(run)-1]
	cuts := []uint64{run[0].Start, last.End}
	if g.n("apart", 0, 2) == 0 && len(run) > 1 {
		cuts = []uint64{run[0].Start, run[1].Start, last.End}
	}
	for i := range cuts[1:] {
		out := testSegment(cuts[i], cuts[i+1], g.shelf.unique+1, p.Owner, catalog.Own)
		g.shelf.unique++
		g.shelf.made = append(g.shelf.made, catalog.NewName(p.Topic, p.Number, out.Object, out.Start, out.End))
		e.Outputs = append(e.Outputs, out)
	}
	switch g.n("wrong", 0, 12) {
	case 0:
		e.Inputs[0].Object.Unique++
	case 1:
		e.Outputs[0].End++
	case 2:
		e.Inputs = e.Inputs[:len(e.Inputs)-1]
	}
	return &SwapSegments{Owner: p.Owner, At: 50, Entries: []SegmentSwap{e}}
}

func (g *generator) page(p *Partition) Command {
	run := g.some(p, 4, func(s catalog.Segment) bool { return s.Object.Kind == catalog.Own || g.n("cut", 0, 9) == 0 })
	if run == nil {
		return g.commit(p)
	}
	if g.n("hole", 0, 5) == 0 {
		// Over what lies between, if there is something.
		for s := range p.Catalog.From(run[len(run)-1].End) {
			run = append(run, s)
			break
		}
	}
	g.shelf.unique++
	page, content := catalog.NewPage(p.Topic, p.Number, run, catalog.Object{Kind: catalog.PageObject, Incarnation: p.Owner.Incarnation, Unique: g.shelf.unique})
	name := catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)
	g.shelf.contents[name] = content
	g.shelf.made = append(g.shelf.made, name)
	if g.n("wrong", 0, 9) == 0 {
		page.CRC++
	}
	return &PageCatalog{p.Owner, p.Topic, p.Number, p.Epoch, page}
}

func (g *generator) unpage(p *Partition) Command {
	pages := p.Catalog.Pages()
	if len(pages) == 0 {
		return g.page(p)
	}
	page := pages[g.n("page", 0, uint64(len(pages)-1))]
	content := g.shelf.contents[catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)]
	return &UnpageCatalog{p.Owner, p.Topic, p.Number, p.Epoch, page.Start, page.Object, content, 60}
}

// condemn gives up an object, in the name of who made it or of nobody.
func (g *generator) condemn(p *Partition) Command {
	if len(g.shelf.made) == 0 {
		return g.commit(p)
	}
	c := &CondemnObjects{At: 70, Names: []catalog.Name{g.shelf.made[g.n("made", 0, uint64(len(g.shelf.made)-1))]}}
	for _, page := range p.Catalog.Pages() {
		if g.n("read", 0, 9) > 0 {
			c.Pages = append(c.Pages, g.shelf.contents[catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)])
		}
	}
	for st := range g.s.Stores() {
		if st.Incarnation == c.Names[0].Object.Incarnation && g.n("own", 0, 2) > 0 {
			c.Owner = Owner{st.ID, st.Incarnation}
		}
	}
	return c
}

func (g *generator) condemnPage() Command {
	for x := range g.s.Garbage() {
		if x.Page != nil && g.n("this", 0, 2) > 0 {
			return &CondemnPage{x.Name, g.shelf.contents[x.Name]}
		}
	}
	return &EndAudit{uint16(g.n("history", 0, 3))}
}

func (g *generator) forget() Command {
	c := &ForgetObjects{}
	for x := range g.s.Garbage() {
		if g.n("this", 0, 2) == 0 {
			c.Names = append(c.Names, x.Name)
			break
		}
	}
	return c
}

// drop has a store delete its copy of what is sealed.
func (g *generator) drop(p *Partition) Command {
	r := g.span(p)
	for _, x := range p.Ranges {
		if x.Status == RangeSealed && len(x.Stores) > 0 && p.Catalog.Gap(x.Start) > x.Start && g.n("covered", 0, 2) > 0 {
			return &CopyRanges{Entries: []RangeCopy{{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, From: x.Start, To: min(x.End, p.Catalog.Gap(x.Start)), Drop: x.Stores}}}
		}
	}
	return &CopyRanges{Entries: []RangeCopy{{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, From: r.Start, To: r.End, Drop: []StoreID{storeID(g.n("drop", 1, 3))}}}}
}

// back takes an orphaned range back as far as its exporter has committed it.
func (g *generator) back(p *Partition) Command {
	for _, r := range p.Ranges {
		if gap := p.Catalog.Gap(r.Start); r.Status == RangeOrphaned && gap > r.Start {
			c := &RestoreRange{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, From: r.Start, End: min(gap, r.End) - g.n("less", 0, 9)/9, To: r.End}
			if !r.Tail {
				c.To = c.End
			}
			return c
		}
	}
	return g.export(p)
}
