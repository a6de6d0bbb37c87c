package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/pipe"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
)

// consumeFlags is what consume was asked for.
type consumeFlags struct {
	subscription, from, consumer string
	kind, output                 *choice
	count                        *int64
	timeout                      *time.Duration
	noAck                        bool
	filters                      []string
	fromGiven, kindGiven         bool
}

func (a *app) consume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume TOPIC[:N]",
		Short: "Print messages, as a plain reader or as a consumer of a subscription",
		Long: "Without -s it reads and stores nothing, from the latest message on unless --from says otherwise.\n" +
			"With -s it is a consumer of that subscription, which is made when it does not exist; --from and --type\n" +
			"count only then. A message is acknowledged after its bytes were written to standard output.\n" +
			"text prints each payload on a line, what a terminal might act on escaped; raw prints the bytes and a newline.",
		Example: "  danube consume orders --from earliest -o raw > orders.txt\n" +
			"  danube consume orders -s billing --count 100 --timeout 10s -o json",
		Args: wantArgs("TOPIC"),
	}
	var f consumeFlags
	fs := cmd.Flags()
	fs.StringVarP(&f.subscription, "subscription", "s", "", "`NAME` of the subscription; without it nothing is stored")
	f.kind = addType(cmd, "type of the subscription, when it is made")
	fs.StringVar(&f.from, "from", "latest", "where to begin: latest, earliest, an `OFFSET`, a time, or -15m")
	f.count = addCount(fs, "count", 0, "stop after so many messages; 0 for no end")
	f.timeout = addDuration(fs, "timeout", 0, "stop after so long, 0 for never; exit code 3 when --count was not reached")
	fs.BoolVar(&f.noAck, "no-ack", false, "do not acknowledge: the messages are given back at the end")
	fs.StringVar(&f.consumer, "consumer", "", "`NAME` of the consumer; one of the same name is replaced")
	fs.StringArrayVar(&f.filters, "key-filter", nil, "only messages whose key matches the `GLOB`; may be repeated (not in this version)")
	f.output = addOutput(cmd, "raw")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f.fromGiven, f.kindGiven = fs.Changed("from"), fs.Changed("type")
		if f.subscription == "" {
			for _, name := range []string{"type", "no-ack", "consumer", "key-filter"} {
				if fs.Changed(name) {
					return fail.Usagef("consume: --%s needs a subscription: -s NAME", name)
				}
			}
		}
		return a.runConsume(cmd.Context(), args[0], f)
	}
	return cmd
}

func (a *app) runConsume(ctx context.Context, topic string, f consumeFlags) error {
	start, err := parsePosition(f.from, a.now())
	if err != nil {
		return fail.Usagef("--from: %w", err)
	}
	name, partition, err := topicPart(topic)
	if err != nil {
		return err
	}
	began, opening := time.Now(), ctx
	if *f.timeout > 0 {
		var cancel context.CancelFunc
		opening, cancel = context.WithTimeoutCause(ctx, *f.timeout, pipe.ErrTimeIsUp)
		defer cancel()
	}
	c, err := a.dial(opening)
	if err != nil {
		return err
	}
	defer c.Close()
	source, err := a.openFeed(opening, c, topic, start, f)
	if err != nil && errors.Is(context.Cause(opening), pipe.ErrTimeIsUp) && ctx.Err() == nil {
		err = fail.With(fail.TimedOut, fmt.Errorf("consume %s: not served within %s: %w", topic, settings.FormatDuration(*f.timeout), err))
		return fail.WithHint(err, "`danube cluster status` tells who serves what")
	}
	if err != nil {
		return explained(fail.Doing(err, "consume %s", topic), name)
	}
	if *f.timeout > 0 {
		*f.timeout = max(*f.timeout-time.Since(began), time.Millisecond)
	}
	where := name
	if partition >= 0 {
		where = fmt.Sprintf("%s:%d", name, partition)
	}
	return pipe.Drain{Where: where, Format: f.output.value, Count: *f.count, Timeout: *f.timeout}.Run(ctx, source, a.shell())
}

// openFeed opens a reader, or a consumer when a subscription is named.
func (a *app) openFeed(ctx context.Context, c *client.Client, topic string, start protocol.Position, f consumeFlags) (pipe.Feed, error) {
	if f.subscription == "" {
		r, err := c.Reader(ctx, topic, client.ReaderConfig{From: start, OnSuperseded: a.tellGap})
		if err != nil {
			return pipe.Feed{}, err
		}
		return pipe.Feed{Next: r.Next, Close: func(context.Context) error { r.Close(); return nil }}, nil
	}
	queue := 1000
	if *f.count > 0 && *f.count < int64(queue) {
		queue = int(*f.count) // what is taken ahead is kept from other consumers
	}
	consumer, err := a.subscribe(ctx, c, topic, f, client.ConsumerConfig{
		Subscription: f.subscription, Name: f.consumer, Type: parseSubscriptionType(f.kind.value), From: start,
		Filters: f.filters, Queue: queue,
		OnGap: a.tellGap,
	})
	if err != nil {
		return pipe.Feed{}, err
	}
	source := pipe.Feed{Next: consumer.Receive, Ack: consumer.Ack, Close: consumer.Close}
	if f.noAck {
		source.Ack = nil
	}
	return source, nil
}

// tellGap says that offsets do not come, and why.
func (a *app) tellGap(g client.GapError) { a.noticef("danube: %v", &g) }

// subscribe opens a consumer. A subscription that exists keeps its type, unless another was asked for by name.
func (a *app) subscribe(ctx context.Context, c *client.Client, topic string, f consumeFlags, cfg client.ConsumerConfig) (*client.Consumer, error) {
	name, partition, err := topicPart(topic)
	if err != nil {
		return nil, err
	}
	consumer, err := c.Consumer(ctx, topic, cfg)
	if errors.Is(err, &protocol.Error{Code: protocol.CodeWrongType}) {
		if f.kindGiven {
			return nil, fail.WithHint(err, "without --type the subscription is used as it is")
		}
		d, describeErr := c.Admin().SubscriptionDescribe(ctx, protocol.SubArgs{Topic: name, Subscription: f.subscription})
		if describeErr != nil {
			return nil, errors.Join(err, describeErr)
		}
		cfg.Type = parseSubscriptionType(d.Type)
		consumer, err = c.Consumer(ctx, topic, cfg)
	}
	if err != nil {
		return nil, err
	}
	if f.fromGiven {
		a.tellExisting(name, partition, consumer.Subscribed(), f)
	}
	return consumer, nil
}

// shownPositions is how many partitions a notice shows the position on.
const shownPositions = 8

// tellExisting says where a subscription that exists stands, since --from does
// not count for it. The subscribe of one partition makes it on all.
func (a *app) tellExisting(topic string, partition int, subscribed []protocol.SubscribeOK, f consumeFlags) {
	if slices.ContainsFunc(subscribed, func(s protocol.SubscribeOK) bool { return s.Created }) {
		return
	}
	where, at := topic, ""
	if len(subscribed) == 1 {
		where, at = fmt.Sprintf("%s:%d", topic, max(partition, 0)), fmt.Sprintf(" %d", subscribed[0].Cursor)
	} else {
		for i, s := range subscribed[:min(len(subscribed), shownPositions)] {
			at += fmt.Sprintf(" %d:%d", i, s.Cursor)
		}
		if len(subscribed) > shownPositions {
			at += " …"
		}
	}
	a.noticef("subscription %s of %s exists and stands at offset%s; --from %s does not count (`danube subscription reset %s %s --to %s` moves it)",
		f.subscription, where, at, f.from, where, f.subscription, f.from)
}
