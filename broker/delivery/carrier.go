package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// ErrNoLease refuses what only an owner with a lease may do (R8). Nothing is stored.
var ErrNoLease = protocol.Errorf(protocol.CodeNotReady, "this broker has lost touch with the cluster's leader and takes nothing until it hears of it again")

// Config says what a carrier is made of. All fields are required.
type Config struct {
	Meta   *meta.Node
	Leased func() bool                 // whether this broker may act as an owner (R8)
	Coded  func(error) *protocol.Error // what a client gets for an error
	// Go runs a goroutine whose ctx ends when the broker stops, which waits for it.
	Go             func(do func(ctx context.Context))
	GapWait        time.Duration // how long a subscription waits at an orphaned range
	CursorInterval time.Duration // how often changed cursors are committed
	Metrics        Metrics
	Now            func() time.Time
	Log            *slog.Logger
}

// Metrics are the numbers of deliveries. All fields are required.
type Metrics struct {
	Delivered   prometheus.Counter // messages, redeliveries included
	Redelivered prometheus.Counter
	StaleAcks   prometheus.Counter // of consumers that no longer held the messages
	LiveDropped prometheus.Counter // messages of non-reliable topics that a slow consumer did not get
}

// delivered counts a delivery.
func (m *Metrics) delivered(messages int, again bool) {
	m.Delivered.Add(float64(messages))
	if again {
		m.Redelivered.Add(float64(messages))
	}
}

// Carrier makes subscriptions and commits their cursors. Safe for concurrent use.
type Carrier struct {
	cfg     Config
	cursors *cursorKeeper
}

// Open makes a carrier; Run has it commit.
func Open(cfg Config) *Carrier {
	c := &Carrier{cfg: cfg}
	c.cursors = newCursorKeeper(c)
	return c
}

// Run commits changed cursors once an interval until ctx ends.
func (c *Carrier) Run(ctx context.Context) { c.cursors.run(ctx) }

// Commit commits what changed in cursors before the call, or lists it to be tried again.
func (c *Carrier) Commit(ctx context.Context) { c.cursors.commit(ctx) }

// Flush is Commit for many who call it side by side: a commit that began after
// the call does for all of them.
func (c *Carrier) Flush(ctx context.Context) { c.cursors.flush(ctx) }

// Settle commits what changed in cursors until unsettled says that nothing is
// left, for a few rounds at most; it does not return while a commit is out.
func (c *Carrier) Settle(ctx context.Context, unsettled func() bool) {
	c.cursors.settle(ctx, unsettled)
}

// Owner is whoever serves a partition.
type Owner interface {
	// CursorEpoch is the epoch under which cursors are committed now.
	CursorEpoch() uint64
	// HandsOver says whether cursors that were refused under an epoch may still be
	// committed under the next.
	HandsOver(epoch uint64) bool
}

// Partition is a partition as its subscriptions see it.
type Partition struct {
	Topic  string // full name
	Number uint32
	Epoch  uint64
	Log    *storage.Log
	Past   *history.Partition
	Owner  Owner
}

// name is the partition as output and errors write it.
func (p *Partition) name() string { return fmt.Sprintf("%s:%d", p.Topic, p.Number) }

// notify wakes whoever waits at a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
