package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/terminal"
)

// wal is `danube wal`.
func (a *app) wal() *cobra.Command {
	return group("wal", "Look at the write-ahead log of a stopped broker", a.walVerify(), a.walAdopt())
}

func (a *app) walVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every segment file below a data directory",
		Long: "DIR is a data directory, or any folder in it. Every file is checked as `segment verify` does, and that files\n" +
			"of a partition follow on each other. The end of a partition's last file may be torn by a crash: that is\n" +
			"noted and no problem, since what was acknowledged of it lies in the journal until it is synced. Exit code 1\n" +
			"when something is wrong.",
		Args: wantArgs("DIR"),
	}
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		var bar *terminal.Bar
		rep, err := offline.VerifyLog(args[0], func(done, total int64) {
			if bar == nil {
				bar = terminal.NewBar(a.err, total, "verify", true)
			}
			bar.Set(done)
		})
		bar.Done()
		if err != nil {
			return fmt.Errorf("verify log: %w", err)
		}
		if output.value == "json" {
			err = render.JSON(a.out, rep)
		} else {
			err = rep.Print(a.out)
		}
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("verify log %s: %s", args[0], render.Plural(len(rep.Problems), "problem"))
		}
		return err
	}
	return cmd
}
