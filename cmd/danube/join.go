package main

import (
	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/settings"
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
