package fetch

import (
	"context"
	"errors"
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// errAgain says that the reader's place was moved and the step begins again.
var errAgain = errors.New("read again")

// errForeign says that a segment is another partition's: nothing of it is served.
var errForeign = errors.New("the segment belongs to another partition")

// maxMoves is how often a reader follows an object that is gone to another within
// one Next.
const maxMoves = 8

// Reader yields the batches of a partition's cold tier in the order of offsets.
// Not safe for concurrent use.
type Reader struct {
	p     *Partition
	next  uint64
	until uint64 // pieces from here on are not read ahead; 0: no bound

	lane  lane
	pace  pace
	edge  uint64 // the end of the pieces ahead at which no other was known to follow
	exact bool   // a batch begins at next
	pos   int64  // in the piece at hand, of the next batch

	chunk  *memory.Chunk // the block at hand, with a reference
	number int           // of it
	joint  joint
	doubt  place // and pos: what was read anew because it made no sense
	at     int64
}

// joint is a batch that lies in several blocks, as far as it was put together.
type joint struct {
	chunk *memory.Chunk
	need  int // bytes
}

// Reader returns a reader whose first batch is the one that holds from.
func (p *Partition) Reader(from uint64) *Reader {
	r := &Reader{p: p, next: from}
	r.lane.c, r.lane.now = &p.tier.cache, p.tier.cfg.Now
	return r
}

// Offset is the next offset the reader yields.
func (r *Reader) Offset() uint64 { return r.next }

// Seek goes on at another offset.
func (r *Reader) Seek(offset uint64) {
	if offset != r.next {
		r.Close()
		r.next, r.pace = offset, pace{}
	}
}

// Until says that whoever reads will not want what lies from offset on; 0: it may.
// It bounds what is read ahead and nothing else.
func (r *Reader) Until(offset uint64) { r.until = offset }

// Close gives up what the reader holds and what is on its way to it alone. It waits
// for nothing. A Next after it begins anew.
func (r *Reader) Close() {
	r.letGo()
	r.lane.clear()
	r.edge = 0
}

// letGo gives up the memory at hand.
func (r *Reader) letGo() {
	if r.chunk != nil {
		r.chunk.Release()
		r.chunk = nil
	}
	r.split()
}

// split gives up a batch that is not whole yet.
func (r *Reader) split() {
	if r.joint.chunk != nil {
		r.joint.chunk.Release()
	}
	r.joint = joint{}
}

// Next returns the next batches: as many as lie together and fit maxBytes, but at
// least one. Errors: ErrUncovered, *recovery.Damage, *Missing, ErrClosed, that of
// ctx, those of the catalog, and *cold.Error of a store that does not answer as it
// should. The reader has not moved then, and what is on its way goes on.
func (r *Reader) Next(ctx context.Context, maxBytes int) (memory.View, error) {
	for moves := 0; ; {
		v, err := r.step(ctx, maxBytes)
		if err == nil {
			return v, nil
		}
		if errors.Is(err, errAgain) {
			continue
		}
		if g, ok := errors.AsType[*gone](err); ok {
			if err = r.follow(ctx, g, moves); err == nil {
				moves++
				continue
			}
		}
		return memory.View{}, r.named(err)
	}
}

// named adds the offset to an error that does not name it.
func (r *Reader) named(err error) error {
	_, damage := errors.AsType[*recovery.Damage](err)
	_, missing := errors.AsType[*Missing](err)
	if damage || missing || len(r.lane.ahead) == 0 || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("read offset %d from %s: %w", r.next, r.lane.ahead[0].piece.Key, err)
}

// follow looks where an offset lies now whose object is gone: compaction or
// retention may have moved on (R19). It is an error when the newest version names
// the same object.
func (r *Reader) follow(ctx context.Context, g *gone, moves int) error {
	r.Close()
	r.p.tier.m.moved.Inc()
	x, version, err := r.p.resolve(ctx, r.next)
	if again, ok := errors.AsType[*gone](err); ok && again.key != g.key && moves < maxMoves {
		return nil
	}
	if err == nil && x.Key != g.key && moves < maxMoves {
		return nil
	}
	if _, ok := errors.AsType[*gone](err); ok || err == nil {
		return &Missing{Offset: r.next, Key: g.key, Version: version, Err: g.err}
	}
	return err
}

// step does one thing that brings the reader on, and returns batches if it has them.
func (r *Reader) step(ctx context.Context, most int) (memory.View, error) {
	if len(r.lane.ahead) == 0 {
		if err := r.open(ctx); err != nil {
			return memory.View{}, err
		}
	}
	p := &r.lane.ahead[0].piece
	if r.next >= p.End {
		return memory.View{}, r.leave()
	}
	if r.joint.need > 0 {
		return r.join(ctx)
	}
	data, err := r.bytes(ctx, r.pos)
	if err != nil {
		return memory.View{}, err
	}
	if r.pos == 0 {
		n, err := r.header(data)
		if err != nil {
			return memory.View{}, r.bad(ctx, taken{err: err})
		}
		r.pos = int64(n)
		return memory.View{}, errAgain
	}
	c := cutter{piece: p, next: r.next, exact: r.exact}
	t := c.take(data, most)
	switch {
	case t.err != nil:
		return memory.View{}, r.bad(ctx, t)
	case t.need > 0:
		r.joint.need = t.need
		r.pos += int64(t.used)
		return memory.View{}, errAgain
	case t.to > t.from:
		r.chunk.Retain()
		v := r.chunk.View(data[t.from:t.to:t.to], t.base, t.end)
		r.advance(t)
		return v, nil
	}
	r.pos += int64(t.used)
	return memory.View{}, errAgain
}

// advance moves the reader behind what it hands out.
func (r *Reader) advance(t taken) {
	r.pos += int64(t.used)
	r.next, r.exact = t.end, true
	r.doubt = place{}
}

// open finds the piece that holds the next offset, and where in it to begin.
func (r *Reader) open(ctx context.Context) error {
	x, _, err := r.p.resolve(ctx, r.next)
	if err != nil {
		return err
	}
	pos, err := r.p.position(ctx, &x, r.next)
	if err != nil {
		return missed(x.Key, err)
	}
	r.lane.add(x, int(pos/blockSize))
	r.pos, r.exact, r.edge = pos, r.next == x.Start, 0
	return nil
}

// leave goes on to the piece behind the one at hand.
func (r *Reader) leave() error {
	r.letGo()
	r.lane.pop()
	r.edge, r.pos, r.exact = 0, 0, true
	return errAgain
}

// bytes returns what is at hand from a position of the piece on, to the end of its
// block.
func (r *Reader) bytes(ctx context.Context, pos int64) ([]byte, error) {
	n := int(pos / blockSize)
	if r.chunk != nil && r.number == n {
		return r.chunk.Buf[pos%blockSize:], nil
	}
	if r.chunk != nil {
		r.chunk.Release()
		r.chunk = nil
	}
	p := &r.lane.ahead[0].piece
	if pos >= p.Bytes {
		return nil, r.bad(ctx, taken{err: fmt.Errorf("%w: the segment ends before offset %d", segment.ErrCorrupt, r.next)})
	}
	r.extend(pos)
	chunk, err := r.lane.memory(ctx, n, &r.pace, int64(r.p.tier.cfg.Parallel))
	switch {
	case errors.Is(err, cold.Corrupt):
		return nil, r.bad(ctx, taken{err: err})
	case err != nil:
		return nil, missed(p.Key, err)
	}
	r.chunk, r.number = chunk, n
	return chunk.Buf[pos%blockSize:], nil
}

// extend puts the pieces that follow into the lane, as far as the pace looks ahead
// and no request is needed to know them.
func (r *Reader) extend(pos int64) {
	for len(r.lane.ahead) < maxStretches {
		reach, end := r.lane.reach(pos)
		if reach > 2*r.pace.window() || end == r.edge || r.until > 0 && end >= r.until {
			return
		}
		x, ok := r.p.follow(end)
		if !ok {
			r.edge = end
			return
		}
		r.lane.add(x, 0)
	}
}

// header checks that the segment is one of this partition, and returns the length
// of its header.
func (r *Reader) header(data []byte) (int, error) {
	h, n, err := segment.ParseHeader(data)
	if err == nil && (h.TopicID != r.p.id.Topic || h.Partition != r.p.id.Partition) {
		err = fmt.Errorf("%w: partition %d of topic %x", errForeign, h.Partition, h.TopicID)
	}
	return n, err
}

// join puts a batch together that lies in several blocks.
func (r *Reader) join(ctx context.Context) (memory.View, error) {
	j := &r.joint
	if r.pos+int64(j.need) > r.lane.ahead[0].piece.Bytes {
		return memory.View{}, r.bad(ctx, taken{err: fmt.Errorf("%w: a batch reaches behind the segment", segment.ErrCorrupt)})
	}
	if j.chunk == nil {
		j.chunk = r.lane.c.take(j.need)
	}
	for len(j.chunk.Buf) < j.need {
		data, err := r.bytes(ctx, r.pos+int64(len(j.chunk.Buf)))
		if err != nil {
			return memory.View{}, err
		}
		n := min(len(data), j.need-len(j.chunk.Buf))
		j.chunk.Buf = append(j.chunk.Buf, data[:n]...)
	}
	c := cutter{piece: &r.lane.ahead[0].piece, next: r.next, exact: r.exact}
	t := c.take(j.chunk.Buf, j.need)
	switch {
	case t.err != nil:
		return memory.View{}, r.bad(ctx, t)
	case t.need > j.need: // that was its header
		larger := r.lane.c.take(t.need)
		larger.Buf = append(larger.Buf, j.chunk.Buf...)
		r.split()
		r.joint = joint{larger, t.need}
		return memory.View{}, errAgain
	case t.to > t.from:
		v := j.chunk.View(j.chunk.Buf[t.from:t.to:t.to], t.base, t.end)
		r.joint = joint{} // the view has its memory
		r.advance(t)
		return v, nil
	}
	r.split()
	r.pos += int64(t.used)
	return memory.View{}, errAgain
}

// bad judges bytes that are not what has to stand there. They are read once more
// from the store itself, because a memory, a disk or a wire on the way may have
// hurt them; then it is the object that is damaged.
func (r *Reader) bad(ctx context.Context, t taken) error {
	p := &r.lane.ahead[0].piece
	if _, newer := errors.AsType[*segment.VersionError](t.err); newer || errors.Is(t.err, batch.ErrVersion) {
		return t.err // nothing is wrong with it: a newer binary wrote it
	}
	id := noteOf(p)
	first := int(r.pos / blockSize)
	last := int((r.pos + int64(max(r.joint.need, 1)) - 1) / blockSize)
	r.letGo()
	r.lane.back(first, last-first+1)
	if r.doubt != id || r.at != r.pos {
		r.doubt, r.at = id, r.pos
		r.p.tier.m.doubts.Inc()
		return errAgain
	}
	r.doubt = place{}
	r.p.tier.m.damages.Inc()
	return r.damage(ctx, t)
}

// damage says what is lost: up to where the batch says that it reaches, or else up
// to where the footer knows another one to begin. A header that is damaged costs no
// message when the footer says where the batches begin.
func (r *Reader) damage(ctx context.Context, t taken) error {
	p := &r.lane.ahead[0].piece
	d := &recovery.Damage{From: r.next, To: p.End, File: p.Key, At: p.Position + r.pos, Err: t.err}
	if t.until > r.next {
		d.To = t.until
		return d
	}
	f, err := r.p.footer(ctx, p)
	if err != nil || errors.Is(t.err, errForeign) {
		return d
	}
	if r.pos == 0 && len(f.Index) > 0 {
		r.p.tier.cfg.Log.Warn("header of a segment in the cold tier is damaged", "key", p.Key, "position", p.Position, "err", t.err)
		r.pos = f.Index[0].At
		return errAgain
	}
	for _, e := range f.Index {
		if e.At > r.pos && e.Offset > r.next {
			d.To = min(d.To, e.Offset)
			break
		}
	}
	return d
}
