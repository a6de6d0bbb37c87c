package gather

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// Recut makes objects of a part of others: where two overlap a catalog can name one of them, and what only the other has
// needs an object of its own.
type Recut struct {
	Store       *cold.Store
	FS          disk.FS
	File        string   // a temporary one, which must not exist
	Self        [16]byte // the store that makes them
	History     uint16   // in which
	Incarnation uint64   // and in which of its runs
	Unique      func() uint64
	Now         int64 // ms since 1970
}

// Cut stores the batches of a segment that hold [start, end), as they are, in an object of their own, and says what is in
// it. Errors: segment.ErrCorrupt when no batch begins or ends there, those of the store and of files.
func (r Recut) Cut(ctx context.Context, s Segment, start, end uint64) (out Segment, err error) {
	f, err := r.FS.Open(r.File, disk.Exclusive)
	if err != nil {
		return Segment{}, err
	}
	defer func() { err = errors.Join(err, f.Close(), r.FS.Remove(r.File)) }()
	at := r.Store.At(ctx, s.Key, s.Catalog.Position+s.Catalog.Bytes)
	from := io.NewSectionReader(at, s.Catalog.Position, s.Catalog.Bytes)
	size, crc, err := r.write(f, from, s, catalog.Segment{Start: start, End: end})
	if err != nil {
		return Segment{}, fmt.Errorf("cut [%d, %d) out of %s: %w", start, end, s.Key, err)
	}
	if rep, err := segment.Verify(f, size); err != nil || len(rep.Problems) > 0 {
		return Segment{}, fmt.Errorf("cut [%d, %d) out of %s: %w", start, end, s.Key, errors.Join(err, segment.ErrCorrupt))
	}
	last := s.Epochs[0].Epoch
	for _, e := range s.Epochs {
		if e.Start < end {
			last = e.Epoch
		}
	}
	name := catalog.NewName(s.Header.TopicID, s.Header.Partition, catalog.Object{
		Kind: catalog.Own, Epoch: last, Incarnation: r.Incarnation, Unique: r.Unique(),
	}, start, end)
	info, err := r.Store.Put(ctx, keys.Of(name), cold.Body{At: f, Size: size, CRC: crc})
	if err != nil {
		return Segment{}, err
	}
	made, problems, err := (&object{r.Store, info, name}).segments(ctx)
	if err != nil || len(problems) > 0 {
		return Segment{}, fmt.Errorf("read back what was cut out of %s: %w", s.Key, errors.Join(err, segment.ErrCorrupt))
	}
	return made[0], nil
}

// write writes a segment of the batches that hold the wanted offsets, and returns its length and the CRC of its bytes.
func (r Recut) write(to disk.File, from io.ReaderAt, s Segment, want catalog.Segment) (size int64, crc uint32, err error) {
	h, n, err := segment.ReadHeader(from)
	if err != nil {
		return 0, 0, err
	}
	scan := segment.NewScanner(from, s.Catalog.Bytes, h.Origin(n))
	h.Store, h.History, h.Base, h.Created, h.Copied = r.Self, r.History, want.Start, r.Now, false
	table, next := &segment.Producers{}, want.Start
	put := func(b []byte) error {
		_, err := to.WriteAt(b, size)
		size += int64(len(b))
		return err
	}
	epochs := epochsWithin(s.Epochs, want.Start, want.End)
	h.FirstEpoch, h.Epoch = epochs[0], epochs[len(epochs)-1]
	head, err := h.Append(nil)
	if err != nil {
		return 0, 0, err
	}
	if err := put(head); err != nil {
		return 0, 0, err
	}
	sum := segment.NewSummary(head, want.Start)
	for next < want.End {
		x, err := scan.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		if err != nil || x.Kind != segment.Whole || !x.Batch.Control() && x.To > next && (x.From != next || x.To > want.End) {
			return 0, 0, fmt.Errorf("%w: offsets [%d, %d) are in no batches of their own", segment.ErrCorrupt, next, want.End)
		}
		if x.Batch.Control() || x.To <= next {
			continue
		}
		sum.Add(x.Batch)
		table.Add(x.Batch)
		if err := put(x.Batch); err != nil {
			return 0, 0, err
		}
		next = x.To
	}
	if want.End == s.Catalog.End {
		f, err := segment.ReadFooter(from, s.Catalog.Bytes)
		if err == nil {
			table, err = f.Producers()
		}
		if err != nil {
			return 0, 0, err
		}
	}
	tail := sum.Footer().Append(nil, table)
	err = put(tail)
	return size, segment.WholeCRC(tail), err
}

// epochsWithin are those of [start, end).
func epochsWithin(all []segment.EpochStart, start, end uint64) (out []uint64) {
	for i, e := range all {
		if e.Start < end && (i+1 == len(all) || all[i+1].Start > start) {
			out = append(out, e.Epoch)
		}
	}
	return out
}
