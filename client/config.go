package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// Config is how to reach a cluster. The zero value is ready to use.
type Config struct {
	// Name of the program, for the brokers' logs and listings.
	Name string
	// Token authenticates; empty for brokers that ask for none.
	Token string
	// Dialer makes connections; nil: TCP. One that speaks TLS goes here.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
	// Logger is told when a connection is lost and found again; nil: nobody is.
	Logger *slog.Logger
	// Limits of the batches accepted from brokers; see [batch.Limits] for the defaults.
	Limits batch.Limits
	// Timeout ends the opening of producers, consumers and readers, and admin
	// operations, whose context has no earlier deadline. Default 30 s.
	Timeout time.Duration
	// NoLeader ends them sooner, with NO_LEADER, when brokers have answered for so
	// long that the cluster has no leader. Default: Timeout, no sooner.
	NoLeader time.Duration
}

// deadAfter is how long a peer may be silent, at most, before it is taken for dead.
const deadAfter = 9 * time.Second

func (c Config) withDefaults() (Config, error) {
	if c.Timeout < 0 || c.NoLeader < 0 {
		return c, fmt.Errorf("client configuration: timeout %v or %v is negative", c.Timeout, c.NoLeader)
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	if c.Dialer == nil {
		c.Dialer = (&net.Dialer{}).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Limits = c.Limits.WithDefaults()
	return c, nil
}

// ProducerConfig is how a producer sends. The zero value is ready to use.
type ProducerConfig struct {
	// Name identifies the producer; empty: a random identity.
	Name string
	// Exclusive: no other producer may be on the topic; opening fails with
	// PRODUCER_BUSY while there is one.
	Exclusive bool
	// Create makes the topic with these settings when it does not exist and the
	// cluster allows that; nil: such a topic is ErrNoSuchTopic.
	Create *protocol.TopicConfig
	// Compression of the batches. Default none.
	Compression batch.Codec
	// Linger is how long a message waits for others to share its batch. 0: it is
	// sent at once when nothing is in flight, else with what gathers meanwhile.
	Linger time.Duration
	// BatchBytes is how large a batch grows. Default 1 MiB, bounded by the broker's limit.
	BatchBytes int
	// MaxPending is how many bytes of messages may wait for their outcome;
	// above it sending blocks. Default 32 MiB.
	MaxPending int
	// SendTimeout is how long a message is tried before its send fails. 0: until
	// it is stored, refused for good, or the producer closed.
	SendTimeout time.Duration
}

func (c ProducerConfig) withDefaults() (ProducerConfig, error) {
	if c.Linger < 0 || c.BatchBytes < 0 || c.MaxPending < 0 || c.SendTimeout < 0 {
		return c, errors.New("producer configuration: a negative value")
	}
	if c.Name != "" {
		if err := protocol.CheckName("producer", c.Name); err != nil {
			return c, err
		}
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = 1 << 20
	}
	if c.MaxPending == 0 {
		c.MaxPending = 32 << 20
	}
	return c, nil
}

// ConsumerConfig is what a consumer reads. Subscription is required.
type ConsumerConfig struct {
	// Subscription is the name under which progress is kept; it is made when it
	// does not exist.
	Subscription string
	// Name of the consumer; one that takes the name of another takes its place.
	// Empty: a random one.
	Name string
	// Type, From and Options count when the subscription is made by this.
	Type    protocol.SubscriptionType
	From    protocol.Position // default: latest
	Options protocol.SubOptions
	// Existing: do not make the subscription, fail with NO_SUCH_SUBSCRIPTION.
	Existing bool
	// Priority among the consumers of a failover subscription; the lowest goes first.
	Priority int
	// Filters are globs of which a message's key has to match one; empty: all messages.
	Filters []string
	// Queue is how many messages of each partition are taken ahead. Default 1,000.
	Queue int
	// OnGap is told of offsets that will not be delivered. It is called by the
	// goroutine that reads the connection and must not block. Nil: a warning in the log.
	OnGap func(GapError)
}

func (c ConsumerConfig) withDefaults() (ConsumerConfig, error) {
	if err := protocol.CheckName("subscription", c.Subscription); err != nil {
		return c, err
	}
	if c.Queue < 0 {
		return c, errors.New("consumer configuration: a negative queue")
	}
	if c.Queue == 0 {
		c.Queue = 1000
	}
	if c.Name == "" {
		c.Name = randomName()
	}
	return c, nil
}

// ReaderConfig is where a reader begins. The zero value reads what comes from now on.
type ReaderConfig struct {
	// From is where reading begins. An offset needs a topic of one partition, or NAME:N.
	From protocol.Position
	// ToEnd: Next returns io.EOF behind the messages that were there when the
	// reader was opened.
	ToEnd bool
	// FetchBytes is how much of a partition is asked for at a time, and as much
	// may lie ready beside it. Default 1 MiB.
	FetchBytes int
	// OnSuperseded is told, in Next, of offsets that are passed over because their
	// messages were stored again and come at later offsets. May be nil: nothing is lost.
	OnSuperseded func(GapError)
}

func (c ReaderConfig) withDefaults() (ReaderConfig, error) {
	if c.FetchBytes < 0 {
		return c, errors.New("reader configuration: negative fetch bytes")
	}
	if c.FetchBytes == 0 {
		c.FetchBytes = 1 << 20
	}
	return c, nil
}
