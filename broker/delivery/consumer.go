package delivery

import (
	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/outbox"
	"github.com/danubemq/danube/protocol"
)

// Client is the connection of a consumer.
type Client interface {
	// Out is what is written to it.
	Out() *outbox.Outbox
	// Address is the client's.
	Address() string
	// Drop forgets a consumer that was ended here.
	Drop(handle uint32)
}

// Consumer is a consumer of a subscription on one partition over one connection.
type Consumer struct {
	Handle uint32              // by which its client knows it; set before Join
	ID     dispatch.ConsumerID // by which dispatch does; Join sets it

	client Client
	out    *outbox.Outbox
	sub    *Subscription
	name   string
	paused bool // it is not answered yet, or its connection is behind; guarded by the subscription

	answered bool            // its client knows the handle; guarded by the subscription
	ended    *protocol.Error // it was ended before that; guarded by the subscription
}

// Consumer makes a consumer that is to join.
func (s *Subscription) Consumer(client Client, name string) *Consumer {
	return &Consumer{client: client, out: client.Out(), sub: s, name: name}
}

// Subscription is what it consumes.
func (o *Consumer) Subscription() *Subscription { return o.sub }

// Grant gives a consumer credit, in messages; one that is over takes none.
func (o *Consumer) Grant(messages uint32) {
	o.sub.mu.Lock()
	defer o.sub.mu.Unlock()
	if err := o.sub.d.Grant(o.ID, messages); err == nil {
		notify(o.sub.wake)
	}
}

// confirm is an acknowledgement whose sender waits for the commit.
type confirm struct {
	out   *outbox.Outbox
	id    uint64
	stale uint64
}

// replaced tells a consumer that its session goes on elsewhere.
func replaced(name, subscription string) *protocol.Error {
	return protocol.Errorf(protocol.CodeConsumerReplaced, "another consumer that is named %q took over its session on subscription %s", name, subscription)
}
