package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/bench"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/pipe"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/terminal"
)

// bench is `danube bench`.
func (a *app) benches() *cobra.Command {
	cmd := group("bench", "Measure a broker, honestly", a.benchProduce(), a.benchConsume(), a.benchLatency())
	cmd.Long = "Every message carries the number of the run, a sequence and a CRC; everything is read back and checked,\n" +
		"outside the time that is measured. What was wrong is counted in errors, and makes the exit code 1."
	return cmd
}

// benchSurroundings is what a run takes from this program.
func (a *app) benchSurroundings() bench.Surroundings {
	return bench.Surroundings{
		Dial: a.dial, Say: func(line string) { a.noticef("%s", line) },
		Watch: func(n *atomic.Int64, total int64, what string) func() { return terminal.Watch(a.err, n, total, what) },
	}
}

// benchSize checks the size of a message.
func benchSize(size int64) error {
	if size < bench.StampSize || size > int64(pipe.MessageLimit()) {
		return fail.Usagef("--size %d: is not between %d and %d", size, bench.StampSize, pipe.MessageLimit())
	}
	return nil
}

func (a *app) benchProduce() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "produce TOPIC",
		Short: "Publish as fast as it goes, then read everything back and check it",
		Long: "Times are from handing a message to the client until its acknowledgement. The topics are made when they\n" +
			"do not exist; with --topics N they are TOPIC-1 to TOPIC-N. Producers are spread over connections and topics.",
		Args: wantArgs("TOPIC"),
	}
	fs := cmd.Flags()
	size := addSize(fs, "size", 1<<10, "size of a message")
	count := addCount(fs, "count", 0, "messages in all (1000000 without --duration)")
	duration := addDuration(fs, "duration", 0, "publish for so long, instead of --count")
	window := addCount(fs, "window", 10_000, "messages in flight on each connection, at most")
	connections := addCount(fs, "connections", 1, "connections, each with producers of its own")
	topics := addCount(fs, "topics", 1, "topics")
	durability := addDurability(cmd, "of topics that are made")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l := bench.Load{Topic: args[0], Size: int(*size), Count: *count, Duration: *duration,
			Window: *window, Connections: *connections, Topics: *topics, Durability: durability.value}
		if err := benchSize(*size); err != nil {
			return err
		}
		switch {
		case l.Count > 0 && l.Duration > 0:
			return fail.Usagef("bench produce: --count and --duration exclude each other")
		case l.Window < 1 || l.Connections < 1 || l.Topics < 1:
			return fail.Usagef("bench produce: --window, --connections and --topics begin at 1")
		case l.Count == 0 && l.Duration == 0:
			l.Count = 1_000_000
		}
		if _, err := topicName(l.Topic); err != nil {
			return err
		}
		return a.runBenchProduce(cmd.Context(), l, output.value == "json")
	}
	return cmd
}

func (a *app) runBenchProduce(ctx context.Context, l bench.Load, asJSON bool) error {
	run, err := l.Open(ctx, a.benchSurroundings())
	if err != nil {
		return fail.Doing(inUse(err), "bench produce")
	}
	defer run.Close()
	result, err := run.Publish(ctx)
	if err != nil {
		return fail.Doing(err, "bench produce")
	}
	if result.Errors, err = run.ReadBack(ctx); err != nil {
		return fail.Doing(err, "bench produce: read back")
	}
	return a.printBench(result, "from handing over to acknowledgement", asJSON)
}

func (a *app) benchConsume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Read a topic from its beginning with acknowledgements",
		Long: "A subscription is made for the run and deleted at its end. The time ends when the last acknowledgement is\n" +
			"stored. Offsets are checked to come once and, with one consumer, in order; messages of bench produce by\n" +
			"their CRC too. The times are how long the application waited for each message.",
		Args: wantArgs("TOPIC"),
	}
	fs := cmd.Flags()
	count := addCount(fs, "count", 0, "stop after so many; 0 reads what is there")
	kind := addType(cmd, "type of the subscription")
	consumers := addCount(fs, "consumers", 1, "consumers, each on a connection of its own")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := topicName(args[0])
		if err != nil {
			return err
		}
		if *consumers < 1 || *consumers > 10_000 {
			return fail.Usagef("--consumers %d: is not between 1 and 10000", *consumers)
		}
		if *consumers > 1 && kind.value == "exclusive" {
			return fail.Usagef("--consumers %d: an exclusive subscription has one; --type shared has many", *consumers)
		}
		d := bench.Drain{Topic: name, Type: parseSubscriptionType(kind.value), Count: *count, Consumers: int(*consumers)}
		return a.runBenchConsume(cmd.Context(), d, output.value == "json")
	}
	return cmd
}

func (a *app) runBenchConsume(ctx context.Context, d bench.Drain, asJSON bool) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	reading, err := d.Open(ctx, c, a.benchSurroundings())
	if short, ok := errors.AsType[*bench.ShortError](err); ok {
		err = fail.WithHint(err, "danube bench produce %s adds some", short.Topic)
	}
	if err != nil {
		return explained(fail.Doing(err, "bench consume"), d.Topic)
	}
	result, err := reading.Run(ctx)
	if err != nil {
		return fail.Doing(err, "bench consume")
	}
	return a.printBench(result, "how long each message was waited for", asJSON)
}

func (a *app) benchLatency() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "latency TOPIC",
		Short: "Publish at a steady rate and measure until delivery",
		Long: "Every message has a time at which it is due; the time until a consumer has it counts from then, also when\n" +
			"sending it was late, so that a stall is not hidden by what was not sent during it.",
		Args: wantArgs("TOPIC"),
	}
	fs := cmd.Flags()
	size := addSize(fs, "size", 1<<10, "size of a message")
	rate := addCount(fs, "rate", 1000, "messages a second")
	duration := addDuration(fs, "duration", 10*time.Second, "for how long")
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := benchSize(*size); err != nil {
			return err
		}
		switch {
		case *rate < 1 || *rate > 10_000_000:
			return fail.Usagef("--rate %d: is not between 1 and 10000000", *rate)
		case *duration < 10*time.Millisecond:
			return fail.Usagef("--duration %v: is less than 10ms", *duration)
		}
		if _, err := topicName(args[0]); err != nil {
			return err
		}
		b := bench.Beat{Topic: args[0], Size: int(*size), Interval: time.Second / time.Duration(*rate)}
		b.Count = int64(*duration / b.Interval)
		return a.runBenchLatency(cmd.Context(), b, output.value == "json")
	}
	return cmd
}

func (a *app) runBenchLatency(ctx context.Context, b bench.Beat, asJSON bool) error {
	sending, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer sending.Close()
	receiving, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer receiving.Close()
	result, err := b.Run(ctx, sending, receiving, a.benchSurroundings())
	if err != nil {
		return fail.Doing(inUse(err), "bench latency")
	}
	return a.printBench(result, "from the time a message was due until the consumer had it", asJSON)
}

// inUse adds what to name instead of a topic that others read.
func inUse(err error) error {
	if _, is := errors.AsType[*bench.InUseError](err); is {
		return fail.WithHint(err, "it would get the messages of the run: name a topic that does not exist, and it is made")
	}
	return err
}

// printBench prints a result; errors in it make the exit code 1.
func (a *app) printBench(r bench.Result, what string, asJSON bool) error {
	var err error
	if asJSON {
		err = render.JSON(a.out, r)
	} else {
		err = benchTable(a.out, r, what)
	}
	if err == nil && r.Errors > 0 {
		return fmt.Errorf("bench: %s in what was read back", render.Plural(r.Errors, "error"))
	}
	return err
}

func benchTable(w io.Writer, r bench.Result, what string) error {
	us := func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) + " µs" }
	t := render.Table{Header: []string{"messages", "size", "seconds", "messages/s", "p50", "p99", "p99.9", "max", "errors"}}
	t.Add(render.Grouped(r.Messages), render.Size(r.Bytes), strconv.FormatFloat(r.Seconds, 'f', 3, 64), render.Grouped(int64(r.Rate)),
		us(r.P50), us(r.P99), us(r.P999), us(r.Max), strconv.FormatInt(r.Errors, 10))
	if err := t.Print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "times are %s\n", what)
	return err
}
