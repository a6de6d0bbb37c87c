package wal

import (
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/memory"
)

// Scratch is memory for batches that are in no log, under the tier's budget and
// shared by reference as a log's is. Small batches lie in one chunk of 4 KiB
// together, so that what a slow reader holds is no more than about twice what it
// was given. Not safe for concurrent use; the views are.
type Scratch struct {
	tier  *Tier
	chunk *memory.Chunk // with room for more; nil: none
}

// Scratch returns memory that holds nothing until it is given something.
func (t *Tier) Scratch() Scratch { return Scratch{tier: t} }

// Hold copies a batch. The caller owns the view, and may change its Data until
// somebody else has it too.
func (s *Scratch) Hold(b batch.Batch) View {
	if s.chunk == nil || s.chunk.Room() < len(b) {
		s.Release()
		s.chunk = s.tier.memory.Take(len(b))
		s.tier.makeRoom()
	}
	c := s.chunk
	at := len(c.Buf)
	c.Buf = append(c.Buf, b...)
	c.Retain()
	return View{Data: c.Buf[at:len(c.Buf):len(c.Buf)], chunk: c}
}

// Release gives back what no view holds. The scratch can go on after it.
func (s *Scratch) Release() {
	if s.chunk != nil {
		s.chunk.Release()
		s.chunk = nil
	}
}
