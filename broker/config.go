package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/disk"
)

// Config is what a broker is started with. Zero values mean the defaults in brackets.
type Config struct {
	DataDir string // directory of everything the broker keeps; required
	Name    string // the broker's name in listings [host name]
	Cluster string // the cluster's name, used when the cluster is first made ["danube"]
	Release string // version of the binary, for HELLO and status

	Listen    Listen
	Advertise string // host:port clients are told [the address of the client listener]
	Peers     Peers  // the other brokers [none: the broker stands alone]
	Pprof     bool   // serve /debug/pprof on the HTTP port

	Storage Storage
	Memory  int64 // bytes for tails, frames in flight and read-ahead [256 MiB]
	Limits  batch.Limits

	GapWait        time.Duration // how long a subscription waits at an orphaned range [60 s]
	Election       time.Duration // Raft's election timeout [500 ms; 100 ms alone]
	CursorInterval time.Duration // how often changed cursors are committed [500 ms]
	AutoCreate     *bool         // producers and consumers may make topics [true]

	FS      disk.FS // [the operating system's]
	Now     func() time.Time
	At      func(step string) // called at named steps; nil in production
	Log     *slog.Logger
	Metrics *prometheus.Registry
}

// Listen is where the broker listens.
type Listen struct {
	Client string // host:port ["127.0.0.1:6650"]
	HTTP   string // host:port; empty: no HTTP
	// Open makes a listener [net.Listen]; tests give their own.
	Open func(network, address string) (net.Listener, error)
}

// Peers says how a broker finds the others and works with them.
type Peers struct {
	Join   bool     // form or join a cluster; false: a cluster of one, without peer port and gossip
	Seeds  []string // gossip addresses of other brokers, host[:port]
	Expect int      // brokers that form the first quorum; 0: join one that exists, or without seeds be the first
	Voters int      // how many brokers vote on the metadata [3]

	Listen    string         // host:port for Raft and for requests of brokers ["127.0.0.1:7650"]
	Advertise string         // host:port of it that others are told [the address of the listener]
	Gossip    cluster.Gossip // Bind is required with Join
	Dial      func(ctx context.Context, network, address string) (net.Conn, error)

	Lease         time.Duration // how long a broker serves without word from the leader (R8) [3 s]
	LeaseCheckOff bool          // for tests of what must stay correct without a clock
	CopyDelay     time.Duration // after which history on another broker is copied here, unless somebody waits for it [5 min]
	DrainParallel int           // partitions of a draining broker that move at once [16]
	Shutdown      time.Duration // how long a stop may take to hand over what the broker owns [30 s]

	Boottime func() time.Duration // the clock of leases [CLOCK_BOOTTIME]
}

// Storage are the settings of the log that an operator may change.
type Storage struct {
	SegmentBytes int64         // [64 MiB]
	SegmentAge   time.Duration // [60 s]
	Sync         storage.SyncMode
	SyncInterval time.Duration // [100 ms]
	Files        int           // most files open at once [1,024]
	Durability   string        // of topics that name none: local or object ["local"]
	Durable      Durable
}

// Durable is the cold tier: where sealed segments go, and how much of what is there
// stays on this disk too.
type Durable struct {
	URL        string        // file:///mount, s3://bucket …, with ?prefix= [none: there is no cold tier]
	Drivers    cold.Opener   // opens buckets [none: folders alone]
	LocalAge   time.Duration // age from which what the cold tier has is freed here [0: no bound]
	LocalBytes int64         // bytes of all logs above which it is [0: no bound]
	Upkeep     Upkeep
}

// Upkeep is how the cold tier is kept in order. Zero values mean the defaults of packages keeper and upkeep.
type Upkeep struct {
	Limits         upkeep.Limits
	Every, Collect time.Duration // between two looks for merges, and for garbage
	Audit          time.Duration // between two looks for objects that no catalog names and nobody may commit
	AfterRun       time.Duration // from the end of a broker's run to such a look
}

func (c Config) withDefaults() (Config, error) {
	if c.DataDir == "" {
		return c, errors.New("broker configuration: no data directory")
	}
	if c.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, fmt.Errorf("find host name: %w", err)
		}
		c.Name = host
	}
	c.Cluster = cmp.Or(c.Cluster, "danube")
	c.Release = cmp.Or(c.Release, "devel")
	c.Listen.Client = cmp.Or(c.Listen.Client, "127.0.0.1:6650")
	c.Memory = cmp.Or(c.Memory, 256<<20)
	c.GapWait = cmp.Or(c.GapWait, time.Minute)
	if c.Peers.Join {
		c.Election = cmp.Or(c.Election, 500*time.Millisecond)
	}
	c.Election = cmp.Or(c.Election, 100*time.Millisecond)
	c.Peers.Listen = cmp.Or(c.Peers.Listen, "127.0.0.1:7650")
	c.Peers.Lease = cmp.Or(c.Peers.Lease, 3*time.Second)
	c.Peers.CopyDelay = cmp.Or(c.Peers.CopyDelay, 5*time.Minute)
	c.Peers.DrainParallel = cmp.Or(c.Peers.DrainParallel, 16)
	c.Peers.Shutdown = cmp.Or(c.Peers.Shutdown, 30*time.Second)
	if c.Storage.Durability = cmp.Or(c.Storage.Durability, "local"); c.Storage.Durability == "object" && c.Storage.Durable.URL == "" {
		return c, errors.New("broker configuration: durability object needs a cold tier")
	}
	c.CursorInterval = cmp.Or(c.CursorInterval, 500*time.Millisecond)
	c.Limits = c.Limits.WithDefaults()
	if c.AutoCreate == nil {
		yes := true
		c.AutoCreate = &yes
	}
	if c.Listen.Open == nil {
		c.Listen.Open = net.Listen
	}
	if c.FS == nil {
		c.FS = disk.OS()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.At == nil {
		c.At = func(string) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c, nil
}

// The shares of Config.Memory. What the log's tails do not hold is read from
// the page cache, so more than a modest share buys little.
func (c *Config) tailBytes() int64  { return min(c.Memory/2, 64<<20) }
func (c *Config) frameBytes() int64 { return c.Memory / 4 }
func (c *Config) coldBytes() int64  { return min(c.Memory/4, 64<<20) }

// requestLimit is how many requests that need the metadata or the disk one
// connection may have under way.
const requestLimit = 64

// waitLimit is how many fetches of one connection may wait for messages at a
// time; those beyond it are answered at once, with nothing.
const waitLimit = 256
