package fetch

import (
	"container/list"
	"context"
	"sync"
)

// notes are footers of segments and pages of catalogs: small things that many
// readers need, each read once and kept under a budget, the last used first.
type notes struct {
	limit int64
	loads sync.WaitGroup

	mu     sync.Mutex // guards what follows
	used   int64
	known  map[place]*note
	order  list.List // of *note that are loaded, the last used in front
	closed bool
}

// note is one of them, or on its way.
type note struct {
	id    place
	value any
	size  int64
	err   error
	done  chan struct{}
	seat  *list.Element // once it is loaded
	wants int           // callers that wait for it
	end   context.CancelFunc
}

// loader reads a note and says how many bytes of memory it takes.
type loader func(ctx context.Context) (value any, size int64, err error)

// get returns a note, loading it unless it is known or on its way. A load goes on
// for as long as anyone waits for it.
func (n *notes) get(ctx context.Context, id place, load loader) (any, error) {
	n.mu.Lock()
	x := n.known[id]
	switch {
	case n.closed:
		n.mu.Unlock()
		return nil, ErrClosed
	case x != nil && x.seat != nil:
		n.order.MoveToFront(x.seat)
		n.mu.Unlock()
		return x.value, nil
	case x == nil:
		x = n.start(ctx, id, load)
	}
	x.wants++
	n.mu.Unlock()
	select {
	case <-x.done:
		return x.value, x.err
	case <-ctx.Done():
		n.leave(x)
		return nil, ctx.Err()
	}
}

// peek returns a note if it is known.
func (n *notes) peek(id place) (any, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x := n.known[id]
	if x == nil || x.seat == nil {
		return nil, false
	}
	return x.value, true
}

// start begins to load a note. n.mu is held.
func (n *notes) start(ctx context.Context, id place, load loader) *note {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	x := &note{id: id, done: make(chan struct{}), end: cancel}
	n.known[id] = x
	n.loads.Go(func() { // returns when the store has answered or nobody waits; close waits
		defer cancel()
		value, size, err := load(ctx)
		n.mu.Lock()
		defer n.mu.Unlock()
		x.value, x.size, x.err = value, size, err
		n.keep(x)
		close(x.done)
	})
	return x
}

// keep puts a note that was loaded among the others. n.mu is held.
func (n *notes) keep(x *note) {
	if n.closed && x.err != nil {
		x.err = ErrClosed
	}
	if n.known[x.id] != x {
		return
	}
	if x.err != nil || n.closed || x.size > n.limit {
		delete(n.known, x.id)
		return
	}
	x.seat = n.order.PushFront(x)
	n.used += x.size
	for n.used > n.limit {
		last := n.order.Back().Value.(*note)
		n.order.Remove(last.seat)
		delete(n.known, last.id)
		n.used -= last.size
	}
}

// leave ends the wait of one caller. What nobody waits for is given up.
func (n *notes) leave(x *note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	x.wants--
	if x.wants == 0 && x.seat == nil && n.known[x.id] == x {
		delete(n.known, x.id)
		x.end()
	}
}

// forget has a note loaded anew by whoever asks next.
func (n *notes) forget(id place) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if x := n.known[id]; x != nil && x.seat != nil {
		n.order.Remove(x.seat)
		delete(n.known, id)
		n.used -= x.size
	}
}

// close gives up what is on its way and waits for it.
func (n *notes) close() {
	n.mu.Lock()
	n.closed = true
	for _, x := range n.known {
		x.end()
	}
	n.mu.Unlock()
	n.loads.Wait()
}
