package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// membership is this broker's place among the brokers. A broker that stands
// alone has all of it, and nobody to talk to.
type membership struct {
	cluster    *cluster.Cluster
	peers      *calls.Peers
	controller *cluster.Controller
	formation  cluster.Formation
	peersOpen  atomic.Pointer[cluster.Cluster] // cluster, for those who ask during the start
	metaOpen   atomic.Bool                     // meta is there for requests of other brokers
	owner      atomic.Pointer[state.Owner]
	load       loadMeter
}

// self is this store in its present run. The run changes when the broker was
// declared lost while it went on. Zero before the store is registered.
func (b *Broker) self() state.Owner {
	if o := b.owner.Load(); o != nil {
		return *o
	}
	return state.Owner{}
}

// leased says whether this broker may act as an owner (R8).
func (b *Broker) leased() bool { return b.cluster.LeaseValid() }

// openPeers opens the peer port, if the broker is to be found by others.
func (b *Broker) openPeers() (net.Listener, error) {
	p := &b.cfg.Peers
	if !p.Join {
		return nil, nil
	}
	ln, err := b.cfg.Listen.Open("tcp", p.Listen)
	if err != nil {
		return nil, &ListenError{Port: "peer", Address: p.Listen, Err: err}
	}
	return ln, nil
}

// openCluster finds the other brokers and waits until this data directory
// belongs to a cluster, however long that takes.
func (b *Broker) openCluster(ctx context.Context, peers net.Listener) error {
	p := &b.cfg.Peers
	store := state.StoreID(b.store.ID())
	had, err := b.hadCluster(ctx, store)
	if err != nil {
		return errors.Join(err, closeListener(peers))
	}
	emptied, err := b.emptied()
	if err != nil {
		return errors.Join(err, closeListener(peers))
	}
	addresses := state.Addresses{Client: b.ClientAddr(), HTTP: b.httpTold(), Peer: p.Advertise}
	if peers != nil && addresses.Peer == "" {
		addresses.Peer = peers.Addr().String()
	}
	b.cluster, err = cluster.Open(ctx, cluster.Config{
		Dir:      b.cfg.DataDir,
		Identity: cluster.Identity{Store: store, Name: b.cfg.Name, Cluster: b.cfg.Cluster, Addresses: addresses, Had: had, Emptied: emptied},
		Seeds:    p.Seeds, Expect: p.Expect, Lease: p.Lease, PeerListener: peers, Dial: p.Dial, Gossip: p.Gossip,
		Load: b.tellLoad, LeaseCheckOff: p.LeaseCheckOff, Boottime: p.Boottime, Now: b.cfg.Now, At: b.cfg.At, Log: b.log,
	})
	if err != nil {
		return err
	}
	b.handlePeers()
	b.peersOpen.Store(b.cluster)
	b.formation, err = b.cluster.Form(ctx)
	return err
}

func closeListener(ln net.Listener) error {
	if ln == nil {
		return nil
	}
	return ln.Close()
}

// hadCluster returns the cluster id of metadata that were made before there was
// a record of the cluster beside them; zero if there are none.
func (b *Broker) hadCluster(ctx context.Context, store state.StoreID) (id [16]byte, err error) {
	if _, err := os.Stat(filepath.Join(b.cfg.DataDir, "cluster", "record")); !errors.Is(err, os.ErrNotExist) {
		return id, err
	}
	if _, err := os.Stat(filepath.Join(b.metaDir(), "cluster")); errors.Is(err, os.ErrNotExist) {
		return id, nil
	} else if err != nil {
		return id, err
	}
	node, err := meta.Open(ctx, meta.Config{Dir: b.metaDir(), Store: store, ElectionTimeout: 100 * time.Millisecond, Logger: b.log})
	if err != nil {
		return id, err
	}
	ctx, cancel := context.WithTimeout(ctx, peekTime)
	defer cancel()
	err = node.WaitReady(ctx)
	if err == nil {
		err = node.Barrier(ctx)
	}
	id = node.View().Cluster().ID
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = nil // one of several: the others know
	}
	return id, errors.Join(err, node.Close())
}

// emptied says whether an operator has moved the metadata of a member of a
// cluster away, so that it joins anew and keeps its messages. A folder that is
// there and lacks what it should have is damage instead.
func (b *Broker) emptied() (bool, error) {
	if !b.cfg.Peers.Join {
		return false, nil
	}
	_, err := os.Stat(b.metaDir())
	if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	_, err = os.Stat(filepath.Join(b.cfg.DataDir, "cluster", "record"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// peekTime is how long metadata of an earlier release may take to elect their lone voter.
const peekTime = 5 * time.Second

// openMeta opens the metadata of the cluster and waits until they can be trusted.
func (b *Broker) openMeta(ctx context.Context) error {
	data, err := b.store.Partitions()
	if err != nil {
		return err
	}
	cfg := meta.Config{
		Dir: b.metaDir(), Store: state.StoreID(b.store.ID()), Bootstrapped: b.formation.Known || len(data) > 0 && !b.formation.Join,
		Forward: b.forward, ElectionTimeout: b.cfg.Election, Logger: b.log, Registerer: b.cfg.Metrics, Now: b.cfg.Now,
	}
	if b.cfg.Peers.Join {
		cfg.Form, cfg.Join = b.formation.Voters, b.formation.Join
		cfg.Listener, cfg.Dial, cfg.Resolve = b.cluster.RaftListener(), b.cluster.RaftDial, b.peerAddress
		cfg.Address = b.cfg.Peers.Advertise
	}
	if b.meta, err = meta.Open(ctx, cfg); err != nil {
		return err
	}
	b.peers = &calls.Peers{Cluster: b.cluster, Meta: b.meta, Self: cfg.Store}
	b.metaOpen.Store(true)
	b.cluster.Opened(b.meta)
	if err := b.meta.WaitReady(ctx); err != nil {
		return err
	}
	// What is read first is read behind a barrier in the leader's term (R6).
	return b.meta.Barrier(ctx)
}

// standing is where a broker hears that it must stop, as package cluster does it.
type standing interface {
	Failed() <-chan struct{} // closed with Err
	Err() error
}

// whileMember does a step of the start until it is known that this broker must
// not be: it is not of the cluster, or not the only one on its data directory. A
// broker without which the cluster goes on never hears of a leader, and would
// wait for one for ever.
func whileMember(ctx context.Context, c standing, step func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // returns when ctx ends
		select {
		case <-c.Failed():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := step(ctx)
	if over := c.Err(); over != nil {
		return over
	}
	return err
}

func (b *Broker) removedError(self state.StoreID) error {
	return fmt.Errorf("store %s, of this data directory, was removed from the cluster: to join again start with an empty data directory", self)
}

// peerAddress is where a store's peer port is by the newest that gossip says.
func (b *Broker) peerAddress(store state.StoreID) (string, bool) {
	for _, m := range b.cluster.Members() {
		if m.Store == store && m.State != cluster.Dead && m.Addresses.Peer != "" {
			return m.Addresses.Peer, true
		}
	}
	return "", false
}

// forward carries a request of this broker's metadata to another broker's.
func (b *Broker) forward(ctx context.Context, to meta.Server, op byte, body []byte) ([]byte, error) {
	answer, err := b.cluster.Call(ctx, to.Store, opMeta, append([]byte{op}, body...))
	if errors.Is(err, cluster.ErrUnreachable) {
		return nil, fmt.Errorf("%w: %w", meta.ErrNotLeader, err)
	}
	return answer, err
}

// serveMeta answers what another broker's metadata ask.
func (b *Broker) serveMeta(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
	if !b.metaOpen.Load() || len(body) == 0 {
		return nil, protocol.Errorf(protocol.CodeNotReady, "the broker is starting")
	}
	return b.meta.Serve(ctx, body[0], body[1:])
}

// register gives the cluster its id, if it has none, and begins a run (R9, R6).
func (b *Broker) register(ctx context.Context) error {
	id := b.formation.ClusterID
	if b.meta.View().Cluster().ID == [16]byte{} {
		if _, err := b.propose(ctx, &state.InitCluster{ID: id, Name: b.cfg.Cluster}); err != nil {
			return fmt.Errorf("make cluster: %w", err)
		}
	}
	c := b.meta.View().Cluster()
	if c.ID != id {
		return fmt.Errorf("the metadata are of cluster %s, this data directory belongs to cluster %s",
			hex.EncodeToString(c.ID[:]), hex.EncodeToString(id[:]))
	}
	b.store.SetCluster(c.ID, c.History)
	return b.beginRun(ctx)
}

// beginRun registers this store under a run number that was never used.
func (b *Broker) beginRun(ctx context.Context) error {
	r := &state.RegisterStore{
		Store: state.StoreID(b.store.ID()), Broker: b.cfg.Name, Boot: bootID(),
		Addresses: state.Addresses{Client: b.ClientAddr(), HTTP: b.httpTold()},
	}
	if b.cfg.Peers.Join {
		r.Addresses.Peer = b.peerAdvertised()
	}
	if _, err := rand.Read(r.Nonce[:]); err != nil {
		return fmt.Errorf("draw nonce: %w", err)
	}
	res, err := b.propose(ctx, r)
	if err != nil {
		return fmt.Errorf("register store: %w", err)
	}
	b.owner.Store(&state.Owner{Store: r.Store, Incarnation: res.Incarnation})
	return nil
}

// httpTold is the address of the HTTP port that others are told.
func (b *Broker) httpTold() string { return reachableAt(b.HTTPAddr(), b.ClientAddr()) }

// reachableAt is where others reach a port: one that listens on all addresses is
// at the host that clients are told, since nobody can dial all addresses.
func reachableAt(listening, told string) string {
	host, port, err := net.SplitHostPort(listening)
	at, _, terr := net.SplitHostPort(told)
	if ip := net.ParseIP(host); err != nil || terr != nil || host != "" && (ip == nil || !ip.IsUnspecified()) {
		return listening
	}
	return net.JoinHostPort(at, port)
}

// peerAdvertised is the address of the peer port that others are told.
func (b *Broker) peerAdvertised() string {
	if a := b.cfg.Peers.Advertise; a != "" {
		return a
	}
	return b.cluster.RaftListener().Addr().String()
}

// attach begins the lease of this run. It waits a moment for it, so that a
// broker that is ready takes messages.
func (b *Broker) attach(ctx context.Context) error {
	if err := b.cluster.Attach(b.meta, b.self()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !b.leased() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil // the doors stay shut until it comes
		}
	}
	return nil
}

// GossipAddr is the address at which other brokers find this one, "" when it stands alone.
func (b *Broker) GossipAddr() string { return b.cluster.GossipAddress() }

// loadMeter turns counters into rates.
type loadMeter struct {
	mu  sync.Mutex // guards what follows
	at  time.Time
	in  int64
	was cluster.Load
}

// tellLoad is what the broker tells others of its work; the cluster asks every second.
func (b *Broker) tellLoad() cluster.Load {
	m := &b.load
	now, in := b.cfg.Now(), b.metrics.appended.Load()
	m.mu.Lock()
	defer m.mu.Unlock()
	if since := now.Sub(m.at).Seconds(); !m.at.IsZero() && since > 0 {
		m.was.BytesIn = float64(in-m.in) / since
	}
	m.at, m.in = now, in
	b.mu.RLock()
	m.was.Partitions = len(b.parts)
	b.mu.RUnlock()
	if space, err := b.cfg.FS.Free(b.cfg.DataDir); err == nil && space.Total > 0 {
		m.was.Disk = 1 - float64(space.Free)/float64(space.Total)
	}
	return m.was
}
