package broker

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/protocol"
)

// running opens and runs a broker with one topic until the test ends.
func running(t *testing.T, topic string, cfg protocol.TopicConfig) *Broker {
	t.Helper()
	b := runningWith(t, Config{})
	if err := b.Ask(t.Context(), protocol.OpTopicCreate, &protocol.TopicCreate{Topic: topic, Config: cfg}); err != nil {
		t.Fatal(err)
	}
	return b
}

// runningWith opens and runs a broker on a directory of its own until the test ends.
func runningWith(t *testing.T, cfg Config) *Broker {
	t.Helper()
	cfg.DataDir, cfg.Name, cfg.Listen.Client = t.TempDir(), "n1", "127.0.0.1:0"
	b, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-done, b.Close()); err != nil {
			t.Error(err)
		}
	})
	await(t, b.ready.Load)
	return b
}

// await polls until ok.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("waited for ten seconds")
		}
	}
}

func pipeConn(t *testing.T, b *Broker) (c *conn, far net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return newConn(b, near, 1), far
}

// A connection that ends while its Subscribe is under way leaves no consumer
// behind: one nobody reads would hold its messages for ever, and keep an
// exclusive subscription shut.
func TestConnectionThatEndsWhileItSubscribesLeavesNoConsumer(t *testing.T) {
	t.Parallel()
	b := running(t, "/default/slam", protocol.TopicConfig{})
	q := &protocol.Subscribe{Topic: "/default/slam", Subscription: "s", Consumer: "a", Credit: 10}
	if _, err := b.admin.CreateSubscription(t.Context(), &protocol.SubCreate{Topic: q.Topic, Subscription: q.Subscription}); err != nil {
		t.Fatal(err)
	}
	p, err := b.serving(t.Context(), q.Topic, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	s, _, err := b.subscription(t.Context(), p, q)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := pipeConn(t, b)
	ended := errors.New("the peer went away")
	held, let := make(chan struct{}), make(chan struct{})
	go func() { // returns when it is let
		_, _ = s.Settle(func(*dispatch.Subscription, int64) (dispatch.Settled, error) {
			close(held)
			<-let // the join waits for this
			return dispatch.Settled{}, nil
		})
	}()
	<-held
	refused := make(chan error, 1)
	go func() {
		_, err := c.subscribe(c.ctx, q)
		refused <- err
	}()
	await(t, func() bool { return c.consumer(1) != nil })
	c.cancel(ended)
	c.mu.Lock()
	c.producers, c.consumers = nil, nil // as detach does, whose leave finds nobody
	c.mu.Unlock()
	close(let)
	if err := <-refused; !errors.Is(err, ended) {
		t.Errorf("subscribe: %v", err)
	}
	if n := s.Consumers(); n != 0 {
		t.Errorf("%d consumers of a connection that is gone", n)
	}
}

// A consumer that is ended before its client knows the handle is told of it
// behind the answer, and not before: the client would not know whom it means.
func TestEndOfAConsumerIsToldBehindTheAnswerThatNamesIt(t *testing.T) {
	t.Parallel()
	b := running(t, "/default/early", protocol.TopicConfig{})
	c, far := pipeConn(t, b)
	h, err := c.subscribe(t.Context(), &protocol.Subscribe{Topic: "/default/early", Subscription: "s", Consumer: "a", Credit: 10})
	if err != nil {
		t.Fatal(err)
	}
	ok := h.(answered)
	handle := ok.Header.(*protocol.SubscribeOK).Handle
	c.consumer(handle).sub.Subscription().Close(protocol.Errorf(protocol.CodeNoSuchSub, "deleted"))
	c.out.Frame(protocol.TypeSubscribeOK, 7, ok.Header)
	ok.then()
	done := make(chan struct{})
	go func() { // returns when the connection is closed
		defer close(done)
		c.out.Write(c.ctx, c.cancel)
	}()
	in := protocol.NewReader(far, 64<<10)
	for _, want := range []protocol.Type{protocol.TypeSubscribeOK, protocol.TypeUnsubscribed} {
		if f, err := in.Next(); err != nil || f.Type != want {
			t.Errorf("got frame type %v, %v, want %v", f.Type, err, want)
		}
	}
	c.close(errors.New("the end of the test"))
	<-done
}
