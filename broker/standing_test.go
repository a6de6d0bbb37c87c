package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// standing is where a subscription stands on a topic of one partition.
func standing(t *testing.T, c *client.Client, topic string) protocol.SubPartition {
	t.Helper()
	d, err := c.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: topic, Subscription: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return d.Partitions[0]
}

// A lag is messages: those that are away may come back and are told apart, as a bound, and the offsets behind them that no
// message ever had count for nobody. Who waits at a gap says so while he waits, and as long as it is one.
func TestLagIsMessagesWhileATailIsAway(t *testing.T) {
	f := newFleet(t, 3, func(c *broker.Config) { c.GapWait = time.Hour })
	publish(t, f.dial(0), "behind", 0, 300)
	consume(t, f.dial(0), "behind/s", 0, 100)
	lost, owner := f.takenOver("behind")
	c := f.dial(owner)
	sendNumbered(t, c, "behind", 300, 350)
	ceiling := orphaned(f.nodes[owner].Partition("behind", 0))[0].End
	if p := standing(t, c, "behind"); p.Cursor != 100 || p.Lag != 50 || p.Orphaned != ceiling-100 {
		t.Errorf("while the tail is away: %+v", p)
	}
	cons := consumer(t, c, "behind", client.ConsumerConfig{Subscription: "s", From: earliest})
	eventually(t, "the consumer to wait at the gap", func() bool { return strings.Contains(standing(t, c, "behind").State, "waiting at a gap") })
	closeConsumer(t, cons)
	eventually(t, "nobody to wait", func() bool { return standing(t, c, "behind").State == "no consumer is connected" })
	f.start(lost)
	eventually(t, "the tail is back", func() bool { return !f.has(owner, "behind", state.RangeOrphaned) })
	if p := standing(t, c, "behind"); p.Lag != 250 || p.Orphaned != 0 || p.State != "no consumer is connected" {
		t.Errorf("when it is back: %+v", p)
	}
	if err := c.Admin().SubscriptionCreate(t.Context(), protocol.SubCreate{Topic: "behind", Subscription: "new", Type: protocol.Exclusive, Start: earliest}); err != nil {
		t.Fatal(err)
	}
	d, err := c.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "behind", Subscription: "new"})
	if err != nil || d.Partitions[0].Lag != 350 {
		t.Errorf("a subscription that begins now: %+v, %v", d, err)
	}
}
