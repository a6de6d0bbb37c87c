package upkeep

import "github.com/danubemq/danube/meta/catalog"

// pagePart: a run shorter than this part of Hot is not worth a page.
const pagePart = 8

// Page returns the segments that go into a page now, none if the catalog is not long: the longest run within its oldest
// half that a page may list. It lists no piece of a cut, leaves no offset of a range out and passes no other page; what the
// log's start is in stays outside, or the page would have to be taken back soon. What is to be merged first, as pending
// says, waits for that unless the catalog is twice as long as it should be.
func (l Limits) Page(p Partition, pending []Merge) []catalog.Segment {
	l = l.WithDefaults()
	n := p.Catalog.Len()
	if n <= l.Hot {
		return nil
	}
	if n > 2*l.Hot {
		pending = nil
	}
	var best, run []catalog.Segment
	i := 0
	for s := range p.Catalog.All() {
		if i++; i > n/2 {
			break
		}
		for len(pending) > 0 && pending[0].End() <= s.Start {
			pending = pending[1:]
		}
		waits := len(pending) > 0 && pending[0].Start() <= s.Start
		if s.Object.Kind != catalog.Own || waits || s.Start < p.LogStart {
			run = nil
			continue
		}
		if k := len(run); k == catalog.MaxPage || k > 0 && !p.joins(run[k-1].End, s.Start) {
			run = nil
		}
		if run = append(run, s); len(run) > len(best) {
			best = run
		}
	}
	if len(best) < max(2, l.Hot/pagePart) {
		return nil
	}
	return best
}

// joins says whether a page may reach over [from, to), which lies between two segments: nothing that a range holds is
// missing there, and no page lies there.
func (p *Partition) joins(from, to uint64) bool {
	for _, r := range p.Ranges {
		if a, b := max(r.Start, from), min(r.End, to); a < b {
			return false // uncovered: or a segment would stand there, or a page does
		}
	}
	for _, page := range p.Catalog.Pages() {
		if page.Start < to && from < page.End {
			return false
		}
	}
	return true
}

// Unpage returns the page whose segments have to be taken back, because retention has passed a quarter of it: what lies
// in a page is given up only as a whole. The state condemns what lies below the log's start, and each such page frees at
// least a quarter of it, so that folding what is left again costs no more than that.
func (l Limits) Unpage(p Partition) (catalog.Page, bool) {
	pages := p.Catalog.Pages()
	if len(pages) == 0 {
		return catalog.Page{}, false
	}
	first := pages[0]
	return first, first.Start+(first.End-first.Start)/4 < p.LogStart
}
