package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// topic is `danube topic`.
func (a *app) topic() *cobra.Command {
	return group("topic", "Create, list, look into and delete topics",
		a.topicCreate(), a.topicList(), a.topicDescribe(), a.topicDelete(), a.topicSet(),
		a.topicPeek(), a.topicVerify(), a.topicTruncate(), a.topicResolve(), a.topicMove())
}

// topicName reads a topic that must be whole, without :N.
func topicName(s string) (string, error) {
	full, partition, err := protocol.ParseTopic(s)
	if err != nil {
		return "", fail.With(fail.Usage, err)
	}
	if partition >= 0 {
		return "", fail.Usagef("%s names one partition; the whole topic is %s", s, full)
	}
	return full, nil
}

// topicPart reads a topic, or TOPIC:N; the partition is -1 for all.
func topicPart(s string) (string, int, error) {
	full, partition, err := protocol.ParseTopic(s)
	if err != nil {
		return "", 0, fail.With(fail.Usage, err)
	}
	return full, partition, nil
}

// topicFlags are the settings a topic is made with.
type topicFlags struct {
	partitions *int64
	durability *choice
	reliable   *bool
}

func addTopicFlags(cmd *cobra.Command, when string) topicFlags {
	return topicFlags{
		partitions: addCount(cmd.Flags(), "partitions", 1, "partitions of the topic"+when),
		durability: addDurability(cmd, "what an acknowledgement survives"+when),
		reliable:   cmd.Flags().Bool("reliable", true, "keep messages in a log; false passes them through and keeps nothing"+when),
	}
}

func (f topicFlags) config() (protocol.TopicConfig, error) {
	if *f.partitions < 1 || *f.partitions > state.MaxPartitions {
		return protocol.TopicConfig{}, fail.Usagef("--partitions %d: is not between 1 and %d", *f.partitions, state.MaxPartitions)
	}
	if !*f.reliable && f.durability.value != "" {
		return protocol.TopicConfig{}, fail.Usagef("--durability %s: a topic with --reliable=false keeps nothing", f.durability.value)
	}
	return protocol.TopicConfig{Partitions: int(*f.partitions), Durability: f.durability.value, NonReliable: !*f.reliable}, nil
}

// createdTopic is topic create -o json.
type createdTopic struct {
	Topic    string               `json:"topic"`
	ID       string               `json:"id"`
	Created  bool                 `json:"created"`
	Reliable bool                 `json:"reliable"`
	Config   protocol.TopicConfig `json:"config"`
}

func (a *app) topicCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "create TOPIC",
		Short:   "Create a topic; doing it again with the same settings is no error",
		Example: "  danube topic create orders --partitions 3 --retention-time 7d",
		Args:    wantArgs("TOPIC"),
	}
	flags := addTopicFlags(cmd, "")
	keep := addDuration(cmd.Flags(), "retention-time", 0, "how long messages are kept; 0 for ever")
	size := addSize(cmd.Flags(), "retention-bytes", 0, "how much is kept of each partition, in bytes or as 64KiB, 20GiB; 0 for all")
	acked := addAcked(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		cfg, err := flags.config()
		if err != nil {
			return err
		}
		cfg.RetentionMS, cfg.RetentionBytes, cfg.RetentionAcked = keep.Milliseconds(), *size, *acked
		c, err := a.dial(cmd.Context())
		if err != nil {
			return err
		}
		defer c.Close()
		made, err := c.Admin().TopicCreate(cmd.Context(), protocol.TopicCreate{Topic: name, Config: cfg})
		if err != nil {
			return fail.Doing(err, "create topic %s", name)
		}
		if output.value == "json" {
			return render.JSON(a.out, createdTopic{made.Topic, made.ID, made.Created, !made.Config.NonReliable, made.Config})
		}
		what := "topic exists with these settings:"
		if made.Created {
			what = "created topic"
		}
		fmt.Fprintf(a.out, "%s %s (%s)\n", what, made.Topic, view.MadeWith(made.Config.Partitions, !made.Config.NonReliable, made.Config.Durability))
		a.sayCopies(cmd.Context(), c.Admin(), made)
		return nil
	}
	return cmd
}

// sayCopies says where what will be acknowledged is going to lie. The topic is made: where that cannot be told, nothing is.
func (a *app) sayCopies(ctx context.Context, admin *client.Admin, made *protocol.TopicCreated) {
	if made.Config.NonReliable {
		return
	}
	d, err := admin.TopicDescribe(ctx, protocol.TopicArgs{Topic: made.Topic, Partition: -1})
	if err != nil {
		return
	}
	if where := view.Copies(d.Durability, d.Partitions); where != "" {
		fmt.Fprintf(a.out, "durability %s\n", where)
	}
}

func (a *app) topicList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List topics", Args: wantArgs()}
	prefix := cmd.Flags().String("prefix", "", "only topics whose full name begins so, as /default/or")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := a.allTopics(cmd.Context(), *prefix)
		if err != nil {
			return fail.Doing(err, "list topics")
		}
		if output.value == "json" {
			return render.JSON(a.out, list)
		}
		return view.Topics(a.out, list.Topics)
	}
	return cmd
}

// allTopics reads every page of the list over one connection.
func (a *app) allTopics(ctx context.Context, prefix string) (protocol.TopicList, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return protocol.TopicList{}, err
	}
	defer c.Close()
	var list protocol.TopicList
	arg := protocol.ListArgs{Prefix: prefix, Limit: 10_000}
	for {
		page, err := c.Admin().TopicList(ctx, arg)
		if err != nil {
			return protocol.TopicList{}, err
		}
		list.Topics = append(list.Topics, page.Topics...)
		if !page.More || len(page.Topics) == 0 {
			return list, nil
		}
		arg.After = page.Topics[len(page.Topics)-1].Topic
	}
}

func (a *app) topicDescribe() *cobra.Command {
	cmd := &cobra.Command{Use: "describe TOPIC[:N]", Short: "Show a topic, its partitions and subscriptions", Args: wantArgs("TOPIC")}
	all := cmd.Flags().Bool("all", false, "also ranges, ceilings and store ids")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, partition, err := topicPart(args[0])
		if err != nil {
			return err
		}
		d, err := ask(cmd.Context(), a, (*client.Admin).TopicDescribe, protocol.TopicArgs{Topic: name, Partition: partition})
		if err != nil {
			return fail.Doing(err, "describe topic %s", name)
		}
		if output.value == "json" {
			return render.JSON(a.out, d)
		}
		return view.Topic(a.out, *d, *all)
	}
	return cmd
}

func (a *app) topicDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete TOPIC", Short: "Delete a topic with its messages and subscriptions", Args: wantArgs("TOPIC")}
	yes := addYes(cmd.Flags())
	force := cmd.Flags().Bool("force", false, "also with consumers attached; producers protect nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		if err := a.confirm(*yes, "delete topic "+name+" with all its messages"); err != nil {
			return err
		}
		if err := tell(cmd.Context(), a, (*client.Admin).TopicDelete, protocol.TopicArgs{Topic: name, Partition: -1, Force: *force}); err != nil {
			return fail.Doing(err, "delete topic %s", name)
		}
		fmt.Fprintf(a.out, "deleted topic %s\n", name)
		return nil
	}
	return cmd
}

func addAcked(fs *pflag.FlagSet) *bool {
	return fs.Bool("retention-acked", false, "messages go once every subscription has acknowledged them; without subscriptions nothing goes")
}

func addYes(fs *pflag.FlagSet) *bool { return fs.BoolP("yes", "y", false, "go ahead without asking") }

func (a *app) topicSet() *cobra.Command {
	cmd := &cobra.Command{Use: "set TOPIC", Short: "Change settings of a topic; what is not named stays", Args: wantArgs("TOPIC")}
	keep := addDuration(cmd.Flags(), "retention-time", 0, "how long messages are kept; 0 for ever")
	size := addSize(cmd.Flags(), "retention-bytes", 0, "how much is kept of each partition, in bytes or as 64KiB, 20GiB; 0 for all")
	acked := addAcked(cmd.Flags())
	level := addDurability(cmd, "what an acknowledgement survives")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		change := protocol.TopicSet{Topic: name}
		if cmd.Flags().Changed("retention-time") {
			ms := keep.Milliseconds()
			change.RetentionMS = &ms
		}
		if cmd.Flags().Changed("retention-bytes") {
			change.RetentionBytes = size
		}
		if cmd.Flags().Changed("retention-acked") {
			change.RetentionAcked = acked
		}
		if cmd.Flags().Changed("durability") {
			change.Durability = &level.value
		}
		if change == (protocol.TopicSet{Topic: name}) {
			return fail.Usagef("topic set: nothing to change: name --retention-time, --retention-bytes, --retention-acked or --durability")
		}
		if err := tell(cmd.Context(), a, (*client.Admin).TopicSet, change); err != nil {
			return fail.Doing(err, "set topic %s", name)
		}
		fmt.Fprintf(a.out, "changed topic %s\n", name)
		return nil
	}
	return cmd
}
