package main

import (
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/node"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

// adopted is wal adopt -o json.
type adopted struct {
	Directory string `json:"directory"`
	Store     string `json:"store"`
}

func (a *app) walAdopt() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adopt DIR",
		Short: "Write the store's id of a data directory again, from its segments",
		Long: "A broker whose data directory has lost its id (the file store) serves nothing: it cannot tell the disk it\n" +
			"had from another one. Whoever knows that it is the right disk says so with this. The broker must be stopped.",
		Args: wantArgs("DIR"),
	}
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		dir, err := filepath.Abs(args[0])
		if err != nil {
			return fmt.Errorf("find the data directory: %w", err)
		}
		if err := a.confirm(*yes, "take the segments in "+dir+" for this broker's own"); err != nil {
			return err
		}
		id, err := storage.Adopt(disk.OS(), dir)
		if err != nil {
			return node.Explain(fmt.Errorf("adopt %s: %w", dir, err), broker.Config{DataDir: dir})
		}
		if output.value == "json" {
			return render.JSON(a.out, adopted{dir, hex.EncodeToString(id[:])})
		}
		_, err = fmt.Fprintf(a.out, "%s is store %s again\n", dir, hex.EncodeToString(id[:]))
		return err
	}
	return cmd
}
