package main

import (
	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/settings"
)

func (a *app) standalone() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "standalone",
		Short: "Run a broker by itself",
		Long: "Runs one broker with everything in one directory. It prints a line that begins with ready once it\n" +
			"serves. The first SIGINT or SIGTERM stops it in order, the second at once.\n" +
			"Settings come from --config, DANUBE_ variables and flags; the later wins. docs/configuration.md lists them.",
		Example: "  danube standalone --data-dir /var/lib/danube",
		Args:    wantArgs(),
	}
	file := addConfigFlags(cmd, true)
	lenient := addLenient(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src := settings.Sources{File: a.configFile(*file), Env: a.env, Flags: cmd.Flags(), Lenient: *lenient, Alone: true}
		return a.serve(cmd.Context(), src)
	}
	return cmd
}
