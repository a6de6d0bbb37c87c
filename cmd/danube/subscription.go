package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
)

// subscription is `danube subscription`.
func (a *app) subscription() *cobra.Command {
	return group("subscription", "Create, list, look into and move subscriptions",
		a.subscriptionList(), a.subscriptionDescribe(), a.subscriptionCreate(), a.subscriptionDelete(),
		a.subscriptionReset(), a.subscriptionSet())
}

func (a *app) subscriptionList() *cobra.Command {
	cmd := &cobra.Command{Use: "list TOPIC", Short: "List the subscriptions of a topic", Args: wantArgs("TOPIC")}
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		list, err := ask(cmd.Context(), a, (*client.Admin).SubscriptionList, protocol.TopicArgs{Topic: name, Partition: -1})
		if err != nil {
			return fail.Doing(err, "list subscriptions of %s", name)
		}
		if output.value == "json" {
			return render.JSON(a.out, list)
		}
		return view.Subscriptions(a.out, list.Subscriptions)
	}
	return cmd
}

func (a *app) subscriptionDescribe() *cobra.Command {
	cmd := &cobra.Command{Use: "describe TOPIC SUBSCRIPTION", Short: "Show a subscription, its consumers and why it stands still",
		Args: wantArgs("TOPIC", "SUBSCRIPTION")}
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		d, err := ask(cmd.Context(), a, (*client.Admin).SubscriptionDescribe, protocol.SubArgs{Topic: name, Subscription: args[1]})
		if err != nil {
			return fail.Doing(err, "describe subscription %s of %s", args[1], name)
		}
		if output.value == "json" {
			return render.JSON(a.out, d)
		}
		return view.Subscription(a.out, name, *d)
	}
	return cmd
}

// subFlags are the options of a subscription.
type subFlags struct {
	maxUnacked, maxRedeliver *int64
	ackTimeout, backoff, cap *time.Duration
	fixed                    *bool
}

func addSubFlags(cmd *cobra.Command) subFlags {
	fs := cmd.Flags()
	return subFlags{
		maxUnacked:   addCount(fs, "max-unacked", 0, "messages delivered and not yet acknowledged, at most (0: 1000)"),
		ackTimeout:   addDuration(fs, "ack-timeout", 0, "redeliver what a consumer received and did not acknowledge for so long (0: 30s)"),
		maxRedeliver: addCount(fs, "max-redeliveries", 0, "redeliveries before a message counts as poison (0: 5)"),
		backoff:      addDuration(fs, "backoff", 0, "pause before a redelivery (0: 1s)"),
		cap:          addDuration(fs, "backoff-cap", 0, "longest pause (0: 60s)"),
		fixed:        fs.Bool("backoff-fixed", false, "do not let the pause grow"),
	}
}

// apply writes the flags that were given over o and says whether there were any.
func (f subFlags) apply(cmd *cobra.Command, o *protocol.SubOptions) bool {
	changed := false
	given := func(name string) bool {
		c := cmd.Flags().Changed(name)
		changed = changed || c
		return c
	}
	if given("max-unacked") {
		o.MaxUnacked = int(*f.maxUnacked)
	}
	if given("ack-timeout") {
		o.AckTimeoutMS = f.ackTimeout.Milliseconds()
	}
	if given("max-redeliveries") {
		o.MaxRedeliver = int(*f.maxRedeliver)
	}
	if given("backoff") {
		o.BackoffMS = f.backoff.Milliseconds()
	}
	if given("backoff-cap") {
		o.BackoffCapMS = f.cap.Milliseconds()
	}
	if given("backoff-fixed") {
		o.BackoffFixed = *f.fixed
	}
	return changed
}

func (a *app) subscriptionCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create TOPIC SUBSCRIPTION", Short: "Create a subscription, its position stored at once",
		Args: wantArgs("TOPIC", "SUBSCRIPTION")}
	kind := addChoice(cmd, "type", "exclusive", "how its consumers share messages", subscriptionTypes()...)
	from := cmd.Flags().String("from", "latest", "where it begins: latest, earliest, an `OFFSET`, a time, or -15m")
	options := addSubFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		start, err := parsePosition(*from, a.now())
		if err != nil {
			return fail.Usagef("--from: %w", err)
		}
		arg := protocol.SubCreate{Topic: name, Subscription: args[1], Type: parseSubscriptionType(kind.value), Start: start}
		options.apply(cmd, &arg.Options)
		if err := tell(cmd.Context(), a, (*client.Admin).SubscriptionCreate, arg); err != nil {
			return fail.Doing(err, "create subscription %s of %s", args[1], name)
		}
		fmt.Fprintf(a.out, "created subscription %s of %s (%s, from %s)\n", args[1], name, kind.value, formatPosition(start))
		return nil
	}
	return cmd
}

func (a *app) subscriptionDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete TOPIC SUBSCRIPTION", Short: "Delete a subscription and forget where it stood",
		Args: wantArgs("TOPIC", "SUBSCRIPTION")}
	yes := addYes(cmd.Flags())
	force := cmd.Flags().Bool("force", false, "also with consumers attached")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		if err := a.confirm(*yes, "delete subscription "+args[1]+" of "+name); err != nil {
			return err
		}
		arg := protocol.SubArgs{Topic: name, Subscription: args[1], Force: *force}
		if err := tell(cmd.Context(), a, (*client.Admin).SubscriptionDelete, arg); err != nil {
			return fail.Doing(err, "delete subscription %s of %s", args[1], name)
		}
		fmt.Fprintf(a.out, "deleted subscription %s of %s\n", args[1], name)
		return nil
	}
	return cmd
}

func (a *app) subscriptionReset() *cobra.Command {
	cmd := &cobra.Command{Use: "reset TOPIC[:N] SUBSCRIPTION --to POSITION", Short: "Move a subscription to another position",
		Example: "  danube subscription reset orders billing --to -15m", Args: wantArgs("TOPIC", "SUBSCRIPTION")}
	to := cmd.Flags().String("to", "", "where it goes: latest, earliest, an `OFFSET`, a time, or -15m")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		if *to == "" {
			return fail.Usagef("subscription reset: --to is missing: latest, earliest, an offset, a time, or -15m")
		}
		pos, err := parsePosition(*to, a.now())
		if err != nil {
			return fail.Usagef("--to: %w", err)
		}
		arg := protocol.SubReset{Topic: name, Subscription: args[1], Partition: partition, To: pos}
		if err := tell(cmd.Context(), a, (*client.Admin).SubscriptionReset, arg); err != nil {
			return fail.Doing(err, "reset subscription %s of %s", args[1], name)
		}
		fmt.Fprintf(a.out, "subscription %s of %s goes on from %s\n", args[1], args[0], formatPosition(pos))
		return nil
	}
	return cmd
}

func (a *app) subscriptionSet() *cobra.Command {
	cmd := &cobra.Command{Use: "set TOPIC SUBSCRIPTION", Short: "Change options of a subscription; what is not named stays",
		Args: wantArgs("TOPIC", "SUBSCRIPTION")}
	options := addSubFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		ctx, arg := cmd.Context(), protocol.SubCreate{Topic: name, Subscription: args[1]}
		if !options.apply(cmd, &arg.Options) {
			return fail.Usagef("subscription set: nothing to change")
		}
		now, err := ask(ctx, a, (*client.Admin).SubscriptionDescribe, protocol.SubArgs{Topic: name, Subscription: args[1]})
		if err != nil {
			return fail.Doing(err, "set subscription %s of %s", args[1], name)
		}
		arg.Type, arg.Options = parseSubscriptionType(now.Type), now.Options
		options.apply(cmd, &arg.Options)
		if err := tell(ctx, a, (*client.Admin).SubscriptionSet, arg); err != nil {
			return fail.Doing(err, "set subscription %s of %s", args[1], name)
		}
		fmt.Fprintf(a.out, "changed subscription %s of %s\n", args[1], name)
		return nil
	}
	return cmd
}
