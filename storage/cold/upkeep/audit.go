package upkeep

import (
	"fmt"
	"iter"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold/keys"
)

// Verdict says what an object is, to the catalog and in the store.
type Verdict uint8

// The verdicts. Those up to Metadata are as it should be.
const (
	Catalogued Verdict = iota + 1 // a catalog or a page names it
	Waiting                       // garbage that is going to be deleted
	UnderWay                      // no catalog names it, and its run may still commit it
	Metadata                      // the cluster's own: no catalog speaks of it
	Abandoned                     // no catalog names it, and its run is over
	Returned                      // it was deleted, and is there again: an upload that came late
	Unknown                       // no catalog names it, and nobody knows the run that its name tells
	Foreign                       // its name is none of ours
	Missing                       // a catalog names it, and it is not in the store
	Resized                       // a catalog names it with another length
	Unread                        // a page of a catalog cannot be read: nobody knows what it lists
)

// String returns the verdict as output spells it.
func (v Verdict) String() string {
	names := [...]string{"catalogued", "waiting", "under way", "metadata", "abandoned", "returned", "unknown", "foreign", "missing", "resized", "unread"}
	if v < Catalogued || int(v) > len(names) {
		return fmt.Sprintf("verdict %d", uint8(v))
	}
	return names[v-1]
}

// Sound says whether nobody has to do anything about it.
func (v Verdict) Sound() bool { return v <= Metadata }

// Object is an object as a listing shows it.
type Object struct {
	Key  string
	Size int64 // bytes
}

// Finding is what an audit says of one object.
type Finding struct {
	Key     string
	Name    catalog.Name // zero if the key is no name of ours
	Verdict Verdict
	Size    int64 // bytes in the store; 0 if it is not there
	Want    int64 // bytes that catalogs say; of a cut, at least
	Reason  catalog.Reason
}

// Named is what catalogs name, each with its length in bytes; of a cut, the end of its last piece. It is made for one
// partition, or for all cuts.
type Named map[catalog.Name]int64

// NamedBy returns what the catalog of a partition names, cuts aside, and what the pages list that were read.
func NamedBy(p Partition, lists catalog.Lists) Named {
	out := Named{}
	own := func(s catalog.Segment) {
		if s.Object.Kind == catalog.Own {
			out[catalog.NewName(p.Topic, p.Number, s.Object, s.Start, s.End)] = s.Bytes
		}
	}
	for s := range p.Catalog.All() {
		own(s)
	}
	for _, page := range p.Catalog.Pages() {
		name := catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)
		out[name] = page.Size
		for _, s := range lists[name] {
			own(s)
		}
	}
	return out
}

// NamedCuts returns the cuts that catalogs name.
func NamedCuts(all iter.Seq[Partition]) Named {
	out := Named{}
	for p := range all {
		for s := range p.Catalog.All() {
			if s.Object.Kind == catalog.Cut {
				n := catalog.Name{Object: s.Object}
				out[n] = max(out[n], s.Position+s.Bytes)
			}
		}
	}
	return out
}

// Judge says what a listed object is. The version v is no older than the listing. Whole says whether every page was read
// that may list it: otherwise nobody can say that no catalog names it.
func (n Named) Judge(v View, o Object, whole bool) Finding {
	f := Finding{Key: o.Key, Size: o.Size}
	name, ok := keys.NameOf(o.Key)
	if !ok {
		f.Verdict = Foreign
		if metadata(o.Key) {
			f.Verdict = Metadata
		}
		return f
	}
	f.Name = name
	want, named := n[name]
	g := v.GarbageOf(name)
	switch {
	case named:
		f.Want, f.Verdict = want, Catalogued
		if o.Size < want || o.Size > want && name.Object.Kind != catalog.Cut {
			f.Verdict = Resized
		}
	case g != nil:
		f.Reason, f.Verdict = g.Reason, Waiting
		if g.Gone {
			f.Verdict = Returned
		}
	case !whole:
		f.Verdict = Unread
	default:
		f.Verdict = unnamed(v.Run(name.Object.Incarnation))
	}
	return f
}

// unnamed is what an object is that no catalog names.
func unnamed(r catalog.Run) Verdict {
	switch r {
	case catalog.Alive:
		return UnderWay
	case catalog.Over:
		return Abandoned
	}
	return Unknown
}

func metadata(key string) bool {
	if _, err := keys.ParseManifest(key); err == nil {
		return true
	}
	_, err := keys.ParseHistory(key)
	return err == nil || key == keys.Cluster
}
