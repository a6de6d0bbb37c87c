package wal

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

// chunk is a piece of memory with whole batches in it, shared by the partition's
// tail and by the views of readers. It goes back to its pool when the last of
// them lets go. Bytes below what was committed never change while anyone holds
// it; the writer fills the rest under the lock of its log.
type chunk struct {
	buf    []byte // len is what is filled
	refs   atomic.Int32
	serial uint64 // new each time the chunk leaves the pool
	class  int    // -1: larger than the largest class, left to the collector
	memory *memory

	// Guarded by the log's lock while the chunk is part of a tail.
	base, end uint64 // offsets of the batches in buf
	gathered  int    // bytes of buf that a commit round has taken
	committed int    // bytes of buf that readers may see
}

// memory hands out chunks under one budget for the tails and read buffers of a tier.
type memory struct {
	pools  [chunkClasses]sync.Pool
	limit  int64
	used   atomic.Int64
	serial atomic.Uint64
}

func classOf(size int) int {
	if size <= minChunk {
		return 0
	}
	return bits.Len(uint(size-1)) - bits.Len(uint(minChunk-1))
}

// take returns an empty chunk that can hold size bytes, with one reference. The
// budget is not a wall here: who takes makes room afterwards, because a batch
// at the door must not wait for a reader.
func (m *memory) take(size int) *chunk {
	class := classOf(size)
	var c *chunk
	if class < chunkClasses {
		if c, _ = m.pools[class].Get().(*chunk); c == nil {
			c = &chunk{buf: make([]byte, 0, minChunk<<class), class: class}
		}
	} else {
		c = &chunk{buf: make([]byte, 0, size), class: -1}
	}
	c.memory = m
	c.serial = m.serial.Add(1)
	c.base, c.end, c.gathered, c.committed = 0, 0, 0, 0
	c.refs.Store(1)
	m.used.Add(int64(cap(c.buf)))
	return c
}

func (c *chunk) retain() { c.refs.Add(1) }

// release gives one reference back. The bytes must not be touched afterwards;
// race builds overwrite them so that a test sees who does.
func (c *chunk) release() {
	switch n := c.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic(fmt.Sprintf("chunk %d released more often than retained", c.serial))
	}
	m := c.memory
	m.used.Add(-int64(cap(c.buf)))
	if poison {
		b := c.buf[:cap(c.buf)]
		for i := range b {
			b[i] = 0xDB
		}
	}
	c.buf = c.buf[:0]
	if c.class >= 0 {
		m.pools[c.class].Put(c)
	}
}

// room is how many more bytes fit.
func (c *chunk) room() int { return cap(c.buf) - len(c.buf) }

// over reports whether the budget is exceeded.
func (m *memory) over() bool { return m.used.Load() > m.limit }
