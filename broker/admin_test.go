package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// brokerIn finds a broker of a list.
func brokerIn(list []protocol.BrokerStatus, name string) *protocol.BrokerStatus {
	i := slices.IndexFunc(list, func(b protocol.BrokerStatus) bool { return b.Name == name })
	if i < 0 {
		return nil
	}
	return &list[i]
}

func wantRefused(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q said", what, err, w)
		}
	}
}

// Whatever broker is asked, an operation on a topic is carried out by the owners of its partitions.
func TestAnyBrokerAdministersATopic(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	c := f.dial(0)
	p, err := c.Producer(t.Context(), "wide", client.ProducerConfig{Create: &protocol.TopicConfig{Partitions: 6}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if _, err := p.Send(t.Context(), client.Message{Payload: fmt.Append(nil, i), Key: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	cons := consumer(t, f.dial(1), "wide", client.ConsumerConfig{Subscription: "s", From: earliest})
	for range 300 {
		if err := cons.AckConfirmed(t.Context(), receive(t, cons)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		a := f.dial(i).Admin()
		d, err := a.TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "wide", Partition: -1})
		if err != nil {
			t.Fatal(err)
		}
		owners, messages := map[string]bool{}, uint64(0)
		for n, x := range d.Partitions {
			owners[x.Owner] = true
			messages += x.CommittedEnd
			if x.Partition != n || x.State != "open" || x.Reason != "" {
				t.Errorf("n%d says of partition %d: %+v", i+1, n, x)
			}
		}
		if len(owners) != 3 || messages != 300 || len(d.Subscriptions) != 1 || len(d.Subscriptions[0].Partitions) != 6 {
			t.Errorf("n%d: owners %v, %d messages, subscriptions %+v", i+1, owners, messages, d.Subscriptions)
		}
		for _, x := range d.Subscriptions[0].Partitions {
			if x.Lag != 0 || len(x.Consumers) != 1 {
				t.Errorf("n%d says of the subscription: %+v", i+1, x)
			}
		}
		if v, err := a.TopicVerify(t.Context(), protocol.TopicArgs{Topic: "wide", Partition: -1}); err != nil || len(v.Partitions) != 6 {
			t.Errorf("verify: %+v, %v", v, err)
		}
		if out, err := a.TopicTruncate(t.Context(), protocol.Truncate{Topic: "wide", Partition: i + 1, Before: 3}); err != nil || out.LogStart != 3 {
			t.Errorf("truncate through n%d: %+v, %v", i+1, out, err)
		}
		err = a.SubscriptionDelete(t.Context(), protocol.SubArgs{Topic: "wide", Subscription: "s"})
		wantRefused(t, "delete a subscription in use", err, "6 consumers")
		wantRefused(t, "delete a topic in use", a.TopicDelete(t.Context(), protocol.TopicArgs{Topic: "wide"}), "6 consumers")
	}
	a := f.dial(2).Admin()
	if err := a.SubscriptionReset(t.Context(), protocol.SubReset{Topic: "wide", Subscription: "s", Partition: -1, To: earliest}); err != nil {
		t.Fatal(err)
	}
	for range 300 - 9 { // three were truncated on three partitions
		if err := cons.Ack(receive(t, cons)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.SubscriptionDelete(t.Context(), protocol.SubArgs{Topic: "wide", Subscription: "s", Force: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := cons.Receive(t.Context()); err == nil {
		t.Error("a consumer of a deleted subscription goes on")
	}
	if err := a.TopicDelete(t.Context(), protocol.TopicArgs{Topic: "wide", Force: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "every broker has removed its files", func() bool {
		for _, m := range f.nodes {
			if len(m.segments(t)) > 0 {
				return false
			}
		}
		return true
	})
}

// Of a broker that is away describe says so and shows what the metadata know.
func TestDescribeNamesTheBrokerThatIsAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "seen", 0, 10)
	owner := f.owner("seen", 0)
	via := (owner + 1) % 3
	a := f.dial(via).Admin()
	f.nodes[owner].wire.pull()
	d, err := a.TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "seen", Partition: -1})
	if err != nil {
		t.Fatal(err)
	}
	x := d.Partitions[0]
	if name := fmt.Sprintf("n%d", owner+1); x.Owner == name && !strings.Contains(x.Reason, name) || len(x.Ranges) == 0 {
		t.Errorf("described as %+v", x)
	}
	f.nodes[owner].wire.mend()
}

func TestBrokersAreNamedAndListed(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	for i := range 6 {
		publish(t, f.dial(i%3), fmt.Sprintf("t%d", i), 0, 5)
	}
	a := f.dial(0).Admin()
	list, err := a.BrokerList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leaders, partitions := 0, 0
	for _, b := range list.Brokers {
		partitions += b.Partitions
		if b.Leader {
			leaders++
		}
		if b.State != "active" || !b.Voter || b.OnlyCopies != b.Partitions || b.Peer == "" {
			t.Errorf("listed as %+v", b)
		}
	}
	if len(list.Brokers) != 3 || leaders != 1 || partitions != 6 {
		t.Errorf("%d brokers, %d leaders, %d partitions", len(list.Brokers), leaders, partitions)
	}
	n2 := brokerIn(list.Brokers, "n2")
	d, err := a.BrokerDescribe(t.Context(), protocol.BrokerArgs{Broker: n2.Store[:12]})
	if err != nil || d.Name != "n2" || len(d.Owned) != n2.Partitions || len(d.Only) != n2.OnlyCopies {
		t.Errorf("described as %+v, %v", d, err)
	}
	_, err = a.BrokerDescribe(t.Context(), protocol.BrokerArgs{Broker: "n9"})
	wantRefused(t, "a broker that does not exist", err, `"n9"`)
	_, err = a.TopicMove(t.Context(), protocol.TopicMove{Topic: "t0", Partition: -1, To: "n9"})
	wantRefused(t, "move to a broker that does not exist", err, `"n9"`)
	wantRefused(t, "remove a broker that owns partitions", a.BrokerRemove(t.Context(), protocol.BrokerArgs{Broker: "n2"}), "n2", "owns")
	var s *protocol.Status
	eventually(t, "nothing is said to be wrong", func() bool {
		if s, err = a.Status(t.Context()); err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(s.Degraded, func(r string) bool { return !strings.HasPrefix(r, "disk ") })
	})
	if s.Leader == "" || !s.Ready || s.Durability != "durability local: one copy, on the disk of the broker that owns the topic" {
		t.Errorf("status %+v", s)
	}
}

// A topic is moved by name, whoever is asked, and the answer comes when the target serves.
func TestTopicMoveWaitsForTheTarget(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	c := f.dial(0)
	publish(t, c, "moved", 0, 100)
	if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "live", Config: protocol.TopicConfig{NonReliable: true}}); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"moved", "live"} {
		from := f.owner(topic, 0)
		to, via := (from+1)%3, (from+2)%3
		out, err := f.dial(via).Admin().TopicMove(t.Context(), protocol.TopicMove{Topic: topic, Partition: -1, To: fmt.Sprintf("n%d", to+1)})
		if err != nil {
			t.Fatalf("move %s: %v", topic, err)
		}
		x := out.Partitions[0]
		if x.From != fmt.Sprintf("n%d", from+1) || x.To != fmt.Sprintf("n%d", to+1) || x.Epoch != 2 || topic == "moved" && x.MovedAt != 100 {
			t.Errorf("moved %s: %+v", topic, x)
		}
		if f.nodes[to].Serves(topic, 0) != 2 {
			t.Errorf("%s is not served by its target", topic)
		}
		if out, err = f.dial(from).Admin().TopicMove(t.Context(), protocol.TopicMove{Topic: topic, Partition: 0}); err != nil || out.Partitions[0].To == x.To {
			t.Errorf("move %s anywhere else: %+v, %v", topic, out, err)
		}
	}
	publish(t, c, "moved", 100, 110)
	got, _ := readAll(t, c, "moved")
	wantNumbered(t, got, 110)
}

// A drain moves what the broker has, history included; then it can be removed.
func TestDrainAndRemove(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	for i := range 6 {
		publish(t, f.dial(i%3), fmt.Sprintf("t%d", i), 0, 50)
	}
	a := f.dial(0).Admin()
	if err := a.BrokerDrain(t.Context(), protocol.BrokerArgs{Broker: "n3"}); err != nil {
		t.Fatal(err)
	}
	_, err := a.TopicMove(t.Context(), protocol.TopicMove{Topic: "t0", Partition: -1, To: "n3"})
	wantRefused(t, "move to a broker that drains", err, "n3", "drain")
	eventually(t, "n3 is empty", func() bool {
		d, err := a.BrokerDescribe(t.Context(), protocol.BrokerArgs{Broker: "n3"})
		if err != nil {
			t.Fatal(err)
		}
		return d.State == "drained" && d.Partitions == 0 && d.OnlyCopies == 0
	})
	if err := a.BrokerActivate(t.Context(), protocol.BrokerArgs{Broker: "n3"}); err != nil {
		t.Fatal(err)
	}
	if list, err := a.BrokerList(t.Context()); err != nil || brokerIn(list.Brokers, "n3").State != "active" {
		t.Errorf("after the drain was ended: %+v, %v", list, err)
	}
	for i := range 6 {
		got, gaps := readAll(t, f.dial(1), fmt.Sprintf("t%d", i))
		if wantNumbered(t, got, 50); len(gaps) > 0 {
			t.Errorf("gaps %v", gaps)
		}
	}
}

// snapshot takes a snapshot of the metadata.
func snapshot(t *testing.T, a *client.Admin) []byte {
	t.Helper()
	var saved []byte
	for q := (protocol.SnapshotPage{}); ; {
		page, err := a.SnapshotPage(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if saved = append(saved, page.Data...); page.Last {
			return saved
		}
		q = protocol.SnapshotPage{ID: page.ID, Offset: int64(len(saved))}
	}
}

// TestRestoreOfAnOlderSnapshotLosesNothing puts metadata back that know nothing of a move: what was written behind it
// stays on its disk, nobody gives its offsets out again, and readers are told of the gap (R22).
func TestRestoreOfAnOlderSnapshotLosesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	topic, from := ownedTopic(t, f, false)
	to := (from + 1) % 3
	c := f.dial((from + 2) % 3)
	publish(t, c, topic, 0, 10)
	saved := snapshot(t, c.Admin())
	f.move(topic, to)
	publish(t, c, topic, 10, 10)
	files := segments(t, f, to)
	if _, err := c.Admin().RestorePage(t.Context(), protocol.SnapshotPage{Size: int64(len(saved)), Data: saved, Last: true}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Producer(t.Context(), topic, client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := ask(t, p)
	if err != nil || r.Offset < 1<<32 {
		t.Fatalf("the next message is at offset %d, %v", r.Offset, err)
	}
	eventually(t, "the topic to be with its old owner", func() bool { return f.owner(topic, 0) == from })
	got, gaps := readAll(t, c, topic)
	if len(got) != 11 || len(gaps) != 1 || gaps[0].From != 10 || gaps[0].To != r.Offset {
		t.Errorf("read %d messages and gaps %v", len(got), gaps)
	}
	// Three rounds of the reconciler: the first that finds the files unlisted would delete them.
	rounds, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	<-rounds.Done()
	for name := range files {
		if now := segments(t, f, to); !now[name] {
			t.Errorf("%s was deleted: it may be the only copy", name)
		}
	}
}

// segments are the segment files of a broker.
func segments(t *testing.T, f *fleet, i int) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(f.config(i).DataDir, "wal"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".seg" {
			out[path] = true
		}
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("segments of n%d: %v, %v", i+1, out, err)
	}
	return out
}

// The metadata are saved and put back page by page, what vanishes is named, and a new history begins (R22).
func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	publish(t, f.dial(0), "before", 0, 20)
	publish(t, f.dial(0), "again", 0, 1)
	a := f.dial(1).Admin()
	saved := snapshot(t, a)
	publish(t, f.dial(2), "after", 0, 20)
	if err := a.TopicDelete(t.Context(), protocol.TopicArgs{Topic: "again", Force: true}); err != nil {
		t.Fatal(err)
	}
	publish(t, f.dial(2), "again", 0, 1)
	half := len(saved) / 2
	q := protocol.SnapshotPage{Size: int64(len(saved)), Data: saved[:half]}
	page, err := a.RestorePage(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.ID, q.Offset, q.Data, q.Last = page.ID, int64(half), saved[half:], true
	if page.Gone != 0 || page.Vanished != nil {
		t.Errorf("half of a restore took away %q", page.Vanished)
	}
	if page, err = a.RestorePage(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	// The second topic of its name is gone, the first is back.
	if want := []string{"/default/after", "/default/again"}; !slices.Equal(page.Vanished, want) || page.Gone != 2 {
		t.Errorf("%d topics vanished: %q, want %q", page.Gone, page.Vanished, want)
	}
	eventually(t, "the cluster has a new history", func() bool {
		s, err := a.Status(t.Context())
		return err == nil && s.History == 1 && s.Topics == 2
	})
	_, err = a.RestorePage(t.Context(), protocol.SnapshotPage{ID: "none", Data: []byte("x"), Last: true})
	if err == nil || errors.Is(err, protocol.Errorf(protocol.CodeInternal, "")) {
		t.Errorf("a page of a transfer that nobody knows: %v", err)
	}
}
