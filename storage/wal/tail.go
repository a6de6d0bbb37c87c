package wal

import (
	"sort"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/sessions"
)

// maxPending is how many bytes of one log may be on their way to the disk
// before Append blocks.
const maxPending = 8 << 20

// tail is the newest part of a partition in memory: chunks in the order of
// offsets. It is guarded by the lock of its log.
type tail struct {
	chunks  []*chunk
	pending int // bytes above the committed end
}

// add copies b to the end, into a chunk that grows with the partition's
// traffic, and returns the copy to be stamped.
func (t *tail) add(m *memory, b batch.Batch, base uint64) batch.Batch {
	var c *chunk
	size := minChunk
	if n := len(t.chunks); n > 0 {
		c = t.chunks[n-1]
		size = min(2*cap(c.buf), maxChunk)
	}
	if c == nil || c.room() < len(b) || c.end != base {
		c = m.take(max(size, len(b)))
		c.base = base
		t.chunks = append(t.chunks, c)
	}
	at := len(c.buf)
	c.buf = append(c.buf, b...)
	c.end = base + uint64(b.Count())
	t.pending += len(b)
	return batch.Batch(c.buf[at:])
}

// gather appends to bufs what no round has taken yet, at most most bytes but at
// least one chunk's part, and returns the bytes and the offset behind them.
func (t *tail) gather(bufs [][]byte, most int) (out [][]byte, size int, end uint64) {
	i := len(t.chunks)
	for i > 0 && t.chunks[i-1].gathered < len(t.chunks[i-1].buf) {
		i--
	}
	for ; i < len(t.chunks) && (size == 0 || size < most); i++ {
		c := t.chunks[i]
		piece := c.buf[c.gathered:]
		c.gathered = len(c.buf)
		bufs = append(bufs, piece)
		size += len(piece)
		end = c.end
	}
	return bufs, size, end
}

// commit makes readable what was gathered.
func (t *tail) commit() {
	for i := len(t.chunks) - 1; i >= 0; i-- {
		c := t.chunks[i]
		if c.committed == len(c.buf) && c.committed > 0 {
			return
		}
		t.pending -= c.gathered - c.committed
		c.committed = c.gathered
	}
}

// more reports whether something was appended that no round has taken.
func (t *tail) more() bool {
	n := len(t.chunks)
	return n > 0 && t.chunks[n-1].gathered < len(t.chunks[n-1].buf)
}

// cut drops everything that was not committed and makes the table forget it.
func (t *tail) cut(p *sessions.Table) {
	for n := len(t.chunks); n > 0; n-- {
		c := t.chunks[n-1]
		if c.committed == len(c.buf) {
			break
		}
		end := c.base
		for rest := batch.Batch(c.buf); len(rest) > 0; rest = rest[rest.Len():] {
			if at := len(c.buf) - len(rest); at >= c.committed {
				p.Forget(rest)
			} else {
				end = rest.End()
			}
		}
		if c.committed == 0 {
			c.release()
			t.chunks[n-1] = nil
			t.chunks = t.chunks[:n-1]
			continue
		}
		c.buf, c.end, c.gathered = c.buf[:c.committed], end, c.committed
		break
	}
	t.pending = 0
}

// find returns the chunk that holds an offset, nil when none does.
func (t *tail) find(offset uint64) *chunk {
	i := sort.Search(len(t.chunks), func(i int) bool { return t.chunks[i].end > offset })
	if i == len(t.chunks) || t.chunks[i].base > offset {
		return nil
	}
	return t.chunks[i]
}

// drop gives up the oldest chunk, and reports whether it could: what is not
// committed stays, and so does the chunk that is being filled unless all is asked for.
func (t *tail) drop(all bool) bool {
	if len(t.chunks) == 0 {
		return false
	}
	c := t.chunks[0]
	if c.committed < len(c.buf) || (len(t.chunks) == 1 && !all) {
		return false
	}
	c.release()
	n := copy(t.chunks, t.chunks[1:])
	t.chunks[n] = nil
	t.chunks = t.chunks[:n]
	return true
}
