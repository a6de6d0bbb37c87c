package dispatch

import (
	"errors"
	"fmt"
	"time"
)

// Policy says who of several consumers gets the next message.
type Policy uint8

const (
	// Exclusive allows one consumer and gives it everything.
	Exclusive Policy = iota
	// Shared hands whole batches to the consumers in turn.
	Shared
	// Failover and KeyShared are named so that callers can carry them; New
	// refuses them with ErrUnsupported.
	Failover
	KeyShared
)

// String returns the name used in flags and listings.
func (p Policy) String() string {
	switch p {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Failover:
		return "failover"
	case KeyShared:
		return "key-shared"
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Poison says what becomes of a message that was delivered once and then
// redelivered MaxRedeliveries times without an acknowledgement.
type Poison uint8

const (
	// Block never gives a message up: it keeps coming back, at the longest
	// backoff, takes up one place of the window and holds the cursor. Other
	// messages go on. It is the default because it is the only choice that
	// loses nothing and needs no second topic.
	Block Poison = iota
	// DeadLetter and Drop take the message out of delivery and list it in
	// Poisoned until the shell has dealt with it and calls Bury.
	DeadLetter
	Drop
)

// Errors a shell branches on; all others describe a misuse.
var (
	// ErrUnsupported: the policy, or key filters, are not in this version.
	ErrUnsupported = errors.New("not in this version")
	// ErrUnknownConsumer: the consumer never joined, left, or was taken over.
	ErrUnknownConsumer = errors.New("no such consumer on this subscription")
	// ErrStale: the delivery the request speaks of was from before a reset.
	ErrStale = errors.New("stale delivery")
	// ErrCumulative: on a shared subscription "up to" would cover messages
	// that other consumers hold, so it is refused there.
	ErrCumulative = errors.New("cumulative acknowledgement on a shared subscription")
)

// OccupiedError is returned by Join when an exclusive subscription has a
// consumer of another name.
type OccupiedError struct{ Name string }

func (e *OccupiedError) Error() string {
	return fmt.Sprintf("subscription is exclusive and taken by consumer %q", e.Name)
}

// Config is the policy of one subscription. The zero value is an exclusive
// subscription with the defaults in brackets.
type Config struct {
	Policy          Policy
	MaxUnacked      int           // messages delivered and not acknowledged [1000]
	AckTimeout      time.Duration // from receipt by the application [30 s]; negative: none
	BackoffBase     time.Duration // first delay of a redelivery [1 s]; doubles each time
	BackoffMax      time.Duration // longest delay [60 s]
	FixedBackoff    bool          // always BackoffBase
	MaxRedeliveries int           // after the first delivery [5]; negative: none
	Poison          Poison        // what follows then [Block]
	RangeLimit      int           // acknowledged ranges above the prefix at which fresh delivery pauses [100,000]
}

// Supported says whether this version has what a consumer asks for: ErrUnsupported, in words, if not. Whoever makes a
// subscription for a consumer asks it before, so that one who is refused leaves nothing behind.
func Supported(p Policy, filters []string) error {
	if p > Shared {
		return fmt.Errorf("subscriptions of type %v are %w; it has %v and %v", p, ErrUnsupported, Exclusive, Shared)
	}
	if len(filters) > 0 {
		return fmt.Errorf("key filters are %w", ErrUnsupported)
	}
	return nil
}

func (c Config) withDefaults() (Config, error) {
	if err := Supported(c.Policy, nil); err != nil {
		return c, err
	}
	if c.Poison > Drop {
		return c, fmt.Errorf("poison policy %d: unknown", c.Poison)
	}
	orDefault(&c.MaxUnacked, 1000)
	orDefault(&c.AckTimeout, 30*time.Second)
	orDefault(&c.BackoffBase, time.Second)
	orDefault(&c.BackoffMax, 60*time.Second)
	orDefault(&c.MaxRedeliveries, 5)
	orDefault(&c.RangeLimit, 100_000)
	c.MaxRedeliveries = min(max(c.MaxRedeliveries, 0), maxCount-2)
	if c.MaxUnacked < 0 || c.BackoffBase < 0 || c.BackoffMax < 0 || c.RangeLimit < 0 {
		return c, errors.New("subscription settings: a limit is negative")
	}
	return c, nil
}

func orDefault[T int | time.Duration](v *T, def T) {
	if *v == 0 {
		*v = def
	}
}

// backoff is the delay before the redelivery that follows delivery n.
func (c *Config) backoff(n uint16) time.Duration {
	if c.FixedBackoff {
		return c.BackoffBase
	}
	d := c.BackoffBase
	for ; n > 1 && d < c.BackoffMax; n-- {
		d *= 2
	}
	return min(d, c.BackoffMax)
}
