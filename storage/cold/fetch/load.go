package fetch

import "context"

// load is one request under way for blocks of one object, one behind the other.
type load struct {
	of     *object
	blocks []*block
	wanted int // blocks that are not full yet and that somebody holds
	cancel context.CancelFunc
}

// start begins to load n blocks from the one numbered from on, none of which the
// object has. The caller pins those that it wants before it gives up c.mu, which is
// held. ctx gives values alone: a load ends with those who want it.
func (c *cache) start(ctx context.Context, o *object, from, n int) *load {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l := &load{of: o, blocks: make([]*block, n), cancel: cancel}
	for i := range l.blocks {
		b := &block{of: o, n: from + i, load: l, done: make(chan struct{})}
		size := o.size(b.n)
		b.chunk = c.pool.Take(size)
		b.chunk.Buf = b.chunk.Buf[:size]
		o.blocks[b.n], l.blocks[i] = b, b
	}
	c.running[l] = struct{}{}
	c.loads.Go(func() { // returns when the store has answered or the load was given up; close waits
		defer cancel()
		c.run(ctx, l)
	})
	return l
}

// run fills the blocks, from the disk where they lie there, and else from the store.
func (c *cache) run(ctx context.Context, l *load) {
	done := 0
	if c.disk != nil {
		done = c.fromDisk(l)
	}
	var err error
	if rest := l.blocks[done:]; len(rest) > 0 {
		pieces := make([][]byte, len(rest))
		for i, b := range rest {
			pieces[i] = b.chunk.Buf
		}
		c.m.requests.Inc()
		off := l.of.position + int64(rest[0].n)*blockSize
		err = c.fill(ctx, l.of.key, pieces, off, func(n int) { c.full(rest[n], nil); done++ })
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.running, l)
	if err == nil {
		return
	}
	if c.closed {
		err = ErrClosed
	}
	for _, b := range l.blocks[done:] {
		c.failed(b, err)
	}
}

// fromDisk fills blocks from the disk cache until one is not there, and returns how many.
func (c *cache) fromDisk(l *load) int {
	for i, b := range l.blocks {
		if !c.disk.read(l.of.place, b.n, b.chunk.Buf) {
			return i
		}
		c.full(b, c.disk)
	}
	return len(l.blocks)
}

// full makes a block readable.
func (c *cache) full(b *block, from *spill) {
	c.m.loaded(len(b.chunk.Buf), from != nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	l := b.load
	b.load = nil
	close(b.done)
	switch {
	case b.pins > 0:
		l.wanted--
	case b.loose || c.closed:
		c.drop(b)
	default:
		b.rest = c.rest.PushFront(b)
	}
}

// failed gives a block up that was not filled. c.mu is held.
func (c *cache) failed(b *block, err error) {
	c.loosen(b)
	b.load, b.err = nil, err
	close(b.done)
	b.chunk.Release()
	b.chunk = nil
}

// abandon gives up a load. Nobody joins it from now on. c.mu is held.
func (c *cache) abandon(l *load) {
	for _, b := range l.blocks {
		if b.load == l {
			c.loosen(b)
		}
	}
	c.m.abandoned.Inc()
	l.cancel()
}
