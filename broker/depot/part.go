package depot

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold/fetch"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/segment"
)

// errGone says that the metadata know no such partition, any more or yet.
var errGone = errors.New("the metadata do not know the partition")

// Part is the cold tier of a partition. It holds nothing.
func (d *Depot) Part(id storage.PartitionID) *fetch.Partition {
	return d.tier.Partition(id, &list{d: d, id: id})
}

// list is the catalog of a partition in the newest version of the metadata that
// this broker has applied (R19).
type list struct {
	d  *Depot
	id storage.PartitionID
}

func (l *list) partition() (*state.Partition, uint64, error) {
	view := l.d.cfg.Meta.View()
	m := view.Partition(l.id.Topic, l.id.Partition)
	if m == nil {
		return nil, view.Index(), errGone
	}
	return m, view.Index(), nil
}

// At is [fetch.Catalog.At].
func (l *list) At(offset uint64) (p fetch.Piece, version uint64, err error) {
	m, version, err := l.partition()
	if err == nil {
		p, err = pieceAt(m, offset)
	}
	return p, version, err
}

// AtTime is [fetch.Catalog.AtTime].
func (l *list) AtTime(ms int64) (p fetch.Piece, version uint64, err error) {
	m, version, err := l.partition()
	if err == nil {
		p, err = pieceAtTime(m, ms)
	}
	return p, version, err
}

// pieceAt is the piece of a partition's catalog that holds an offset.
func pieceAt(m *state.Partition, offset uint64) (fetch.Piece, error) {
	if offset < m.LogStart {
		return fetch.Piece{}, &storage.Trimmed{LogStart: m.LogStart}
	}
	if s, ok := m.Catalog.Find(offset); ok {
		return ofSegment(m, &s), nil
	}
	if p, ok := m.Catalog.Page(offset); ok {
		return ofPage(m, &p), nil
	}
	return fetch.Piece{}, fetch.ErrUncovered
}

// pieceAtTime is the first piece with a message that was appended at or after ms.
func pieceAtTime(m *state.Partition, ms int64) (fetch.Piece, error) {
	var out fetch.Piece
	for _, p := range m.Catalog.Pages() {
		if p.LastTime >= ms && p.End > m.LogStart {
			out = ofPage(m, &p)
			break
		}
	}
	for s := range m.Catalog.From(m.LogStart) {
		if s.LastTime < ms {
			continue
		}
		if out.Key == "" || s.Start < out.Start {
			out = ofSegment(m, &s)
		}
		break
	}
	if out.Key == "" {
		return out, fetch.ErrUncovered
	}
	return out, nil
}

// ofSegment is a segment of a catalog as readers take it.
func ofSegment(m *state.Partition, s *catalog.Segment) fetch.Piece {
	p := fetch.Piece{
		Start: s.Start, End: s.End, Key: keyOf(m, s.Object, s.Start, s.End), Position: s.Position, Bytes: s.Bytes, CRC: s.CRC,
		FirstTime: s.FirstTime, LastTime: s.LastTime,
	}
	p.Epochs = epochsOf(m, s.Start, s.End)
	return p
}

// epochsOf are the epochs that give offsets of a partition their values (R19). Below
// the start of the log the ranges say nothing, and nobody asks.
func epochsOf(m *state.Partition, from, to uint64) (out []segment.EpochStart) {
	for _, e := range m.Epochs(from, to) {
		out = append(out, segment.EpochStart{Epoch: e.Epoch, Start: e.Start})
	}
	if len(out) > 0 {
		out[0].Start = min(out[0].Start, from)
	}
	return out
}

func ofPage(m *state.Partition, p *catalog.Page) fetch.Piece {
	return fetch.Piece{
		Start: p.Start, End: p.End, Key: keyOf(m, p.Object, p.Start, p.End), Bytes: p.Size, CRC: p.CRC, FirstTime: p.FirstTime, LastTime: p.LastTime, Page: true,
		Epochs: epochsOf(m, p.Start, p.End),
	}
}

func keyOf(m *state.Partition, o catalog.Object, start, end uint64) string {
	return keys.Of(catalog.NewName(m.Topic, m.Number, o, start, end))
}

// Producers is what the cold tier knows of who has stored what below an offset that
// the catalog covers up to: the footer of the segment that ends there has the
// producer table of the log as it stood (R17). It comes as [storage.Log.Sessions] does.
func (d *Depot) Producers(ctx context.Context, id storage.PartitionID, end uint64) ([]byte, error) {
	l := list{d: d, id: id}
	m, _, err := l.partition()
	if err != nil {
		return nil, err
	}
	s, err := d.segmentAt(ctx, m, end-1)
	if err != nil {
		return nil, fmt.Errorf("learn from the cold tier who stored what: %w", err)
	}
	key := keyOf(m, s.Object, s.Start, s.End)
	footer, err := segment.ReadFooter(&piece{ctx: ctx, d: d, key: key, at: s.Position}, s.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the footer of %s: %w", key, err)
	}
	stored, err := footer.Producers()
	if err != nil {
		return nil, fmt.Errorf("read the producers of %s: %w", key, err)
	}
	var table storage.Sessions
	table.Load(stored)
	return table.Encode(end), nil
}

// segmentAt is the segment that holds an offset, looked up in a page of the catalog if
// that has it.
func (d *Depot) segmentAt(ctx context.Context, m *state.Partition, offset uint64) (catalog.Segment, error) {
	if s, ok := m.Catalog.Find(offset); ok {
		return s, nil
	}
	g, ok := m.Catalog.Page(offset)
	if !ok {
		return catalog.Segment{}, fmt.Errorf("no segment of the catalog holds offset %d", offset)
	}
	key, content := keyOf(m, g.Object, g.Start, g.End), make([]byte, g.Size)
	if err := d.cfg.Store.ReadAt(ctx, key, content, 0); err != nil {
		return catalog.Segment{}, err
	}
	if !g.Holds(content) {
		return catalog.Segment{}, fmt.Errorf("page %s: %w", key, catalog.ErrDamaged)
	}
	page, err := catalog.DecodePage(content)
	if err != nil {
		return catalog.Segment{}, fmt.Errorf("page %s: %w", key, err)
	}
	for _, s := range page.Segments {
		if s.Start <= offset && offset < s.End {
			return s, nil
		}
	}
	return catalog.Segment{}, fmt.Errorf("page %s lists no segment with offset %d", key, offset)
}

// piece is a segment within an object, for the time of ctx.
type piece struct {
	ctx context.Context
	d   *Depot
	key string
	at  int64
}

// ReadAt is io.ReaderAt.
func (p *piece) ReadAt(b []byte, off int64) (int, error) {
	if err := p.d.cfg.Store.ReadAt(p.ctx, p.key, b, p.at+off); err != nil {
		return 0, err
	}
	return len(b), nil
}

var _ io.ReaderAt = (*piece)(nil)
