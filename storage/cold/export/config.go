package export

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/plan"
)

// Config of an exporter. Zero values mean the default.
type Config struct {
	// Store takes the objects; required. Its self-test was passed.
	Store *cold.Store
	// Commit proposes entries to the catalogs and returns once this broker has
	// applied what came of it: one error for each entry, nil when the catalog has
	// it, also if it had it before. ErrRefused: it has not and will not (R5). With
	// any other error nobody knows, and the same entry is proposed again. The
	// entries of one call belong into one command; each is judged by itself. Required.
	Commit func(ctx context.Context, entries []Entry) []error
	// Self is who exports; its incarnation is never used twice.
	Self Self
	// Plan holds the limits of package plan.
	Plan plan.Config
	// Slots is how many attempts run at once, at least 2. Default 8.
	Slots int
	// Sweep is how often every source is looked at, whether it changed or not. Default 1 s.
	Sweep time.Duration
	// Late is how long after its time the oldest message may still be outside the
	// cold tier before that is called a problem. Default 2 min.
	Late time.Duration
	// Now is the clock. Default: the system's.
	Now func() time.Time
	// At is called at named steps: export.begin, export.cut, export.stored, export.committed. Default: nothing.
	At func(step string)
	// Log gets what an operator would act on. Default: nothing.
	Log *slog.Logger
	// Metrics takes the danube_export_ series. Default: none.
	Metrics prometheus.Registerer
}

// Self names this run of the broker.
type Self struct {
	Cluster     func() [16]byte // id of the cluster; nil: none yet
	Store       [16]byte        // id of its data directory
	Incarnation uint64
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.Commit == nil {
		return c, errors.New("export: Store and Commit are required")
	}
	if c.Slots < 0 || c.Slots == 1 || c.Sweep < 0 || c.Late < 0 {
		return c, errors.New("export: there are two slots or more, and times are not negative")
	}
	c.Slots = cmp.Or(c.Slots, 8)
	c.Sweep = cmp.Or(c.Sweep, time.Second)
	c.Late = cmp.Or(c.Late, 2*time.Minute)
	c.Plan.SegmentAge = cmp.Or(c.Plan.SegmentAge, time.Minute)
	if c.Self.Cluster == nil {
		c.Self.Cluster = func() [16]byte { return [16]byte{} }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.At == nil {
		c.At = func(string) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
