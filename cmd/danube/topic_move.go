package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
)

// ever is the limit of what has none.
const ever = 10 * 365 * 24 * time.Hour

// move asks for a move and waits for it, timeout at most, 0 for ever. That the time is over has an exit code of its own.
func (a *app) move(ctx context.Context, arg protocol.TopicMove, timeout time.Duration) (*protocol.TopicMoved, error) {
	if timeout == 0 {
		timeout = ever
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := a.dialFor(ctx, timeout) // the client's own limit is a shorter one
	var moved *protocol.TopicMoved
	if err == nil {
		defer c.Close()
		moved, err = c.Admin().TopicMove(ctx, arg)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		what := arg.Topic
		if arg.Partition >= 0 {
			what = view.PartitionName(arg.Topic, arg.Partition)
		}
		err = fail.With(fail.TimedOut, fmt.Errorf("not done after %s: %w", settings.FormatDuration(timeout), err))
		return nil, fail.WithHint(err, "`danube topic describe %s` tells who owns it and why it is not served; a move without progress is undone after 30s", what)
	}
	return moved, err
}

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
	timeout := addDuration(cmd.Flags(), "timeout", 2*time.Minute, "wait at most so long; 0 for ever")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		moved, err := a.move(cmd.Context(), protocol.TopicMove{Topic: name, Partition: partition, To: *to}, *timeout)
		if err != nil {
			return fail.Doing(explained(withNames(err), name), "move topic %s", args[0])
		}
		if output.value == "json" {
			return render.JSON(a.out, moved)
		}
		t := render.Table{Header: []string{"partition", "from", "to", "epoch", "at offset"}}
		for _, p := range moved.Partitions {
			t.Add(strconv.Itoa(p.Partition), p.From, p.To, render.U64(p.Epoch), render.U64(p.MovedAt))
		}
		if t.Empty() {
			_, err := fmt.Fprintf(a.out, "%s is where it should be\n", args[0])
			return err
		}
		return t.Print(a.out)
	}
	return cmd
}
