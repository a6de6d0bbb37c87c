package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/segment"
)

// What a segment of a page takes as bytes, at most, and in memory, about.
const (
	pageEntry = 128
	pageNote  = 112
)

// maxPage is the largest page of a catalog that is read, in bytes: what the
// metadata say is not believed without a bound.
const maxPage = pageEntry * (catalog.MaxPage + 1)

// noteOf is what the footer of a segment, or a page, is known by.
func noteOf(p *Piece) place { return place{p.Key, p.Position, p.Bytes} }

// page reads a page of the catalog.
func (p *Partition) page(ctx context.Context, x *Piece) (*catalog.Content, error) {
	v, err := p.tier.notes.get(ctx, noteOf(x), func(ctx context.Context) (any, int64, error) { return p.readPage(ctx, x) })
	if err != nil {
		return nil, fmt.Errorf("read catalog page %s: %w", x.Key, err)
	}
	return v.(*catalog.Content), nil
}

// known is a page that was read before.
func (p *Partition) known(x *Piece) (*catalog.Content, bool) {
	v, ok := p.tier.notes.peek(noteOf(x))
	if !ok {
		return nil, false
	}
	page, ok := v.(*catalog.Content)
	return page, ok
}

func (p *Partition) readPage(ctx context.Context, x *Piece) (*catalog.Content, int64, error) {
	if x.Bytes <= 0 || x.Bytes > maxPage {
		return nil, 0, fmt.Errorf("%w: it has %d bytes", catalog.ErrDamaged, x.Bytes)
	}
	data := make([]byte, x.Bytes)
	p.tier.m.requests.Inc()
	if err := p.tier.cfg.Store.ReadAt(ctx, x.Key, data, x.Position); err != nil {
		return nil, 0, err
	}
	page, err := catalog.DecodePage(data)
	if err != nil {
		return nil, 0, err
	}
	if got := catalog.Sum(data); got != x.CRC {
		return nil, 0, fmt.Errorf("%w: CRC %08x, the metadata say %08x", catalog.ErrDamaged, got, x.CRC)
	}
	first, last := page.Segments[0], page.Segments[len(page.Segments)-1]
	switch {
	case page.Topic != p.id.Topic || page.Partition != p.id.Partition:
		return nil, 0, fmt.Errorf("%w: it is of partition %d of topic %x", catalog.ErrDamaged, page.Partition, page.Topic)
	case first.Start != x.Start || last.End != x.End:
		return nil, 0, fmt.Errorf("%w: offsets %d to %d, the metadata say %d to %d", catalog.ErrDamaged, first.Start, last.End, x.Start, x.End)
	}
	return &page, int64(pageNote * len(page.Segments)), nil
}

// footer reads the footer of a segment, without its producer table. One that is
// not that of the piece is ErrCorrupt.
func (p *Partition) footer(ctx context.Context, x *Piece) (*segment.Footer, error) {
	v, err := p.tier.notes.get(ctx, noteOf(x), func(ctx context.Context) (any, int64, error) { return p.readFooter(ctx, x) })
	if err != nil {
		return nil, fmt.Errorf("read footer of %s: %w", x.Key, err)
	}
	return v.(*segment.Footer), nil
}

func (p *Partition) readFooter(ctx context.Context, x *Piece) (*segment.Footer, int64, error) {
	p.tier.m.requests.Inc()
	object := p.tier.cfg.Store.At(ctx, x.Key, x.Position+x.Bytes)
	f, err := segment.ReadFooter(io.NewSectionReader(object, x.Position, x.Bytes), x.Bytes)
	if err != nil {
		return nil, 0, err
	}
	if f.Sum() != x.CRC {
		return nil, 0, fmt.Errorf("%w: it is of another segment: CRC %08x, the catalog says %08x", segment.ErrCorrupt, f.Sum(), x.CRC)
	}
	if f.First != x.Start || f.End != x.End {
		return nil, 0, fmt.Errorf("%w: its offsets are %d to %d, the catalog says %d to %d", segment.ErrCorrupt, f.First, f.End, x.Start, x.End)
	}
	const entry, rest = 24, 256
	return &segment.Footer{Facts: f.Facts, Index: f.Index}, int64(entry*len(f.Index) + rest), nil
}

// position is where in a piece to begin to look for an offset. A footer that is
// damaged costs a walk from the front and nothing else.
func (p *Partition) position(ctx context.Context, x *Piece, offset uint64) (int64, error) {
	if offset <= x.Start || x.Bytes <= restSize {
		return 0, nil // one request brings all of it, or all that stands before it
	}
	f, err := p.footer(ctx, x)
	switch {
	case err == nil:
		return f.Find(offset).From, nil
	case errors.Is(err, segment.ErrCorrupt):
		p.tier.m.footers.Inc()
		p.tier.cfg.Log.Warn("footer in the cold tier is damaged", "key", x.Key, "position", x.Position, "err", err)
		return 0, nil
	}
	return 0, err
}
