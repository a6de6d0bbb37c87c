package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// opLease renews a lease with the leader.
const opLease = ownPrefix + "lease"

// Attach hands over the opened metadata and the registered run of this broker: from now on its lease is renewed, the
// leases of others are granted while this node leads, and a new address is made known. It is called once, after Opened.
func (c *Cluster) Attach(node *meta.Node, owner state.Owner) error {
	c.Opened(node)
	history := node.View().Cluster().History
	if err := c.decide("attached", func(f *founding.Founder) error { return f.Opened(history) }); err != nil {
		return fmt.Errorf("attach metadata: %w", err)
	}
	c.tellHistory()
	if !c.node.CompareAndSwap(nil, &attached{node, owner}) {
		return fmt.Errorf("attach metadata: it was done before")
	}
	ctx := c.live()
	c.workers.Go(func() { c.renewLease(ctx, node) })
	c.workers.Go(func() { c.followHistory(ctx, node) })
	return nil
}

// Reattach says that this broker has registered again: the run before was declared lost while it went on. The lease of
// that run is over.
func (c *Cluster) Reattach(owner state.Owner) {
	a := c.node.Load()
	c.lease.give("this broker has registered again")
	c.node.Store(&attached{a.node, owner})
	select {
	case c.lease.again <- struct{}{}:
	default:
	}
}

// renewLease asks the leader for the lease four times within it. It returns when ctx is done.
func (c *Cluster) renewLease(ctx context.Context, node *meta.Node) {
	tick := time.NewTicker(c.cfg.Lease / 4)
	defer tick.Stop()
	for {
		changed := node.Leadership()
		c.renew(ctx, node, c.node.Load().owner)
		select {
		case <-tick.C:
		case <-c.lease.again:
		case <-changed: // a new leader knows of no lease yet
		case <-ctx.Done():
			return
		}
	}
}

// renew asks once. The lease counts from the moment the request is sent (R8).
func (c *Cluster) renew(ctx context.Context, node *meta.Node, owner state.Owner) {
	health := node.Healthy()
	unfinished := max(c.cfg.OldestWrite(), health.OldestWrite, health.OldestApply)
	if unfinished > maxUnfinished {
		c.lease.give(fmt.Sprintf("a write has been unfinished for %v", unfinished.Round(time.Millisecond)))
		return
	}
	if run := node.View().Store(owner.Store); run != nil && run.Incarnation > owner.Incarnation {
		c.lease.give(fmt.Sprintf("run %d of this store is over; the latest is %d", owner.Incarnation, run.Incarnation))
		return
	}
	if c.Err() != nil {
		return // what it was told is final, whatever its own Raft node believes
	}
	leader, known := node.Leader()
	if !known {
		c.lease.failed("no leader is known")
		return
	}
	sent := c.cfg.Boottime()
	body, err := peer.Encode(renewal{Owner: owner, Applied: node.View().Index(), Unfinished: unfinished, Time: c.cfg.Now().UnixMilli()})
	if err != nil {
		c.lease.failed(err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Lease/2)
	defer cancel()
	b, err := c.Call(ctx, leader.Store, opLease, body)
	var g grant
	if err == nil {
		err = peer.Decode(b, &g)
	}
	if err != nil {
		c.lease.failed(err.Error())
		return
	}
	c.lease.granted(g, sent, c.cfg.Now(), node.Term())
	if g.Removed && leader.Store != owner.Store { // a leader first passes the leadership on
		c.fail(c.removedError())
	}
}

// serveLease grants leases while this node leads.
func (c *Cluster) serveLease(_ context.Context, from state.StoreID, body []byte) ([]byte, error) {
	var r renewal
	if err := peer.Decode(body, &r); err != nil {
		return nil, err
	}
	if r.Owner.Store != from {
		return nil, fmt.Errorf("store %s asks for the lease of store %s", from, r.Owner.Store)
	}
	a := c.node.Load()
	if a == nil {
		return nil, errNotReady
	}
	term, leads := a.node.Leading()
	if !leads {
		return nil, meta.ErrNotLeader
	}
	now := c.cfg.Boottime()
	c.leases.lead(term, now)
	return peer.Encode(c.leases.renew(r, a.node.View().Store(from), now, c.cfg.Now()))
}

// historyInterval is how often a broker looks whether its metadata are in another history.
const historyInterval = time.Second

// followHistory keeps on disk in which history the metadata are. It returns when ctx is done.
func (c *Cluster) followHistory(ctx context.Context, node *meta.Node) {
	tick := time.NewTicker(historyInterval)
	defer tick.Stop()
	for {
		c.keepHistory(node)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
