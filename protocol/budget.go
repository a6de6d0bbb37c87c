package protocol

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// Budget bounds the bytes that the large frames of many Readers take together:
// a Reader whose frame has outgrown its own buffer waits for room, and with it
// its peer, which is the back-pressure. Safe for concurrent use.
//
// A frame takes room twice, and always in this order: a first piece, which its
// length alone is enough for, and when that has come all the rest at once. Who
// has the rest waits for nothing but its own peer and the disk, and who waits
// for a first piece holds nothing: so the wait always ends, however long it
// takes, and a length that nothing follows claims no more than a first piece.
type Budget struct{ first, rest pool }

type pool struct {
	room *semaphore.Weighted
	size int64
}

func newPool(bytes int64) pool { return pool{semaphore.NewWeighted(bytes), bytes} }

// take waits for n bytes. False: there will never be as many.
func (p *pool) take(n int64) bool {
	return n <= p.size && p.room.Acquire(context.Background(), n) == nil
}

// NewBudget returns a budget of so many bytes, at least one and a half of the
// largest frame: one that can never have its room is refused.
func NewBudget(bytes int64) *Budget {
	first := max(bytes/4, firstBuffer)
	return &Budget{first: newPool(first), rest: newPool(max(bytes-first, firstBuffer))}
}

// SetBudget makes the Reader's large frames count against b, from the next Next on.
func (r *Reader) SetBudget(b *Budget) { r.budget = b }

// charge waits for room for a first piece, or for the rest of a frame.
func (r *Reader) charge(first, rest int) error {
	b := r.budget
	if b == nil {
		return nil
	}
	if first > 0 && !b.first.take(int64(first)) || rest > 0 && !b.rest.take(int64(rest)) {
		return (&Frame{}).refuse(CodeOverloaded, "no memory for a frame of %d bytes", first+rest)
	}
	r.first, r.rest = r.first+int64(first), r.rest+int64(rest)
	return nil
}

// settle gives back what is held of the budget.
func (r *Reader) settle() {
	if r.first > 0 {
		r.budget.first.room.Release(r.first)
	}
	if r.rest > 0 {
		r.budget.rest.room.Release(r.rest)
	}
	r.first, r.rest = 0, 0
}

// Close gives back what the frame handed out last lies in. The Reader must not
// be used afterwards.
func (r *Reader) Close() { r.release() }
