package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
)

// broker is `danube broker`.
func (a *app) broker() *cobra.Command {
	return group("broker", "Look at the brokers of the cluster, empty one, take one out",
		a.brokerList(), a.brokerDescribe(), a.brokerDrain(), a.brokerActivate(), a.brokerRemove())
}

func (a *app) brokerList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the brokers that are not removed", Args: wantArgs()}
	return show(a, cmd, "list brokers", (*client.Admin).BrokerList, func(w io.Writer, l *protocol.BrokerList) error {
		return view.Brokers(w, l.Brokers)
	})
}

func (a *app) brokerDescribe() *cobra.Command {
	cmd := &cobra.Command{Use: "describe BROKER", Short: "Show what a broker owns, and what lies nowhere else", Args: wantArgs("BROKER")}
	all := cmd.Flags().Bool("all", false, "also every partition, its store's id and its run")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := ask(cmd.Context(), a, (*client.Admin).BrokerDescribe, protocol.BrokerArgs{Broker: args[0]})
		if err != nil {
			return fail.Doing(withNames(err), "describe broker %s", args[0])
		}
		if output.value == "json" {
			return render.JSON(a.out, d)
		}
		return view.Broker(a.out, *d, *all)
	}
	return cmd
}

// withNames adds to the error of a command that names a broker how to find the names.
func withNames(err error) error {
	e, answered := errors.AsType[*protocol.Error](err)
	if answered && fail.HintOf(err) == "" && (e.Code == protocol.CodeBadRequest || e.Code == protocol.CodeBadName) {
		return fail.WithHint(err, "`danube broker list` names the brokers")
	}
	return err
}

// brokerDone is the -o json of a command that does something to a broker.
type brokerDone struct {
	Broker string `json:"broker"`
	Done   string `json:"done"` // draining, drained, active, removed, promoted, demoted
}

// act is a command that does one thing to a broker and says so.
func (a *app) act(cmd *cobra.Command, verb, done string, do func(*client.Admin, context.Context, protocol.BrokerArgs) error) *cobra.Command {
	output := addOutput(cmd)
	cmd.Args = wantArgs("BROKER")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := tell(cmd.Context(), a, do, protocol.BrokerArgs{Broker: args[0]}); err != nil {
			return fail.Doing(withNames(err), "%s broker %s", verb, args[0])
		}
		return a.saidDone(args[0], done, output.value == "json")
	}
	return cmd
}

// saidDone prints what became of a broker.
func (a *app) saidDone(broker, done string, asJSON bool) error {
	if asJSON {
		return render.JSON(a.out, brokerDone{broker, done})
	}
	_, err := fmt.Fprintf(a.out, "broker %s: %s\n", broker, done)
	return err
}

func (a *app) brokerActivate() *cobra.Command {
	cmd := &cobra.Command{Use: "activate BROKER", Short: "End a drain: the broker takes topics again"}
	return a.act(cmd, "activate", "active", (*client.Admin).BrokerActivate)
}

func (a *app) brokerRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove BROKER",
		Short: "Take a broker out of the cluster for good",
		Long: "A broker that owns partitions, or holds the only copy of messages, is refused: drain it first. For a broker whose\n" +
			"disk is gone others take over what it owns once it is lost, and --lose gives up the messages that only it had.\n" +
			"A broker that was removed comes back only as a new one, with an empty data directory.",
	}
	lose := cmd.Flags().Bool("lose", false, "give up messages whose only copy is there")
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.Args = wantArgs("BROKER")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.dial(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		if !*yes {
			d, err := c.Admin().BrokerDescribe(cmd.Context(), protocol.BrokerArgs{Broker: args[0]})
			if err != nil {
				return fail.Doing(withNames(err), "remove broker %s", args[0])
			}
			if err := a.confirm(false, removal(*d, *lose)); err != nil {
				return err
			}
		}
		if err := c.Admin().BrokerRemove(cmd.Context(), protocol.BrokerArgs{Broker: args[0], Lose: *lose}); err != nil {
			return fail.Doing(stillNeeded(withNames(err), args[0]), "remove broker %s", args[0])
		}
		return a.saidDone(args[0], "removed", output.value == "json")
	}
	return cmd
}

// removal is the question before a removal, with what it would cost.
func removal(d protocol.BrokerDescription, lose bool) string {
	q := "remove broker " + d.Name + " (" + d.State + ") for good"
	if lose && d.OnlyCopies > 0 {
		q += fmt.Sprintf(" and give up %s whose only copy is there", render.Plural(d.OnlyCopies, "range"))
	}
	return q
}

// stillNeeded adds what to do when a removal is refused because something is only there.
func stillNeeded(err error, broker string) error {
	if e, answered := errors.AsType[*protocol.Error](err); answered && fail.HintOf(err) == "" && !e.Code.Meaning().Retriable {
		return fail.WithHint(err, "`danube broker drain %s` moves everything away first; if its disk is gone, --lose gives up what lies only there", broker)
	}
	return err
}
