package memory

import "github.com/danubemq/danube/protocol/batch"

// Scratch is memory for batches that are in no log, under the pool's budget and
// shared by reference as a log's is. Small batches lie in one chunk of 4 KiB
// together, so that what a slow reader holds is no more than about twice what it
// was given. Not safe for concurrent use; the views are.
type Scratch struct {
	pool  *Pool
	room  func()
	chunk *Chunk // with room for more; nil: none
}

// Scratch returns memory that holds nothing until it is given something; room is
// called when it has taken from the pool, to keep the budget.
func (p *Pool) Scratch(room func()) Scratch { return Scratch{pool: p, room: room} }

// Hold copies a batch. The caller owns the view, and may change its Data until
// somebody else has it too.
func (s *Scratch) Hold(b batch.Batch) View {
	if s.chunk == nil || s.chunk.Room() < len(b) {
		s.Release()
		s.chunk = s.pool.Take(len(b))
		s.room()
	}
	c := s.chunk
	at := len(c.Buf)
	c.Buf = append(c.Buf, b...)
	c.Retain()
	return c.View(c.Buf[at:len(c.Buf):len(c.Buf)], 0, 0)
}

// Release gives back what no view holds. The scratch can go on after it.
func (s *Scratch) Release() {
	if s.chunk != nil {
		s.chunk.Release()
		s.chunk = nil
	}
}
