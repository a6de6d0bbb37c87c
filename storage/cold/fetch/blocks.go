package fetch

import (
	"container/list"
	"context"
	"sync"

	"github.com/danubemq/danube/storage/memory"
)

// place is what an object's segment is known by.
type place struct {
	key             string
	position, bytes int64
}

// object is a segment of which blocks are held or wanted.
type object struct {
	place
	blocks map[int]*block // those that others may share
	users  int            // lanes that are in it
}

// count is how many blocks the segment has.
func (o *object) count() int { return int((o.bytes + blockSize - 1) / blockSize) }

// size is the length of a block: the last one is what is left.
func (o *object) size(n int) int { return int(min(blockSize, o.bytes-int64(n)*blockSize)) }

// block is a part of a segment in memory, or on its way there.
type block struct {
	of    *object
	n     int
	chunk *memory.Chunk
	load  *load         // nil once it is full or has failed
	done  chan struct{} // closed then
	err   error         // why it failed
	pins  int           // lanes that hold it
	loose bool          // the object has it no more
	rest  *list.Element // its place among the blocks that nobody holds
}

// cache is the blocks of all readers under one budget: each is asked for once,
// whoever wants it, and stays until its memory is needed. Nothing waits for memory:
// who reads ahead is refused, who has to have a block gets it.
type cache struct {
	pool  *memory.Pool
	limit int64
	fill  filler
	disk  *spill // nil: none
	m     *metrics
	loads sync.WaitGroup

	mu      sync.Mutex // guards all below, and all objects, blocks, loads and lanes
	objects map[place]*object
	rest    list.List // of *block that nobody holds, the last used in front
	lanes   list.List // of *lane that hold blocks, the last active in front
	running map[*load]struct{}
	closed  bool
}

// filler reads bytes of an object into pieces of memory, as cold.Store.ReadInto does.
type filler func(ctx context.Context, key string, pieces [][]byte, off int64, filled func(n int)) error

// enter returns the object of a piece, which stays known until leave. c.mu is held.
func (c *cache) enter(p *Piece) *object {
	id := place{p.Key, p.Position, p.Bytes}
	o := c.objects[id]
	if o == nil {
		o = &object{place: id, blocks: map[int]*block{}}
		c.objects[id] = o
	}
	o.users++
	return o
}

// leave ends one enter. c.mu is held.
func (c *cache) leave(o *object) {
	o.users--
	c.forget(o)
}

func (c *cache) forget(o *object) {
	if o.users == 0 && len(o.blocks) == 0 && c.objects[o.place] == o {
		delete(c.objects, o.place)
	}
}

// pin holds a block. c.mu is held.
func (c *cache) pin(b *block) {
	b.pins++
	if b.pins > 1 {
		return
	}
	if b.load != nil {
		b.load.wanted++
	} else if b.rest != nil {
		c.rest.Remove(b.rest)
		b.rest = nil
	}
}

// unpin lets go of a block. One that is on its way and that nobody wants any more is
// not waited for, but for the rest of a request that was meant to be read: to break
// it off costs a connection. c.mu is held.
func (c *cache) unpin(b *block, rest bool) {
	b.pins--
	switch {
	case b.pins > 0:
	case b.load != nil:
		b.load.wanted--
		if b.load.wanted == 0 && !rest {
			c.abandon(b.load)
		}
	case b.err != nil: // its memory is gone already
	case b.loose || c.closed:
		c.drop(b)
	default:
		b.rest = c.rest.PushFront(b)
	}
}

// drop gives up a full block. c.mu is held.
func (c *cache) drop(b *block) {
	if b.rest != nil {
		c.rest.Remove(b.rest)
		b.rest = nil
	}
	c.loosen(b)
	b.chunk.Release()
}

// loosen has nobody else find the block. c.mu is held.
func (c *cache) loosen(b *block) {
	b.loose = true
	if b.of.blocks[b.n] == b {
		delete(b.of.blocks, b.n)
		c.forget(b.of)
	}
}

// discard makes whoever wants the block from now on read it anew, from the store
// itself. c.mu is held.
func (c *cache) discard(o *object, n int) {
	if c.disk != nil {
		c.disk.forget(o.place, n)
	}
	if b := o.blocks[n]; b != nil {
		if b.load == nil && b.pins == 0 {
			c.drop(b)
			return
		}
		c.loosen(b)
	}
}

// room makes room for so many bytes more, at the cost of what nobody holds and of
// what lanes hold that have been still for a while. c.mu is held.
func (c *cache) room(n int64) bool {
	for c.pool.Used()+n > c.limit {
		if last := c.rest.Back(); last != nil {
			c.evict(last.Value.(*block))
			continue
		}
		if !c.shed() {
			return false
		}
	}
	return true
}

// evict gives up a block that may be wanted again. c.mu is held.
func (c *cache) evict(b *block) {
	if c.disk != nil {
		c.disk.offer(b.of.place, b.n, b.chunk)
	}
	c.drop(b)
}

// shed takes the blocks of the lane that has been still for longest, if one has
// been for long enough. One that waits for a block is not still. c.mu is held.
func (c *cache) shed() bool {
	for e := c.lanes.Back(); e != nil; e = e.Prev() {
		if e.Value.(*lane).shed() {
			return true
		}
	}
	return false
}

// take returns memory for what lies in several blocks, and makes room for it as far
// as that can be.
func (c *cache) take(n int) *memory.Chunk {
	c.mu.Lock()
	c.room(int64(n))
	c.mu.Unlock()
	return c.pool.Take(n)
}

// close gives up everything; blocks that are held are released by those who hold them.
func (c *cache) close() {
	c.mu.Lock()
	c.closed = true
	for l := range c.running {
		l.cancel()
	}
	for c.rest.Len() > 0 {
		c.drop(c.rest.Back().Value.(*block))
	}
	c.mu.Unlock()
	c.loads.Wait()
}
