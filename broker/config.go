package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
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
	Pprof     bool   // serve /debug/pprof on the HTTP port

	Storage Storage
	Memory  int64 // bytes for tails, frames in flight and read-ahead [256 MiB]
	Limits  batch.Limits

	GapWait        time.Duration // how long a subscription waits at an orphaned range [60 s]
	Election       time.Duration // Raft's election timeout [100 ms, right for a lone voter]
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

// Storage are the settings of the log that an operator may change.
type Storage struct {
	SegmentBytes int64         // [64 MiB]
	SegmentAge   time.Duration // [60 s]
	Sync         storage.SyncMode
	SyncInterval time.Duration // [100 ms]
	Files        int           // most files open at once [1,024]
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
	orDefault(&c.Cluster, "danube")
	orDefault(&c.Release, "devel")
	orDefault(&c.Listen.Client, "127.0.0.1:6650")
	orDefault(&c.Memory, 256<<20)
	orDefault(&c.GapWait, time.Minute)
	orDefault(&c.Election, 100*time.Millisecond)
	orDefault(&c.CursorInterval, 500*time.Millisecond)
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
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	return c, nil
}

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// The shares of Config.Memory. What the log's tails do not hold is read from
// the page cache, so more than a modest share buys little.
func (c *Config) tailBytes() int64  { return min(c.Memory/2, 64<<20) }
func (c *Config) frameBytes() int64 { return c.Memory / 4 }

// At most so much waits to be written to one connection before its consumers
// count as having no room.
const connOutBytes = 4 << 20

// window is how many produce frames one connection may have in flight.
const window = 256

// heartbeat is how long either side may be silent; a peer that sent nothing
// for three of them is dead (10 s).
const heartbeat = 3 * time.Second

// requestLimit is how many requests that need the metadata or the disk one
// connection may have under way.
const requestLimit = 64

// waitLimit is how many fetches of one connection may wait for messages at a
// time; those beyond it are answered at once, with nothing.
const waitLimit = 256
