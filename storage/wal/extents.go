package wal

import (
	"slices"

	"github.com/danubemq/danube/storage/extents"
)

type (
	// Extent says which epoch gives which offsets their value.
	Extent = extents.Extent
	// Gap says that no message has the offsets [From, To).
	Gap = extents.Gap
	// Elsewhere says that messages lie in other stores than this one.
	Elsewhere = extents.Elsewhere
	// Offsets is a run of offsets.
	Offsets = extents.Run
)

// SetExtents tells anew which epochs give which offsets their value, once that
// has changed: offsets that came back, that others took over, or whose files are
// here now. The epoch that is being written stays as the log knows it, unless
// the list has it open too.
func (l *Log) SetExtents(list []Extent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.door.open || len(l.extents) == 0 {
		l.extents = slices.Clone(list)
		return
	}
	l.extents = l.extents.Renew(list)
}
