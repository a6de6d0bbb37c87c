package upkeep

import (
	"iter"

	"github.com/danubemq/danube/meta/catalog"
)

// View is one version of the cluster's state, as far as upkeep needs it.
type View struct {
	Partitions iter.Seq[Partition] // all, those of deleted topics too; those of a topic side by side
	Find       func(topic [16]byte, n uint32) (Partition, bool)
	Deleted    iter.Seq[Tombstone]
	Garbage    iter.Seq[*catalog.Garbage]
	GarbageOf  func(catalog.Name) *catalog.Garbage // nil: it is none
	Named      func(catalog.Name) bool             // by a catalog; what pages list is not looked at
	Run        func(incarnation uint64) catalog.Run
	Runs       iter.Seq[uint64] // those that are Alive
	Auditing   bool             // what earlier histories left was not looked at yet: nothing is deleted (R22)
}

// Tombstone is a deleted topic, with its partitions that still have a catalog.
type Tombstone struct {
	Topic      [16]byte
	Partitions []uint32
}

// Disposal is what may be done with garbage now.
type Disposal struct {
	Delete  []catalog.Garbage // objects; of one with a Page, what the page lists is condemned first
	Forget  []catalog.Name    // deleted long ago, and their runs are over by now
	Waiting int               // garbage that stays: within its grace, or under audit
}

// Dispose returns what may be done with garbage at now, Unix milliseconds, for at most so many objects.
func (l Limits) Dispose(v View, now int64, most int) (d Disposal) {
	l = l.WithDefaults()
	for g := range v.Garbage {
		switch {
		case g.Gone:
			if v.Run(g.Name.Object.Incarnation) == catalog.Over && len(d.Forget) < most {
				d.Forget = append(d.Forget, g.Name)
			}
		case v.Auditing, g.Since > now-l.Grace.Milliseconds(), len(d.Delete) >= most:
			d.Waiting++
		default:
			d.Delete = append(d.Delete, *g)
		}
	}
	return d
}
