package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

var earliest = protocol.Position{Kind: protocol.Earliest}

func consumer(t testing.TB, c *client.Client, topic string, cfg client.ConsumerConfig) *client.Consumer {
	t.Helper()
	cons, err := c.Consumer(t.Context(), topic, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cons
}

func receive(t testing.TB, cons *client.Consumer) client.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	m, err := cons.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func closeConsumer(t testing.TB, cons *client.Consumer) {
	t.Helper()
	if err := cons.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A60: acknowledged out of order, then a restart: only what was not acknowledged comes again.
func TestScatteredAcksSurviveARestart(t *testing.T) {
	t.Parallel()
	const messages = 4000
	dir := t.TempDir()
	n := start(t, dir, nil)
	c := dial(t, n)
	publish(t, c, "scattered", 0, messages)
	cons := consumer(t, c, "scattered", client.ConsumerConfig{
		Subscription: "s", From: earliest, Options: protocol.SubOptions{MaxUnacked: messages}, Queue: messages,
	})
	for range messages {
		if m := receive(t, cons); m.Offset%2 == 0 {
			if err := cons.Ack(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	closeConsumer(t, cons)
	n.close(t)()
	n = start(t, dir, nil)
	c = dial(t, n)
	cons = consumer(t, c, "scattered", client.ConsumerConfig{Subscription: "s", Queue: messages})
	for want := uint64(1); want < messages; want += 2 {
		m := receive(t, cons)
		if m.Offset != want {
			t.Fatalf("got offset %d, want %d", m.Offset, want)
		}
		if err := cons.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	closeConsumer(t, cons)
	d, err := c.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "scattered", Subscription: "s"})
	if err != nil || d.Partitions[0].Cursor != messages || d.Partitions[0].Lag != 0 || d.Partitions[0].Ranges != 0 {
		t.Fatalf("subscription %+v, %v", d, err)
	}
}

func TestRefusedMessageComesAgainCounted(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "again", 0, 3)
	cons := consumer(t, c, "again", client.ConsumerConfig{Subscription: "s", From: earliest})
	first := receive(t, cons)
	if err := cons.Nack(first, time.Millisecond, "not now"); err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]int{}
	for len(seen) < 3 {
		m := receive(t, cons)
		seen[m.Offset] = m.Deliveries
		if err := cons.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if seen[0] != 2 || seen[1] != 1 || seen[2] != 1 {
		t.Fatalf("deliveries by offset: %v", seen)
	}
	closeConsumer(t, cons)
}

func TestSharedSubscriptionDividesMessagesAndLosesNone(t *testing.T) {
	t.Parallel()
	const messages, consumers = 3000, 3
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "shared", 0, messages)
	var (
		mu   sync.Mutex
		seen = map[uint64]int{}
		wg   sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for i := range consumers {
		cons := consumer(t, c, "shared", client.ConsumerConfig{Subscription: "s", Name: fmt.Sprint("c", i), Type: protocol.Shared, From: earliest, Queue: 100})
		wg.Go(func() {
			for {
				m, err := cons.Receive(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					break
				}
				if err := cons.Ack(m); err != nil {
					t.Error(err)
				}
				mu.Lock()
				seen[m.Offset]++
				if len(seen) == messages {
					cancel()
				}
				mu.Unlock()
			}
			if err := cons.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for o := range uint64(messages) {
		if seen[o] != 1 {
			t.Fatalf("offset %d was received %d times", o, seen[o])
		}
	}
}

func TestExclusiveSubscriptionTakesOneConsumer(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "one", 0, 1)
	a := consumer(t, c, "one", client.ConsumerConfig{Subscription: "s", Name: "a", From: earliest})
	_, err := c.Consumer(t.Context(), "one", client.ConsumerConfig{Subscription: "s", Name: "b"})
	if !errors.Is(err, &protocol.Error{Code: protocol.CodeConsumerBusy}) {
		t.Fatalf("second consumer: %v", err)
	}
	closeConsumer(t, a)
	closeConsumer(t, consumer(t, c, "one", client.ConsumerConfig{Subscription: "s", Name: "b"}))
}

// A consumer that asks for what this version does not have is told so and leaves no subscription behind: one that nobody
// wanted would count as unread.
func TestRefusedConsumerLeavesNoSubscription(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "kept", 0, 1)
	if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "live", Config: protocol.TopicConfig{NonReliable: true}}); err != nil {
		t.Fatal(err)
	}
	for what, cfg := range map[string]client.ConsumerConfig{
		"key filters":     {Filters: []string{"a*"}},
		"type failover":   {Type: protocol.Failover},
		"type key-shared": {Type: protocol.KeyShared},
	} {
		for _, topic := range []string{"kept", "live"} {
			cfg.Subscription = "s"
			_, err := c.Consumer(t.Context(), topic, cfg)
			if !errors.Is(err, &protocol.Error{Code: protocol.CodeUnsupported}) || !strings.Contains(err.Error(), what+" are not in this version") {
				t.Errorf("%s on %s: %v", what, topic, err)
			}
			list, err := c.Admin().SubscriptionList(t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
			if err != nil || len(list.Subscriptions) > 0 {
				t.Errorf("%s on %s left %+v, %v", what, topic, list, err)
			}
		}
	}
}

func TestLiveTopicDeliversToWhoIsThere(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "live", Config: protocol.TopicConfig{NonReliable: true}}); err != nil {
		t.Fatal(err)
	}
	cons := consumer(t, c, "live", client.ConsumerConfig{Subscription: "s"})
	p, err := c.Producer(t.Context(), "live", client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		r, err := p.Send(t.Context(), client.Message{Payload: fmt.Append(nil, i)})
		if err != nil || r.Level != protocol.LevelNone {
			t.Fatalf("send %d: %+v, %v", i, r, err)
		}
		if m := receive(t, cons); string(m.Payload) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.Payload)
		}
	}
	closeConsumer(t, cons)
	if _, err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A producer that was closed is gone from its partition before its client
// hears so: an exclusive one would keep all others out for ever.
func TestClosedProducersAreGone(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	for i := range 10 {
		p, err := c.Producer(t.Context(), "closed", client.ProducerConfig{Create: &protocol.TopicConfig{}, Exclusive: true})
		if err != nil {
			t.Fatalf("exclusive producer %d: %v", i, err)
		}
		if _, err := p.Send(t.Context(), client.Message{}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		d, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "closed", Partition: -1})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Partitions[0].Producers; got != 0 {
			t.Fatalf("%d producers after all were closed", got)
		}
	}
}

// Who sends to a live topic, or waits for its messages, is told that it was deleted.
func TestClientsOfALiveTopicHearOfItsEnd(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	if _, err := c.Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "live", Config: protocol.TopicConfig{NonReliable: true}}); err != nil {
		t.Fatal(err)
	}
	cons := consumer(t, c, "live", client.ConsumerConfig{Subscription: "s"})
	p, err := c.Producer(t.Context(), "live", client.ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Send(t.Context(), client.Message{}); err != nil {
		t.Fatal(err)
	}
	receive(t, cons)
	inUse := &protocol.Error{Code: protocol.CodeSubscriptionInUse}
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "live"}); !errors.Is(err, inUse) {
		t.Errorf("delete a topic in use without force: %v", err)
	}
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "live", Force: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := cons.Receive(ctx); !errors.Is(err, &protocol.Error{Code: protocol.CodeNoSuchTopic}) {
		t.Errorf("receive from a topic that was deleted: %v", err)
	}
	if _, err := p.Send(ctx, client.Message{}); !errors.Is(err, &protocol.Error{Code: protocol.CodeNoSuchTopic}) {
		t.Errorf("send to a topic that was deleted: %v", err)
	}
}

// Producers alone do not keep a topic: it goes, and they hear so, for good, with
// their next message. A consumer does.
func TestTopicWithOnlyProducersIsDeleted(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	for name, cfg := range map[string]protocol.TopicConfig{"kept": {}, "live": {NonReliable: true}} {
		t.Run(name, func(t *testing.T) {
			p, err := c.Producer(t.Context(), name, client.ProducerConfig{Create: &cfg})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Send(t.Context(), client.Message{}); err != nil {
				t.Fatal(err)
			}
			if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: name}); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Send(t.Context(), client.Message{}); !errors.Is(err, client.ErrNoSuchTopic) {
				t.Errorf("send to a topic that was deleted: %v", err)
			}
			if _, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: name, Partition: -1}); !errors.Is(err, client.ErrNoSuchTopic) {
				t.Errorf("the topic is back: %v", err)
			}
		})
	}
}

func TestSeekAndReadByOffsetAndTime(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "seek", 0, 100)
	cons := consumer(t, c, "seek", client.ConsumerConfig{Subscription: "s", From: protocol.Position{Kind: protocol.AtOffset, Offset: 90}})
	if m := receive(t, cons); m.Offset != 90 {
		t.Fatalf("begins at %d", m.Offset)
	}
	if err := cons.Seek(t.Context(), protocol.Position{Kind: protocol.AtOffset, Offset: 7}); err != nil {
		t.Fatal(err)
	}
	if m := receive(t, cons); m.Offset != 7 {
		t.Fatalf("after the seek: offset %d", m.Offset)
	}
	closeConsumer(t, cons)
	r, err := c.Reader(t.Context(), "seek", client.ReaderConfig{From: protocol.Position{Kind: protocol.AtTime, Time: 1}, ToEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if m, err := r.Next(t.Context()); err != nil || m.Offset != uint64(i) {
			t.Fatalf("read %d: offset %d, %v", i, m.Offset, err)
		}
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Fatalf("behind the end: %v", err)
	}
	r.Close()
}

// A69: a deleted subscription stays deleted; one of the same name begins anew.
func TestTopicsAndSubscriptionsAreDeletedForGood(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir, nil)
	c := dial(t, n)
	publish(t, c, "gone", 0, 10)
	consume(t, c, "gone/s", 0, 10)
	if err := c.Admin().SubscriptionDelete(t.Context(), protocol.SubArgs{Topic: "gone", Subscription: "s"}); err != nil {
		t.Fatal(err)
	}
	cons := consumer(t, c, "gone", client.ConsumerConfig{Subscription: "s"})
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "gone"}); !errors.Is(err, &protocol.Error{Code: protocol.CodeSubscriptionInUse}) {
		t.Fatalf("delete a topic in use without force: %v", err)
	}
	closeConsumer(t, cons)
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "gone"}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "gone", Partition: -1}); !errors.Is(err, &protocol.Error{Code: protocol.CodeNoSuchTopic}) {
		t.Fatalf("describe: %v", err)
	}
	n.close(t)()
	n = start(t, dir, nil)
	c = dial(t, n)
	publish(t, c, "gone", 0, 5) // offsets from 0 again: another topic of that name
	consume(t, c, "gone/s", 0, 5)
}

// A71, A72: what a bad peer sends ends its own connection and nothing else.
func TestGarbageEndsOnlyItsConnection(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "good", 0, 10)
	var bad []net.Conn
	for i := range 200 {
		nc, err := net.Dial("tcp", n.ClientAddr())
		if err != nil {
			t.Fatal(err)
		}
		bad = append(bad, nc)
		frame := [][]byte{{0xff, 0xff, 0xff, 0xff}, {1, 2, 3}, []byte("GET / HTTP/1.1\r\n\r\n"), make([]byte, 4096)}[i%4]
		if _, err := nc.Write(frame); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, c, "good2", 0, 1000)
	consume(t, c, "good2/s", 0, 1000)
	for _, nc := range bad {
		if err := nc.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHTTPTellsHealthMetricsAndAdmin(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "seen", 0, 10)
	get := func(path string, want int) string {
		t.Helper()
		res, err := http.Get("http://" + n.HTTPAddr() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%s: %s %s, %v", path, res.Status, body, err)
		}
		return string(body)
	}
	get("/healthz", http.StatusOK)
	get("/readyz", http.StatusOK)
	if m := get("/metrics", http.StatusOK); !strings.Contains(m, `danube_partition_next_offset{partition="0",topic="/default/seen"} 10`) {
		t.Fatalf("metrics:\n%s", m)
	}
	res, err := http.Post("http://"+n.HTTPAddr()+"/api/v1/topic.list", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var list protocol.TopicList
	if err := json.NewDecoder(res.Body).Decode(&list); err != nil || len(list.Topics) != 1 || list.Topics[0].Topic != "/default/seen" {
		t.Fatalf("topic list %+v, %v", list, err)
	}
}

// What JSON says of a topic is what it becomes, and an argument is one value with nothing behind it.
func TestHTTPArguments(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), nil)
	for name, test := range map[string]struct {
		op, body string
		status   int
		want     string
	}{
		"not reliable":        {"topic.create", `{"topic":"a","config":{"reliable":false}}`, 200, `"reliable":false`},
		"reliable":            {"topic.create", `{"topic":"b","config":{"reliable":true}}`, 200, `"reliable":true`},
		"reliable by default": {"topic.create", `{"topic":"c","config":{"partitions":2}}` + "\n", 200, `"reliable":true`},
		"no settings":         {"topic.create", `{"topic":"d"}`, 200, `"reliable":true`},
		"no body":             {"topic.list", "", 200, `"topics":`},
		"an unknown setting":  {"topic.create", `{"topic":"x","config":{"releable":false}}`, 400, "releable"},
		"a second value":      {"topic.create", `{"topic":"x"}{"topic":"y"}`, 400, "behind"},
		"text behind":         {"topic.delete", `{"topic":"a"} and more`, 400, "behind"},
		"a bracket behind":    {"topic.delete", `{"topic":"a"}}`, 400, "behind"},
		"a NUL behind":        {"topic.delete", "{\"topic\":\"a\"}\x00", 400, "behind"},
		"half a value":        {"topic.delete", `{"topic":"a"`, 400, "malformed"},
		"durability warm":     {"topic.create", `{"topic":"x","config":{"durability":"warm"}}`, 501, "has local"},
		"durability object":   {"topic.create", `{"topic":"x","config":{"durability":"object"}}`, 501, "needs a cold tier"},
	} {
		t.Run(name, func(t *testing.T) {
			res, err := http.Post("http://"+n.HTTPAddr()+"/api/v1/"+test.op, "application/json", strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if err = errors.Join(err, res.Body.Close()); err != nil || res.StatusCode != test.status || !strings.Contains(string(body), test.want) {
				t.Errorf("%s %s, %v", res.Status, body, err)
			}
		})
	}
	if d, err := dial(t, n).Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "a", Partition: -1}); err != nil || d.Reliable {
		t.Errorf("the topic that is not reliable: %+v, %v", d, err)
	}
	if _, err := dial(t, n).Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "x", Partition: -1}); !errors.Is(err, client.ErrNoSuchTopic) {
		t.Errorf("a refused argument made a topic: %v", err)
	}
}

func TestLogLongerThanTheCeilingAndSegments(t *testing.T) {
	t.Parallel()
	n := start(t, t.TempDir(), func(c *broker.Config) { c.Storage.SegmentBytes = 64 << 10 })
	c := dial(t, n)
	publish(t, c, "long", 0, 50_000)
	d, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: "long", Partition: -1})
	if err != nil || d.Partitions[0].NextOffset != 50_000 || d.Partitions[0].Segments < 3 {
		t.Fatalf("topic %+v, %v", d, err)
	}
	if _, err := c.Admin().TopicTruncate(t.Context(), protocol.Truncate{Topic: "long", Before: 30_000}); err != nil {
		t.Fatal(err)
	}
	r, err := c.Reader(t.Context(), "long", client.ReaderConfig{From: earliest, ToEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if m, err := r.Next(t.Context()); err != nil || m.Offset != 30_000 {
		t.Fatalf("first: offset %d, %v", m.Offset, err)
	}
}
