package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/terminal"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
)

func (a *app) topicVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify TOPIC[:N]",
		Short: "Read a topic through all its tiers and report what is wrong",
		Long:  "Reads every batch of the topic, checks its CRCs and that offsets follow on each other. What is orphaned, or lost and\ngiven up by nobody, is a finding; what was given up is noted. Exit code 1 when something was found.",
		Args:  wantArgs("TOPIC"),
	}
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		stop := terminal.Busy(a.err, "verifying "+name)
		report, err := ask(cmd.Context(), a, (*client.Admin).TopicVerify, protocol.TopicArgs{Topic: name, Partition: partition})
		stop()
		if err != nil {
			return fail.Doing(err, "verify topic %s", name)
		}
		if output.value == "json" {
			err = render.JSON(a.out, report)
		} else {
			err = view.Verify(a.out, *report)
		}
		if err != nil {
			return err
		}
		if n := view.Findings(*report); n > 0 {
			return fmt.Errorf("verify topic %s: %s", name, render.Plural(n, "finding"))
		}
		return nil
	}
	return cmd
}

func (a *app) topicTruncate() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "truncate TOPIC[:N] --before OFFSET",
		Short:   "Remove what lies before an offset",
		Example: "  danube topic truncate orders:0 --before 100000 --dry-run",
		Args:    wantArgs("TOPIC"),
	}
	before := addCount(cmd.Flags(), "before", 0, "first offset that is kept")
	dry := cmd.Flags().Bool("dry-run", false, "only say what would go")
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		if !cmd.Flags().Changed("before") {
			return fail.Usagef("topic truncate: --before is missing")
		}
		arg := protocol.Truncate{Topic: name, Partition: partition, Before: uint64(*before)}
		res, err := a.truncate(cmd.Context(), arg, *dry, *yes)
		if err != nil {
			return fail.Doing(err, "truncate topic %s", args[0])
		}
		if output.value == "json" {
			return render.JSON(a.out, res)
		}
		verb := "removed"
		if *dry {
			verb = "would remove"
		}
		fmt.Fprintf(a.out, "%s %s of %s; the log begins at %d\n", verb, removed(*res), args[0], res.LogStart)
		if !*dry && res.LogStart > res.Was {
			a.noticef("the space of a file comes back once all of its offsets lie before the begin of the log")
		}
		return nil
	}
	return cmd
}

// removed says what a truncation takes, and what of it somebody has not yet read.
func removed(t protocol.Truncated) string {
	if t.LogStart <= t.Was {
		return "nothing"
	}
	s := "offsets " + render.Offsets(t.Was, t.LogStart)
	if t.Unacked > 0 {
		s += fmt.Sprintf(" (%s not acknowledged by every subscription)", render.Plural(t.Unacked, "message"))
	}
	return s
}

// truncate asks the broker what would go, asks the person, and does it.
func (a *app) truncate(ctx context.Context, arg protocol.Truncate, dry, yes bool) (*protocol.Truncated, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if arg.Partition < 0 {
		d, err := c.Admin().TopicDescribe(ctx, protocol.TopicArgs{Topic: arg.Topic, Partition: -1})
		if err != nil {
			return nil, err
		}
		if len(d.Partitions) > 1 {
			return nil, fail.Usagef("offsets belong to a partition: name one, %s:0 to %s:%d", arg.Topic, arg.Topic, len(d.Partitions)-1)
		}
		arg.Partition = 0
	}
	arg.DryRun = true
	res, err := c.Admin().TopicTruncate(ctx, arg)
	if err != nil || dry || res.LogStart <= res.Was {
		return res, err
	}
	if err := a.confirm(yes, "remove "+removed(*res)+" of "+arg.Topic); err != nil {
		return nil, err
	}
	arg.DryRun = false
	return c.Admin().TopicTruncate(ctx, arg)
}

func (a *app) topicResolve() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resolve TOPIC[:N] --lost|--accept-gap|--adopt",
		Short: "Settle ranges of offsets whose store is away",
		Long: "--lost gives ranges up for good, those too that were lost by themselves. --accept-gap lets waiting consumers\n" +
			"pass what is orphaned now and leaves it as it is. --adopt makes what a returned store holds of a lost range\n" +
			"readable. Without :N it is every such range of the topic.",
		Args: wantArgs("TOPIC"),
	}
	span := cmd.Flags().String("range", "", "offsets `A-B`, both included, of TOPIC:N; without it every such range")
	lost := cmd.Flags().Bool("lost", false, "the range is lost for good")
	gap := cmd.Flags().Bool("accept-gap", false, "consumers pass it now; it stays open")
	adopt := cmd.Flags().Bool("adopt", false, "what a returned store holds of it counts")
	yes := addYes(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		if partition < 0 && *span != "" {
			return fail.Usagef("topic resolve: offsets belong to a partition: --range goes with TOPIC:N")
		}
		arg := protocol.Resolve{Topic: name, Partition: partition}
		if arg.How, err = resolution(*lost, *gap, *adopt); err != nil {
			return err
		}
		if *span != "" {
			r, err := parseRange(*span)
			if err != nil {
				return fail.Usagef("--range: %w", err)
			}
			arg.From, arg.To = r.From, r.To
		}
		if *lost {
			if err := a.confirm(*yes, "give up what is missing of "+args[0]+" for good"); err != nil {
				return err
			}
		}
		if err := tell(cmd.Context(), a, (*client.Admin).TopicResolve, arg); err != nil {
			return fail.Doing(err, "resolve %s", args[0])
		}
		fmt.Fprintf(a.out, "resolved %s: %s\n", args[0], arg.How)
		return nil
	}
	return cmd
}

func resolution(lost, gap, adopt bool) (string, error) {
	how := ""
	for word, on := range map[string]bool{"lost": lost, "accept-gap": gap, "adopt": adopt} {
		if on && how != "" {
			return "", fail.Usagef("topic resolve: --lost, --accept-gap and --adopt exclude each other")
		}
		if on {
			how = word
		}
	}
	if how == "" {
		return "", fail.With(fail.Usage, errors.New("topic resolve: one of --lost, --accept-gap and --adopt is missing"))
	}
	return how, nil
}
