package state

import (
	"slices"

	"github.com/danubemq/danube/meta/catalog"
)

// Commands that write down otherwise what a catalog covers (R12).

// compacts returns a partition whose owner may do that.
func (s *State) compacts(owner Owner, topic TopicID, n uint32, epoch uint64) (Partition, error) {
	p, err := s.partition(topic, n)
	if err != nil {
		return p, err
	}
	if err := p.at(epoch); err != nil {
		return p, err
	}
	if p.Owner != owner || p.State == Opening {
		return p, refuse(ErrFenced, "partition is %s with %v, not with %v", p.State, p.Owner, owner)
	}
	return p, nil
}

func (c *SwapSegments) apply(s *State) Result {
	if err := s.fence(c.Owner); err != nil {
		return Result{Err: err}
	}
	return each(len(c.Entries), func(i int) error { return s.swap(c, &c.Entries[i]) })
}

func (s *State) swap(c *SwapSegments, e *SegmentSwap) error {
	p, err := s.compacts(c.Owner, e.Topic, e.Partition, e.Epoch)
	if err != nil {
		return err
	}
	if len(e.Outputs) == 0 {
		return refuse(ErrInvalid, "nothing takes the place of %d segments", len(e.Inputs))
	}
	first, end := e.Outputs[0].Start, e.Outputs[len(e.Outputs)-1].End
	if slices.Equal(p.Catalog.Between(first, end), e.Outputs) {
		return nil // this is that swap again
	}
	inputs, err := p.Catalog.Inputs(e.Inputs)
	if err != nil {
		return refused(err)
	}
	if err := catalog.Replaces(e.Outputs, inputs); err != nil {
		return invalid(err)
	}
	for _, out := range e.Outputs {
		r := p.Range(max(out.Start, p.LogStart))
		if within := r != nil && out.End <= p.end(r); !within && catalog.Alone(out, inputs) == (catalog.Object{}) {
			return refuse(ErrInvalid, "segment [%d, %d) does not lie within one range", out.Start, out.End)
		}
		if err := s.usable(catalog.NewName(p.Topic, p.Number, out.Object, out.Start, out.End), c.Owner); err != nil {
			return err
		}
	}
	p.Catalog = p.Catalog.Replace(first, end, e.Outputs)
	for _, seg := range inputs {
		s.release(&p, seg, catalog.Garbage{Since: c.At, Reason: catalog.Superseded})
	}
	s.put(p)
	return nil
}

func (c *PageCatalog) apply(s *State) Result { return Result{Err: s.page(c)} }

func (s *State) page(c *PageCatalog) error {
	if err := s.fence(c.Owner); err != nil {
		return err
	}
	p, err := s.compacts(c.Owner, c.Topic, c.Partition, c.Epoch)
	if err != nil {
		return err
	}
	if there, ok := p.Catalog.Page(c.Page.Start); ok && there == c.Page {
		return nil // this is that page again
	}
	if err := s.usable(catalog.NewName(p.Topic, p.Number, c.Page.Object, c.Page.Start, c.Page.End), c.Owner); err != nil {
		return err
	}
	list := p.Catalog.Between(c.Page.Start, c.Page.End)
	if len(list) == 0 || len(list) > catalog.MaxPage || slices.ContainsFunc(list, func(seg catalog.Segment) bool { return seg.Object.Kind != catalog.Own }) {
		return refuse(ErrConflict, "%d segments from %d on are no page: 1 to %d that have objects of their own are", len(list), c.Page.Start, catalog.MaxPage)
	}
	// The object was made of these segments exactly, or its checksum is another.
	if made, _ := catalog.NewPage(p.Topic, p.Number, list, c.Page.Object); made != c.Page {
		return refuse(ErrConflict, "page [%d, %d) does not list what the catalog has there now", c.Page.Start, c.Page.End)
	}
	if !p.whole(c.Page.Start, c.Page.End) {
		return refuse(ErrConflict, "a range within [%d, %d) is not covered", c.Page.Start, c.Page.End)
	}
	p.Catalog = p.Catalog.Fold(c.Page)
	s.put(p)
	return nil
}

// whole says whether segments cover all that ranges hold of [from, to), and no page lies in it.
func (p *Partition) whole(from, to uint64) bool {
	for i := range p.Ranges {
		r := &p.Ranges[i]
		if r.overlaps(from, to) && !p.Catalog.Covers(max(r.Start, from), min(p.end(r), to)) {
			return false
		}
	}
	for _, page := range p.Catalog.Pages() {
		if page.Start < to && from < page.End {
			return false
		}
	}
	return true
}

func (c *UnpageCatalog) apply(s *State) Result { return Result{Err: s.unpage(c)} }

func (s *State) unpage(c *UnpageCatalog) error {
	if err := s.fence(c.Owner); err != nil {
		return err
	}
	p, err := s.compacts(c.Owner, c.Topic, c.Partition, c.Epoch)
	if err != nil {
		return err
	}
	page, ok := p.Catalog.Page(c.Start)
	if !ok || page.Object != c.Object {
		if s.objects.TakenBack(p.Topic, p.Number, c.Start, c.Object) {
			return nil
		}
		return refuse(ErrConflict, "no such page of the catalog is at %d", c.Start)
	}
	content, err := catalog.DecodePage(c.Content)
	if err != nil || !page.Holds(c.Content) {
		return refuse(ErrInvalid, "that is not what the page at %d lists", c.Start)
	}
	name := catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)
	s.discard(catalog.Garbage{Name: name, Since: c.At, Reason: catalog.Superseded})
	var left []catalog.Segment
	for _, seg := range content.Segments {
		if seg.End > p.LogStart {
			left = append(left, seg)
			continue
		}
		s.release(&p, seg, catalog.Garbage{Since: c.At, Reason: catalog.Expired})
	}
	p.Catalog = p.Catalog.Unfold(page, left)
	s.put(p)
	return nil
}
