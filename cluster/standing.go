package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// A broker that the cluster goes on without must learn so and stop: its store was removed, or its metadata are of a
// history that is over, because the others were recovered, rebuilt or restored without it (R22). The old voters
// together could be a majority of what was. Who is asked by it tells it; gossip brings them together.

// opStanding asks a broker what the metadata say of the asking one.
const opStanding = ownPrefix + "standing"

const (
	standingTimeout = 500 * time.Millisecond
	// openPatience is how long a Raft stream waits for the metadata to be open here.
	openPatience = time.Second
)

type standing struct {
	Removed bool `msgpack:"r,omitempty"`
}

// Opened says that the metadata are open: from now on Raft's streams are let in, from those that belong to them. Call it
// as soon as meta.Open has returned; nobody can be told from a stranger before.
func (c *Cluster) Opened(node *meta.Node) {
	if c.opened.CompareAndSwap(nil, node) {
		close(c.entry)
		c.tellHistory()
	}
}

// history returns whether this store has had metadata of its cluster, and the newest history they were in.
func (c *Cluster) history() (opened bool, newest uint16) {
	c.mu.Lock()
	opened, newest = c.founder.Disk.Opened, c.founder.Disk.History
	c.mu.Unlock()
	if node := c.opened.Load(); node != nil {
		newest = max(newest, node.View().Cluster().History)
	}
	return opened, newest
}

// tellHistory gossips the history of this broker's metadata.
func (c *Cluster) tellHistory() {
	_, newest := c.history()
	if c.gossip.told(newest) {
		return
	}
	if err := c.gossip.update(func(card *card) { card.History = newest }); err != nil {
		c.cfg.Log.Debug("gossip of the history is late", "error", err)
	}
}

// keepHistory writes a new history down, so that the next start knows it before the metadata are open.
func (c *Cluster) keepHistory(node *meta.Node) {
	history := node.View().Cluster().History
	c.mu.Lock()
	known := c.founder.Disk.History >= history
	c.mu.Unlock()
	if known {
		return
	}
	if err := c.decide("history", func(f *founding.Founder) error { return f.Opened(history) }); err != nil {
		c.cfg.Log.Warn("new history not written down", "history", history, "error", err)
		return
	}
	c.tellHistory()
}

// judge says whether a caller of this cluster is out of it, by this broker's metadata. Who is in Raft's configuration
// belongs to it however far it is behind.
func (c *Cluster) judge(raft bool, calling peer.Hello) peer.Refusal {
	if calling.Cluster != c.ClusterID() || calling.Cluster == [16]byte{} || calling.Store == c.cfg.Identity.Store {
		return peer.Refusal{}
	}
	node := c.opened.Load()
	if node == nil && raft {
		node = c.awaitOpened()
		if node == nil {
			return peer.Refusal{Text: fmt.Sprintf("broker %s has not opened its metadata yet", c.cfg.Identity.Name)}
		}
	}
	if node == nil || slices.ContainsFunc(node.Servers(), func(s meta.Server) bool { return s.Store == calling.Store }) {
		return peer.Refusal{}
	}
	_, newest := c.history()
	switch s := node.View().Store(calling.Store); {
	case calling.Opened && calling.History < newest:
		return peer.Refusal{Err: ErrOutdated, Text: fmt.Sprintf(
			"cluster %x was recovered, rebuilt or restored without store %s: it is in history %d by broker %s, the metadata of broker %s are of history %d. "+
				"Its messages are kept. To take it in again move the folder meta out of its data directory and start it (docs/runbook.md)",
			calling.Cluster, calling.Store, newest, c.cfg.Identity.Name, calling.Name, calling.History)}
	case raft && s != nil && s.Status == state.StoreRemoved:
		return peer.Refusal{Err: ErrRemoved, Text: removedText(calling.Store)}
	}
	return peer.Refusal{}
}

func (c *Cluster) awaitOpened() *meta.Node {
	timeout := time.NewTimer(openPatience)
	defer timeout.Stop()
	select {
	case <-c.entry:
	case <-timeout.C:
	case <-c.stop:
	}
	return c.opened.Load()
}

func removedText(store state.StoreID) string {
	return fmt.Sprintf("store %s, of this data directory, was removed from the cluster: to join again start with an empty data directory", store)
}

func (c *Cluster) removedError() error {
	return fmt.Errorf("%w: %s", ErrRemoved, removedText(c.cfg.Identity.Store))
}

// fail has this broker stop: it acts no more, and whoever runs it learns why. The first reason stays.
func (c *Cluster) fail(err error) {
	c.lease.end(err.Error()) // before anybody is told
	c.mu.Lock()
	first := c.over == nil
	if first {
		c.over = err
		close(c.failed)
	}
	c.mu.Unlock()
	if first {
		c.cfg.Log.Error("this broker must stop", "error", err)
	}
}

// meetAhead goes to brokers whose metadata are in a later history than this one's: if the cluster went on without this
// broker, they say so at the hello.
func (c *Cluster) meetAhead(ctx context.Context) {
	opened, newest := c.history()
	if !opened || c.Err() != nil {
		return
	}
	for _, address := range c.gossip.ahead(c.ClusterID(), newest) {
		if err := c.peers.Greet(ctx, address, state.StoreID{}); err != nil {
			c.cfg.Log.Debug("broker ahead does not let this one in", "at", address, "error", err)
		}
	}
}

// askStanding asks others whether this store was removed, while it has no lease: a removed broker hears of no leader.
func (c *Cluster) askStanding(ctx context.Context) {
	if opened, _ := c.history(); !opened || c.lease.valid(c.cfg.Boottime()) || c.Err() != nil {
		return
	}
	for _, m := range c.gossip.members() {
		if m.Store == c.cfg.Identity.Store || m.State != Alive || m.Cluster != c.ClusterID() {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, standingTimeout)
		b, err := c.Call(asking, m.Store, opStanding, nil)
		cancel()
		var a standing
		if err != nil || peer.Decode(b, &a) != nil {
			continue
		}
		if a.Removed {
			c.fail(c.removedError())
		}
		return
	}
}

// serveStanding says whether the store that asks was removed.
func (c *Cluster) serveStanding(_ context.Context, from state.StoreID, _ []byte) ([]byte, error) {
	a := c.node.Load()
	if a == nil {
		return nil, errNotReady
	}
	s := a.node.View().Store(from)
	return peer.Encode(standing{Removed: s != nil && s.Status == state.StoreRemoved})
}
