package fetch

import (
	"errors"
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

// limits are what is taken from an object.
var limits = segment.Limits()

// cutter takes whole batches out of the bytes of a piece. It is the pure core of a
// reader: bytes in, places out.
type cutter struct {
	piece *Piece
	next  uint64 // the offset that is wanted
	exact bool   // a batch begins there; else it may lie inside one
}

// taken is what stands at the front of some bytes.
type taken struct {
	// from and to are the whole checked batches that were found, back to back;
	// base and end their offsets. Equal: none.
	from, to  int
	base, end uint64
	// used is how many bytes are done with: the batches, or what is to be passed
	// over, which may reach beyond the bytes that are here.
	used int
	// need is how many bytes the batch behind them has, when not all are here: of
	// the header alone when not even that is.
	need int
	// err says why what stands there is not what has to. until is the offset behind
	// what is lost, when that is known.
	err   error
	until uint64
}

// take cuts batches of most bytes together, but at least one, from the front of
// data, checks all that can be checked (R21), and moves the cutter behind them.
// What carries another epoch than the piece gives to its offsets, or lies outside
// of the piece, does not exist (R19): it is passed over, and so is what holds no
// message or lies below what is wanted.
func (c *cutter) take(data []byte, most int) taken {
	var t taken
	for t.used < len(data) && c.next < c.piece.End {
		b, err := batch.CheckHeader(data[t.used:], limits)
		short := errors.Is(err, batch.ErrShort)
		whole := len(data)-t.used >= batch.HeaderSize
		if short && whole {
			b, err = data[t.used:], nil // its header was checked
		}
		switch {
		case short && !whole:
			return t.short(batch.HeaderSize)
		case err != nil:
			return t.bad(err)
		case !c.counts(b):
			if t.to > t.from {
				return t
			}
			t.used += b.Len()
			continue
		}
		if err := c.follows(b); err != nil {
			t.until = b.Base() // its header is whole
			return t.bad(err)
		}
		if short || t.to > t.from && t.to-t.from+b.Len() > most {
			return t.short(b.Len())
		}
		if err := b.CheckBody(); err != nil {
			t.until = b.End()
			return t.bad(err)
		}
		t.add(b)
		c.next, c.exact = b.End(), true
	}
	return t
}

// counts reports whether a batch is one of those that make up the piece from the
// wanted offset on.
func (c *cutter) counts(b batch.Batch) bool {
	if b.Control() || b.End() <= c.next || b.Base() < c.piece.Start || b.End() > c.piece.End {
		return false
	}
	epoch, end, ok := c.piece.epoch(b.Base())
	return ok && b.Epoch() == epoch && b.End() <= end
}

// follows says why a batch that counts cannot stand here.
func (c *cutter) follows(b batch.Batch) error {
	if b.Base() > c.next || c.exact && b.Base() < c.next {
		return fmt.Errorf("%w: a batch of offsets %d to %d where offset %d has to be", segment.ErrCorrupt, b.Base(), b.End(), c.next)
	}
	return nil
}

func (t *taken) add(b batch.Batch) {
	if t.to == t.from {
		t.from, t.to, t.base = t.used, t.used, b.Base()
	}
	t.to += b.Len()
	t.used, t.end = t.to, b.End()
}

// short asks for more bytes, unless there is something to hand out first.
func (t taken) short(need int) taken {
	if t.to == t.from {
		t.need = need
	}
	return t
}

// bad reports what is wrong, unless there is something to hand out first.
func (t taken) bad(err error) taken {
	if t.to == t.from {
		t.err = err
	}
	return t
}
