package history

import (
	"slices"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// RetentionPoint is the highest offset up to which whole segments may be given up, in
// either tier: what the catalog covers counts with its length there, and what it does
// not with that of the log. Of a page of the catalog all is given up or nothing.
func (p *Partition) RetentionPoint(m *state.Partition, r storage.Retention) uint64 {
	point := p.log.RetentionPoint(r)
	if m.Catalog == nil {
		return point
	}
	total := m.Catalog.Bytes() + p.unexported(m)
	gone := func(end uint64, bytes, last int64) bool {
		old := r.Age > 0 && r.Now-last > r.Age
		large := r.Bytes > 0 && total-bytes >= r.Bytes
		if !old && !large && end > r.Acked {
			return false
		}
		total -= bytes
		point = max(point, min(end, p.log.Committed()))
		return true
	}
	pages := slices.Clone(m.Catalog.Pages())
	for s := range m.Catalog.From(m.LogStart) {
		for len(pages) > 0 && pages[0].Start < s.Start {
			if g := pages[0]; !gone(g.End, g.Bytes, g.LastTime) {
				return point
			}
			pages = pages[1:]
		}
		if !gone(s.End, s.Bytes, s.LastTime) {
			return point
		}
	}
	for _, g := range pages {
		if !gone(g.End, g.Bytes, g.LastTime) {
			break
		}
	}
	return point
}

// unexported is how long what the catalog does not cover is, about.
func (p *Partition) unexported(m *state.Partition) int64 {
	from, _, ok := m.NextExport()
	if !ok {
		return 0
	}
	b, err := p.log.Backlog(from)
	if err != nil {
		return 0 // it lies elsewhere, or is damaged
	}
	return b.Bytes
}
