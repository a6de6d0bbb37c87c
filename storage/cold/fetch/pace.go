package fetch

import "time"

const (
	// blockSize is the unit in which objects are held in memory and shared.
	blockSize = 256 << 10
	// maxRequest is the most that one request asks for, but for a rest that is not
	// worth one of its own.
	maxRequest = 8 << 20
	// restSize is such a rest: a sequential reader knows of no footer, and must not
	// pay a request for it.
	restSize = 1 << 20
	// A reader that is through with a request in quick has larger ones made, one
	// that takes longer than slow has smaller ones.
	quick = time.Second
	slow  = 4 * time.Second
	// calmAfter is how many blocks a reader finds ready before one request less is
	// kept ahead of it.
	calmAfter = 256
)

// pace is how far ahead of a reader is read, and in which requests. It is pure:
// the time is an argument. A reader begins with one block, because it may want no
// more. Requests grow until it takes a second or more to get through one; once they
// are as large as they get, each block that it has to wait for has one more under way.
type pace struct {
	size  int64     // of a request, in bytes
	depth int64     // requests that are kept ahead of the reader
	calm  int       // blocks that were ready since the last that was not
	eaten int64     // bytes that the reader came to since then
	since time.Time // when size last changed, or could have
}

// request is the size of the next request.
func (p *pace) request(now time.Time) int64 {
	if p.size == 0 {
		p.size, p.depth, p.since = blockSize, 1, now
	}
	return p.size
}

// window is how many bytes may be asked for and not read yet.
func (p *pace) window() int64 { return p.size * p.depth }

// moved says that the reader came to a block of n bytes, whether it had to wait for
// it, and how many requests at most may be kept ahead.
func (p *pace) moved(now time.Time, n int64, waited bool, most int64) {
	p.eaten += n
	if p.eaten >= p.size {
		switch took := now.Sub(p.since); {
		case took < quick/4:
			p.size = min(4*p.size, maxRequest)
		case took < quick:
			p.size = min(2*p.size, maxRequest)
		case took > slow:
			p.size = max(p.size/2, blockSize)
		}
		p.eaten, p.since = 0, now
	}
	p.depth = max(p.depth, 2) // whoever comes to a further block is a sequential reader
	p.calm++
	switch {
	case waited && p.size == maxRequest:
		p.calm = 0
		p.depth = max(min(p.depth+1, most), 2) // less would have it wait each time
	case p.calm >= calmAfter:
		p.calm = 0
		p.depth = max(p.depth-1, 2)
	}
}

// span is how many of the blocks [from, count) one request of size bytes takes. A
// small rest goes along.
func span(from, count int, size int64) int {
	n := int(max(size/blockSize, 1))
	if count-from-n <= restSize/blockSize {
		return count - from
	}
	return n
}
