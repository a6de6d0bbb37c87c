package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// The operations by which brokers form a cluster.
const (
	opHold = ownPrefix + "hold" // hold to a proposal
	opAsk  = ownPrefix + "ask"  // what became of a proposal
	opJoin = ownPrefix + "join" // take me in
)

// Formation says how this data directory belongs to its cluster. Voters and Join are for meta.Config at every start:
// they count only at the first.
type Formation struct {
	ClusterID [16]byte
	Voters    []meta.Server // the founders, this broker among them; nil if it joined
	Join      bool          // it joined: the leader has added it
	Known     bool          // the metadata have been opened here before, so if they are missing that is damage (R9)
}

const (
	formInterval = 100 * time.Millisecond
	askTimeout   = 2 * time.Second
	joinTimeout  = 10 * time.Second
)

// Form blocks until this data directory belongs to a cluster, and returns which. What is out of reach is tried for ever;
// Status says what it waits for. A data directory that belongs to a cluster already gets there at once, unless another
// process is found to run on a copy of it: ErrDuplicate.
func (c *Cluster) Form(ctx context.Context) (Formation, error) {
	c.greeted(ctx)
	tick := time.NewTicker(formInterval)
	defer tick.Stop()
	for {
		c.mu.Lock()
		over := c.over
		s := c.founder.Decide(c.facts())
		changed := c.phase != s.Text && s.Text != ""
		c.phase = s.Text
		c.mu.Unlock()
		if over != nil {
			return Formation{}, over
		}
		if changed {
			c.cfg.Log.Info("forming the cluster", "step", s.Text)
		}
		if s.Kind == founding.Done {
			return c.formation()
		}
		if err := c.perform(ctx, s); err != nil {
			return Formation{}, fmt.Errorf("form cluster: %w", err)
		}
		select {
		case <-tick.C:
		case <-c.failed:
		case <-ctx.Done():
			return Formation{}, fmt.Errorf("form cluster: %s: %w", s.Text, ctx.Err())
		}
	}
}

// greeted waits until the seeds have been tried once: a copy of this data directory that runs shows by then.
func (c *Cluster) greeted(ctx context.Context) {
	timeout := time.NewTimer(3 * time.Second)
	defer timeout.Stop()
	select {
	case <-c.seeds.tried:
	case <-timeout.C:
	case <-ctx.Done():
	}
}

func (c *Cluster) formation() (Formation, error) {
	c.mu.Lock()
	disk := c.founder.Disk
	c.mu.Unlock()
	c.id.Store(&disk.Cluster)
	err := c.gossip.update(func(card *card) { card.Cluster = disk.Cluster })
	if err != nil {
		c.cfg.Log.Debug("gossip of the cluster id is late", "error", err)
	}
	return Formation{ClusterID: disk.Cluster, Voters: servers(disk.Voters), Join: len(disk.Voters) == 0, Known: disk.Opened}, nil
}

func servers(list []founding.Broker) []meta.Server {
	var out []meta.Server
	for _, f := range list {
		out = append(out, meta.Server{Store: f.Store, Address: f.Address, Voter: true})
	}
	return out
}

// facts gathers what the founder goes by.
func (c *Cluster) facts() founding.Facts {
	k := founding.Facts{}
	var contacted []state.StoreID
	k.Missing, contacted = c.seeds.state()
	members := c.gossip.members()
	for _, m := range members {
		f := founding.Broker{Store: m.Store, Address: m.Addresses.Peer}
		for _, id := range contacted {
			if id == m.Store && id != c.cfg.Identity.Store {
				k.Seeds = append(k.Seeds, f)
			}
		}
		if m.State != Dead {
			k.Visible = append(k.Visible, founding.Neighbor{Broker: f, Name: m.Name, Cluster: m.Cluster, Expect: m.Expect})
		}
	}
	return k
}

func newClusterID() (id [16]byte) {
	rand.Read(id[:])
	return id
}

// perform carries out a step. An error ends the forming: it is this broker's disk.
func (c *Cluster) perform(ctx context.Context, s founding.Step) error {
	switch s.Kind {
	case founding.Found:
		return c.decide("founded", func(f *founding.Founder) error {
			return f.Found(newClusterID(), c.cfg.Identity.Addresses.Peer)
		})
	case founding.Propose:
		return c.decide("proposed", func(f *founding.Founder) error { return f.Propose(newClusterID(), s.List) })
	case founding.GiveUp:
		return c.decide("given up", func(f *founding.Founder) error { return f.Release() })
	case founding.Drive:
		return c.driveProposal(ctx, s)
	case founding.Ask:
		return c.askAround(ctx, s)
	case founding.Join:
		return c.join(ctx, s)
	}
	return nil
}

// decide changes the founder's record under the lock and tells the step's name before and after.
func (c *Cluster) decide(name string, f func(*founding.Founder) error) error {
	c.cfg.At("before " + name)
	c.mu.Lock()
	err := f(c.founder)
	c.mu.Unlock()
	if err == nil {
		c.cfg.At(name)
	}
	return err
}

// driveProposal asks everybody who does not hold to this broker's proposal yet, side by side.
func (c *Cluster) driveProposal(ctx context.Context, s founding.Step) error {
	c.mu.Lock()
	p := c.founder.Disk.Pledge
	if p == nil || p.Cluster != s.Cluster {
		c.mu.Unlock()
		return nil // it gave way to another meanwhile
	}
	body, err := peer.Encode(c.founder.Request())
	c.mu.Unlock()
	if err != nil {
		return err
	}
	answers := make([]founding.HoldAnswer, len(s.List))
	var asking sync.WaitGroup
	for i, w := range s.List {
		asking.Go(func() {
			if err := c.ask(ctx, w, opHold, body, &answers[i]); err != nil {
				answers[i] = founding.HoldAnswer{Why: fmt.Sprintf("waiting for store %s: %v", w.Store, err)}
			}
		})
	}
	asking.Wait()
	if len(s.List) == 0 {
		return c.settle(func(k founding.Facts) founding.Verdict { return c.founder.Complete(p.Cluster, k) })
	}
	for i, w := range s.List {
		err := c.settle(func(k founding.Facts) founding.Verdict { return c.founder.Heard(p.Cluster, w.Store, answers[i], k) })
		if err != nil {
			return err
		}
	}
	return nil
}

// settle carries out what the answers to a proposal come to, in one step under the lock.
func (c *Cluster) settle(judge func(founding.Facts) founding.Verdict) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch judge(c.facts()) {
	case founding.Everybody:
		c.cfg.At("before founded")
		if err := c.founder.Commit(); err != nil {
			return err
		}
		c.cfg.At("founded")
	case founding.Abandon:
		c.cfg.Log.Info("proposal of a cluster given up")
		return c.founder.Release()
	}
	return nil
}

// askAround asks what became of the proposal that this broker holds to, until it is settled.
func (c *Cluster) askAround(ctx context.Context, s founding.Step) error {
	body, err := peer.Encode(s.Cluster)
	if err != nil {
		return err
	}
	for _, w := range s.List {
		var a founding.AskAnswer
		if err := c.ask(ctx, w, opAsk, body, &a); err != nil {
			continue
		}
		err := c.decide("told", func(f *founding.Founder) error { return f.Told(s.Cluster, w.Store, a) })
		if err != nil || a.Founded || a.Open {
			return err
		}
	}
	return nil
}

// ask calls a broker that may not be in the metadata yet.
func (c *Cluster) ask(ctx context.Context, who founding.Broker, op string, body []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	addresses := c.addresses(who.Store)
	if len(addresses) == 0 && who.Address != "" {
		addresses = []string{who.Address}
	}
	b, err := c.peers.Call(ctx, peer.Target{Store: who.Store, Addresses: addresses}, op, body)
	if err != nil {
		return err
	}
	return peer.Decode(b, answer)
}

func (c *Cluster) serveHold(_ context.Context, _ state.StoreID, body []byte) ([]byte, error) {
	var r founding.HoldRequest
	if err := peer.Decode(body, &r); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.At("before held")
	a, err := c.founder.Hold(r, c.facts())
	if err != nil {
		return nil, err
	}
	if a.Held {
		c.cfg.At("held")
	}
	return peer.Encode(a)
}

func (c *Cluster) serveAsk(_ context.Context, _ state.StoreID, body []byte) ([]byte, error) {
	var id [16]byte
	if err := peer.Decode(body, &id); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return peer.Encode(c.founder.Asked(id))
}

// joinRequest asks a cluster to take a broker in.
type joinRequest struct {
	Store   state.StoreID `msgpack:"s"`
	Name    string        `msgpack:"n"`
	Address string        `msgpack:"a"` // of its peer port
	Passed  bool          `msgpack:"p,omitempty"`
}

type joinAnswer struct {
	Cluster [16]byte `msgpack:"c"`           // which it belongs to now
	Removed bool     `msgpack:"x,omitempty"` // refused, because the store was removed from the cluster
}

// errNotReady: try another member, or later.
var errNotReady = errors.New("no leader of the metadata is known yet")

// join asks the members in turn to take this broker in. A failing disk is an error, and ErrRemoved is final: all else is
// tried again.
func (c *Cluster) join(ctx context.Context, s founding.Step) error {
	if err := c.decide("joining", func(f *founding.Founder) error { return f.Joining(s.Cluster) }); err != nil {
		return err
	}
	body, err := peer.Encode(joinRequest{Store: c.cfg.Identity.Store, Name: c.cfg.Identity.Name, Address: c.cfg.Identity.Addresses.Peer})
	if err != nil {
		return err
	}
	for _, m := range s.Members {
		var a joinAnswer
		asking, cancel := context.WithTimeout(ctx, joinTimeout)
		b, err := c.peers.Call(asking, peer.Target{Store: m.Store, Addresses: []string{m.Address}}, opJoin, body)
		cancel()
		if err == nil {
			err = peer.Decode(b, &a)
		}
		if err == nil && a.Cluster == s.Cluster {
			c.cfg.At("added")
			return c.decide("joined", func(f *founding.Founder) error { return f.Joined(a.Cluster) })
		}
		if err == nil && a.Removed {
			return c.removedError()
		}
		c.mu.Lock()
		c.phase = fmt.Sprintf("joining through broker %s: %v", m.Name, err)
		c.mu.Unlock()
	}
	return nil
}

// serveJoin takes a broker in as the leader, or passes its request on to the leader.
func (c *Cluster) serveJoin(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
	var r joinRequest
	if err := peer.Decode(body, &r); err != nil {
		return nil, err
	}
	if err := reachable("peer", r.Address); err != nil {
		return nil, err
	}
	a := c.node.Load()
	if a == nil {
		return nil, errNotReady
	}
	if _, leads := a.node.Leading(); !leads {
		leader, known := a.node.Leader()
		if !known || r.Passed || leader.Store == c.cfg.Identity.Store {
			return nil, errNotReady
		}
		r.Passed = true
		body, err := peer.Encode(r)
		if err != nil {
			return nil, err
		}
		return c.Call(ctx, leader.Store, opJoin, body)
	}
	if s := a.node.View().Store(r.Store); s != nil && s.Status == state.StoreRemoved {
		return peer.Encode(joinAnswer{Removed: true})
	}
	if err := c.admitServer(ctx, a.node, r); err != nil {
		return nil, err
	}
	c.cfg.Log.Info("broker added", "broker", r.Name, "store", r.Store, "peer", r.Address)
	return peer.Encode(joinAnswer{Cluster: c.ClusterID()})
}

// admitServer adds a broker to Raft. A store whose metadata were taken away must not keep the vote it had: what it
// promised with it is forgotten, so it leaves Raft before it comes again (R9).
func (c *Cluster) admitServer(ctx context.Context, node *meta.Node, r joinRequest) error {
	if err := node.RemoveServer(ctx, r.Store); err != nil {
		return fmt.Errorf("take store %s out of Raft before it comes again: %w", r.Store, err)
	}
	for _, s := range node.Servers() {
		if s.Address == r.Address {
			if err := c.replaceServer(ctx, node, s.Store, r); err != nil {
				return err
			}
		}
	}
	return node.AddServer(ctx, meta.Server{Store: r.Store, Address: r.Address})
}

// replaceServer takes the store out of Raft whose address a new one has, if the new one answers there: an emptied disk
// comes back as a new store (R9). One that gossips from elsewhere has moved and will register there.
func (c *Cluster) replaceServer(ctx context.Context, node *meta.Node, holder state.StoreID, r joinRequest) error {
	if m, ok := c.gossip.member(holder); ok && !m.dead && m.card.Addresses.Peer != r.Address {
		return nil
	}
	if err := c.peers.Greet(ctx, r.Address, r.Store); err != nil {
		return fmt.Errorf("store %s is known at %s, and whoever answers there is not store %s: %w", holder, r.Address, r.Store, err)
	}
	if err := node.RemoveServer(ctx, holder); err != nil {
		return fmt.Errorf("remove store %s, whose address store %s has taken: %w", holder, r.Store, err)
	}
	c.cfg.Log.Warn("store gone: another one answers at its address", "store", holder, "address", r.Address, "now", r.Store)
	return nil
}
