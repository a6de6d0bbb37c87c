package keys

import "github.com/danubemq/danube/meta/catalog"

// Of returns the key of the object that a catalog names.
func Of(n catalog.Name) string {
	o := n.Object
	switch o.Kind {
	case catalog.Cut:
		return Cut{Store: o.Store, Incarnation: o.Incarnation, Number: o.Number, Unique: o.Unique}.String()
	case catalog.PageObject:
		return Page{Topic: n.Topic, Partition: n.Partition, Start: n.Start, End: n.End, Incarnation: o.Incarnation, Unique: o.Unique}.String()
	}
	return Segment{
		Topic: n.Topic, Partition: n.Partition, Start: n.Start, End: n.End, Epoch: o.Epoch, Incarnation: o.Incarnation, Unique: o.Unique,
	}.String()
}

// NameOf is the reverse of Of. False: it is the key of no segment, cut or page, or
// of one that no catalog can name.
func NameOf(key string) (n catalog.Name, ok bool) {
	if s, err := ParseSegment(key); err == nil {
		n = catalog.Name{Topic: s.Topic, Partition: s.Partition, Start: s.Start, End: s.End}
		n.Object = catalog.Object{Kind: catalog.Own, Epoch: s.Epoch, Incarnation: s.Incarnation, Unique: s.Unique}
	} else if p, err := ParsePage(key); err == nil {
		n = catalog.Name{Topic: p.Topic, Partition: p.Partition, Start: p.Start, End: p.End}
		n.Object = catalog.Object{Kind: catalog.PageObject, Incarnation: p.Incarnation, Unique: p.Unique}
	} else if c, err := ParseCut(key); err == nil {
		n.Object = catalog.Object{Kind: catalog.Cut, Store: c.Store, Incarnation: c.Incarnation, Number: c.Number, Unique: c.Unique}
	}
	return n, n.Valid()
}
