package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
)

// The errors of the peer port are this package's: nobody above needs to know that there is one.
var (
	// ErrUnreachable: the request was not carried out, because the broker cannot be reached or refused the connection.
	ErrUnreachable = peer.ErrUnreachable
	// ErrUnanswered: the request was sent and no answer came; whether it was carried out is unknown (R5).
	ErrUnanswered = peer.ErrUnanswered
	// ErrWrongCluster: the other broker belongs to another cluster (R9).
	ErrWrongCluster = peer.ErrWrongCluster
	// ErrRemoved: this store was removed from the cluster.
	ErrRemoved = peer.ErrRemoved
	// ErrOutdated: the cluster went on without what this store's metadata say (R22).
	ErrOutdated = peer.ErrOutdated
	// ErrDuplicate: another process runs on a copy of this data directory (R9).
	ErrDuplicate = peer.ErrDuplicate
)

// RemoteError is what a handler on another broker answered instead of a body.
type RemoteError = peer.RemoteError

// ownPrefix begins the names of this package's own operations: few, small, and not to wait.
const ownPrefix = peer.Urgent

// Cluster is this broker's part in a cluster.
type Cluster struct {
	cfg    Config
	run    uint64 // random, of this process
	peers  *peer.Port
	gossip *gossip
	seeds  seeds
	lease  lease
	leases *leases

	mu      sync.Mutex // guards what follows; held while the founder writes its record
	founder *founding.Founder
	phase   string
	over    error // why this broker must stop

	id      atomic.Pointer[[16]byte]
	opened  atomic.Pointer[meta.Node]
	entry   chan struct{} // closed with opened
	node    atomic.Pointer[attached]
	failed  chan struct{} // closed with over
	stop    chan struct{} // closed by Close
	workers sync.WaitGroup
	closed  sync.Once
	err     error
}

// attached is what Attach or Reattach handed over.
type attached struct {
	node  *meta.Node
	owner state.Owner
}

// Open listens on the peer port and gossips. Nothing is decided yet: that is Form's. It takes over cfg.PeerListener,
// also when it fails. ctx bounds opening only.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		if cfg.PeerListener != nil {
			err = errors.Join(err, cfg.PeerListener.Close())
		}
		return nil, err
	}
	c, err := open(ctx, cfg)
	if err != nil {
		err = fmt.Errorf("open cluster: %w", err)
		if cfg.PeerListener != nil {
			err = errors.Join(err, cfg.PeerListener.Close())
		}
		return nil, err
	}
	return c, nil
}

func open(ctx context.Context, cfg Config) (*Cluster, error) {
	disk, err := loadRecord(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if had := cfg.Identity.Had; had != [16]byte{} && disk.Cluster != had {
		if disk.Cluster != [16]byte{} {
			return nil, fmt.Errorf("%w: the cluster record names %x, the metadata %x", ErrWrongCluster, disk.Cluster, had)
		}
		disk = founding.Record{Cluster: had, Opened: true}
		if err := saveRecord(cfg.Dir, disk); err != nil {
			return nil, err
		}
	}
	var run [8]byte
	rand.Read(run[:])
	c := &Cluster{cfg: cfg, run: binary.LittleEndian.Uint64(run[:]), leases: newLeases(cfg.Lease), lease: lease{again: make(chan struct{}, 1)}, entry: make(chan struct{}), failed: make(chan struct{}), stop: make(chan struct{})}
	c.founder = &founding.Founder{
		Self: cfg.Identity.Store, Expect: cfg.Expect, Alone: len(cfg.Seeds) == 0 && cfg.Expect <= 1, Disk: disk,
		Save: func(r founding.Record) error { return saveRecord(cfg.Dir, r) },
	}
	if cfg.Identity.Emptied && disk.Opened && !cfg.alone() {
		if err := c.founder.Rejoin(); err != nil {
			return nil, err
		}
		disk = c.founder.Disk
		cfg.Log.Warn("the metadata are gone from this data directory: joining its cluster anew", "cluster", fmt.Sprintf("%x", disk.Pledge.Cluster))
	}
	c.id.Store(&disk.Cluster)
	c.peers = peer.Open(peer.Config{
		Listener: cfg.PeerListener, Dial: cfg.Dial, Store: cfg.Identity.Store,
		Self: c.hello, Judge: c.judge, Told: c.fail, Log: cfg.Log,
	})
	c.seeds.init(cfg.Seeds)
	c.gossip, err = openGossip(ctx, cfg, card{
		Cluster: disk.Cluster, Of: cfg.Identity.Cluster, Name: cfg.Identity.Name,
		Addresses: cfg.Identity.Addresses, Expect: cfg.Expect, Run: c.run, History: disk.History,
	})
	if err != nil {
		return nil, err
	}
	c.peers.Handle(opHold, c.serveHold)
	c.peers.Handle(opAsk, c.serveAsk)
	c.peers.Handle(opJoin, c.serveJoin)
	c.peers.Handle(opLease, c.serveLease)
	c.peers.Handle(opProbe, c.serveProbe)
	c.peers.Handle(opStanding, c.serveStanding)
	c.peers.Listen()
	live := c.live()
	c.workers.Go(func() { c.keepGossip(live) })
	return c, nil
}

// live returns a context that ends with Close.
func (c *Cluster) live() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	c.workers.Go(func() {
		<-c.stop
		cancel()
	})
	return ctx
}

func (c *Cluster) hello() peer.Hello {
	opened, history := c.history()
	return peer.Hello{
		Cluster: c.ClusterID(), Store: c.cfg.Identity.Store, Run: c.run, Name: c.cfg.Identity.Name, Of: c.cfg.Identity.Cluster,
		Opened: opened, History: history,
	}
}

// ClusterID returns the id of the cluster this data directory belongs to, zero while it belongs to none.
func (c *Cluster) ClusterID() [16]byte { return *c.id.Load() }

// GossipAddress returns the address this broker gossips at, host:port.
func (c *Cluster) GossipAddress() string { return c.gossip.address() }

// Members returns everyone that gossip has shown since this broker started, itself included, by store. It decides
// nothing.
func (c *Cluster) Members() []Member { return c.gossip.members() }

// Handle registers what carries out op for other brokers; from is the store of the calling one. ctx ends when the
// caller no longer waits. What it answers is not used afterwards. Register before Form: a request that nobody carries out is
// refused. A name has 1 to 64 bytes; those beginning with "cluster." are taken.
func (c *Cluster) Handle(op string, f func(ctx context.Context, from state.StoreID, body []byte) ([]byte, error)) {
	if strings.HasPrefix(op, ownPrefix) {
		panic(fmt.Sprintf("cluster: operation %q cannot be handled", op))
	}
	c.peers.Handle(op, f)
}

// Call has another broker carry out op and returns its answer; to itself it is a call of the handler. A body has at
// most 8 MiB. ctx bounds it; give it a deadline.
//
// Errors: ErrUnreachable (it was not carried out), ErrUnanswered (whether it was is unknown), *RemoteError (the handler
// refused; ErrWrongCluster and ErrDuplicate come with ErrUnreachable).
func (c *Cluster) Call(ctx context.Context, to state.StoreID, op string, body []byte) ([]byte, error) {
	return c.peers.Call(ctx, c.target(to), op, body)
}

func (c *Cluster) target(store state.StoreID) peer.Target {
	return peer.Target{Store: store, Addresses: c.addresses(store)}
}

// addresses returns where a broker's peer port may be, the likeliest first: a broker that came back elsewhere tells by
// gossip before the metadata know.
func (c *Cluster) addresses(store state.StoreID) []string {
	var out []string
	add := func(a string) {
		for _, o := range out {
			if o == a {
				return
			}
		}
		if a != "" {
			out = append(out, a)
		}
	}
	if m, ok := c.gossip.member(store); ok {
		add(m.card.Addresses.Peer)
	}
	if a := c.node.Load(); a != nil {
		if s := a.node.View().Store(store); s != nil {
			add(s.Addresses.Peer)
		}
		for _, s := range a.node.Servers() {
			if s.Store == store {
				add(s.Address)
			}
		}
	}
	return out
}

// RaftListener returns the listener of Raft's streams on the peer port. Closing it leaves the port open.
func (c *Cluster) RaftListener() net.Listener { return c.peers.Raft() }

// RaftDial opens a Raft stream to the broker whose Raft address is given. Whoever else answers there is refused: an
// emptied broker must not vote under the id of the store that was lost (R9).
func (c *Cluster) RaftDial(ctx context.Context, address string) (net.Conn, error) {
	to, addresses := c.raftServer(address)
	return c.peers.DialRaft(ctx, peer.Target{Store: to, Addresses: addresses})
}

// raftServer finds out whose Raft address this is: "STORE@HOST:PORT" says so itself, else a member's. Zero: unknown.
func (c *Cluster) raftServer(address string) (to state.StoreID, addresses []string) {
	if id, rest, ok := strings.Cut(address, "@"); ok {
		if store, err := state.ParseStoreID(id); err == nil {
			to, address = store, rest
		}
	}
	if to == (state.StoreID{}) {
		for _, s := range c.servers() {
			if s.Address == address {
				to = s.Store
			}
		}
	}
	if to != (state.StoreID{}) {
		addresses = c.addresses(to)
	}
	for _, a := range addresses {
		if a == address {
			return to, addresses
		}
	}
	if address != "" {
		addresses = append(addresses, address)
	}
	return to, addresses
}

// servers returns the members of Raft as far as they are known.
func (c *Cluster) servers() []meta.Server {
	if a := c.node.Load(); a != nil {
		if all := a.node.Servers(); len(all) > 0 {
			return all
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return servers(c.founder.Disk.Voters)
}

// LeaseValid says whether this broker may act as an owner (R8). It costs an atomic load and a look at the clock.
func (c *Cluster) LeaseValid() bool {
	return c.cfg.LeaseCheckOff || c.lease.valid(c.cfg.Boottime())
}

// Status says where this broker stands.
type Status struct {
	ClusterID [16]byte
	Phase     string // what Form waits for, in words; empty when it is done
	Leader    state.StoreID
	HasLeader bool
	Leading   bool
	Term      uint64
	Lease     bool   // whether LeaseValid
	LeaseText string // why the last renewal failed
	Over      string // why this broker must stop; empty: it need not
}

// Status returns where this broker stands.
func (c *Cluster) Status() Status {
	s := Status{ClusterID: c.ClusterID(), Lease: c.LeaseValid(), LeaseText: c.lease.why()}
	if a := c.node.Load(); a != nil {
		var leader meta.Server
		leader, s.HasLeader = a.node.Leader()
		s.Leader = leader.Store
		s.Term = a.node.Term()
		_, s.Leading = a.node.Leading()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Phase = c.phase
	if c.over != nil {
		s.Over = c.over.Error()
	}
	return s
}

// Failed returns a channel that is closed when this broker must stop: another process runs on a copy of its data
// directory (ErrDuplicate), its store was removed (ErrRemoved), or the cluster went on without what its metadata say
// (ErrOutdated). Err says more. Its lease is over then.
func (c *Cluster) Failed() <-chan struct{} { return c.failed }

// Err returns why this broker must stop, nil while it need not.
func (c *Cluster) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Close says goodbye by gossip, ends every connection and waits for all goroutines. Raft must be closed before it. It
// is idempotent.
func (c *Cluster) Close() error {
	c.closed.Do(func() {
		c.lease.end("this broker is stopping")
		close(c.stop)
		c.workers.Wait()
		c.err = errors.Join(c.peers.Close(), c.gossip.close())
	})
	return c.err
}
