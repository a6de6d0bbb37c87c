package fetch

import (
	"context"
	"errors"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// OffsetAt is the offset of the first message in the cold tier that was appended
// at or after ms (ms since 1970). Errors: ErrUncovered when there is none, and
// those of [Reader.Next].
func (p *Partition) OffsetAt(ctx context.Context, ms int64) (uint64, error) {
	last := ""
	for {
		offset, err := p.offsetAt(ctx, ms)
		g, ok := errors.AsType[*gone](err)
		if !ok {
			return offset, err
		}
		p.tier.m.moved.Inc()
		if g.key == last {
			_, version, _ := p.catalog.AtTime(ms) // the key was named by it or by an older one
			return 0, &Missing{Key: g.key, Version: version, Err: g.err}
		}
		last = g.key
	}
}

func (p *Partition) offsetAt(ctx context.Context, ms int64) (uint64, error) {
	x, _, err := p.catalog.AtTime(ms)
	if err != nil {
		return 0, err
	}
	if x.Page {
		page, err := p.page(ctx, &x)
		if err != nil {
			return 0, missed(x.Key, err)
		}
		s := page.AtTime(ms)
		if s == nil {
			return x.End, nil // the metadata said otherwise; what follows is younger in any case
		}
		x = x.listed(page, s)
	}
	if x.FirstTime >= ms {
		return x.Start, nil
	}
	from := x.Start
	f, err := p.footer(ctx, &x)
	switch {
	case err == nil:
		from = offsetOf(f, ms, from)
	case !errors.Is(err, segment.ErrCorrupt):
		return 0, missed(x.Key, err)
	}
	return p.walk(ctx, from, x.End, ms)
}

// offsetOf is the first offset of the stretch of a segment that the index names for a time.
func offsetOf(f *segment.Footer, ms int64, first uint64) uint64 {
	span, ok := f.FindTime(ms)
	if !ok {
		return first
	}
	for _, e := range f.Index {
		if e.At == span.From {
			return max(e.Offset, first)
		}
	}
	return first
}

// walk looks at the batches of [from, end) for the first that was appended at or after ms.
func (p *Partition) walk(ctx context.Context, from, end uint64, ms int64) (uint64, error) {
	r := p.Reader(from)
	defer r.Close()
	r.Until(end)
	for r.Offset() < end {
		v, err := r.Next(ctx, 1)
		if d, ok := errors.AsType[*recovery.Damage](err); ok {
			r.Seek(d.To) // what cannot be read has no time
			continue
		}
		if err != nil {
			return 0, err
		}
		at, base := batch.Batch(v.Data).AppendTime(), v.Base
		v.Release()
		if at >= ms {
			return base, nil
		}
	}
	return end, nil
}
