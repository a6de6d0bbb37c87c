package broker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// A consumer that names itself as a live one does takes its session over: what
// the old one held comes again, to the new one, and the old one is told so for
// good. Names that nobody gave never meet.
func TestConsumerOfTheSameNameTakesOver(t *testing.T) {
	t.Parallel()
	const messages, held, acked = 20, 10, 3
	n := start(t, t.TempDir(), nil)
	publish(t, dial(t, n), "taken", 0, messages)
	one, two := dial(t, n), dial(t, n)
	named := client.ConsumerConfig{Subscription: "s", Name: "billing", From: earliest}
	old := consumer(t, one, "taken", named)
	var last client.Message
	for i := range held {
		last = receive(t, old)
		if i < acked {
			if err := old.AckConfirmed(t.Context(), last); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range []string{"", "other"} {
		_, err := two.Consumer(t.Context(), "taken", client.ConsumerConfig{Subscription: "s", Name: name})
		if !errors.Is(err, &protocol.Error{Code: protocol.CodeConsumerBusy}) {
			t.Errorf("a consumer named %q at an exclusive subscription that is taken: %v", name, err)
		}
	}
	heir := consumer(t, two, "taken", named)
	for i := uint64(acked); i < messages; i++ {
		m := receive(t, heir)
		if m.Offset != i {
			t.Fatalf("the heir got offset %d, want %d", m.Offset, i)
		}
		if i < held && m.Deliveries < 2 {
			t.Errorf("offset %d, which the old one had been given, is delivery %d", i, m.Deliveries)
		}
		if i == messages-1 {
			if err := heir.AckUpTo(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := old.AckConfirmed(t.Context(), last); err == nil {
		t.Error("the old one still acknowledges")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := old.Receive(ctx); !errors.Is(err, &protocol.Error{Code: protocol.CodeConsumerReplaced}) {
		t.Errorf("the one taken over is told: %v", err)
	}
	closeConsumer(t, heir)
	d, err := two.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "taken", Subscription: "s"})
	if err != nil || d.Partitions[0].Cursor != messages || len(d.Partitions[0].Consumers) != 0 {
		t.Errorf("afterwards: %+v, %v", d, err)
	}
}

// So it is where nothing is stored: a client that comes back over a new
// connection is not kept out by its own old one, which may be dead.
func TestConsumerOfTheSameNameTakesOverLive(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	for _, typ := range []protocol.SubscriptionType{protocol.Exclusive, protocol.Shared} {
		t.Run(typ.String(), func(t *testing.T) {
			topic := "live-" + typ.String()
			if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: topic, Config: protocol.TopicConfig{NonReliable: true}}); err != nil {
				t.Fatal(err)
			}
			named := client.ConsumerConfig{Subscription: "s", Name: "me", Type: typ}
			old := consumer(t, dial(t, n), topic, named)
			if typ == protocol.Exclusive {
				_, err := c.Consumer(t.Context(), topic, client.ConsumerConfig{Subscription: "s", Type: typ})
				if !errors.Is(err, &protocol.Error{Code: protocol.CodeConsumerBusy}) {
					t.Errorf("a consumer without a name: %v", err)
				}
			}
			heir := consumer(t, c, topic, named)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := old.Receive(ctx); !errors.Is(err, &protocol.Error{Code: protocol.CodeConsumerReplaced}) {
				t.Errorf("the one taken over is told: %v", err)
			}
			p, err := c.Producer(t.Context(), topic, client.ProducerConfig{})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 10 {
				if _, err := p.Send(t.Context(), client.Message{Payload: []byte{byte(i)}}); err != nil {
					t.Fatal(err)
				}
				if m := receive(t, heir); m.Payload[0] != byte(i) {
					t.Errorf("message %d: got %v", i, m.Payload)
				}
			}
			closeConsumer(t, heir)
		})
	}
}
