// Package memory is what the hot tier holds in memory: chunks of whole batches
// under one budget for all partitions, and the [Tail] of each, its newest part.
//
// A [Chunk] is shared by reference: the tail and the [View]s of readers each hold
// one, and it goes back to its [Pool] with the last. A Tail is guarded by the lock
// of its log; the rest is safe for concurrent use.
package memory

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Chunks come in size classes, each twice the one before, so that an idle
// partition holds 4 KiB and a busy one moves in megabytes.
const (
	minChunk     = 4 << 10
	maxChunk     = 1 << 20
	chunkClasses = 9 // 4 KiB << 8 is 1 MiB
)

// Chunk is a piece of memory with whole batches in it, shared by the partition's
// tail and by the views of readers. It goes back to its pool when the last of
// them lets go. Bytes below what was committed never change while anyone holds
// it; the writer fills the rest under the lock of its log.
type Chunk struct {
	Buf    []byte // len is what is filled
	refs   atomic.Int32
	serial uint64 // new each time the chunk leaves the pool
	class  int    // -1: larger than the largest class, left to the collector
	pool   *Pool

	// Guarded by the log's lock while the chunk is part of a tail.
	base, end uint64 // offsets of the batches in buf
	gathered  int    // bytes of buf that a commit round has taken
	committed int    // bytes of buf that readers may see
}

// Pool hands out chunks under one budget for the tails and read buffers of a tier.
type Pool struct {
	free   [chunkClasses]sync.Pool
	limit  int64
	used   atomic.Int64
	serial atomic.Uint64
}

// NewPool returns a pool with a budget in bytes.
func NewPool(limit int64) *Pool { return &Pool{limit: limit} }

// Used is how many bytes chunks have that are in use.
func (p *Pool) Used() int64 { return p.used.Load() }

func classOf(size int) int {
	if size <= minChunk {
		return 0
	}
	return bits.Len(uint(size-1)) - bits.Len(uint(minChunk-1))
}

// Take returns an empty chunk that can hold size bytes, with one reference. The
// budget is not a wall here: who takes makes room afterwards, because a batch
// at the door must not wait for a reader.
func (p *Pool) Take(size int) *Chunk {
	class := classOf(size)
	var c *Chunk
	if class < chunkClasses {
		if c, _ = p.free[class].Get().(*Chunk); c == nil {
			c = &Chunk{Buf: make([]byte, 0, minChunk<<class), class: class}
		}
	} else {
		c = &Chunk{Buf: make([]byte, 0, size), class: -1}
	}
	c.pool = p
	c.serial = p.serial.Add(1)
	c.base, c.end, c.gathered, c.committed = 0, 0, 0, 0
	c.refs.Store(1)
	p.used.Add(int64(cap(c.Buf)))
	return c
}

// Retain adds a reference.
func (c *Chunk) Retain() { c.refs.Add(1) }

// Release gives one reference back. The bytes must not be touched afterwards;
// race builds overwrite them so that a test sees who does.
func (c *Chunk) Release() {
	switch n := c.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic(fmt.Sprintf("chunk %d released more often than retained", c.serial))
	}
	p := c.pool
	p.used.Add(-int64(cap(c.Buf)))
	if Poison {
		b := c.Buf[:cap(c.Buf)]
		b[0] = 0xDB
		for n := 1; n < len(b); n *= 2 {
			copy(b[n:], b[:n]) // a race build takes many times as long byte by byte
		}
	}
	c.Buf = c.Buf[:0]
	if c.class >= 0 {
		p.free[c.class].Put(c)
	}
}

// Serial is a number of its own for each use of a chunk.
func (c *Chunk) Serial() uint64 { return c.serial }

// Committed is what of a tail's chunk readers may see. The lock of the log is held.
func (c *Chunk) Committed() []byte { return c.Buf[:c.committed:c.committed] }

// Room is how many more bytes fit.
func (c *Chunk) Room() int { return cap(c.Buf) - len(c.Buf) }

// Over reports whether the budget is exceeded.
func (p *Pool) Over() bool { return p.used.Load() > p.limit }
