package meta

import (
	"sync"
	"time"
)

// writes knows which writes of the database are under way.
type writes struct {
	mu      sync.Mutex
	next    uint64
	pending map[uint64]time.Time // when each began
}

func (w *writes) begin() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil {
		w.pending = make(map[uint64]time.Time)
	}
	w.next++
	w.pending[w.next] = time.Now()
	return w.next
}

func (w *writes) end(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pending, id)
}

// oldest returns how long the oldest write has been under way, zero if there is none.
func (w *writes) oldest() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	var age time.Duration
	for _, began := range w.pending {
		age = max(age, time.Since(began))
	}
	return age
}
