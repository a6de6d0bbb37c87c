package disk

import (
	"maps"
	"math/rand/v2"
	"slices"
)

const (
	pageSize   = 4096
	sectorSize = 512
)

// node is a file or a directory: what readers see, and what stable storage holds.
type node struct {
	dir              bool
	entries, durable map[string]*node // of a directory

	live, disk []byte // of a file
	dirty      map[int]page
	sizes      []sizeOp
	noted      bool // stands in world.unsynced

	links, open int
}

// page is a page that was written and not synced since.
type page struct {
	old    []byte // what an earlier unsynced write had left, nil for none
	writes int    // unsynced writes so far
	spoilt bool   // a sync of it failed: no later sync makes it durable
}

// sizeOp is a change of size that was not synced: an extension, or a cut with
// the unsynced pages it took away.
type sizeOp struct {
	from, to int64
	cut      map[int][]byte
}

func (n *node) entry(name string) Entry {
	return Entry{Name: name, Dir: n.dir, Size: int64(len(n.live))}
}

func (n *node) unsynced() bool { return len(n.dirty) > 0 || len(n.sizes) > 0 }

// resize cuts b or extends it with zeros.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	old := len(b)
	b = slices.Grow(b, int(size)-old)[:size]
	clear(b[old:])
	return b
}

// pageOf is the part of b that lies in page i.
func pageOf(b []byte, i int) []byte {
	return b[min(len(b), i*pageSize):min(len(b), (i+1)*pageSize)]
}

func (n *node) write(rng *rand.Rand, p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	end := off + int64(len(p))
	first, last := int(off/pageSize), int((end-1)/pageSize)
	if n.dirty == nil {
		n.dirty = make(map[int]page)
	}
	for i := first; i <= last; i++ {
		d, was := n.dirty[i]
		if was {
			// Keep one earlier version, each with the same chance.
			if d.writes++; rng.IntN(d.writes-1) == 0 {
				d.old = append(d.old[:0], pageOf(n.live, i)...)
			}
			d.spoilt = false
		} else {
			d.writes = 1
		}
		n.dirty[i] = d
	}
	n.extend(end)
	copy(n.live[off:], p)
}

func (n *node) extend(end int64) {
	size := int64(len(n.live))
	if end <= size {
		return
	}
	n.live = resize(n.live, end)
	if k := len(n.sizes); k > 0 && n.sizes[k-1].to > n.sizes[k-1].from {
		n.sizes[k-1].to = end
		return
	}
	n.sizes = append(n.sizes, sizeOp{from: size, to: end})
}

func (n *node) truncate(size int64) {
	if size >= int64(len(n.live)) {
		n.extend(size)
		return
	}
	op := sizeOp{from: int64(len(n.live)), to: size}
	for i, d := range n.dirty {
		if int64(i+1)*pageSize <= size {
			continue
		}
		if op.cut == nil {
			op.cut = make(map[int][]byte)
		}
		op.cut[i] = slices.Clone(pageOf(n.live, i))
		if int64(i)*pageSize >= size {
			delete(n.dirty, i)
		} else if keep := int(size - int64(i)*pageSize); len(d.old) > keep {
			d.old = d.old[:keep]
			n.dirty[i] = d
		}
	}
	n.live = n.live[:size]
	n.sizes = append(n.sizes, op)
}

// resizeDisk carries changes of size out on stable storage.
func (n *node) resizeDisk(ops []sizeOp) {
	for _, op := range ops {
		n.disk = resize(n.disk, op.to)
	}
}

// sync brings everything but what an earlier failed sync spoilt to stable storage.
func (n *node) sync() {
	n.resizeDisk(n.sizes)
	n.sizes = nil
	for i, d := range n.dirty {
		if !d.spoilt {
			copy(pageOf(n.disk, i), pageOf(n.live, i))
			delete(n.dirty, i)
		}
	}
}

// spoil is a sync that failed: its pages are never tried again.
func (n *node) spoil() {
	for i, d := range n.dirty {
		d.spoilt = true
		n.dirty[i] = d
	}
}

// losePower decides what stable storage holds of what was not synced. The
// changes of size happen in their order, as far as they do; the pages each for
// itself.
func (n *node) losePower(rng *rand.Rand) {
	done := rng.IntN(len(n.sizes) + 1)
	n.resizeDisk(n.sizes[:done])
	before := int64(1<<63 - 1) // pages written behind a cut that did not happen do not exist
	if done < len(n.sizes) {
		op := n.sizes[done]
		if op.to > op.from {
			n.disk = resize(n.disk, between(rng, op.from, op.to))
		} else {
			before = op.to
			for _, i := range slices.Sorted(maps.Keys(op.cut)) {
				tear(rng, pageOf(n.disk, i), op.cut[i], nil)
			}
		}
	}
	for _, i := range slices.Sorted(maps.Keys(n.dirty)) {
		if int64(i)*pageSize < before {
			tear(rng, pageOf(n.disk, i), pageOf(n.live, i), n.dirty[i].old)
		}
	}
	n.live = slices.Clone(n.disk)
	n.dirty, n.sizes, n.noted = nil, nil, false
}

// between is a size that an extension may have reached: any, a page's end more often than others.
func between(rng *rand.Rand, from, to int64) int64 {
	at := from + rng.Int64N(to-from+1)
	if up := (at + pageSize - 1) / pageSize * pageSize; rng.IntN(2) == 0 && up <= to {
		return up
	}
	return at
}

// tear decides the fate of one page: dst is what stable storage holds, now what
// was written last, old what was written before that, or nil.
func tear(rng *rand.Rand, dst, now, old []byte) {
	keep := func(from int, version []byte) {
		to := min(from+sectorSize, len(dst))
		k := copy(dst[from:to], version[min(from, len(version)):])
		clear(dst[from+k : to]) // what the version does not reach was zero in memory
	}
	fate := rng.IntN(4)
	for from := 0; from < len(dst); from += sectorSize {
		choice := fate
		if fate == 3 { // torn: each sector for itself
			choice = rng.IntN(3)
		}
		switch {
		case choice == 0:
			keep(from, now)
		case choice == 1 && old != nil:
			keep(from, old)
		}
	}
}
