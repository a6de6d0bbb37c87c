package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/cluster/plan"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// opProbe is the leader's question whether a broker lives.
const opProbe = ownPrefix + "probe"

// probePatience is how long a broker waits for the index that a probe names before it says how far it is.
const probePatience = 200 * time.Millisecond

// Control has this broker do the leader's duties whenever node leads. It is called
// once, after Attach; Close ends it.
func (c *Cluster) Control(node *meta.Node, d Duties) (*Controller, error) {
	metrics, err := newControllerMetrics(d.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register controller metrics: %w", err)
	}
	ctl := &Controller{
		office: c.office(node), metrics: metrics, log: cmp.Or(c.cfg.Log, slog.New(slog.DiscardHandler)),
		set: plan.Settings{
			Voters: cmp.Or(d.Voters, 3), Lease: c.cfg.Lease, DrainParallel: cmp.Or(d.DrainParallel, 16),
		},
	}
	ctx := c.live()
	c.workers.Go(func() {
		defer metrics.unregister()
		ctl.run(ctx)
	})
	return ctl, nil
}

func (c *Cluster) office(node *meta.Node) office {
	return office{
		self:       c.cfg.Identity.Store,
		now:        func() time.Time { return onClock(c.cfg.Boottime()) },
		view:       node.View,
		changed:    node.Changed,
		leading:    node.Leading,
		leadership: node.Leadership,
		propose:    node.ProposeHere,
		barrier:    node.BarrierHere,
		unwell:     func() string { return unwell(node.Healthy()) },
		servers:    node.Servers,
		change:     func(ctx context.Context, a plan.Action) error { return changeServers(ctx, node, a) },
		count:      func(term uint64) { c.leases.lead(term, c.cfg.Boottime()) },
		lease: func(store state.StoreID) (granted, time.Time) {
			g, _ := c.leases.of(store)
			return g, onClock(g.Until)
		},
		condemn: func(o state.Owner, term uint64) bool { return c.leases.condemn(o, term, c.cfg.Boottime()) },
		pardon:  c.leases.pardon,
		members: c.Members,
		broken:  c.peers.Broken,
		probe:   c.probe,
	}
}

// onClock makes a time of a reading of the boottime clock.
func onClock(d time.Duration) time.Time { return time.Unix(0, 0).Add(d) }

// unwell says why a leader in this health must not judge others (R7).
func unwell(h meta.Health) string {
	switch {
	case h.OldestWrite > plan.ProofTime:
		return fmt.Sprintf("a write of its log has been unfinished for %v", waited(h.OldestWrite))
	case h.LastContact > plan.ProofAge:
		return fmt.Sprintf("no majority of the voters has answered for %v", waited(h.LastContact))
	}
	return ""
}

func changeServers(ctx context.Context, node *meta.Node, a plan.Action) error {
	switch a.Kind {
	case plan.Add:
		return node.AddServer(ctx, meta.Server(a.Server))
	case plan.Promote:
		return node.Promote(ctx, a.Store)
	case plan.Demote:
		return node.Demote(ctx, a.Store)
	case plan.Drop:
		return node.RemoveServer(ctx, a.Store)
	case plan.Transfer:
		return node.Transfer(ctx, &a.Store)
	}
	return fmt.Errorf("change the members of Raft: %s is no such change", a.Kind)
}

// probe asks a broker for a sign of life.
func (c *Cluster) probe(ctx context.Context, p probe) (probeAnswer, error) {
	var answer probeAnswer
	body, err := peer.Encode(p.index)
	if err != nil {
		return answer, err
	}
	var b []byte
	if p.fresh {
		b, err = c.peers.CallOnce(ctx, c.target(p.store), opProbe, body)
	} else {
		b, err = c.Call(ctx, p.store, opProbe, body)
	}
	if err != nil {
		return answer, err
	}
	return answer, peer.Decode(b, &answer)
}

// serveProbe says how far this broker is, if need be after a moment's wait for the index that the leader names.
func (c *Cluster) serveProbe(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
	var index uint64
	if err := peer.Decode(body, &index); err != nil {
		return nil, err
	}
	a := c.node.Load()
	if a == nil {
		return peer.Encode(probeAnswer{Unfinished: c.cfg.OldestWrite()})
	}
	node := a.node
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	if err := node.WaitIndex(ctx, index); err != nil && ctx.Err() == nil {
		return nil, err
	}
	health := node.Healthy()
	return peer.Encode(probeAnswer{
		Run: a.owner.Incarnation, Applied: node.View().Index(), Unfinished: max(c.cfg.OldestWrite(), health.OldestWrite, health.OldestApply),
	})
}
