package meta

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
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
	// Transport carries Raft's messages. Nil: a transport within the process, which opens no port and reaches nobody.
	// The node closes it.
	Transport raft.Transport
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
	if c.Transport == nil {
		_, c.Transport = raft.NewInmemTransport(raft.ServerAddress("store-" + c.Store.String()))
	}
	return c, nil
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
