package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta/state"
)

// gossip is memberlist behind a table of our own, which its events fill: what memberlist itself returns is shared with
// its goroutines.
type gossip struct {
	list     *memberlist.Memberlist // nil: this broker stays alone
	of       string                 // the cluster's name
	now      func() time.Time
	log      *slog.Logger
	interval time.Duration // of probing

	mu        sync.Mutex
	self      card
	own       note
	table     table
	queue     memberlist.TransmitLimitedQueue // has a lock of its own
	answered  map[state.StoreID]bool          // who exchanged states since this was last emptied
	conflicts []string                        // peer addresses of others that gossip under this store's id
}

func openGossip(ctx context.Context, cfg Config, c card) (*gossip, error) {
	g := &gossip{
		of: c.Of, now: cfg.Now, log: cfg.Log, self: c,
		own:      note{Store: cfg.Identity.Store, Run: c.Run},
		table:    table{self: cfg.Identity.Store, members: map[state.StoreID]*seen{}},
		answered: map[state.StoreID]bool{},
	}
	if _, err := encodeCard(c); err != nil {
		return nil, err
	}
	if cfg.alone() {
		g.table.put(cfg.Identity.Store, c, "", cfg.Now())
		return g, nil
	}
	mc, err := gossipConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	g.interval = mc.ProbeInterval
	g.queue.RetransmitMult = 2
	g.queue.NumNodes = g.size
	d := delegate{g}
	mc.Delegate, mc.Events, mc.Merge, mc.Alive, mc.Conflict, mc.Ping = d, d, d, d, d, d
	mc.Logger = log.New(lines{cfg.Log}, "", 0)
	list, err := memberlist.Create(mc)
	if err != nil {
		return nil, fmt.Errorf("listen for gossip on %s: %w", cfg.Gossip.Bind, err)
	}
	g.list = list
	return g, nil
}

func gossipConfig(ctx context.Context, cfg Config) (*memberlist.Config, error) {
	mc := memberlist.DefaultLANConfig()
	mc.TCPTimeout = 2 * time.Second
	mc.PushPullInterval = 10 * time.Second
	if cfg.Gossip.Fast {
		mc.ProbeInterval, mc.ProbeTimeout, mc.GossipInterval = 100*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
		mc.SuspicionMult, mc.PushPullInterval = 3, time.Second
	}
	mc.Name = cfg.Identity.Store.String()
	mc.DeadNodeReclaimTime = time.Millisecond // a broker may come back at another address
	mc.SecretKey = cfg.Gossip.Key
	switch len(cfg.Gossip.Key) {
	case 0, 16, 24, 32:
	default:
		return nil, fmt.Errorf("gossip key has %d bytes; 16, 24 or 32 are allowed", len(cfg.Gossip.Key))
	}
	var err error
	mc.BindAddr, mc.BindPort, err = splitAddress(cfg.Gossip.Bind)
	if err != nil {
		return nil, err
	}
	if net.ParseIP(mc.BindAddr) == nil {
		// memberlist would take a name for a wildcard.
		return nil, fmt.Errorf("gossip address %s: the host must be an IP address", cfg.Gossip.Bind)
	}
	mc.AdvertiseAddr, mc.AdvertisePort, err = splitAddress(cfg.Gossip.Advertise)
	if err != nil {
		return nil, err
	}
	addresses, err := resolve(ctx, cfg.Gossip.Advertise)
	if err != nil {
		return nil, fmt.Errorf("resolve the gossip address to advertise: %w", err)
	}
	mc.AdvertiseAddr, _, err = net.SplitHostPort(addresses[0])
	return mc, err
}

func splitAddress(address string) (string, int, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", 0, fmt.Errorf("gossip address %q: %w", address, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("gossip address %q: %w", address, err)
	}
	return host, int(n), nil
}

// resolve turns host:port into the addresses behind it, at least one.
func resolve(ctx context.Context, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if ip := net.ParseIP(host); ip != nil {
		return []string{net.JoinHostPort(ip.String(), port)}, nil
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, ip := range ips {
		out = append(out, net.JoinHostPort(ip.String(), port))
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s has no address", host)
	}
	return out, nil
}

// address returns the address this broker gossips at, host:port; empty if it does not.
func (g *gossip) address() string {
	if g.list == nil {
		return ""
	}
	n := g.list.LocalNode()
	return gossipAddress(n.Addr, n.Port)
}

// contact exchanges states with whoever gossips at one of the addresses and returns who that is. All addresses are
// tried; one is enough. ErrWrongCluster: there are brokers of another cluster.
func (g *gossip) contact(addresses []string) ([]state.StoreID, error) {
	if g.list == nil {
		return nil, errors.New("this broker does not gossip")
	}
	g.mu.Lock()
	clear(g.answered)
	g.mu.Unlock()
	if n, err := g.list.Join(addresses); n == 0 {
		return nil, asWrongCluster(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if who := g.table.at(addresses); len(who) > 0 {
		return who, nil
	}
	// The address stands for another one, a forwarded port say. Somebody who answered meanwhile is who was meant.
	var who []state.StoreID
	for id := range g.answered {
		who = append(who, id)
	}
	if len(who) == 0 {
		return nil, errors.New("nobody there introduced itself")
	}
	return who, nil
}

// asWrongCluster gives a failure to join back what it is, of which memberlist keeps only the text.
func asWrongCluster(err error) error {
	if err == nil {
		return nil
	}
	_, why, is := strings.Cut(err.Error(), ErrWrongCluster.Error())
	if !is {
		return err
	}
	why, _, _ = strings.Cut(why, "\n")
	return fmt.Errorf("%w%s", ErrWrongCluster, why)
}

// update tells everyone of a new card.
func (g *gossip) update(change func(*card)) error {
	g.mu.Lock()
	change(&g.self)
	_, err := encodeCard(g.self)
	g.mu.Unlock()
	if err != nil {
		return err
	}
	if g.list == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.table.put(g.own.Store, g.self, "", g.now())
		return nil
	}
	if err := g.list.UpdateNode(time.Second); err != nil {
		return fmt.Errorf("gossip a change: %w", err)
	}
	return nil
}

// tell spreads this broker's load.
func (g *gossip) tell(l Load) {
	g.mu.Lock()
	g.own.Seq++
	g.own.Load = l
	n := g.own
	g.table.note(n)
	g.mu.Unlock()
	if b, err := peer.Encode(n); err == nil && len(b) <= maxNote && g.list != nil {
		g.queue.QueueBroadcast(broadcast{n.Store, b})
	}
}

// members returns everyone seen, by store.
func (g *gossip) members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Each broker is probed in turn, and a lost packet is no reason yet.
	patience := time.Duration(2*max(2, len(g.table.members))) * g.interval
	return g.table.list(g.now(), patience)
}

// member returns what is known of a broker.
func (g *gossip) member(store state.StoreID) (seen, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.table.members[store]
	if m == nil {
		return seen{}, false
	}
	return *m, true
}

// told says whether this broker's card names a history.
func (g *gossip) told(history uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self.History == history
}

// ahead returns the peer addresses of those of a cluster whose metadata are in a later history.
func (g *gossip) ahead(cluster [16]byte, history uint16) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, m := range g.table.members {
		if !m.dead && m.card.Cluster == cluster && m.card.History > history {
			out = append(out, m.card.Addresses.Peer)
		}
	}
	return out
}

// sees says whether a broker is there.
func (g *gossip) sees(store state.StoreID) bool {
	m, ok := g.member(store)
	return ok && !m.dead
}

// rivals returns the peer addresses at which others claim this store's id, and forgets them.
func (g *gossip) rivals() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.conflicts
	g.conflicts = nil
	return c
}

func (g *gossip) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(1, len(g.table.members))
}

// close says goodbye, so that nobody inquires, and ends memberlist.
func (g *gossip) close() error {
	if g.list == nil {
		return nil
	}
	leave := g.list.Leave(200 * time.Millisecond)
	if leave != nil {
		g.log.Debug("gossip: goodbye not heard", "error", leave)
	}
	if err := g.list.Shutdown(); err != nil {
		return fmt.Errorf("end gossip: %w", err)
	}
	return nil
}

// delegate takes memberlist's callbacks. Those about members come with memberlist's lock held.
type delegate struct{ g *gossip }

// NodeMeta implements memberlist.Delegate.
func (d delegate) NodeMeta(limit int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	b, err := encodeCard(d.g.self)
	if err != nil || len(b) > limit {
		return nil // checked before it was set
	}
	return b
}

// NotifyMsg implements memberlist.Delegate.
func (d delegate) NotifyMsg(b []byte) {
	n, err := decodeNote(b)
	if err != nil {
		return
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	d.g.table.note(n)
}

// GetBroadcasts implements memberlist.Delegate.
func (d delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.g.queue.GetBroadcasts(overhead, limit)
}

// LocalState implements memberlist.Delegate.
func (d delegate) LocalState(bool) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	b, err := peer.Encode(d.g.own)
	if err != nil {
		return nil
	}
	return b
}

// MergeRemoteState implements memberlist.Delegate.
func (d delegate) MergeRemoteState(b []byte, join bool) {
	n, err := decodeNote(b)
	if err != nil {
		return
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	d.g.table.note(n)
	if join && n.Store != d.g.own.Store {
		d.g.answered[n.Store] = true
	}
}

// NotifyJoin implements memberlist.EventDelegate.
func (d delegate) NotifyJoin(n *memberlist.Node) {
	store, c, err := identify(n)
	if err != nil {
		return
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	d.g.table.put(store, c, gossipAddress(n.Addr, n.Port), d.g.now())
}

// NotifyUpdate implements memberlist.EventDelegate.
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.NotifyJoin(n) }

// NotifyLeave implements memberlist.EventDelegate.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	store, err := state.ParseStoreID(n.Name)
	if err != nil {
		return
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	d.g.table.lost(store, d.g.now())
}

// NotifyMerge implements memberlist.MergeDelegate: two clusters never merge (R9).
func (d delegate) NotifyMerge(nodes []*memberlist.Node) error {
	for _, n := range nodes {
		if n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		if err := d.NotifyAlive(n); err != nil {
			return err
		}
	}
	return nil
}

// NotifyAlive implements memberlist.AliveDelegate.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	_, c, err := identify(n)
	if err != nil {
		return err
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if why := d.g.table.foreign(d.g.of, c, gossipAddress(n.Addr, n.Port)); why != "" {
		return fmt.Errorf("%w: %s", ErrWrongCluster, why)
	}
	return nil
}

// NotifyConflict implements memberlist.ConflictDelegate: one id gossips at two addresses. It may be a broker that came
// back at another address, or a copy of a data directory; whoever bears the id asks.
func (d delegate) NotifyConflict(_, other *memberlist.Node) {
	store, c, err := identify(other)
	if err != nil {
		return
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if store == d.g.own.Store && c.Run != d.g.own.Run && len(d.g.conflicts) < 16 {
		d.g.conflicts = append(d.g.conflicts, c.Addresses.Peer)
	}
}

// AckPayload implements memberlist.PingDelegate.
func (d delegate) AckPayload() []byte { return nil }

// NotifyPingComplete implements memberlist.PingDelegate.
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	store, err := state.ParseStoreID(n.Name)
	if err != nil {
		return
	}
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	if m := d.g.table.members[store]; m != nil {
		m.heard = d.g.now()
	}
}

func identify(n *memberlist.Node) (state.StoreID, card, error) {
	store, err := state.ParseStoreID(n.Name)
	if err != nil {
		return store, card{}, err
	}
	c, err := decodeCard(n.Meta)
	return store, c, err
}

// broadcast is a note on its way; a newer one of the same broker takes its place.
type broadcast struct {
	store state.StoreID
	b     []byte
}

// Invalidates implements memberlist.Broadcast.
func (b broadcast) Invalidates(other memberlist.Broadcast) bool {
	o, ok := other.(broadcast)
	return ok && o.store == b.store
}

// Message implements memberlist.Broadcast.
func (b broadcast) Message() []byte { return b.b }

// Finished implements memberlist.Broadcast.
func (b broadcast) Finished() {}

// lines turns memberlist's log lines into debug messages.
type lines struct{ log *slog.Logger }

// Write implements io.Writer.
func (l lines) Write(b []byte) (int, error) {
	l.log.Debug("gossip: " + string(bytes.TrimSpace(b)))
	return len(b), nil
}
