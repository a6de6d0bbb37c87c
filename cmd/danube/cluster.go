package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/protocol"
)

// cluster is `danube cluster`.
func (a *app) cluster() *cobra.Command {
	return group("cluster", "Look at the cluster", a.clusterStatus())
}

func (a *app) clusterStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show the brokers, who leads, and what is not well", Args: wantArgs()}
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := a.dial(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		s, err := c.Admin().Status(cmd.Context())
		if err != nil {
			return failed(err, "ask for the status")
		}
		if output.value == "json" {
			return printJSON(a.out, s)
		}
		return printStatus(a.out, *s)
	}
	return cmd
}

func printStatus(w io.Writer, s protocol.Status) error {
	fmt.Fprintf(w, "cluster  %s (%s)\nleader   %s\nready    %s\ntopics   %s\n", s.Cluster, s.ClusterID, s.Leader, yesNo(s.Ready), grouped(s.Topics))
	for _, reason := range s.Degraded {
		fmt.Fprintf(w, "degraded %s\n", reason)
	}
	fmt.Fprintln(w)
	t := table{header: []string{"broker", "address", "state", "votes", "incarnation", "store"}}
	for _, b := range s.Brokers {
		t.add(b.Name, b.Address, b.State, yesNo(b.Voter), u64(b.Incarnation), b.Store)
	}
	return t.print(w)
}
