package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/node"
	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

// addOfflineFlags adds the flags that say which broker is meant; settings come from where its own come from.
func addOfflineFlags(cmd *cobra.Command) (file *string) {
	all := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	settings.AddFlags(all, false)
	for _, name := range []string{"data-dir", "host", "peer-port", "advertise"} {
		cmd.Flags().AddFlag(all.Lookup(name))
	}
	return cmd.Flags().String("config", "", "configuration `FILE` of that broker (DANUBE_CONFIG)")
}

// offline finds the broker that the flags name.
func (a *app) offline(cmd *cobra.Command, file string) (offline.Broker, error) {
	return a.offlineAnew(cmd, file, false)
}

// offlineAnew is offline. With anew the data directory may be empty, or missing: then the broker has no store yet.
func (a *app) offlineAnew(cmd *cobra.Command, file string, anew bool) (offline.Broker, error) {
	cfg, _, err := settings.Load(settings.Sources{File: a.configFile(file), Env: a.env, Flags: cmd.Flags()})
	if err != nil {
		return offline.Broker{}, fail.With(fail.Usage, err)
	}
	o := offline.Broker{Cluster: cfg.Cluster.Name, Address: node.Told(cfg, cfg.PeerPort)}
	if o.Address == "" {
		o.Address = net.JoinHostPort(cfg.Host, strconv.Itoa(cfg.PeerPort))
	}
	if o.Dir, err = filepath.Abs(cfg.DataDir); err != nil {
		return offline.Broker{}, fmt.Errorf("find the data directory: %w", err)
	}
	if o.Name, err = node.ChooseName(cfg.Name, o.Dir, true, slog.New(slog.DiscardHandler)); err != nil {
		return offline.Broker{}, err
	}
	if anew {
		if entries, err := os.ReadDir(o.Dir); errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
			return o, nil
		}
	}
	id, err := storage.Identity(disk.OS(), o.Dir)
	if err != nil {
		return offline.Broker{}, node.Explain(fmt.Errorf("read the store's id: %w", err), broker.Config{DataDir: o.Dir})
	}
	o.Store = id
	return o, nil
}

// recovered is cluster recover -o json.
type recovered struct {
	Directory string `json:"directory"`
	Store     string `json:"store"`
	Peer      string `json:"peer"`
}

func (a *app) clusterRecover() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "recover --data-dir D",
		Short: "Make a stopped broker the only voter, when a majority of the voters is lost for good",
		Long: "For a cluster that has no leader because the disks of half of its voters or more are gone. While they may come\n" +
			"back, start them instead. The broker that is recovered must be stopped; of several that are left take the one\n" +
			"that has applied the most (`danube cluster status`). A new history begins, in which the lost voters never vote.\n" +
			"What only they had is missing: topics made last, owners, acknowledgements. No message is touched.",
		Args: wantArgs(),
	}
	file := addOfflineFlags(cmd)
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o, err := a.offline(cmd, *file)
		if err != nil {
			return err
		}
		if err := a.confirm(*yes, "make broker "+o.Name+" in "+o.Dir+" the only voter and give up what only the other voters knew"); err != nil {
			return err
		}
		if err := meta.Recover(o.MetaDir(), o.Store, o.Address); err != nil {
			return metaError(err, o)
		}
		if output.value == "json" {
			return render.JSON(a.out, recovered{o.Dir, hex.EncodeToString(o.Store[:]), o.Address})
		}
		fmt.Fprintf(a.out, "broker %s (store %s) is the only voter, in a new history\n\n", o.Name, o.Store)
		fmt.Fprintf(a.out, "may be missing: what was decided last and had not reached this broker\n"+
			"next:           start this broker as before; danube cluster status says who is lost\n"+
			"                danube broker remove NAME for every broker whose disk is gone\n"+
			"                other brokers join with empty data directories, and vote again by themselves\n")
		return nil
	}
	return cmd
}

// metaError adds what helps when the metadata of a stopped broker cannot be worked on.
func metaError(err error, o offline.Broker) error {
	_, damaged := errors.AsType[*meta.DamagedError](err)
	switch {
	case damaged:
		return fail.WithHint(err, "`danube cluster rebuild --from %s --data-dir %s` makes the metadata anew from the segments", o.Dir, o.Dir)
	case errors.Is(err, meta.ErrInUse):
		return fail.WithHint(err, "the broker must be stopped")
	}
	return err
}
