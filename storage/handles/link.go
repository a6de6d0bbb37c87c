package handles

// Link is a place in a ring of least recent use, or, once Init was called, the
// ring. The zero value is in none. Not safe for concurrent use.
type Link struct {
	prev, next *Link
	Owner      any // whoever the place is of
}

// Init makes an empty ring.
func (r *Link) Init() { r.prev, r.next = r, r }

// Push makes x the most recently used of the ring.
func (r *Link) Push(x *Link) {
	x.Unlink()
	x.prev, x.next = r.prev, r
	r.prev.next, r.prev = x, x
}

// Unlink takes a place out of the ring it is in, if it is in one.
func (r *Link) Unlink() {
	if r.next == nil {
		return
	}
	r.prev.next, r.next.prev = r.next, r.prev
	r.prev, r.next = nil, nil
}

// Oldest is the least recently used place of the ring, nil when there is none.
func (r *Link) Oldest() *Link { return r.After(r) }

// After is the place used next after x, nil when x is the last.
func (r *Link) After(x *Link) *Link {
	if x.next == r {
		return nil
	}
	return x.next
}
