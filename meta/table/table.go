// Package table is an ordered map whose copy costs nothing: both sides share nodes until one of them writes. A copy that
// is only read may be read by any number of goroutines.
package table

import (
	"iter"

	"github.com/tidwall/btree"
)

// Table is the map.
type Table[K, V any] struct {
	t *btree.BTreeG[row[K, V]]
}

type row[K, V any] struct {
	key   K
	value V
}

// New returns an empty table whose keys are ordered by compare.
func New[K, V any](compare func(a, b K) int) Table[K, V] {
	less := func(a, b row[K, V]) bool { return compare(a.key, b.key) < 0 }
	// Every view makes the next write copy one node of each level; half the usual width halves that.
	return Table[K, V]{btree.NewBTreeGOptions(less, btree.Options{Degree: 16, NoLocks: true})}
}

// Get returns the value of a key; ok says whether there is one.
func (t Table[K, V]) Get(k K) (V, bool) {
	r, ok := t.t.Get(row[K, V]{key: k})
	return r.value, ok
}

// Set puts a value in the place of what was there.
func (t Table[K, V]) Set(k K, v V) { t.t.Set(row[K, V]{k, v}) }

// Delete removes a key, if it is there.
func (t Table[K, V]) Delete(k K) { t.t.Delete(row[K, V]{key: k}) }

// Len returns how many keys there are.
func (t Table[K, V]) Len() int { return t.t.Len() }

// Copy takes constant time.
func (t Table[K, V]) Copy() Table[K, V] { return Table[K, V]{t.t.Copy()} }

// From yields rows in order, beginning with the first whose key is not below k.
func (t Table[K, V]) From(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.t.Ascend(row[K, V]{key: k}, func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}

// All yields all rows in order.
func (t Table[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.t.Scan(func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}
