package table

import (
	"cmp"
	"maps"
	"testing"
)

// TestCopiesDoNotSeeEachOther: what one side writes the other never reads.
func TestCopiesDoNotSeeEachOther(t *testing.T) {
	a := New[int, string](cmp.Compare[int])
	want := map[int]string{}
	for i := range 1000 {
		a.Set(i, "old")
		want[i] = "old"
	}
	b := a.Copy()
	for i := range 1000 {
		if a.Set(i, "new"); i%2 == 0 {
			a.Delete(i)
		}
	}
	b.Set(1000, "b")
	want[1000] = "b"
	if got := maps.Collect(b.All()); !maps.Equal(got, want) || b.Len() != 1001 || a.Len() != 500 {
		t.Fatalf("the copy has %d rows, the other %d", b.Len(), a.Len())
	}
	if v, ok := a.Get(4); ok {
		t.Fatalf("a deleted row is %q", v)
	}
	for k, v := range a.From(500) {
		if k != 501 || v != "new" {
			t.Fatalf("from 500 on the first is %d: %q", k, v)
		}
		break
	}
}
