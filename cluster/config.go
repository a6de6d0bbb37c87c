package cluster

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// Config says how to open a broker's part in a cluster. Zero values mean the default.
type Config struct {
	// Dir is the data directory; the package keeps its files in Dir/cluster. Required.
	Dir string
	// Identity is who this broker is and what it tells others. Required.
	Identity Identity
	// Seeds are the gossip addresses of other brokers, host[:port]. The default port is 7946.
	Seeds []string
	// Expect is how many brokers form the first quorum; zero: with seeds join only, without seeds a cluster of one.
	Expect int
	// Lease is how long a broker may serve without word from the leader (R8). Default 3 s.
	Lease time.Duration
	// PeerListener accepts Raft and the other brokers' requests; Close closes it. Nil, and no Gossip.Bind: this broker
	// stays alone, with everything else as in a cluster.
	PeerListener net.Listener
	// Dial opens connections to peers. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Gossip says where and how to gossip.
	Gossip Gossip
	// Load is asked for this broker's load every second. Nil: none is told.
	Load func() Load
	// OldestWrite is the age of the oldest unfinished write, sync or apply of this broker: a hung disk keeps no lease
	// (R8). Nil: none is ever unfinished.
	OldestWrite func() time.Duration
	// LeaseCheckOff makes LeaseValid always true: what must stay correct without a clock is tested so.
	LeaseCheckOff bool
	// Now is the wall clock. Default time.Now.
	Now func() time.Time
	// Boottime is the time since the machine started, sleep included. Default CLOCK_BOOTTIME where there is one.
	Boottime func() time.Duration
	// At is told the named steps of forming and joining, for tests that kill there. It may be nil.
	At func(step string)
	// Log takes what an operator acts on at info and above, memberlist's own output at debug. Nil: discarded.
	Log *slog.Logger
}

// Identity is who a broker is.
type Identity struct {
	Store     state.StoreID // the data directory, for ever (R9)
	Name      string        // the broker's name, for people
	Cluster   string        // the cluster's name; brokers of another name are refused
	Addresses state.Addresses
	// Had is the cluster id that the metadata in this data directory are known to have; zero: none. So a data directory
	// that was started alone stays of its cluster.
	Had [16]byte
	// Emptied says that the operator has taken the metadata out of this data directory. If they were of a cluster, this
	// broker joins that one anew, with its messages, under its own id; a leader of that cluster must take it in.
	Emptied bool
}

// Gossip says where and how a broker gossips.
type Gossip struct {
	// Bind is the IP address and port to listen on, TCP and UDP; port 0 takes a free one. Required.
	Bind string
	// Advertise is the address that others are told, host:port. Default: Bind, which must not be a wildcard then.
	Advertise string
	// Key encrypts: 16, 24 or 32 bytes, the same on every broker. Empty: no encryption.
	Key []byte
	// Fast makes suspicion and convergence quick, for tests on one machine.
	Fast bool
}

// gossipPort is the port of a seed that names none.
const gossipPort = "7946"

func (c Config) withDefaults() (Config, error) {
	id := c.Identity
	switch {
	case c.Dir == "":
		return c, fmt.Errorf("open cluster: no directory given")
	case id.Store == (state.StoreID{}):
		return c, fmt.Errorf("open cluster: no store id given")
	case c.PeerListener == nil && (!c.alone() || len(c.Seeds) > 0 || c.Expect > 1):
		return c, fmt.Errorf("open cluster: no peer listener given")
	case c.Expect < 0:
		return c, fmt.Errorf("open cluster: %d brokers expected", c.Expect)
	}
	if err := state.CheckName("broker", id.Name); err != nil {
		return c, fmt.Errorf("open cluster: %w", err)
	}
	if err := state.CheckName("cluster", id.Cluster); err != nil {
		return c, fmt.Errorf("open cluster: %w", err)
	}
	if !c.alone() {
		if id.Addresses.Peer == "" {
			c.Identity.Addresses.Peer = c.PeerListener.Addr().String()
		}
		if err := reachable("peer", c.Identity.Addresses.Peer); err != nil {
			return c, err
		}
		c.Gossip.Advertise = cmp.Or(c.Gossip.Advertise, c.Gossip.Bind)
		if err := reachable("gossip", c.Gossip.Advertise); err != nil {
			return c, err
		}
	}
	for i, s := range c.Seeds {
		if _, _, err := net.SplitHostPort(s); err != nil {
			s = net.JoinHostPort(s, gossipPort)
		}
		if i == 0 {
			c.Seeds = append([]string(nil), c.Seeds...)
		}
		c.Seeds[i] = s
	}
	c.Lease = cmp.Or(c.Lease, 3*time.Second)
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.OldestWrite == nil {
		c.OldestWrite = func() time.Duration { return 0 }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Boottime == nil {
		c.Boottime = boottime
	}
	if c.At == nil {
		c.At = func(string) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// alone says that nobody is to find this broker.
func (c Config) alone() bool { return c.PeerListener == nil && c.Gossip.Bind == "" }

// reachable refuses an address that no other broker can dial.
func reachable(what, address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("open cluster: %s address %q: %w", what, address, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("open cluster: the %s address %s is a wildcard, which no other broker can reach: give an address to advertise (--advertise)", what, address)
	}
	return nil
}
