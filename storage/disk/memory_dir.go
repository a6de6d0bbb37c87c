package disk

import (
	"maps"
	"path"
	"strings"
	"syscall"
)

// dirOp is one change of directory entries that stable storage has not seen for
// sure: of to in dir, and of from in fromDir for a rename.
type dirOp struct {
	dir  *node
	name string
	n    *node // what the entry names afterwards; with remove what it named before
	// fromDir is where a rename came from, nil for anything else.
	fromDir  *node
	fromName string
	remove   bool
	spoilt   bool // a sync of it failed: no later sync makes it durable
}

func newDir() *node {
	return &node{dir: true, entries: make(map[string]*node), durable: make(map[string]*node)}
}

// find walks to the node of a path.
func (w *world) find(name string) (*node, error) {
	dir, base, err := w.parent(name)
	if err != nil {
		return nil, err
	}
	if base == "" {
		return dir, nil
	}
	n := dir.entries[base]
	if n == nil {
		return nil, syscall.ENOENT
	}
	return n, nil
}

// parent walks to the directory that holds the last element of a path. The root
// is its own parent, with an empty element.
func (w *world) parent(name string) (*node, string, error) {
	if name == "" {
		return nil, "", syscall.ENOENT
	}
	rest := strings.TrimPrefix(path.Clean(name), "/")
	if rest == "." {
		rest = ""
	}
	dir := w.root
	for {
		element, after, more := strings.Cut(rest, "/")
		if !more {
			return dir, element, nil
		}
		next := dir.entries[element]
		if next == nil {
			return nil, "", syscall.ENOENT
		}
		if !next.dir {
			return nil, "", syscall.ENOTDIR
		}
		dir, rest = next, after
	}
}

func (w *world) link(dir *node, name string, n *node) {
	dir.entries[name] = n
	n.links++
	w.pending = append(w.pending, dirOp{dir: dir, name: name, n: n})
}

// linkTo gives the file from a further name.
func (w *world) linkTo(from, to string) error {
	n, err := w.find(from)
	if err != nil {
		return err
	}
	dir, base, err := w.parent(to)
	switch {
	case err != nil:
		return err
	case n.dir:
		return syscall.EPERM
	case base == "" || dir.entries[base] != nil:
		return syscall.EEXIST
	}
	w.link(dir, base, n)
	return nil
}

func (w *world) remove(name string) error {
	dir, base, err := w.parent(name)
	if err != nil {
		return err
	}
	if base == "" {
		return syscall.EBUSY
	}
	n := dir.entries[base]
	switch {
	case n == nil:
		return syscall.ENOENT
	case len(n.entries) > 0:
		return syscall.ENOTEMPTY
	}
	delete(dir.entries, base)
	w.pending = append(w.pending, dirOp{dir: dir, name: base, n: n, remove: true})
	w.unlink(n)
	return nil
}

// unlink gives the space of a file back once neither entry nor handle holds it.
func (w *world) unlink(n *node) {
	n.links--
	if n.links == 0 && n.open == 0 {
		w.used -= int64(len(n.live))
	}
}

func (w *world) rename(from, to string) error {
	fromDir, fromBase, err := w.parent(from)
	if err != nil {
		return err
	}
	toDir, toBase, err := w.parent(to)
	if err != nil {
		return err
	}
	if fromBase == "" || toBase == "" {
		return syscall.EBUSY
	}
	n, old := fromDir.entries[fromBase], toDir.entries[toBase]
	switch {
	case n == nil:
		return syscall.ENOENT
	case n == old:
		return nil
	case n.dir && strings.HasPrefix(path.Clean(to)+"/", path.Clean(from)+"/"):
		return syscall.EINVAL
	case old != nil && n.dir && !old.dir:
		return syscall.ENOTDIR
	case old != nil && old.dir:
		// Plain rename(2) replaces an empty directory by a directory; Go's os.Rename refuses.
		return syscall.EEXIST
	}
	delete(fromDir.entries, fromBase)
	toDir.entries[toBase] = n
	if old != nil {
		w.unlink(old)
	}
	w.pending = append(w.pending, dirOp{dir: toDir, name: toBase, n: n, fromDir: fromDir, fromName: fromBase})
	return nil
}

// syncDir makes every change of the entries of d durable. Of a rename between
// two directories the new entry becomes durable first: a sync of the old
// directory alone carries both, one of the new directory leaves the removal open.
func (w *world) syncDir(d *node) {
	kept := w.pending[:0]
	for _, op := range w.pending {
		switch {
		case op.spoilt || op.dir != d && op.fromDir != d:
			kept = append(kept, op)
		case op.fromDir != nil && op.fromDir != d:
			op.dir.durable[op.name] = op.n
			kept = append(kept, dirOp{dir: op.fromDir, name: op.fromName, n: op.n, remove: true})
		default:
			op.apply()
		}
	}
	clear(w.pending[len(kept):])
	w.pending = kept
}

// spoilDir marks the changes of d as those of a failed sync.
func (w *world) spoilDir(d *node) {
	for i := range w.pending {
		if op := &w.pending[i]; op.dir == d || op.fromDir == d {
			op.spoilt = true
		}
	}
}

// apply brings the change to stable storage.
func (op dirOp) apply() {
	if op.remove {
		if op.dir.durable[op.name] == op.n {
			delete(op.dir.durable, op.name)
		}
		return
	}
	op.dir.durable[op.name] = op.n
	if op.fromDir != nil && op.fromDir.durable[op.fromName] == op.n {
		delete(op.fromDir.durable, op.fromName)
	}
}

// losePower leaves what stable storage holds, and a random choice of the rest.
func (w *world) losePower() {
	touched := make(map[*node]bool)
	for _, op := range w.pending {
		touched[op.dir] = true
		if op.fromDir != nil {
			touched[op.fromDir] = true
		}
		if w.rng.IntN(2) == 0 {
			op.apply()
		}
	}
	w.pending = nil
	for dir := range touched {
		dir.entries = maps.Clone(dir.durable)
	}
	for _, n := range w.unsynced {
		n.losePower(w.rng)
	}
	w.unsynced = nil
}

// settle counts links below a node anew, all of them 0 before, after a crash
// closed every file. It returns the bytes of the files.
func (n *node) settle() int64 {
	n.open = 0
	if !n.dir {
		n.links++
		if n.links > 1 {
			return 0
		}
		return int64(len(n.live))
	}
	var used int64
	for _, child := range n.entries {
		used += child.settle()
	}
	return used
}

func (n *node) unlinkAll() {
	n.links = 0
	for _, child := range n.entries {
		child.unlinkAll()
	}
}
