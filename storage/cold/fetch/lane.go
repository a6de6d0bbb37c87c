package fetch

import (
	"container/list"
	"context"
	"time"

	"github.com/danubemq/danube/storage/memory"
)

const (
	// maxLoads is how many requests one reader has under way, where its pieces are
	// too small for its pace to bound them.
	maxLoads = 16
	// maxStretches is how many pieces a reader looks ahead.
	maxStretches = 64
	// stillFor is how long a lane is left what it holds when others need memory.
	stillFor = time.Second
)

// stretch is one piece in a lane: blocks of it that are held, one behind the other.
type stretch struct {
	piece  Piece
	object *object
	first  int // the number of the first block held, or to be asked for
	blocks []*block
}

func (s *stretch) next() int { return s.first + len(s.blocks) }

// lane is what lies before a reader: the piece at hand and those that follow, and
// the blocks of them that were asked for. The reader alone changes the stretches,
// with c.mu held; the blocks may be taken from a lane that is still.
type lane struct {
	c       *cache
	ahead   []*stretch
	held    int
	active  time.Time
	now     func() time.Time
	waiting bool
	seat    *list.Element // its place among the lanes that hold blocks
}

// add puts a piece behind the others; blocks are asked for from the one numbered first on.
func (l *lane) add(p Piece, first int) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.ahead = append(l.ahead, &stretch{piece: p, object: l.c.enter(&p), first: first})
}

// pop gives up the piece at hand, which was read to its end: what is on its way of it
// is its footer.
func (l *lane) pop() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.remove(true)
}

func (l *lane) remove(rest bool) {
	s := l.ahead[0]
	l.give(s, len(s.blocks), rest)
	l.c.leave(s.object)
	l.ahead[0] = nil
	l.ahead = l.ahead[1:]
}

// clear gives up everything.
func (l *lane) clear() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for len(l.ahead) > 0 {
		l.remove(false)
	}
}

// letGo gives up the first n blocks of a stretch. c.mu is held.
func (l *lane) letGo(s *stretch, n int) { l.give(s, n, false) }

func (l *lane) give(s *stretch, n int, rest bool) {
	for _, b := range s.blocks[:n] {
		l.c.unpin(b, rest)
	}
	clear(s.blocks[:n])
	s.blocks, s.first = s.blocks[n:], s.first+n
	l.held -= n
	if l.held == 0 && l.seat != nil {
		l.c.lanes.Remove(l.seat)
		l.seat = nil
	}
}

// hold adds a block to a stretch. c.mu is held.
func (l *lane) hold(s *stretch, b *block) {
	l.c.pin(b)
	s.blocks = append(s.blocks, b)
	l.held++
	if l.seat == nil {
		l.seat = l.c.lanes.PushFront(l)
	}
}

// shed gives up all blocks of a lane that is still, and reports whether it was. c.mu is held.
func (l *lane) shed() bool {
	if l.waiting || l.now().Sub(l.active) < stillFor {
		return false
	}
	l.c.m.shed.Inc()
	for _, s := range l.ahead {
		first := s.first
		l.letGo(s, len(s.blocks))
		s.first = first
	}
	return true
}

// back has the piece at hand asked for anew from a block on.
func (l *lane) back(n int, discard int) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	s := l.ahead[0]
	l.letGo(s, len(s.blocks))
	s.first = n
	for i := range discard {
		l.c.discard(s.object, n+i)
	}
}

// memory returns the memory of a block of the piece at hand, with a reference for
// the caller, and asks ahead as the pace has it. Blocks before it are given up.
func (l *lane) memory(ctx context.Context, n int, p *pace, most int64) (*memory.Chunk, error) {
	b, waits, err := l.demand(ctx, n, p)
	if err != nil {
		return nil, err
	}
	if waits {
		select {
		case <-b.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.waiting, l.active = false, l.now()
	if err != nil {
		return nil, err
	}
	p.moved(l.active, int64(b.of.size(b.n)), waits, most)
	if b.err != nil {
		s := l.ahead[0]
		l.letGo(s, len(s.blocks))
		s.first = n
		return nil, b.err
	}
	b.chunk.Retain()
	return b.chunk, nil
}

// demand holds a block of the piece at hand and asks for what follows.
func (l *lane) demand(ctx context.Context, n int, p *pace) (b *block, waits bool, err error) {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if l.c.closed {
		return nil, false, ErrClosed
	}
	now := l.now()
	l.active, l.waiting = now, true
	if l.seat != nil {
		l.c.lanes.MoveToFront(l.seat)
	}
	s := l.ahead[0]
	l.letGo(s, min(max(n-s.first, 0), len(s.blocks)))
	if len(s.blocks) == 0 || s.first > n || s.blocks[0].err != nil { // what failed ahead of time is tried once more
		l.letGo(s, len(s.blocks))
		s.first = n
		l.ask(ctx, s, span(n, s.object.count(), p.request(now)), true)
	}
	b = s.blocks[0]
	l.plan(ctx, now, p)
	return b, b.load != nil, nil
}

// plan asks for what the pace has kept ahead of the reader, as far as there is
// memory that others do not need. c.mu is held.
func (l *lane) plan(ctx context.Context, now time.Time, p *pace) {
	share := max(l.c.limit*3/4/int64(max(l.c.lanes.Len(), 1)), blockSize) // the rest is for views, and what may be wanted again
	for {
		asked, loads := l.asked()
		s := l.unfinished()
		if s == nil || loads >= maxLoads || asked+min(p.size, share/2) > min(p.window(), share) {
			return
		}
		size := min(p.request(now), share/2)
		if !l.ask(ctx, s, span(s.next(), s.object.count(), size), false) {
			return
		}
	}
}

// asked is how many bytes lie before the reader or are on their way, in how many
// requests. c.mu is held.
func (l *lane) asked() (n int64, loads int) {
	var last *load
	for _, s := range l.ahead {
		for _, b := range s.blocks {
			n += int64(s.object.size(b.n))
			if b.load != nil && b.load != last {
				last = b.load
				loads++
			}
		}
	}
	return n, loads
}

// unfinished is the first stretch of which not all was asked for, nil: none.
func (l *lane) unfinished() *stretch {
	for _, s := range l.ahead {
		if s.next() < s.object.count() {
			return s
		}
	}
	return nil
}

// ask holds the next n blocks of a stretch: those that are there or on their way,
// and a request for each run of those that are not. False: there was no memory for
// all; with must there is for one. c.mu is held.
func (l *lane) ask(ctx context.Context, s *stretch, n int, must bool) bool {
	o := s.object
	end := s.next() + n
	// Room is not made at the cost of what comes next: a second scan of what is
	// larger than memory would find one block in each place gone, and ask for it.
	var kept []*block
	for i := s.next(); i < end; i++ {
		if b := o.blocks[i]; b != nil {
			l.c.pin(b)
			kept = append(kept, b)
		}
	}
	defer func() {
		for _, b := range kept {
			l.c.unpin(b, true)
		}
	}()
	for ; s.next() < end; must = false {
		at := s.next()
		if b := o.blocks[at]; b != nil {
			l.hold(s, b)
			l.c.m.shared.Inc()
			continue
		}
		run := 1
		for at+run < end && o.blocks[at+run] == nil {
			run++
		}
		fits := l.fits(o, run)
		if fits == 0 && !must {
			return false
		}
		for _, b := range l.c.start(ctx, o, at, max(fits, 1)).blocks {
			l.hold(s, b)
		}
		if fits < run {
			return false
		}
	}
	return true
}

// fits is for how many of so many blocks there is memory. c.mu is held.
func (l *lane) fits(o *object, n int) int {
	for n > 0 && !l.c.room(min(int64(n)*blockSize, o.bytes)) {
		n /= 2
	}
	return n
}

// reach is how many bytes lie before a position of the piece at hand, asked for or
// not, and where the last piece ends.
func (l *lane) reach(pos int64) (n int64, end uint64) {
	for _, s := range l.ahead {
		n += s.piece.Bytes
		end = s.piece.End
	}
	return n - pos, end
}
