package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
)

// segment is `danube segment`.
func (a *app) segment() *cobra.Command {
	return group("segment", "Look into segment files, without a broker", a.segmentDump(), a.segmentVerify())
}

func (a *app) segmentDump() *cobra.Command {
	cmd := &cobra.Command{Use: "dump FILE", Short: "Print every batch of a segment file, whole or not", Args: wantArgs("FILE")}
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return offline.Dump(a.out, args[0], output.value == "json")
	}
	return cmd
}

func (a *app) segmentVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a segment file against its own CRCs, counts and index",
		Long:  "Exit code 1 when something is wrong. The file a running broker writes to ends without a footer, perhaps torn.",
		Args:  wantArgs("FILE"),
	}
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		rep, err := offline.Verify(args[0])
		if err != nil {
			return fmt.Errorf("verify segment: %w", err)
		}
		if output.value == "json" {
			err = render.JSON(a.out, rep)
		} else {
			err = rep.Print(a.out)
		}
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("verify segment %s: %s", args[0], render.Plural(len(rep.Problems), "problem"))
		}
		return err
	}
	return cmd
}
