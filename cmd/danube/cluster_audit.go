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
			"another length, or belongs to nobody. It changes nothing. Exit code 1 when something is not as it should be.\n\n" +
			"After a rebuild, restore or recovery nothing is deleted that the metadata of before may have known of. --done says,\n" +
			"once the report is right, that you have looked: from then on what no catalog names is deleted after a grace.",
		Args: wantArgs(),
	}
	output := addOutput(cmd)
	done := cmd.Flags().Bool("done", false, "what earlier metadata left, and no catalog names, may be deleted from now on")
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
		if err != nil {
			return err
		}
		if *done {
			err := tell(cmd.Context(), a, func(c *client.Admin, ctx context.Context, _ struct{}) error { return c.ClusterAudited(ctx) }, struct{}{})
			if err != nil {
				return fail.Doing(err, "end the audit")
			}
			return nil
		}
		if n := len(report.Findings) + report.More; n > 0 {
			return fmt.Errorf("audit the cold tier: %s", render.Plural(n, "finding"))
		}
		return nil
	}
	return cmd
}
