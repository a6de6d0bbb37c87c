package depot

import (
	"context"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// watchRest is how long the goroutine that watches logs rests between two looks.
const watchRest = 5 * time.Millisecond

// follow watches a log while its acknowledgements wait for the catalog, and no other:
// all else is exported when it is old or long enough, which a look each second finds.
// The lock is held.
func (d *Depot) follow(s *source) {
	m := d.cfg.Meta.View().Partition(s.id.Topic, s.id.Partition)
	switch object := m != nil && m.Level == state.LevelObject; {
	case object && s.stop == nil:
		s.stop = s.log.Watch(d.grown)
	case !object:
		s.leave()
	}
}

// leave ends the watch. The depot's lock is held.
func (s *source) leave() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// watch has the logs that have grown looked at, those whose acknowledgements wait. It
// returns when ctx ends.
func (d *Depot) watch(ctx context.Context) {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		select {
		case <-d.grown:
		case <-ctx.Done():
			return
		}
		d.lookAt()
		rest.Reset(watchRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookAt tells the exporter which logs of level object have more.
func (d *Depot) lookAt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sources {
		if s.stop == nil || d.export == nil {
			continue
		}
		if n := s.log.Settled(); n != s.seen {
			s.seen = n
			d.export.Changed(s.ID())
		}
	}
}
