package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
)

// cluster is `danube cluster`.
func (a *app) cluster() *cobra.Command {
	return group("cluster", "Look at the cluster, and mend its metadata",
		a.clusterStatus(), a.clusterPromote(), a.clusterDemote(), a.clusterSnapshot(), a.clusterRestore(), a.clusterAudit(), a.clusterRecover(), a.clusterRebuild())
}

func (a *app) clusterPromote() *cobra.Command {
	cmd := &cobra.Command{
		Use: "promote BROKER", Short: "Give a broker a vote on the metadata",
		Long: "The cluster keeps as many voters as cluster.voters says by itself; this chooses one. Waits until the broker has caught up.",
	}
	return a.act(cmd, "promote", "votes", (*client.Admin).Promote)
}

func (a *app) clusterDemote() *cobra.Command {
	cmd := &cobra.Command{
		Use: "demote BROKER", Short: "Take a broker's vote",
		Long: "It goes on serving topics. While fewer vote than cluster.voters says, the cluster gives the vote to a broker again.",
	}
	return a.act(cmd, "demote", "votes no longer", (*client.Admin).Demote)
}

func (a *app) clusterStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Show the brokers, who leads, and what is not well", Args: wantArgs()}
	return show(a, cmd, "ask for the status", (*client.Admin).Status, func(w io.Writer, s *protocol.Status) error {
		return view.Status(w, *s)
	})
}
