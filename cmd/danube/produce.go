package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/settings"
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
	defer input.close()
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	producer, err := a.openProducer(ctx, c, topic, client.ProducerConfig{Name: f.producer, Compression: codec, Create: &wanted})
	if err != nil {
		return fail.Doing(err, "produce to %s", topic)
	}
	s := newSender(a, outlet{producer.Topic(), producer.Partitions() > 1, producer.SendAsync, producer.Close, producer.Trouble}, f.output.value == "json")
	s.message = client.Message{Properties: properties}
	if f.key != "" {
		s.message.Key = []byte(f.key)
	}
	return s.run(ctx, input, int(*f.rate))
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

// input yields the messages to send.
type input struct {
	// next returns the next payload, which the call after overwrites, and its number from 1.
	// io.EOF ends it; a *tooLongError concerns one message only.
	next  func() ([]byte, uint64, error)
	close func()
	bar   *progress
	read  func() int64 // how far the bar is
}

// messageLimit is the longest line that is read: no broker takes more unless it is told to.
func messageLimit() int { return batch.Limits{}.WithDefaults().Message }

// openInput finds out what is to be sent. Arguments come first, then --count, then lines.
func (a *app) openInput(args []string, f produceFlags) (*input, error) {
	switch {
	case len(args) == 1 && *f.count > 0:
		return a.repeated([]byte(args[0]), *f.count), nil
	case len(args) > 0:
		n := uint64(0)
		return &input{close: func() {}, next: func() ([]byte, uint64, error) {
			if n == uint64(len(args)) {
				return nil, 0, io.EOF
			}
			n++
			return []byte(args[n-1]), n, nil
		}}, nil
	case *f.count > 0:
		if *f.size > int64(messageLimit()) {
			return nil, fail.Usagef("--size %s: a message may have %s", settings.FormatSize(*f.size), settings.FormatSize(int64(messageLimit())))
		}
		return a.repeated(generated(int(*f.size)), *f.count), nil
	case f.file == "-":
		if onTerminal(a.in) {
			a.noticef("each line is a message; end with Ctrl-D")
		}
		return lineInput(newLineReader(a.in, messageLimit()), func() {}), nil
	}
	file, err := os.Open(f.file)
	if err != nil {
		return nil, fmt.Errorf("read messages: %w", err)
	}
	in := lineInput(nil, func() { _ = file.Close() }) // it was only read
	counted := &countingReader{r: file}
	lines := newLineReader(counted, messageLimit())
	in.next = func() ([]byte, uint64, error) { b, err := lines.next(); return b, lines.line, err }
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		in.bar, in.read = a.newProgress(info.Size(), "produce", true), func() int64 { return counted.n }
	}
	return in, nil
}

func lineInput(lines *lineReader, closed func()) *input {
	return &input{close: closed, next: func() ([]byte, uint64, error) { b, err := lines.next(); return b, lines.line, err }}
}

// repeated sends one payload count times.
func (a *app) repeated(payload []byte, count int64) *input {
	n := int64(0)
	return &input{
		close: func() {},
		bar:   a.newProgress(count, "produce", false),
		read:  func() int64 { return n },
		next: func() ([]byte, uint64, error) {
			if n == count {
				return nil, 0, io.EOF
			}
			n++
			return payload, uint64(n), nil
		},
	}
}

// generated is a payload of printable characters that do not compress to nothing.
func generated(size int) []byte {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	b := make([]byte, size)
	for i := range b {
		b[i] = letters[rand.IntN(len(letters))]
	}
	return b
}

// countingReader counts what was read.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// pacer lets through so many a second, counted from its first call.
type pacer struct {
	every time.Duration // 0: no pause
	begun time.Time
	n     int64
}

func newPacer(rate int) *pacer {
	if rate <= 0 {
		return &pacer{}
	}
	return &pacer{every: time.Second / time.Duration(rate)}
}

// wait returns when the next one is due, or with ctx's cause.
func (p *pacer) wait(ctx context.Context) error {
	if p.every == 0 {
		return nil
	}
	now := time.Now()
	if p.n == 0 {
		p.begun = now
	}
	due := p.begun.Add(time.Duration(p.n) * p.every)
	p.n++
	if !due.After(now) {
		return nil
	}
	timer := time.NewTimer(due.Sub(now))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
