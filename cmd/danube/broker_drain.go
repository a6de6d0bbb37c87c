package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/cmd/danube/terminal"
	"github.com/danubemq/danube/protocol"
)

// drainPoll is how often a drain that is waited for is asked how far it is.
const drainPoll = 500 * time.Millisecond

func (a *app) brokerDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain BROKER",
		Short: "Move everything off a broker, so that it can be stopped or removed",
		Long: "Its topics move to other brokers, then the messages that lie only there are copied. The command waits until\n" +
			"the broker is drained; interrupted, or with --no-wait, the drain goes on without it. `broker activate` ends it.",
		Args: wantArgs("BROKER"),
	}
	noWait := cmd.Flags().Bool("no-wait", false, "begin the drain and return")
	timeout := addDuration(cmd.Flags(), "timeout", 0, "wait at most so long; 0 for ever")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.dial(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		arg := protocol.BrokerArgs{Broker: args[0]}
		if err := c.Admin().BrokerDrain(cmd.Context(), arg); err != nil {
			return fail.Doing(withNames(err), "drain broker %s", args[0])
		}
		if *noWait {
			return a.saidDone(args[0], "draining", output.value == "json")
		}
		ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
		if *timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, *timeout)
		}
		defer cancel()
		left, err := a.awaitDrained(ctx, c.Admin(), arg)
		if err != nil {
			return fail.Doing(notDrained(ctx, err, left, *timeout), "drain broker %s", args[0])
		}
		return a.saidDone(args[0], "drained", output.value == "json")
	}
	return cmd
}

// awaitDrained returns when the broker is drained, or with what was last known to be left of it.
func (a *app) awaitDrained(ctx context.Context, admin *client.Admin, arg protocol.BrokerArgs) (*protocol.BrokerDescription, error) {
	var left *protocol.BrokerDescription
	var bar *terminal.Bar
	most := 0
	defer func() { bar.Done() }()
	for {
		d, err := admin.BrokerDescribe(ctx, arg)
		if err != nil {
			return left, err
		}
		left = d
		switch d.State {
		case "drained":
			return left, nil
		case "draining":
		default:
			return left, fail.WithHint(fmt.Errorf("the broker is %s now, no longer draining", d.State), "`danube cluster status` tells what is not well")
		}
		if n := d.Partitions + d.OnlyCopies; n > most || bar == nil {
			bar.Done()
			most = max(most, n)
			bar = terminal.NewBar(a.err, int64(most), "drain "+arg.Broker, false)
		}
		bar.Set(int64(most - d.Partitions - d.OnlyCopies))
		if err := pause(ctx, drainPoll); err != nil {
			return left, err
		}
	}
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// notDrained says why the wait for a drain ended, what is left and that the drain goes on.
func notDrained(ctx context.Context, err error, left *protocol.BrokerDescription, timeout time.Duration) error {
	if ctx.Err() == nil {
		return err
	}
	rest := "nothing is known of what is left"
	if left != nil {
		rest = remaining(*left)
	}
	code, why := fail.Failed, "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code, why = fail.TimedOut, "not done after "+settings.FormatDuration(timeout)
	}
	err = fail.With(code, fmt.Errorf("%s: %s", why, rest))
	return fail.WithHint(err, "the drain goes on; `danube broker describe` tells how far it is, `danube broker activate` ends it")
}

// remaining is what a drain has yet to do, in words.
func remaining(d protocol.BrokerDescription) string {
	s := render.Plural(d.Partitions, "partition") + " to move, " + render.Plural(d.OnlyCopies, "range") + " to copy"
	if d.Reason != "" {
		s += " (" + d.Reason + ")"
	}
	return s
}
