package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

func (a *app) topicMove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move TOPIC[:N]",
		Short: "Move a topic, or one partition, to another broker",
		Long: "Returns when the new owner serves. Producers and consumers are passed on and see no error; messages that were\n" +
			"stored before are read from the old broker until they are copied.",
		Example: "  danube topic move orders:2 --to n3",
		Args:    wantArgs("TOPIC"),
	}
	to := cmd.Flags().String("to", "", "`BROKER` that is to own it; without it the cluster chooses")
	timeout := addDuration(cmd.Flags(), "timeout", 2*time.Minute, "wait at most so long")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), *timeout)
		defer cancel()
		moved, err := ask(ctx, a, (*client.Admin).TopicMove, protocol.TopicMove{Topic: name, Partition: partition, To: *to})
		if err != nil {
			if ctx.Err() == context.DeadlineExceeded {
				err = withHint(&failure{code: exitTimedOut, err: err}, "`danube topic describe %s` tells who owns it; a move without progress is undone after 30s", args[0])
			}
			return failed(explained(withNames(err), name), "move topic %s", args[0])
		}
		if output.value == "json" {
			return printJSON(a.out, moved)
		}
		t := table{header: []string{"partition", "from", "to", "epoch", "at offset"}}
		for _, p := range moved.Partitions {
			t.add(strconv.Itoa(p.Partition), p.From, p.To, u64(p.Epoch), u64(p.MovedAt))
		}
		if len(t.rows) == 0 {
			_, err := fmt.Fprintf(a.out, "%s is where it should be\n", args[0])
			return err
		}
		return t.print(a.out)
	}
	return cmd
}
