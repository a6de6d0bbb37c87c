package storage

import (
	"context"

	"github.com/danubemq/danube/storage/wal"
)

// The nouns of moving a partition from store to store (R16).
type (
	// Copy takes over the history of a partition from another store.
	Copy = wal.Copy
	// Span is a run of offsets that one epoch gave and this store holds.
	Span = wal.Span
	// Elsewhere says that messages lie in other stores; no reader steps over it.
	Elsewhere = wal.Elsewhere
)

// Errors of moving a partition.
var (
	ErrPaused   = wal.ErrPaused
	ErrSessions = wal.ErrSessions
)

// Copy begins to copy a partition from another store into this one, or goes on
// where an earlier copy stopped. One copy of a partition at a time; its Log may
// be open or not. The caller closes the Copy before the Store.
func (s *Store) Copy(ctx context.Context, id PartitionID, topic string) (*Copy, error) {
	return s.tier.Copy(ctx, id, topic)
}
