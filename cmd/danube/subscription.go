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
		d.Options = d.Options.WithDefaults()
		if output.value == "json" {
			return render.JSON(a.out, d)
		}
		return view.Subscription(a.out, name, *d)
	}
	return cmd
}

// subFlags are the options of a subscription; help shows the defaults, which hold where a flag is not given.
type subFlags struct {
	maxUnacked, maxRedeliver *int64
	ackTimeout, backoff, cap *time.Duration
	fixed                    *bool
}

func addSubFlags(cmd *cobra.Command) subFlags {
	fs, d := cmd.Flags(), protocol.SubOptions{}.WithDefaults()
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return subFlags{
		maxUnacked:   addCount(fs, "max-unacked", int64(d.MaxUnacked), "messages delivered and not yet acknowledged, at most"),
		ackTimeout:   addDuration(fs, "ack-timeout", ms(d.AckTimeoutMS), "redeliver what a consumer received and did not acknowledge for so long"),
		maxRedeliver: addCount(fs, "max-redeliveries", int64(d.MaxRedeliver), "redeliveries before a message counts as poison"),
		backoff:      addDuration(fs, "backoff", ms(d.BackoffMS), "pause before a redelivery"),
		cap:          addDuration(fs, "backoff-cap", ms(d.BackoffCapMS), "longest pause"),
		fixed:        fs.Bool("backoff-fixed", false, "do not let the pause grow"),
	}
}

// apply writes the flags that were given over o and says whether there were any. None of them can be zero: a broker
// takes that for the default.
func (f subFlags) apply(cmd *cobra.Command, o *protocol.SubOptions) (changed bool, err error) {
	given := func(name string, nothing bool) bool {
		flag := cmd.Flags().Lookup(name)
		if flag.Changed && nothing {
			err = errors.Join(err, fail.Usagef("%s: --%s %s: must be above 0; the default is %s", commandName(cmd), name, flag.Value, flag.DefValue))
		}
		changed = changed || flag.Changed
		return flag.Changed
	}
	if given("max-unacked", *f.maxUnacked == 0) {
		o.MaxUnacked = int(*f.maxUnacked)
	}
	if given("ack-timeout", *f.ackTimeout < time.Millisecond) {
		o.AckTimeoutMS = f.ackTimeout.Milliseconds()
	}
	if given("max-redeliveries", *f.maxRedeliver == 0) {
		o.MaxRedeliver = int(*f.maxRedeliver)
	}
	if given("backoff", *f.backoff < time.Millisecond) {
		o.BackoffMS = f.backoff.Milliseconds()
	}
	if given("backoff-cap", *f.cap < time.Millisecond) {
		o.BackoffCapMS = f.cap.Milliseconds()
	}
	if given("backoff-fixed", false) {
		o.BackoffFixed = *f.fixed
	}
	return changed, err
}

func (a *app) subscriptionCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create TOPIC SUBSCRIPTION", Short: "Create a subscription, its position stored at once",
		Args: wantArgs("TOPIC", "SUBSCRIPTION")}
	kind := addType(cmd, "how its consumers share messages")
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
		if _, err := options.apply(cmd, &arg.Options); err != nil {
			return err
		}
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
		c, err := a.dial(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Admin().SubscriptionReset(cmd.Context(), arg); err != nil {
			return fail.Doing(err, "reset subscription %s of %s", args[1], name)
		}
		fmt.Fprintf(a.out, "subscription %s of %s goes on from %s\n", args[1], args[0], formatPosition(pos))
		if pos.Kind == protocol.AtOffset {
			a.tellPassed(cmd.Context(), c.Admin(), arg)
		}
		return nil
	}
	return cmd
}

// tellPassed says which offsets behind a reset are gone: they were removed, and the first message comes from behind them.
// The subscription is moved: where that cannot be told, nothing is.
func (a *app) tellPassed(ctx context.Context, admin *client.Admin, to protocol.SubReset) {
	d, err := admin.TopicDescribe(ctx, protocol.TopicArgs{Topic: to.Topic, Partition: to.Partition})
	if err != nil {
		return
	}
	for _, p := range d.Partitions {
		if to.To.Offset < p.LogStart && (to.Partition < 0 || p.Partition == to.Partition) {
			a.noticef("the log of %s begins at %d: offsets %s are gone, and its consumers are told so",
				view.PartitionName(to.Topic, p.Partition), p.LogStart, render.Offsets(to.To.Offset, p.LogStart))
		}
	}
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
		changed, err := options.apply(cmd, &arg.Options)
		if err != nil {
			return err
		}
		if !changed {
			return fail.Usagef("subscription set: nothing to change")
		}
		now, err := ask(ctx, a, (*client.Admin).SubscriptionDescribe, protocol.SubArgs{Topic: name, Subscription: args[1]})
		if err != nil {
			return fail.Doing(err, "set subscription %s of %s", args[1], name)
		}
		arg.Type, arg.Options = parseSubscriptionType(now.Type), now.Options
		if _, err := options.apply(cmd, &arg.Options); err != nil {
			return err
		}
		if err := tell(ctx, a, (*client.Admin).SubscriptionSet, arg); err != nil {
			return fail.Doing(err, "set subscription %s of %s", args[1], name)
		}
		fmt.Fprintf(a.out, "changed subscription %s of %s\n", args[1], name)
		return nil
	}
	return cmd
}
