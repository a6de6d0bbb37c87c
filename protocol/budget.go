package protocol

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

// Budget bounds the bytes that the large frames of many Readers take together:
// a Reader whose frame has outgrown its own buffer waits for room, and with it
// its peer, which is the back-pressure. Safe for concurrent use.
type Budget struct {
	room *semaphore.Weighted
	wait time.Duration
}

// NewBudget returns a budget of so many bytes, of which no Reader waits longer
// than wait for its share.
func NewBudget(bytes int64, wait time.Duration) *Budget {
	return &Budget{room: semaphore.NewWeighted(bytes), wait: wait}
}

// take waits for n bytes and reports whether it got them.
func (b *Budget) take(n int64) bool {
	if b.room.TryAcquire(n) {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), b.wait)
	defer cancel()
	return b.room.Acquire(ctx, n) == nil
}

// SetBudget makes the Reader's large frames count against b, from the next Next on.
func (r *Reader) SetBudget(b *Budget) { r.budget = b }

// charge takes from the budget what a buffer of n bytes needs beyond what is held.
func (r *Reader) charge(n int) error {
	if more := int64(n) - r.charged; r.budget != nil && more > 0 {
		if !r.budget.take(more) {
			return (&Frame{}).refuse(CodeOverloaded, "no memory for a frame of %d bytes: too many large frames are on their way", n)
		}
		r.charged += more
	}
	return nil
}

// settle gives back what is held of the budget.
func (r *Reader) settle() {
	if r.charged > 0 {
		r.budget.room.Release(r.charged)
		r.charged = 0
	}
}

// Close gives back what the frame handed out last lies in. The Reader must not
// be used afterwards.
func (r *Reader) Close() { r.release() }
