package memory

import (
	"sort"

	"github.com/danubemq/danube/protocol/batch"
)

// Tail is the newest part of a partition in memory: chunks in the order of
// offsets. The zero value is empty. Not safe for concurrent use.
type Tail struct {
	chunks  []*Chunk
	pending int // bytes above the committed end
}

// Pending is how many bytes lie above the committed end.
func (t *Tail) Pending() int { return t.pending }

// Base is the lowest offset in memory; false when there is nothing.
func (t *Tail) Base() (offset uint64, ok bool) {
	if len(t.chunks) == 0 {
		return 0, false
	}
	return t.chunks[0].base, true
}

// Release gives up all, also what is not committed.
func (t *Tail) Release() {
	for _, c := range t.chunks {
		c.Release()
	}
	*t = Tail{}
}

// Add copies b to the end, into a chunk that grows with the partition's
// traffic, and returns the copy to be stamped.
func (t *Tail) Add(p *Pool, b batch.Batch, base uint64) batch.Batch {
	var c *Chunk
	size := minChunk
	if n := len(t.chunks); n > 0 {
		c = t.chunks[n-1]
		size = min(2*cap(c.Buf), maxChunk)
	}
	if c == nil || c.Room() < len(b) || c.end != base {
		c = p.Take(max(size, len(b)))
		c.base = base
		t.chunks = append(t.chunks, c)
	}
	at := len(c.Buf)
	c.Buf = append(c.Buf, b...)
	c.end = base + uint64(b.Count())
	t.pending += len(b)
	return batch.Batch(c.Buf[at:])
}

// Gather appends to bufs what no round has taken yet, at most most bytes but at
// least one chunk's part, and returns the bytes and the offset behind them.
func (t *Tail) Gather(bufs [][]byte, most int) (out [][]byte, size int, end uint64) {
	i := len(t.chunks)
	for i > 0 && t.chunks[i-1].gathered < len(t.chunks[i-1].Buf) {
		i--
	}
	for ; i < len(t.chunks) && (size == 0 || size < most); i++ {
		c := t.chunks[i]
		piece := c.Buf[c.gathered:]
		c.gathered = len(c.Buf)
		bufs = append(bufs, piece)
		size += len(piece)
		end = c.end
	}
	return bufs, size, end
}

// Commit makes readable what was gathered.
func (t *Tail) Commit() {
	for i := len(t.chunks) - 1; i >= 0; i-- {
		c := t.chunks[i]
		if c.committed == len(c.Buf) && c.committed > 0 {
			return
		}
		t.pending -= c.gathered - c.committed
		c.committed = c.gathered
	}
}

// More reports whether something was appended that no round has taken.
func (t *Tail) More() bool {
	n := len(t.chunks)
	return n > 0 && t.chunks[n-1].gathered < len(t.chunks[n-1].Buf)
}

// Cut drops everything that was not committed, and calls forget with each batch of it.
func (t *Tail) Cut(forget func(batch.Batch)) {
	for n := len(t.chunks); n > 0; n-- {
		c := t.chunks[n-1]
		if c.committed == len(c.Buf) {
			break
		}
		end := c.base
		for rest := batch.Batch(c.Buf); len(rest) > 0; rest = rest[rest.Len():] {
			if at := len(c.Buf) - len(rest); at >= c.committed {
				forget(rest)
			} else {
				end = rest.End()
			}
		}
		if c.committed == 0 {
			c.Release()
			t.chunks[n-1] = nil
			t.chunks = t.chunks[:n-1]
			continue
		}
		c.Buf, c.end, c.gathered = c.Buf[:c.committed], end, c.committed
		break
	}
	t.pending = 0
}

// Find returns the chunk that holds an offset, nil when none does.
func (t *Tail) Find(offset uint64) *Chunk {
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].end > offset })
	if i == len(t.chunks) || t.chunks[i].base > offset {
		return nil
	}
	return t.chunks[i]
}

// Drop gives up the oldest chunk, and reports whether it could: what is not
// committed stays, and so does the chunk that is being filled unless all is asked for.
func (t *Tail) Drop(all bool) bool {
	if len(t.chunks) == 0 {
		return false
	}
	c := t.chunks[0]
	if c.committed < len(c.Buf) || (len(t.chunks) == 1 && !all) {
		return false
	}
	c.Release()
	n := copy(t.chunks, t.chunks[1:])
	t.chunks[n] = nil
	t.chunks = t.chunks[:n]
	return true
}

// Untaken appends to bufs what no round has taken yet but for its first skip
// bytes, which were written ahead, and returns the bytes appended.
func (t *Tail) Untaken(bufs [][]byte, skip int) (out [][]byte, size int) {
	i := len(t.chunks)
	for i > 0 && t.chunks[i-1].gathered < len(t.chunks[i-1].Buf) {
		i--
	}
	for ; i < len(t.chunks); i++ {
		c := t.chunks[i]
		piece := c.Buf[c.gathered:]
		n := min(skip, len(piece))
		skip -= n
		if piece = piece[n:]; len(piece) > 0 {
			bufs = append(bufs, piece)
			size += len(piece)
		}
	}
	return bufs, size
}
