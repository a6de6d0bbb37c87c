package node

import (
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold/drivers"
)

// Config is the one place where settings become the broker's configuration.
func Config(cfg settings.Config, release string, alone bool, log *slog.Logger) (broker.Config, error) {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return broker.Config{}, fmt.Errorf("find the data directory: %w", err)
	}
	name, err := ChooseName(cfg.Name, dir, alone, log)
	if err != nil {
		return broker.Config{}, err
	}
	sync := storage.Always
	if cfg.Storage.WAL.Sync == "interval" {
		sync = storage.Interval
	}
	return broker.Config{
		DataDir: dir, Name: name, Cluster: cfg.Cluster.Name, Release: release,
		Listen: broker.Listen{
			Client: net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.ClientPort)),
			HTTP:   net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.HTTPPort)),
		},
		Advertise: advertised(cfg), Peers: peers(cfg, alone), Pprof: cfg.Pprof,
		Storage: broker.Storage{
			SegmentBytes: cfg.Storage.WAL.SegmentBytes, SegmentAge: cfg.Storage.WAL.SegmentAge,
			Sync: sync, SyncInterval: cfg.Storage.WAL.SyncInterval, Durable: durable(cfg), Durability: strings.Replace(cfg.Storage.Durability, "auto", "local", 1),
		},
		Memory: cfg.MemoryLimit(settings.MachineMemory()), GapWait: cfg.Subscription.GapWait, Log: log,
	}, nil
}

// durable is the cold tier, none in mode local.
func durable(cfg settings.Config) broker.Durable {
	if cfg.Storage.Mode == "local" {
		return broker.Durable{}
	}
	keep := cfg.Storage.LocalRetention
	return broker.Durable{URL: cfg.Storage.Durable.URL, Drivers: drivers.Open, LocalAge: keep.Time, LocalBytes: keep.Bytes}
}

// advertised is the address that clients are told when the broker listens on all: nobody can dial that one. "" leaves
// it at the address of the listener, also where the port is the system's choice and cannot be told yet.
func advertised(cfg settings.Config) string {
	host := cfg.Cluster.Advertise
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	if ip := net.ParseIP(cfg.Host); cfg.ClientPort == 0 || host == "" && (ip == nil || !ip.IsUnspecified()) {
		return ""
	}
	if host == "" {
		host = reachable()
	}
	return net.JoinHostPort(host, strconv.Itoa(cfg.ClientPort))
}

// reachable is an address of this machine that others may reach, loopback when it has no other.
func reachable() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	best := "127.0.0.1"
	for _, a := range addrs {
		network, ok := a.(*net.IPNet)
		if !ok || !network.IP.IsGlobalUnicast() {
			continue
		}
		if network.IP.To4() != nil {
			return network.IP.String()
		}
		best = network.IP.String()
	}
	return best
}

// peers is how the broker finds the others. One that stands alone opens no port for them.
func peers(cfg settings.Config, alone bool) broker.Peers {
	p := broker.Peers{
		Voters: cfg.Cluster.Voters, Lease: cfg.Cluster.Lease, CopyDelay: cfg.Cluster.CopyDelay,
		DrainParallel: cfg.Cluster.DrainParallel, Shutdown: cfg.ShutdownTimeout,
	}
	if alone {
		return p
	}
	host := cfg.Host
	if host == "localhost" {
		host = "127.0.0.1" // gossip binds to an address
	}
	p.Join, p.Seeds, p.Expect = true, cfg.Cluster.Seeds, cfg.Cluster.Expect
	p.Listen = net.JoinHostPort(host, strconv.Itoa(cfg.PeerPort))
	p.Advertise = Told(cfg, cfg.PeerPort)
	p.Gossip.Bind = net.JoinHostPort(host, strconv.Itoa(cfg.GossipPort))
	p.Gossip.Advertise = Told(cfg, cfg.GossipPort)
	p.Gossip.Key = cfg.GossipKey()
	return p
}

// Told is a port at the host that others are told, "" where they are told the address of the listener: also where the
// port is the system's choice.
func Told(cfg settings.Config, port int) string {
	host := cfg.Cluster.Advertise
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "" || port == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}
