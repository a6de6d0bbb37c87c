package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/disk"
)

func (a *app) join() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "join [SEED…]",
		Short: "Run a broker that forms or joins a cluster",
		Long: "SEED is the gossip address of another broker, HOST or HOST:PORT; one that is down is retried for ever. With\n" +
			"--expect N the first N brokers that find each other form the quorum, in whatever order they start, and later\n" +
			"ones join it. Without --expect: with seeds it only joins, without any it is a cluster of one. It prints a line\n" +
			"that begins with ready once it serves. The first SIGINT or SIGTERM hands its topics over and stops it within\n" +
			"shutdown_timeout, the second stops it at once; it stays a member until `danube broker remove`.\n" +
			"A data directory made by `danube standalone` becomes the first broker of a cluster, with its topics.",
		Example: "  danube join --expect 3 --host 10.0.0.1 10.0.0.2 10.0.0.3",
		Args:    cobra.ArbitraryArgs,
	}
	file := addConfigFlags(cmd, false)
	lenient := addLenient(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, seeds []string) error {
		src := settings.Sources{File: a.configFile(*file), Env: a.env, Flags: cmd.Flags(), Lenient: *lenient, Seeds: seeds}
		return a.serve(cmd.Context(), src)
	}
	return cmd
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
	p.Advertise = told(cfg, cfg.PeerPort)
	p.Gossip.Bind = net.JoinHostPort(host, strconv.Itoa(cfg.GossipPort))
	p.Gossip.Advertise = told(cfg, cfg.GossipPort)
	p.Gossip.Key = cfg.GossipKey()
	return p
}

// told is a port at the host that others are told, "" where they are told the address of the listener: also where the
// port is the system's choice.
func told(cfg settings.Config, port int) string {
	host := cfg.Cluster.Advertise
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if host == "" || port == 0 {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// nameFile holds the broker's name in the data directory. It is for people: who the broker is says the store's id.
const nameFile = "name"

// chooseName is the name a broker is told to have, else the one it had, else the host's; alone it is n1.
// A stored one that is none is named in the log and passed over.
func chooseName(given, dir string, alone bool, log *slog.Logger) (string, error) {
	if given == "" {
		text, err := os.ReadFile(filepath.Join(dir, nameFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("read the broker's name: %w", err)
		}
		given = strings.TrimSpace(string(text))
		if bad := state.CheckName("broker", given); err == nil && bad != nil {
			log.Warn("the broker's stored name is damaged and is made anew", "path", filepath.Join(dir, nameFile), "err", bad)
			given = ""
		}
	}
	if given == "" && alone {
		given = aloneName
	}
	if given == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fail.WithHint(fmt.Errorf("find the host's name: %w", err), "--name names the broker")
		}
		given = host
	}
	if err := state.CheckName("broker", given); err != nil {
		return "", fail.WithHint(fail.With(fail.Usage, err), "--name names the broker")
	}
	return given, nil
}

// keepName stores the name for the next start.
func keepName(dir, name string) error {
	file := filepath.Join(dir, nameFile)
	if text, err := os.ReadFile(file); err == nil && string(text) == name+"\n" {
		return nil
	}
	if err := disk.WriteFileAtomic(disk.OS(), file, []byte(name+"\n")); err != nil {
		return fmt.Errorf("store the broker's name: %w", err)
	}
	return nil
}
