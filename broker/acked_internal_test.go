package broker

import (
	"testing"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// What every subscription has acknowledged goes, whole segments of it, and nothing that
// one has not: without a subscription nothing goes. One that is moved back is told what is
// gone, and is waited for again. A bound of size asks nobody.
func TestAcknowledgedIsGivenUp(t *testing.T) {
	const messages = 64
	b := runningWith(t, Config{Storage: Storage{SegmentBytes: 64 << 10}})
	c, err := client.Dial(t.Context(), []string{b.ClientAddr()}, client.Config{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.Producer(t.Context(), "queue", client.ProducerConfig{Create: &protocol.TopicConfig{RetentionAcked: true}})
	if err != nil {
		t.Fatal(err)
	}
	for range messages {
		if _, err := p.Send(t.Context(), client.Message{Payload: make([]byte, 16<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	part, err := b.serving(t.Context(), "queue", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	// starts is where the log starts once retention was applied, which it is beside every five seconds.
	starts := func() uint64 {
		t.Helper()
		b.host.Retain(t.Context(), b.reliable())
		m := b.meta.View().Partition(part.Key.Topic, 0)
		if part.Log.Start() != m.LogStart {
			t.Fatalf("the log starts at %d, committed is %d", part.Log.Start(), m.LogStart)
		}
		return m.LogStart
	}
	var gaps []client.GapError
	// take has a subscription acknowledge the next n messages, the first of which has this offset.
	take := func(name string, first uint64, n int) {
		t.Helper()
		k, err := c.Consumer(t.Context(), "queue", client.ConsumerConfig{
			Subscription: name, From: protocol.Position{Kind: protocol.Earliest}, OnGap: func(g client.GapError) { gaps = append(gaps, g) },
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(n) {
			m, err := k.Receive(t.Context())
			if err != nil || m.Offset != first+i {
				t.Fatalf("%s was handed offset %d, %v, want %d", name, m.Offset, err, first+i)
			}
			if err := k.Ack(m); err != nil {
				t.Fatal(err)
			}
		}
		if err := k.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, func() bool {
			b.carrier.Commit(t.Context())
			return b.meta.View().Subscription(part.Key.Topic, name).Cursors[0].Prefix == first+uint64(n)
		})
	}
	if at := starts(); at != 0 {
		t.Fatalf("without a subscription the log starts at %d", at)
	}
	take("fast", 0, messages)
	take("slow", 0, 20)
	at := starts()
	if at < 12 || at > 20 {
		t.Fatalf("of what two subscriptions have acknowledged up to %d and 20 the log starts at %d", messages, at)
	}
	take("slow", 20, 20)
	if err := c.Admin().SubscriptionReset(t.Context(), protocol.SubReset{Topic: "queue", Partition: -1, Subscription: "slow", To: protocol.Position{Kind: protocol.AtOffset}}); err != nil {
		t.Fatal(err)
	}
	if again := starts(); again != at {
		t.Fatalf("though one was moved back the log starts at %d, not %d", again, at)
	}
	take("slow", at, 2)
	if len(gaps) != 1 || gaps[0].From != 0 || gaps[0].To != at || gaps[0].Status != "trimmed" {
		t.Errorf("behind the reset it was told of %+v", gaps)
	}
	keep := int64(128 << 10)
	if err := c.Admin().TopicSet(t.Context(), protocol.TopicSet{Topic: "queue", RetentionBytes: &keep}); err != nil {
		t.Fatal(err)
	}
	if at := starts(); at < 40 {
		t.Errorf("with a bound of %d bytes the log starts at %d", keep, at)
	}
}
