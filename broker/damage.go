package broker

import (
	"slices"
	"sync"

	"github.com/danubemq/danube/storage"
)

// mostDamages bounds what is remembered of one partition: a rotten disk has more
// to tell than anybody reads, and verification finds it again.
const mostDamages = 1000

// damages are the ranges of a partition that cannot be read: those recovery
// found, and those that a reader or a verification met since.
type damages struct {
	mu   sync.Mutex
	list []storage.Damage // guarded by mu
}

// found remembers damage and says whether it is news.
func (d *damages) found(x storage.Damage) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.list {
		if x.From < d.list[i].To && d.list[i].From < x.To {
			return false
		}
	}
	if len(d.list) == mostDamages {
		return false
	}
	d.list = append(d.list, x)
	return true
}

// all returns what is known, in the order it was found.
func (d *damages) all() []storage.Damage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.list)
}

// sawDamage remembers damage that was met while the partition is served, for
// describe and health, and tells the log once.
func (p *partition) sawDamage(x storage.Damage) {
	if p.damaged.found(x) {
		p.b.log.Error("messages are damaged on disk; the rest is served", "partition", p.name(),
			"from", x.From, "to", x.To, "file", x.File, "at", x.At, "err", x.Err)
	}
}
