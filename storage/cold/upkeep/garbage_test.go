package upkeep

import (
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold/keys"
)

func own(run, unique uint64) catalog.Name {
	return catalog.Name{Topic: [16]byte{1}, Partition: 3, Start: 10, End: 20, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: run, Unique: unique}}
}

func garbage(list ...catalog.Garbage) (iter.Seq[*catalog.Garbage], func(catalog.Name) *catalog.Garbage) {
	all := map[catalog.Name]*catalog.Garbage{}
	for _, g := range list {
		all[g.Name] = &g
	}
	return maps.Values(all), func(n catalog.Name) *catalog.Garbage { return all[n] }
}

// runs: the first is over, the second lives, others were never heard of.
func runs(n uint64) catalog.Run {
	switch n {
	case 1:
		return catalog.Over
	case 2:
		return catalog.Alive
	}
	return catalog.Unheard
}

func TestGarbageIsDeletedAfterItsGraceAndNotUnderAudit(t *testing.T) {
	const hour = int64(time.Hour / time.Millisecond)
	all, of := garbage(
		catalog.Garbage{Name: own(1, 1), Since: 1000, Reason: catalog.Superseded},
		catalog.Garbage{Name: own(1, 2), Since: 2000, Reason: catalog.Expired},
		catalog.Garbage{Name: own(1, 3), Since: 10, Reason: catalog.Abandoned, Gone: true},
		catalog.Garbage{Name: own(2, 4), Since: 10, Reason: catalog.Abandoned, Gone: true},
	)
	v := View{Garbage: all, GarbageOf: of, Run: runs}
	for name, test := range map[string]struct {
		now             int64
		audit           bool
		delete, waiting int
	}{
		"before the grace":       {999 + hour, false, 0, 2},
		"the first is over it":   {1000 + hour, false, 1, 1},
		"both":                   {2000 + hour, false, 2, 0},
		"under audit":            {5000 + hour, true, 0, 2},
		"the clock was set back": {0, false, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			v.Auditing = test.audit
			d := Limits{}.Dispose(v, test.now, 10)
			if len(d.Delete) != test.delete || d.Waiting != test.waiting || !slices.Equal(d.Forget, []catalog.Name{own(1, 3)}) {
				t.Errorf("%+v", d)
			}
		})
	}
	v.Auditing = false
	if d := (Limits{}).Dispose(v, 10*hour, 1); len(d.Delete) != 1 || d.Waiting != 1 {
		t.Errorf("%+v, want one at once", d)
	}
}

// TestObjectsAreJudged: what a listing shows is never garbage because nobody knows it; its run must be over.
func TestObjectsAreJudged(t *testing.T) {
	all, of := garbage(
		catalog.Garbage{Name: own(1, 50), Reason: catalog.Expired},
		catalog.Garbage{Name: own(2, 51), Reason: catalog.Abandoned, Gone: true},
	)
	v := View{Garbage: all, GarbageOf: of, Run: runs}
	cut := catalog.Name{Object: catalog.Object{Kind: catalog.Cut, Store: [16]byte{5}, Incarnation: 1, Number: 9, Unique: 1}}
	named := Named{own(1, 1): 100, cut: 300}
	for name, test := range map[string]struct {
		key   string
		size  int64
		blind bool
		want  Verdict
	}{
		"in the catalog":                 {keys.Of(own(1, 1)), 100, false, Catalogued},
		"shorter than the catalog says":  {keys.Of(own(1, 1)), 99, false, Resized},
		"longer":                         {keys.Of(own(1, 1)), 101, false, Resized},
		"a cut, with an index behind":    {keys.Of(cut), 400, false, Catalogued},
		"a cut that is cut short":        {keys.Of(cut), 299, false, Resized},
		"garbage":                        {keys.Of(own(1, 50)), 1, false, Waiting},
		"deleted and there again":        {keys.Of(own(2, 51)), 1, false, Returned},
		"its run is over":                {keys.Of(own(1, 7)), 1, false, Abandoned},
		"its run lives":                  {keys.Of(own(2, 7)), 1, false, UnderWay},
		"of no run that is known":        {keys.Of(own(9, 7)), 1, false, Unknown},
		"a page was not read":            {keys.Of(own(1, 7)), 1, true, Unread},
		"in the catalog, page not read":  {keys.Of(own(1, 1)), 100, true, Catalogued},
		"somebody's":                     {"holiday.jpg", 1, false, Foreign},
		"nearly ours":                    {keys.Of(own(1, 7)) + ".bak", 1, false, Foreign},
		"the cluster's":                  {keys.Cluster, 1, false, Metadata},
		"a manifest":                     {keys.Manifest{Index: 3}.String(), 1, false, Metadata},
		"a history":                      {keys.History(1), 1, false, Metadata},
		"with the number of no run":      {keys.Of(own(0, 7)), 1, false, Foreign},
		"a segment that holds no offset": {keys.Segment{Topic: [16]byte{1}, Epoch: 1, Incarnation: 1}.String(), 1, false, Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			if f := named.Judge(v, Object{test.key, test.size}, !test.blind); f.Verdict != test.want {
				t.Errorf("%v, want %v", f.Verdict, test.want)
			}
		})
	}
	for v := Catalogued; v <= Unread; v++ {
		if v.String() == "" || v.Sound() != (v <= Metadata) {
			t.Errorf("verdict %d", v)
		}
	}
}
