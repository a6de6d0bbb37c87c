package depot

import (
	"context"
	"errors"

	"github.com/danubemq/danube/storage"
)

// Leave brings all that is served here into the cold tier because the broker stops, as far as it comes to that before
// ctx ends. It returns the partitions of which the catalog then lacks something that lies here, and why.
func (d *Depot) Leave(ctx context.Context) (left []storage.PartitionID, err error) {
	d.mu.Lock()
	e, why, taken := d.export, d.why, d.taken
	d.mu.Unlock()
	switch {
	case taken != nil: // nothing of this cluster belongs there
		err = taken
	case e == nil:
		err = errors.Join(errIdle, why)
	default:
		err = e.Leave(ctx)
	}
	return d.behind(), err
}

// behind are the partitions of which the catalog lacks something, or of which nobody can tell.
func (d *Depot) behind() (left []storage.PartitionID) {
	d.mu.Lock()
	list := make([]*source, 0, len(d.sources))
	for _, s := range d.sources {
		list = append(list, s)
	}
	d.mu.Unlock()
	for _, s := range list {
		if f, err := s.Facts(); err != nil || f.Next < f.End {
			left = append(left, s.id)
		}
	}
	return left
}
