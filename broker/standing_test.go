package broker_test

import (
	"fmt"
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

// verify reads a topic of one partition through.
func verify(t *testing.T, c *client.Client, topic string) protocol.VerifyPartition {
	t.Helper()
	v, err := c.Admin().TopicVerify(t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
	if err != nil {
		t.Fatal(err)
	}
	return v.Partitions[0]
}

func statuses(m *state.Partition) (out []string) {
	for i := range m.Ranges {
		out = append(out, m.Ranges[i].Status.String())
	}
	return out
}

// A lag is messages: those that are away may come back and are told apart, as a bound, and the offsets behind them that no
// message ever had count for nobody. Who waits at a gap says so while he waits, and as long as it is one.
func TestLagIsMessagesWhileATailIsAway(t *testing.T) {
	t.Parallel()
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

// A restored cluster does not know what was written behind its snapshot: every such range is listed, the lag is what can be
// read, and one command settles those of a topic.
func TestRestoredTopicIsSettledByOneCommand(t *testing.T) {
	t.Parallel()
	const parts = 5
	f := newFleet(t, 1, nil)
	c := f.dial(0)
	a := c.Admin()
	if _, err := a.TopicCreate(t.Context(), protocol.TopicCreate{Topic: "many", Config: protocol.TopicConfig{Partitions: parts}}); err != nil {
		t.Fatal(err)
	}
	sendNumbered(t, c, "many", 0, 100)
	if err := a.SubscriptionCreate(t.Context(), protocol.SubCreate{Topic: "many", Subscription: "s", Type: protocol.Exclusive, Start: earliest}); err != nil {
		t.Fatal(err)
	}
	lag := func() (sum uint64) {
		d, err := a.SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "many", Subscription: "s"})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Partitions {
			sum += p.Lag + p.Orphaned
		}
		return sum
	}
	saved := snapshot(t, a)
	if _, err := a.RestorePage(t.Context(), protocol.SnapshotPage{Size: int64(len(saved)), Data: saved, Last: true}); err != nil {
		t.Fatal(err)
	}
	var s *protocol.Status
	eventually(t, "the topic to be served again", func() bool {
		var err error
		s, err = a.Status(t.Context())
		return err == nil && s.Orphaned == parts && s.Ownerless == 0
	})
	if len(s.Orphans) != parts || s.Unplaced != parts || len(s.Orphans[parts-1].Brokers) > 0 || s.Orphans[parts-1].Partition != parts-1 {
		t.Errorf("of %d orphaned ranges %+v are listed", s.Orphaned, s.Orphans)
	}
	eventually(t, "all partitions to say where they stand", func() bool { return lag() == 100 })
	if v := verify(t, c, "many"); len(v.Findings) != 1 || !strings.Contains(v.Findings[0].What, "no broker is known to have it") || len(v.Notes) > 0 {
		t.Errorf("verified before anything is given up: %+v", v)
	}
	wantRefused(t, "offsets of no partition", a.TopicResolve(t.Context(), protocol.Resolve{Topic: "many", Partition: -1, To: 5, How: "lost"}), "name one")
	resolve := protocol.Resolve{Topic: "many", Partition: -1, How: "lost"}
	if err := a.TopicResolve(t.Context(), resolve); err != nil {
		t.Fatal(err)
	}
	v, err := a.TopicVerify(t.Context(), protocol.TopicArgs{Topic: "many", Partition: -1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Partitions {
		if len(p.Findings) > 0 || len(p.Notes) != 1 {
			t.Errorf("verified when all is given up: %+v", p)
		}
	}
	if s, err = a.Status(t.Context()); err != nil || s.Orphaned > 0 || len(s.Orphans) > 0 || lag() != 100 {
		t.Errorf("when all is given up: lag %d, %+v, %v", lag(), s, err)
	}
	wantRefused(t, "give it up again", a.TopicResolve(t.Context(), resolve), "has no orphaned range")
}

// Who is there is asked of the brokers, so that a list is right the moment one is killed, whatever gossip knows and the
// cluster has decided by then; what was never written to is nobody's only copy.
func TestBrokersAreSeenAsTheyAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	c := f.dial(0)
	a := c.Admin()
	if _, err := a.TopicCreate(t.Context(), protocol.TopicCreate{Topic: "idle", Config: protocol.TopicConfig{Partitions: 6}}); err != nil {
		t.Fatal(err)
	}
	list := func() []protocol.BrokerStatus {
		l, err := a.BrokerList(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l.Brokers
	}
	eventually(t, "all to serve what is empty", func() bool {
		partitions, copies := 0, 0
		for _, b := range list() {
			partitions, copies = partitions+b.Partitions, copies+b.OnlyCopies
			if b.Seen != "answers" || b.Applied == 0 || b.State != "active" {
				t.Fatalf("listed as %+v", b)
			}
		}
		return partitions == 6 && copies == 0
	})
	p, err := c.Producer(t.Context(), "idle", client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(t, p)
	if err != nil {
		t.Fatal(err)
	}
	owner := f.owner("idle", int(r.Partition))
	for i := range 3 {
		d, err := a.BrokerDescribe(t.Context(), protocol.BrokerArgs{Broker: fmt.Sprintf("n%d", i+1)})
		if err != nil || (i == owner) != (d.OnlyCopies == 1) || len(d.Only) != d.OnlyCopies || i == owner && d.Only[0].Partition != int(r.Partition) {
			t.Errorf("n%d, where n%d has the one message: %+v, %v", i+1, owner+1, d, err)
		}
	}
	f.kill(2)
	for lost := false; !lost; {
		for _, b := range list() {
			lost = lost || b.State == "lost"
			if gone := b.Name == "n3"; gone != (b.Seen == "silent") || gone != (b.Applied == 0) || gone == (b.Reason == "") {
				t.Fatalf("after n3 was killed it says %+v", b)
			}
		}
	}
}
