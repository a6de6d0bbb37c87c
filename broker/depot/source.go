package depot

import (
	"context"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold/export"
	"github.com/danubemq/danube/storage/excerpt"
)

// source is a partition that is served here under one epoch, as the exporter sees it.
type source struct {
	d     *Depot
	id    storage.PartitionID
	epoch uint64
	log   *storage.Log

	stop func() // ends the watch on the log, nil without one; guarded by the depot's lock
	seen uint64 // how far the log was when it was last looked at; guarded by that lock too
}

// ID names the partition.
func (s *source) ID() export.ID { return export.ID{Topic: s.id.Topic, Partition: s.id.Partition} }

// Facts says how far the catalog is, as this broker has applied it, and what the
// log holds behind that. Of an epoch that is over there is nothing to say: it is
// the next owner's.
func (s *source) Facts() (export.Facts, error) {
	m := s.d.cfg.Meta.View().Partition(s.id.Topic, s.id.Partition)
	if m == nil || m.Epoch != s.epoch {
		return export.Facts{Epoch: s.epoch}, nil
	}
	from, to, ok := m.NextExport()
	if !ok {
		end := s.log.Settled()
		return export.Facts{Epoch: s.epoch, Next: end, End: end}, nil
	}
	b, err := s.log.Backlog(from)
	if err != nil {
		return export.Facts{}, err
	}
	return export.Facts{
		Epoch: s.epoch, Next: from, End: min(b.End, to), Bytes: b.Bytes, Oldest: time.UnixMilli(b.Oldest),
		Sealed: min(b.Sealed, to), SealedBytes: b.SealedBytes, Object: m.Level == state.LevelObject,
	}, nil
}

// Cut is a whole segment of the log.
func (s *source) Cut(ctx context.Context, from, to uint64, most int64) (*excerpt.Segment, error) {
	return s.log.Cut(ctx, from, to, most)
}
