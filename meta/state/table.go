package state

import (
	"iter"

	"github.com/tidwall/btree"
)

// table is an ordered map whose copy costs nothing: both sides share nodes until one of them writes. A copy that is
// only read may be read by any number of goroutines.
type table[K, V any] struct {
	t *btree.BTreeG[row[K, V]]
}

type row[K, V any] struct {
	key   K
	value V
}

func newTable[K, V any](compare func(a, b K) int) table[K, V] {
	less := func(a, b row[K, V]) bool { return compare(a.key, b.key) < 0 }
	// Every view makes the next write copy one node of each level; half the usual width halves that.
	return table[K, V]{btree.NewBTreeGOptions(less, btree.Options{Degree: 16, NoLocks: true})}
}

func (t table[K, V]) get(k K) (V, bool) {
	r, ok := t.t.Get(row[K, V]{key: k})
	return r.value, ok
}

func (t table[K, V]) set(k K, v V)      { t.t.Set(row[K, V]{k, v}) }
func (t table[K, V]) delete(k K)        { t.t.Delete(row[K, V]{key: k}) }
func (t table[K, V]) len() int          { return t.t.Len() }
func (t table[K, V]) copy() table[K, V] { return table[K, V]{t.t.Copy()} }

// from yields rows in order, beginning with the first whose key is not below k.
func (t table[K, V]) from(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.t.Ascend(row[K, V]{key: k}, func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}

func (t table[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		t.t.Scan(func(r row[K, V]) bool { return yield(r.key, r.value) })
	}
}
