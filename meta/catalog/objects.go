package catalog

import (
	"fmt"
	"iter"
	"slices"

	"github.com/tidwall/btree"
)

// Reason says why nobody needs an object any more.
type Reason uint8

// The reasons.
const (
	Superseded Reason = iota + 1 // others cover the same offsets
	Expired                      // the log's start has passed it
	Deleted                      // its topic is deleted
	Abandoned                    // it was never committed
)

// String returns the reason as output spells it.
func (r Reason) String() string {
	if r < Superseded || r > Abandoned {
		return fmt.Sprintf("unknown(%d)", uint8(r))
	}
	return [...]string{"superseded", "expired", "deleted", "abandoned"}[r-Superseded]
}

// Garbage is an object that nobody needs any more. It is deleted after a grace, for readers of an older view (R12).
type Garbage struct {
	Name   Name   `msgpack:"n"`
	Since  int64  `msgpack:"s"` // Unix milliseconds
	Reason Reason `msgpack:"r"`
	Page   *Page  `msgpack:"p,omitempty"` // a page whose list is not condemned yet: CondemnPage first
	Gone   bool   `msgpack:"g,omitempty"` // it is deleted; its name is kept while its run might still commit it
}

// Objects is what is known of objects beside what the catalogs of partitions say: how many segments lie in each cut, and
// which objects are garbage. Records are never changed in place. A copy that is only read may be read by any number of
// goroutines.
type Objects struct {
	garbage *btree.BTreeG[*Garbage]
	cuts    *btree.BTreeG[cutPieces]
}

type cutPieces struct {
	cut Object
	n   int
}

// NewObjects returns an empty set.
func NewObjects() Objects {
	o := btree.Options{Degree: 16, NoLocks: true}
	return Objects{
		garbage: btree.NewBTreeGOptions(func(a, b *Garbage) bool { return a.Name.Compare(b.Name) < 0 }, o),
		cuts:    btree.NewBTreeGOptions(func(a, b cutPieces) bool { return a.cut.Compare(b.cut) < 0 }, o),
	}
}

// Copy takes constant time: both sides share what neither writes to.
func (o Objects) Copy() Objects { return Objects{garbage: o.garbage.Copy(), cuts: o.cuts.Copy()} }

// Garbage yields what nobody needs any more, that of a partition side by side; what is Gone too.
func (o Objects) Garbage() iter.Seq[*Garbage] {
	return func(yield func(*Garbage) bool) { o.garbage.Scan(yield) }
}

// Len returns how much garbage there is.
func (o Objects) Len() int { return o.garbage.Len() }

// GarbageOf returns what is known of an object that nobody needs, nil if it is none.
func (o Objects) GarbageOf(n Name) *Garbage {
	g, _ := o.garbage.Get(&Garbage{Name: n})
	return g
}

// Pieces returns how many segments of catalogs lie in a cut.
func (o Objects) Pieces(cut Object) int {
	p, _ := o.cuts.Get(cutPieces{cut: cut})
	return p.n
}

// Cuts yields the cuts in which segments lie, with how many.
func (o Objects) Cuts() iter.Seq2[Object, int] {
	return func(yield func(Object, int) bool) {
		o.cuts.Scan(func(p cutPieces) bool { return yield(p.cut, p.n) })
	}
}

// Named says whether a catalog names the object; in is that of the partition that its name tells. What a page lists is
// known to those who read it: Named is false of it.
func (o Objects) Named(n Name, in *Catalog) bool {
	switch n.Object.Kind {
	case Cut:
		return o.Pieces(n.Object) > 0
	case PageObject:
		p, ok := in.Page(n.Start)
		return ok && p.Object == n.Object && p.Start == n.Start && p.End == n.End
	}
	s, ok := in.Find(n.Start)
	return ok && s.Object == n.Object && s.Start == n.Start && s.End == n.End
}

// Add counts a segment that joins a catalog.
func (o Objects) Add(s Segment) {
	if s.Object.Kind == Cut {
		o.cuts.Set(cutPieces{s.Object, o.Pieces(s.Object) + 1})
	}
}

// Release takes note that a catalog of the partition names a segment no more, and returns the name of its object if that
// is garbage now: of a cut, when no other segment lies in it.
func (o Objects) Release(topic [16]byte, partition uint32, s Segment) (n Name, garbage bool) {
	n = NewName(topic, partition, s.Object, s.Start, s.End)
	if s.Object.Kind != Cut {
		return n, true
	}
	if left := o.Pieces(s.Object) - 1; left > 0 {
		o.cuts.Set(cutPieces{s.Object, left})
		return n, false
	}
	o.cuts.Delete(cutPieces{cut: s.Object})
	return n, true
}

// Discard makes an object garbage.
func (o Objects) Discard(g Garbage) { o.garbage.Set(&g) }

// TakenBack says whether a page of the partition that began at start is garbage and its list is not.
func (o Objects) TakenBack(topic [16]byte, partition uint32, start uint64, page Object) bool {
	found := false
	o.garbage.Ascend(&Garbage{Name: Name{Topic: topic, Partition: partition, Start: start}}, func(g *Garbage) bool {
		found = g.Name.Object == page && g.Page == nil
		return !found && g.Name.Topic == topic && g.Name.Partition == partition && g.Name.Start == start
	})
	return found
}

// CondemnPage makes garbage of what a page lists that is garbage, as its content proves; once is enough. ErrDamaged if the
// content is another's.
func (o Objects) CondemnPage(page Name, content []byte) error {
	g := o.GarbageOf(page)
	if g == nil || g.Page == nil {
		return nil
	}
	c, err := DecodePage(content)
	if err != nil || !g.Page.Holds(content) {
		return fmt.Errorf("%w: that is not what %v lists", ErrDamaged, page)
	}
	for _, s := range c.Segments {
		o.Discard(Garbage{Name: NewName(page.Topic, page.Partition, s.Object, s.Start, s.End), Since: g.Since, Reason: g.Reason})
	}
	n := *g
	n.Page = nil
	o.Discard(n)
	return nil
}

// Lists are pages that were read, by the names of their objects.
type Lists map[Name][]Segment

// ReadPages returns what pages list whose content is given and which the catalog of their partition, as find tells, has.
func ReadPages(contents [][]byte, find func(topic [16]byte, partition uint32) *Catalog) (Lists, error) {
	lists := make(Lists, len(contents))
	for _, b := range contents {
		c, err := DecodePage(b)
		if err != nil {
			return nil, err
		}
		if p, ok := find(c.Topic, c.Partition).Page(c.Segments[0].Start); ok && p.Holds(b) {
			lists[NewName(c.Topic, c.Partition, p.Object, p.Start, p.End)] = c.Segments
		}
	}
	return lists, nil
}

// Condemn makes garbage of an object that was never committed; in is the catalog of the partition that its name tells. It
// is refused if a catalog names it, or a page may list it: those that overlap its offsets must be among read.
func (o Objects) Condemn(n Name, in *Catalog, read Lists, at int64) error {
	if o.Named(n, in) {
		return fmt.Errorf("%v is in a catalog", n)
	}
	for _, p := range in.Pages() {
		if n.Object.Kind != Own || n.End <= p.Start || p.End <= n.Start {
			continue
		}
		list, ok := read[NewName(n.Topic, n.Partition, p.Object, p.Start, p.End)]
		if !ok || slices.ContainsFunc(list, func(s Segment) bool { return s.Object == n.Object && s.Start == n.Start }) {
			return fmt.Errorf("page [%d, %d) lists %v, or was not read", p.Start, p.End, n)
		}
	}
	o.Discard(Garbage{Name: n, Since: at, Reason: Abandoned})
	return nil
}

// Forget says that an object is deleted; what is no garbage is a success. It is refused for a page whose list is not
// condemned. Alive: the run that made the object may still propose to name it.
func (o Objects) Forget(n Name, alive bool) error {
	g := o.GarbageOf(n)
	switch {
	case g == nil:
		return nil
	case g.Page != nil:
		return fmt.Errorf("what %v lists is not condemned yet", n)
	case alive && (g.Reason == Abandoned && n.Object.Kind == Own || n.Object.Kind == PageObject):
		// Nothing but this record would refuse a proposal of its run that comes late: what was once committed is covered by
		// others, and cuts are refused by their numbers.
		gone := *g
		gone.Gone = true
		o.Discard(gone)
		return nil
	}
	o.garbage.Delete(g)
	return nil
}
