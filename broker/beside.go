package broker

import (
	"context"

	"github.com/danubemq/danube/broker/admin"
	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/depot"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
)

// beside are the parts that do not know the broker.
type beside struct {
	history *history.History  // what came before the epochs that are served
	carrier *delivery.Carrier // subscriptions and their cursors
	host    *served.Host      // the partitions
	admin   *admin.Board      // what is asked of them all
	depot   *depot.Depot      // the partitions' way into the cold tier; nil: there is none

	cold       *cold.Store // nil: there is no cold tier
	coldTested bool        // it has passed its self-test at the start
}

// openHistory is a step of the start.
func (b *Broker) openHistory(context.Context) error {
	b.history = history.Open(history.Config{
		Store: b.store, Meta: b.meta, Peers: b.peers, Self: b.self, Served: b.pastOf, Serving: b.pasts, Cold: b.coldTier(),
		CopyDelay: b.cfg.Peers.CopyDelay, Now: b.cfg.Now, At: b.cfg.At, Log: b.log,
	})
	return nil
}

// pastOf is the past of a partition that is served and has a log, nil otherwise.
func (b *Broker) pastOf(id storage.PartitionID) *history.Partition {
	if p := b.served(served.Key{Topic: id.Topic, N: id.Partition}); p != nil {
		return p.Past
	}
	return nil
}

// pasts are those of all partitions that are served and have a log.
func (b *Broker) pasts() []*history.Partition {
	parts := b.reliable()
	out := make([]*history.Partition, len(parts))
	for i, p := range parts {
		out[i] = p.Past
	}
	return out
}

// openDelivery is a step of the start.
func (b *Broker) openDelivery(context.Context) error {
	b.carrier = delivery.Open(delivery.Config{
		Meta: b.meta, Leased: b.leased, Coded: b.wireError, GapWait: b.cfg.GapWait, CursorInterval: b.cfg.CursorInterval,
		Go:      func(do func(context.Context)) { b.wg.Go(func() { do(b.ctx) }) },
		Metrics: b.metrics.deliveries(), Now: b.cfg.Now, Log: b.log,
	})
	return nil
}

// openServing is a step of the start.
func (b *Broker) openServing(context.Context) error {
	b.host = served.Open(served.Config{
		Store: b.store, Meta: b.meta, Peers: b.peers, History: b.history, Carrier: b.carrier,
		Moves: served.Moves{Moving: b.isMoving, Claim: b.claim}, Leased: b.leased, Coded: b.wireError, Stopping: b.ctx.Done(),
		Published: b.metrics.published, Limits: b.cfg.Limits, Interval: b.cfg.Storage.Sync == storage.Interval,
		GapWait: b.cfg.GapWait, Now: b.cfg.Now, Log: b.log,
	})
	return nil
}

// openAdmin is a step of the start.
func (b *Broker) openAdmin(context.Context) error {
	b.admin = admin.Open(admin.Config{
		Meta: b.meta, Cluster: b.cluster, Controller: b.controller, Peers: b.peers, Self: b.self, Here: *b.here(),
		Name: b.cfg.Name, Release: b.cfg.Release, AutoCreate: *b.cfg.AutoCreate, Audit: b.auditor(), Durability: b.cfg.Storage.Durability,
		Ready: func() bool { return b.notReady() == "" }, Degraded: b.degraded, Now: b.cfg.Now, Log: b.log,
	})
	return nil
}
