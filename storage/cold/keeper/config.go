package keeper

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/disk"
)

// ErrRefused is wrapped by an error of a command that says that it was judged and changed nothing. Every other error means
// that nobody knows (R5).
var ErrRefused = errors.New("refused")

// Config of a Keeper. Zero values mean the default.
type Config struct {
	// Store holds the objects; required. Its self-test was passed.
	Store *cold.Store
	// View returns the newest version of the cluster's state that this broker has applied; required.
	View func() upkeep.View
	// Commands propose; required, all of them.
	Commands Commands
	// Self is who makes objects.
	Self Self
	// Limits say when work is worth its cost.
	Limits upkeep.Limits
	// FS and Dir are where merged segments are put together. The folder is the Keeper's own: Open makes and empties it.
	// A job takes Limits.GroupBytes at most. FS defaults to the operating system's; Dir is required.
	FS  disk.FS
	Dir string
	// Slots is how many jobs run at once. Default 2.
	Slots int
	// Rate bounds what is read and written, in bytes a second, for all jobs together. Default 64 MiB; negative: no bound.
	Rate int64
	// Every is how often Run looks for merges and pages, CollectEvery for garbage, AuditEvery for abandoned objects; the
	// last two only while Collects says so. Defaults: 30 s, 1 min, 6 h.
	Every, CollectEvery, AuditEvery time.Duration
	// AfterRun is how long after the end of a run, of whichever broker, what it has left is looked for: an upload that was
	// under way then may come until about so late. Default 10 min.
	AfterRun time.Duration
	// Collects says whether this broker is the one that collects. Default: always.
	Collects func() bool
	// At is called at named steps, see steps. Default: nothing.
	At func(step string)
	// Clock is the time. Default: the system's.
	Clock Clock
	// Log gets what an operator would act on. Default: nothing.
	Log *slog.Logger
	// Metrics takes the danube_upkeep_ series. Default: none.
	Metrics prometheus.Registerer
}

// Clock is where a Keeper has its time from. Wait returns early with the error of a context that ends.
type Clock struct {
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error
}

// Self names this run of the broker.
type Self struct {
	Cluster     [16]byte
	Store       [16]byte
	Incarnation uint64
	History     uint16
}

// Commands propose commands of the cluster's state, each once, and return when this broker has applied the outcome: nil if
// it is in force, also if it was before; ErrRefused if it was judged and is not. Own is in the name of this run.
type Commands struct {
	Swap         func(ctx context.Context, at int64, swaps []Swap) []error
	Page         func(ctx context.Context, p Paging) error
	Unpage       func(ctx context.Context, u Unpaging) error
	CondemnPage  func(ctx context.Context, page catalog.Name, content []byte) error
	CondemnTopic func(ctx context.Context, at int64, t upkeep.Tombstone) error
	Condemn      func(ctx context.Context, c Condemnation) []error
	Forget       func(ctx context.Context, names []catalog.Name) []error
}

func (c *Commands) complete() bool {
	return c.Swap != nil && c.Page != nil && c.Unpage != nil && c.CondemnPage != nil && c.CondemnTopic != nil && c.Condemn != nil && c.Forget != nil
}

// Swap puts Output in the place of Inputs, exactly as they stand.
type Swap struct {
	Topic     [16]byte
	Partition uint32
	Epoch     uint64 // of the partition
	Inputs    []catalog.Input
	Output    catalog.Segment
}

// Paging puts a page in the place of the segments that it lists.
type Paging struct {
	Topic     [16]byte
	Partition uint32
	Epoch     uint64 // of the partition
	Page      catalog.Page
}

// Unpaging takes the segments of a page back.
type Unpaging struct {
	Topic     [16]byte
	Partition uint32
	Epoch     uint64 // of the partition
	Page      catalog.Page
	Content   []byte // of the page's object
	At        int64  // Unix milliseconds
}

// Condemnation gives up objects that no catalog names.
type Condemnation struct {
	Own   bool // this run made them; otherwise the runs are over that made them
	At    int64
	Names []catalog.Name
	Pages [][]byte // the contents of all pages that overlap their offsets
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.View == nil || !c.Commands.complete() || c.Dir == "" {
		return c, errors.New("keeper: Store, View, Commands and Dir are required")
	}
	if c.Slots < 0 || c.Every < 0 || c.CollectEvery < 0 || c.AuditEvery < 0 || c.AfterRun < 0 {
		return c, errors.New("keeper: slots and times are not negative")
	}
	if c.FS == nil {
		c.FS = disk.OS()
	}
	c.Limits = c.Limits.WithDefaults()
	c.Slots = cmp.Or(c.Slots, 2)
	c.Rate = cmp.Or(c.Rate, 64<<20)
	c.Every = cmp.Or(c.Every, 30*time.Second)
	c.CollectEvery = cmp.Or(c.CollectEvery, time.Minute)
	c.AuditEvery = cmp.Or(c.AuditEvery, 6*time.Hour)
	c.AfterRun = cmp.Or(c.AfterRun, 10*time.Minute)
	if c.Collects == nil {
		c.Collects = func() bool { return true }
	}
	if c.At == nil {
		c.At = func(string) {}
	}
	if c.Clock.Now == nil {
		c.Clock.Now = time.Now
	}
	if c.Clock.Wait == nil {
		c.Clock.Wait = wait
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unique draws what makes a key one that was never used (R11).
func unique() uint64 { return rand.Uint64() }

// The steps that Config.At is told: before and after them a Keeper may be killed.
const (
	stepMerged    = "keeper.merged"    // the temporary file is whole
	stepStored    = "keeper.stored"    // the store has the object
	stepChecked   = "keeper.checked"   // it was read back
	stepSwapped   = "keeper.swapped"   // the swap was answered
	stepListed    = "keeper.listed"    // the store has the object of a page
	stepPaged     = "keeper.paged"     // the page was answered
	stepUnpaged   = "keeper.unpaged"   // that it was taken back was answered
	stepCondemned = "keeper.condemned" // what a page lists, or an object, was condemned
	stepDeleted   = "keeper.deleted"   // an object was deleted
	stepForgotten = "keeper.forgotten" // that was answered
)
