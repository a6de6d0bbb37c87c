package catalog

import (
	"cmp"
	"iter"
	"slices"
	"sort"
)

// Catalog is what a partition has in the cold tier. It is immutable, and nil is the empty one: methods that change
// something return another, which shares what did not change.
type Catalog struct {
	pages  []Page
	chunks []*chunk
	cover  []span // made from the two: what they cover, ascending, no two touch
	count  int
	bytes  int64
}

// span is a run of offsets, end exclusive.
type span struct{ start, end uint64 }

// chunk is a run of segments in their encoding; last is there so that the next one can be encoded against it.
type chunk struct {
	b     []byte
	start uint64
	n     int
	last  Segment
}

// chunkMost bounds the segments of a chunk: an addition copies one.
const chunkMost = 64

// pack appends chunks of the segments to list.
func pack(list []*chunk, segments []Segment) []*chunk {
	for part := range slices.Chunk(segments, chunkMost) {
		list = append(list, &chunk{
			b: slices.Clip(appendSegments(make([]byte, 0, 40*len(part)), part)), start: part[0].Start, n: len(part), last: part[len(part)-1],
		})
	}
	return list
}

// with returns the chunk with one more segment behind its last.
func (k *chunk) with(s Segment) *chunk {
	var room [128]byte
	add := appendSegment(room[:0], &k.last, &s)
	b := make([]byte, 0, len(k.b)+len(add))
	return &chunk{b: append(append(b, k.b...), add...), start: k.start, n: k.n + 1, last: s}
}

// build makes a catalog, nil of nothing.
func build(pages []Page, chunks []*chunk) *Catalog {
	if len(pages)+len(chunks) == 0 {
		return nil
	}
	c := &Catalog{pages: pages, chunks: chunks}
	for i := range pages {
		c.bytes += pages[i].Bytes
		c.cover = append(c.cover, span{pages[i].Start, pages[i].End})
	}
	for s := range c.All() {
		c.count++
		c.bytes += s.Bytes
		c.cover = append(c.cover, span{s.Start, s.End})
	}
	slices.SortFunc(c.cover, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	joined := c.cover[:0]
	for _, s := range c.cover {
		if n := len(joined); n > 0 && joined[n-1].end >= s.start {
			joined[n-1].end = max(joined[n-1].end, s.end)
			continue
		}
		joined = append(joined, s)
	}
	c.cover = slices.Clip(slices.Clone(joined))
	return c
}

// disjoint says whether no offset lies in two pages or segments.
func (c *Catalog) disjoint() bool {
	end := uint64(0)
	for i := range c.pages {
		if c.pages[i].Start < end {
			return false
		}
		end = c.pages[i].End
	}
	end = 0
	for s := range c.All() {
		if s.Start < end || c.pageAfter(s.Start) < len(c.pages) && c.pages[c.pageAfter(s.Start)].Start < s.End {
			return false
		}
		end = s.End
	}
	return true
}

// Len returns the number of segments that lie in no page.
func (c *Catalog) Len() int {
	if c == nil {
		return 0
	}
	return c.count
}

// Bytes returns the length of all segments, those in pages too.
func (c *Catalog) Bytes() int64 {
	if c == nil {
		return 0
	}
	return c.bytes
}

// Pages returns the pages, ascending; they must not be modified.
func (c *Catalog) Pages() []Page {
	if c == nil {
		return nil
	}
	return c.pages
}

// Page returns the page whose offsets n is among.
func (c *Catalog) Page(n uint64) (Page, bool) {
	pages := c.Pages()
	if i := c.pageAfter(n); i < len(pages) && pages[i].Start <= n {
		return pages[i], true
	}
	return Page{}, false
}

// pageAfter is the index of the first page that does not end at n or below.
func (c *Catalog) pageAfter(n uint64) int {
	pages := c.Pages()
	return sort.Search(len(pages), func(i int) bool { return pages[i].End > n })
}

// All yields the segments that lie in no page, ascending.
func (c *Catalog) All() iter.Seq[Segment] { return c.From(0) }

// From yields those that do not end at n or below.
func (c *Catalog) From(n uint64) iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		if c == nil {
			return
		}
		for _, k := range c.chunks[c.chunkAfter(n):] {
			for s := range k.all() {
				if s.End > n && !yield(s) {
					return
				}
			}
		}
	}
}

func (k *chunk) all() iter.Seq[Segment] {
	return func(yield func(Segment) bool) {
		r, prev := reader{b: k.b}, Segment{}
		for range k.n {
			prev = r.segment(&prev)
			if !yield(prev) {
				return
			}
		}
	}
}

// chunkAfter is the index of the first chunk that does not end at n or below.
func (c *Catalog) chunkAfter(n uint64) int {
	// Most questions are about the end.
	if last := len(c.chunks) - 1; last < 0 || c.chunks[last].last.End <= n {
		return last + 1
	}
	return sort.Search(len(c.chunks), func(i int) bool { return c.chunks[i].last.End > n })
}

// Find returns the segment that holds offset n, if it lies in no page.
func (c *Catalog) Find(n uint64) (Segment, bool) {
	for s := range c.From(n) {
		return s, s.Start <= n
	}
	return Segment{}, false
}

// Between returns the segments that begin in [from, to).
func (c *Catalog) Between(from, to uint64) (list []Segment) {
	for s := range c.From(from) {
		if s.Start >= to {
			break
		}
		if s.Start >= from {
			list = append(list, s)
		}
	}
	return list
}

// spanAfter returns the first run of covered offsets that does not end at n or below; ok says whether there is one.
func (c *Catalog) spanAfter(n uint64) (s span, ok bool) {
	if c == nil {
		return s, false
	}
	last := len(c.cover) - 1
	if last < 0 || c.cover[last].end <= n {
		return s, false
	}
	return c.cover[sort.Search(last, func(i int) bool { return c.cover[i].end > n })], true
}

// Gap returns the lowest offset from n on that nothing covers. What no range holds counts as covered within a page.
func (c *Catalog) Gap(n uint64) uint64 {
	if s, ok := c.spanAfter(n); ok && s.start <= n {
		return s.end
	}
	return n
}

// Room returns the lowest offset from n on that is covered, the highest number there is if none is.
func (c *Catalog) Room(n uint64) uint64 {
	if s, ok := c.spanAfter(n); ok {
		return max(s.start, n)
	}
	return ^uint64(0)
}

// Covers says whether all of [from, to) is covered.
func (c *Catalog) Covers(from, to uint64) bool { return from >= to || c.Gap(from) >= to }

// Uncovered narrows [from, to) to begin and end with what is not covered; empty if all of it is.
func (c *Catalog) Uncovered(from, to uint64) (uint64, uint64) {
	if from = c.Gap(from); from >= to {
		return to, to
	}
	if s, ok := c.spanAfter(to - 1); ok && s.start < to {
		to = s.start
	}
	return from, to
}

// Add puts in a segment that overlaps nothing. At the end, where most are added, it copies one chunk.
func (c *Catalog) Add(s Segment) *Catalog {
	if c == nil {
		return build(nil, pack(nil, []Segment{s}))
	}
	last := len(c.chunks) - 1
	if last >= 0 && s.Start < c.chunks[last].last.End {
		return c.Replace(s.Start, s.Start, []Segment{s}).covering(span{s.Start, s.End})
	}
	n := *c
	if last >= 0 && c.chunks[last].n < chunkMost {
		n.chunks = slices.Clone(c.chunks)
		n.chunks[last] = c.chunks[last].with(s)
	} else {
		n.chunks = pack(c.chunks[:last+1:last+1], []Segment{s})
	}
	n.count++
	n.bytes += s.Bytes
	return n.covering(span{s.Start, s.End})
}

// covering adds to what n, a catalog of the caller's own, covers.
func (n *Catalog) covering(s span) *Catalog {
	i := sort.Search(len(n.cover), func(i int) bool { return n.cover[i].end >= s.start })
	j := i
	for ; j < len(n.cover) && n.cover[j].start <= s.end; j++ {
		s.start, s.end = min(s.start, n.cover[j].start), max(s.end, n.cover[j].end)
	}
	n.cover = slices.Concat(n.cover[:i], []span{s}, n.cover[j:])
	return n
}

// Replace puts segments in the place of those that begin in [from, to) and cover the same offsets.
func (c *Catalog) Replace(from, to uint64, segments []Segment) *Catalog {
	i := c.chunkAfter(from)
	j := i
	for j < len(c.chunks) && c.chunks[j].start < to {
		j++
	}
	// Neighbours that are small are packed again, or a thousand merges would leave a thousand chunks of one.
	if i > 0 && c.chunks[i-1].n <= chunkMost/2 {
		i--
	}
	if j < len(c.chunks) && c.chunks[j].n <= chunkMost/2 {
		j++
	}
	n := *c
	var low, high []Segment
	for _, k := range c.chunks[i:j] {
		for s := range k.all() {
			switch {
			case s.Start < from:
				low = append(low, s)
			case s.Start >= to:
				high = append(high, s)
			default:
				n.count--
				n.bytes -= s.Bytes
			}
		}
	}
	for k := range segments {
		n.count++
		n.bytes += segments[k].Bytes
	}
	n.chunks = append(pack(c.chunks[:i:i], slices.Concat(low, segments, high)), c.chunks[j:]...)
	return &n
}

// Fold puts a page in the place of the segments that it lists.
func (c *Catalog) Fold(p Page) *Catalog {
	n := c.Replace(p.Start, p.End, nil)
	n.pages = slices.Insert(slices.Clone(n.pages), n.pageAfter(p.Start), p)
	n.bytes += p.Bytes
	return n.covering(span{p.Start, p.End})
}

// Unfold is the reverse of Fold, with those of the segments that are still wanted.
func (c *Catalog) Unfold(p Page, segments []Segment) *Catalog {
	pages := slices.DeleteFunc(slices.Clone(c.pages), func(q Page) bool { return q.Start == p.Start })
	return build(pages, c.Replace(p.Start, p.End, segments).chunks)
}

// Trim takes out every segment and page that ends at start or below, and returns them.
func (c *Catalog) Trim(start uint64) (rest *Catalog, segments []Segment, pages []Page) {
	if c == nil {
		return nil, nil, nil
	}
	out := c.pageAfter(start)
	pages = c.pages[:out:out]
	for s := range c.All() {
		if s.End > start {
			break
		}
		segments = append(segments, s)
	}
	if len(segments)+len(pages) == 0 {
		return c, nil, nil
	}
	if len(segments) == c.count && out == len(c.pages) {
		return nil, segments, pages
	}
	n := *c
	if k := len(segments); k > 0 {
		n = *c.Replace(segments[0].Start, segments[k-1].End, nil)
	}
	n.pages = n.pages[out:]
	for i := range pages {
		n.bytes -= pages[i].Bytes
	}
	first := ^uint64(0)
	if len(n.pages) > 0 {
		first = n.pages[0].Start
	}
	if len(n.chunks) > 0 {
		first = min(first, n.chunks[0].start)
	}
	n.cover = slices.DeleteFunc(slices.Clone(n.cover), func(s span) bool { return s.end <= first })
	n.cover[0].start = max(n.cover[0].start, first)
	return &n, segments, pages
}
