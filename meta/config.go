package meta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/meta/state"
)

// Config says how to open a node. Zero values mean the default.
type Config struct {
	// Dir is the folder of the metadata, within the data directory. It is made if missing.
	Dir string
	// Store is the id of the data directory; in hex it is the Raft server id (R9). Required.
	Store state.StoreID
	// Bootstrapped says that this data directory is known to have had a cluster, so that missing metadata is damage and
	// not a first start. The marker file in Dir says the same.
	Bootstrapped bool
	// Join makes a first start wait to be added by the leader of an existing cluster instead of forming one.
	Join bool
	// Form lists the voters of a new cluster, this store among them; each of them opens with the same list. Nil, and no
	// Join: this store alone. Only a first start looks at it.
	Form []Server
	// Address is what the other members dial, host:port. Default: the listener's. They know a new one from Resolve, and
	// from this store's registration.
	Address string
	// Listener takes Raft's streams from the other members, Dial opens them. Both nil: nobody is reached and nobody
	// reaches this node. The node closes the listener and the connections.
	Listener net.Listener
	Dial     func(ctx context.Context, address string) (net.Conn, error)
	// Resolve returns where a store is, if that is known. Nil, or not known: where it was when it was added.
	Resolve func(store state.StoreID) (address string, ok bool)
	// Forward carries a request to the Serve of another member and returns its answer. Its error means that the outcome
	// is unknown, unless it is ErrNotLeader: then nothing was sent. Nil: only the leader can propose.
	Forward func(ctx context.Context, to Server, op byte, body []byte) ([]byte, error)
	// ElectionTimeout is how long a follower waits for a leader; a leader that reaches no majority steps down after
	// half of it. Default 500 ms (R7); a lone voter elects itself within one to two times this.
	ElectionTimeout time.Duration
	// SnapshotThreshold is how many entries may follow a snapshot before the next is taken. Default 2048. 64 MiB of
	// commands lead to one sooner.
	SnapshotThreshold uint64
	// TrailingLogs is how many entries stay in the log after a snapshot, for followers that lag. Default 256.
	TrailingLogs uint64
	// Logger takes what an operator acts on at info and above, Raft's own output at debug. Nil: discarded.
	Logger *slog.Logger
	// Registerer takes the danube_raft_ metrics. Nil: none.
	Registerer prometheus.Registerer
	// Now is the clock of the metrics. Default time.Now.
	Now func() time.Time
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, fmt.Errorf("open metadata: no directory given")
	}
	if c.Store == (state.StoreID{}) {
		return c, fmt.Errorf("open metadata: no store id given")
	}
	if c.ElectionTimeout == 0 {
		c.ElectionTimeout = 500 * time.Millisecond
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = 2048
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = 256
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Listener != nil && c.Address == "" {
		c.Address = c.Listener.Addr().String()
	}
	if c.Listener == nil {
		c.Address = "store-" + c.Store.String()
	}
	return c, c.checkPeers()
}

func (c Config) checkPeers() error {
	if (c.Listener == nil) != (c.Dial == nil) {
		return errors.New("open metadata: a listener needs a dialer")
	}
	if host, _, err := net.SplitHostPort(c.Address); c.Listener != nil {
		ip := net.ParseIP(host)
		if err != nil || host == "" || ip != nil && ip.IsUnspecified() {
			return fmt.Errorf("open metadata: nobody can dial the address %q", c.Address)
		}
	}
	return nil
}

// voters returns the first members of a new cluster. Every voter makes the same list of them, so that it does not matter
// who leads first.
func (c Config) voters() (raft.Configuration, error) {
	var r raft.Configuration
	if c.Form == nil {
		r.Servers = []raft.Server{{ID: serverID(c.Store), Address: serverAddress(c.Store, c.Address)}}
		return r, nil
	}
	found := false
	for _, s := range c.Form {
		found = found || s.Store == c.Store && s.Address == c.Address
		r.Servers = append(r.Servers, raft.Server{ID: serverID(s.Store), Address: serverAddress(s.Store, s.Address)})
	}
	if !found {
		return r, fmt.Errorf("store %s at %s is not among its voters", c.Store, c.Address)
	}
	slices.SortFunc(r.Servers, func(a, b raft.Server) int { return cmp.Compare(a.ID, b.ID) })
	return r, nil
}

// snapshotInterval is how often Raft looks whether the threshold is passed.
const snapshotInterval = 5 * time.Second

// snapshotBytes is how many bytes of commands may follow a snapshot before the next is taken.
const snapshotBytes = 64 << 20

func (c Config) raft() *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = serverID(c.Store)
	r.HeartbeatTimeout = c.ElectionTimeout
	r.ElectionTimeout = c.ElectionTimeout
	r.LeaderLeaseTimeout = c.ElectionTimeout / 2
	// Commands of concurrent callers share one disk sync.
	r.BatchApplyCh = true
	r.MaxAppendEntries = 512
	r.SnapshotInterval = snapshotInterval
	r.SnapshotThreshold = c.SnapshotThreshold
	r.TrailingLogs = c.TrailingLogs
	// A leader that demotes or removes itself stays up and follows.
	r.ShutdownOnRemove = false
	r.NoLegacyTelemetry = true
	r.Logger = newLogger(c.Logger)
	return r
}

func serverID(store state.StoreID) raft.ServerID { return raft.ServerID(store.String()) }
