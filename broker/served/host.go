package served

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// Config says what the partitions of a broker have in common. All fields are required.
type Config struct {
	Store     *storage.Store
	Meta      *meta.Node
	Peers     *calls.Peers
	History   *history.History
	Carrier   *delivery.Carrier
	Moves     Moves
	Leased    func() bool                 // whether this broker may act as an owner (R8)
	Coded     func(error) *protocol.Error // what a client gets for an error
	Stopping  <-chan struct{}             // closed when the broker stops
	Published func(messages, bytes int)   // is told of what a log took
	Limits    batch.Limits
	Interval  bool          // what is acknowledged need not be synced
	GapWait   time.Duration // how long a reader waits at an orphaned range
	Now       func() time.Time
	Log       *slog.Logger
}

// Moves is what a partition asks about moves. Both functions are required.
type Moves struct {
	// Moving says whether a partition is being moved away.
	Moving func(Key) bool
	// Claim keeps a partition from being moved until release is called; ok is false
	// if it is being moved.
	Claim func(Key) (release func(), ok bool)
}

// Host is what the partitions of a broker have in common.
type Host struct {
	cfg      Config
	ceilings *ceilingKeeper
}

// Open makes a host; Run has it extend ceilings.
func Open(cfg Config) *Host {
	h := &Host{cfg: cfg}
	h.ceilings = newCeilingKeeper(h)
	return h
}

// Run extends the ceilings of partitions ahead of need until ctx ends.
func (h *Host) Run(ctx context.Context) { h.ceilings.run(ctx) }

// Epoch is an epoch that begins here: a partition as the metadata have it, its
// topic, and its log, in which recovery found damage; nil of a non-reliable topic.
type Epoch struct {
	Topic   *state.Topic
	Meta    *state.Partition
	Log     *storage.Log
	Damaged []storage.Damage
	Settle  bool // subscriptions wait until Settle is called, or a moment
}

// Begin serves a partition under an epoch. With an error the log is the caller's still.
func (h *Host) Begin(e Epoch) (*Partition, error) {
	m, log := e.Meta, e.Log
	p := &Partition{
		Key: Key{m.Topic, m.Number}, Topic: e.Topic.Name, Epoch: m.Epoch, Log: log, h: h, block: minBlock,
		subs: map[string]*delivery.Subscription{}, producers: map[*Producer]struct{}{},
	}
	p.cursorEpoch.Store(m.Epoch)
	if e.Settle {
		p.settling = newSettling()
	}
	if log == nil {
		p.Live = h.cfg.Carrier.Live(m.OpenStart(), h.cfg.Store.Scratch())
		return p, nil
	}
	p.hold(m) // before anything is shown under the epoch
	if err := log.Begin(m.Epoch, m.OpenStart(), m.Ceiling); err != nil {
		return nil, fmt.Errorf("begin epoch %d of %s: %w", m.Epoch, p.Name(), err)
	}
	p.Follow(e.Topic, m)
	p.Past = h.cfg.History.Partition(history.Serving{Meta: m, Topic: p.Topic, Log: log, Damaged: e.Damaged}, p)
	p.source = delivery.Partition{Topic: p.Topic, Number: m.Number, Epoch: m.Epoch, Log: log, Past: p.Past, Owner: p}
	p.raise(m.Ceiling, p.block)
	return p, nil
}

// hold has acknowledgements and readers wait for the catalog at level object: they get
// what lies below the lowest offset that it lacks, ORPHANED and LOST ranges aside (R1).
func (p *Partition) hold(m *state.Partition) {
	held, cover := m.Level == state.LevelObject, uint64(math.MaxUint64)
	if from, _, lacks := m.NextExport(); held && lacks {
		cover = from
	}
	p.object.Store(held)
	p.Log.Hold(held, cover)
}

// Follow tells the log what the metadata say of its ranges and of what the cold tier
// has, if that is news. It reports whether the cold tier has more, or less.
func (p *Partition) Follow(t *state.Topic, m *state.Partition) (moved bool) {
	if p.Log != nil && len(m.Ranges) > 0 && p.ranges.Swap(&m.Ranges[0]) != &m.Ranges[0] {
		p.Log.SetRanges(history.Facts(t, m, p.h.cfg.Peers.Self).Ranges)
	}
	if p.Log != nil {
		p.hold(m)
	}
	return p.Past != nil && p.Past.Follow(m)
}
