package keys

import (
	"testing"

	"github.com/danubemq/danube/meta/catalog"
)

func own(run, unique uint64) catalog.Name {
	return catalog.Name{Topic: [16]byte{1}, Partition: 3, Start: 10, End: 20, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: run, Unique: unique}}
}

// What a catalog calls an object and what the store calls it tell each other.
func TestKeysAndNamesAreTheSame(t *testing.T) {
	for _, n := range []catalog.Name{
		own(1, 2),
		{Object: catalog.Object{Kind: catalog.Cut, Store: [16]byte{5}, Incarnation: 3, Number: 9, Unique: 1}},
		{Topic: [16]byte{1}, Start: 1, End: 2, Object: catalog.Object{Kind: catalog.PageObject, Incarnation: 3, Unique: 1}},
	} {
		if got, ok := NameOf(Of(n)); !ok || got != n {
			t.Errorf("%s is read as %v", Of(n), got)
		}
	}
	for _, key := range []string{"", "cluster", "check/abc", Manifest{Index: 1}.String(), Of(own(1, 2)) + "x", Of(own(0, 2))} {
		if n, ok := NameOf(key); ok {
			t.Errorf("%q is read as %v", key, n)
		}
	}
}
