package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/terminal"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
)

func (a *app) clusterAudit() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Compare the cold tier with the catalogs, both ways",
		Long: "Lists every object of the bucket or folder and every one that a catalog names, and says what is missing, has\n" +
			"another length, or belongs to nobody. It changes nothing. Exit code 1 when something is not as it should be.",
		Args: wantArgs(),
	}
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		stop := terminal.Busy(a.err, "auditing the cold tier")
		report, err := ask(cmd.Context(), a, func(c *client.Admin, ctx context.Context, _ struct{}) (*protocol.AuditReport, error) {
			return c.ClusterAudit(ctx)
		}, struct{}{})
		stop()
		if err != nil {
			return fail.Doing(err, "audit the cold tier")
		}
		if output.value == "json" {
			err = render.JSON(a.out, report)
		} else {
			err = view.Audit(a.out, *report)
		}
		if n := len(report.Findings) + report.More; err == nil && n > 0 {
			err = fmt.Errorf("audit the cold tier: %s", render.Plural(n, "finding"))
		}
		return err
	}
	return cmd
}
