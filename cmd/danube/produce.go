package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/pipe"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/cmd/danube/terminal"
	"github.com/danubemq/danube/cmd/danube/view"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// produceFlags is what produce was asked for.
type produceFlags struct {
	file, key, producer string
	properties          []string
	count, size         *int64
	rate                *int64
	codec, output       *choice
	topic               topicFlags
}

func (a *app) produce() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "produce TOPIC [MESSAGE…]",
		Short: "Publish messages: arguments, lines of a file or of standard input, or generated ones",
		Long: "Without MESSAGE each line of the input is a message, whatever its bytes; an empty line is an empty\n" +
			"message. A line that is too long fails alone, with its number. The summary goes to standard error.\n" +
			"The topic is made when it does not exist; --partitions, --durability and --reliable count only then.",
		Example: "  danube produce orders 'first message' 'second message'\n" +
			"  danube produce logs --file /var/log/syslog\n" +
			"  danube produce load --count 1000000 --size 1KiB",
		Args: wantSome("TOPIC"),
	}
	var f produceFlags
	fs := cmd.Flags()
	fs.StringVar(&f.file, "file", "-", "read lines from `FILE`; - is standard input")
	f.count = addCount(fs, "count", 0, "generate so many messages, or send the one MESSAGE so often")
	f.size = addSize(fs, "size", 128, "size of a generated message")
	f.rate = addCount(fs, "rate", 0, "messages a second, at most; 0 as fast as it goes")
	fs.StringVar(&f.key, "key", "", "routing key of every message")
	fs.StringArrayVar(&f.properties, "property", nil, "property of every message, `NAME=VALUE`; may be repeated")
	fs.StringVar(&f.producer, "producer", "", "`NAME` of the producer")
	f.codec = addChoice(cmd, "compression", "none", "compression of batches", "none", "s2", "zstd")
	f.topic = addTopicFlags(cmd, ", when it is made by this command")
	f.output = addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, other := range []string{"file", "size"} {
			if len(args) > 1 && fs.Changed(other) {
				return fail.Usagef("produce: MESSAGE and --%s exclude each other", other)
			}
		}
		if fs.Changed("file") && fs.Changed("count") {
			return fail.Usagef("produce: --file and --count exclude each other")
		}
		if len(args) > 2 && fs.Changed("count") {
			return fail.Usagef("produce: --count repeats one MESSAGE, not %d", len(args)-1)
		}
		if fs.Changed("size") && !fs.Changed("count") {
			return fail.Usagef("produce: --size needs --count")
		}
		return a.runProduce(cmd.Context(), args[0], args[1:], f)
	}
	return cmd
}

func (a *app) runProduce(ctx context.Context, topic string, args []string, f produceFlags) error {
	if _, _, err := topicPart(topic); err != nil {
		return err
	}
	wanted, err := f.topic.config()
	if err != nil {
		return err
	}
	properties, err := parseProperties(f.properties)
	if err != nil {
		return err
	}
	codec, err := batch.ParseCodec(f.codec.value)
	if err != nil {
		return fail.Usagef("--compression: %w", err)
	}
	input, err := a.openInput(args, f)
	if err != nil {
		return err
	}
	defer input.Close()
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	producer, err := a.openProducer(ctx, c, topic, client.ProducerConfig{Name: f.producer, Compression: codec, Create: &wanted})
	if err != nil {
		return fail.Doing(err, "produce to %s", topic)
	}
	message := client.Message{Properties: properties}
	if f.key != "" {
		message.Key = []byte(f.key)
	}
	to := pipe.Outlet{Topic: producer.Topic(), Many: producer.Partitions() > 1, Send: producer.SendAsync, Close: producer.Close, Trouble: producer.Trouble}
	return pipe.NewSender(a.shell(), to, message, f.output.value == "json").Run(ctx, input, int(*f.rate))
}

// openProducer opens a producer and says so when that made the topic.
func (a *app) openProducer(ctx context.Context, c *client.Client, topic string, cfg client.ProducerConfig) (*client.Producer, error) {
	p, err := c.Producer(ctx, topic, cfg)
	if err != nil || !p.Created() {
		return p, err
	}
	d, err := c.Admin().TopicDescribe(ctx, protocol.TopicArgs{Topic: p.Topic(), Partition: -1})
	if err != nil {
		a.noticef("created topic %s", p.Topic()) // what it is like is a courtesy
		return p, nil
	}
	a.noticef("created topic %s (%s)", d.Topic, view.MadeWith(len(d.Partitions), d.Reliable, d.Durability))
	return p, nil
}

// openInput finds out what is to be sent. Arguments come first, then --count, then lines.
func (a *app) openInput(args []string, f produceFlags) (*pipe.Input, error) {
	switch {
	case len(args) == 1 && *f.count > 0:
		return pipe.Repeat([]byte(args[0]), *f.count, a.err), nil
	case len(args) > 0:
		return pipe.Texts(args), nil
	case *f.count > 0:
		if *f.size > int64(pipe.MessageLimit()) {
			return nil, fail.Usagef("--size %s: a message may have %s", settings.FormatSize(*f.size), settings.FormatSize(int64(pipe.MessageLimit())))
		}
		return pipe.Repeat(pipe.Generate(int(*f.size)), *f.count, a.err), nil
	case f.file == "-":
		if terminal.Is(a.in) {
			a.noticef("each line is a message; end with Ctrl-D")
		}
		return pipe.Lines(a.in), nil
	}
	return pipe.File(f.file, a.err)
}
