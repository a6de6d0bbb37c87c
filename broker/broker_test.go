package broker_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// atOnce is how many tests that call t.Parallel run beside each other, however few processors there are: they wait for
// leases, elections and files most of the time. Tests that assert times do not call it.
const atOnce = "3"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// node is a broker running in this process.
type node struct {
	*broker.Broker
	stop context.CancelFunc
	done chan error
}

// start opens and runs a broker on a data directory; the test's end stops it.
func start(t testing.TB, dir string, change func(*broker.Config)) *node {
	t.Helper()
	cfg := broker.Config{DataDir: dir, Name: "n1", Listen: broker.Listen{Client: "127.0.0.1:0", HTTP: "127.0.0.1:0"}}
	if os.Getenv("DANUBE_TEST_LOG") != "" {
		cfg.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if change != nil {
		change(&cfg)
	}
	b, err := broker.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &node{Broker: b, stop: cancel, done: make(chan error, 1)}
	go func() { n.done <- b.Run(ctx) }()
	t.Cleanup(n.close(t))
	return n
}

// close stops the broker, once.
func (n *node) close(t testing.TB) func() {
	return func() {
		t.Helper()
		if n.done == nil {
			return
		}
		n.stop()
		if err := <-n.done; err != nil {
			t.Errorf("run: %v", err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		n.done = nil
	}
}

func dial(t testing.TB, n *node) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), []string{n.ClientAddr()}, client.Config{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func publish(t testing.TB, c *client.Client, topic string, from, to int) {
	t.Helper()
	p, err := c.Producer(t.Context(), topic, client.ProducerConfig{Create: &protocol.TopicConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		want := uint64(i)
		err := p.SendAsync(t.Context(), client.Message{Payload: fmt.Appendf(nil, "m%d", i)}, func(r client.Result, err error) {
			if err != nil || r.Offset != want {
				t.Errorf("message %d: offset %d, %v", want, r.Offset, err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n, err := p.Close(t.Context()); err != nil || n != 0 {
		t.Fatalf("close producer: %d unknown, %v", n, err)
	}
}

// consume receives and acknowledges the messages that publish numbered from..to-1; of is "topic/subscription".
func consume(t testing.TB, c *client.Client, of string, from, to int) {
	t.Helper()
	topic, sub, _ := strings.Cut(of, "/")
	cons, err := c.Consumer(t.Context(), topic, client.ConsumerConfig{Subscription: sub, From: protocol.Position{Kind: protocol.Earliest}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := from; i < to; i++ {
		m, err := cons.Receive(ctx)
		if err != nil {
			t.Fatalf("receive %d: %v", i, err)
		}
		if string(m.Payload) != fmt.Sprintf("m%d", i) || m.Offset != uint64(i) {
			t.Fatalf("message %d: got %q at offset %d", i, m.Payload, m.Offset)
		}
		if err := cons.Ack(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := cons.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestPublishedMessagesAreConsumedInOrderAcrossRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	n := start(t, dir, nil)
	c := dial(t, n)
	publish(t, c, "events", 0, 5000)
	consume(t, c, "events/s", 0, 3000)
	for range 3 {
		n.close(t)()
		n = start(t, dir, nil)
		c = dial(t, n)
	}
	publish(t, c, "events", 5000, 6000)
	consume(t, c, "events/s", 3000, 6000)
	consume(t, c, "events/other", 0, 6000)
}
