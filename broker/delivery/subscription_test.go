package delivery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/outbox"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// client is a connection that nobody writes to.
type client struct{ out *outbox.Outbox }

func newClient(t *testing.T) *client {
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return &client{outbox.New(outbox.Config{
		Conn: near, Acked: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "acked"}), Sent: prometheus.NewCounter(prometheus.CounterOpts{Name: "sent"}),
		Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})}
}

func (c *client) Out() *outbox.Outbox { return c.out }
func (c *client) Address() string     { return "nowhere" }
func (c *client) Drop(uint32)         {}

// A consumer gets nothing before its client knows its handle: a delivery that
// overtook the answer would be held for a consumer that never saw it.
func TestNothingIsDeliveredBeforeTheAnswer(t *testing.T) {
	carrier := Open(Config{Now: time.Now, Go: func(func(context.Context)) {}, Log: slog.New(slog.DiscardHandler)})
	s, err := carrier.Subscription(&Partition{Topic: "/default/t", Epoch: 1}, &state.Subscription{
		ID: 1, Name: "s", Type: state.SubscriptionType(protocol.Shared), Options: state.SubscriptionOptions{MaxUnacked: 100}, Cursors: make([]state.Cursor, 1),
	})
	if err != nil {
		t.Fatal(err)
	}
	join := func(name string, handle, credit uint32) *Consumer {
		o := s.Consumer(newClient(t), name)
		o.Handle = handle
		if _, err := s.Join(o, &protocol.Subscribe{Subscription: "s", Consumer: name, Credit: credit}); err != nil {
			t.Fatal(err)
		}
		return o
	}
	one := join("one", 1, 3) // the rest of a batch of six is for the second
	s.Begin(one)
	l := &loop{s: s}
	l.next() // as the goroutine of the first does, before the second joins
	two := join("two", 2, 10)
	got := func() map[dispatch.ConsumerID]bool {
		step, alive := l.next()
		if !alive || step.Reason != dispatch.Ready {
			t.Fatalf("alive %t, %+v", alive, step)
		}
		out := map[dispatch.ConsumerID]bool{}
		for _, d := range s.d.Offer(step, dispatch.Batch{Count: 6}, s.now(), nil) {
			out[d.Consumer] = true
		}
		return out
	}
	if to := got(); !to[one.ID] || to[two.ID] {
		t.Errorf("before the answer deliveries went to %v", to)
	}
	s.Begin(two)
	if to := got(); !to[two.ID] {
		t.Errorf("after the answer deliveries went to %v", to)
	}
}

// A line about a gap names an error where there is one, and nothing that looks like one where there is none.
func TestGapIsLoggedWithItsReason(t *testing.T) {
	var out bytes.Buffer
	c := &Carrier{cfg: Config{Log: slog.New(slog.NewTextHandler(&out, nil))}}
	s := &Subscription{c: c, part: &Partition{Topic: "/default/t"}, Name: "s"}
	s.logGap("subscription passes a gap", 0, 5, "trimmed", nil)
	if text := out.String(); strings.Contains(text, "err=") || !strings.Contains(text, "from=0 to=5 status=trimmed") {
		t.Error(text)
	}
	out.Reset()
	s.logGap("subscription passes a gap", 0, 5, "damaged", errors.New("CRC"))
	if !strings.Contains(out.String(), "err=CRC") {
		t.Error(out.String())
	}
}

// What came back, or is lost, is no gap that anybody waits at: the time at the next one begins anew.
func TestNobodyWaitsAtAGapThatIsNone(t *testing.T) {
	carrier := Open(Config{Now: time.Now, Go: func(func(context.Context)) {}, Log: slog.New(slog.DiscardHandler)})
	gap, other := []state.OffsetRange{{Start: 5, End: 10}}, []state.OffsetRange{{Start: 10, End: 20}}
	for name, test := range map[string]struct {
		outcome history.Outcome
		waits   bool
	}{
		"back":      {history.Outcome{Back: gap}, false},
		"nothing":   {history.Outcome{None: gap}, false},
		"lost":      {history.Outcome{Lost: gap}, false},
		"elsewhere": {history.Outcome{Back: other}, true},
		"no news":   {history.Outcome{}, true},
	} {
		s, err := carrier.Subscription(&Partition{Topic: "/default/t", Epoch: 1}, &state.Subscription{ID: 1, Name: "s", Cursors: make([]state.Cursor, 1)})
		if err != nil {
			t.Fatal(err)
		}
		s.gapSince, s.gap = 1, dispatch.Range{Start: 5, End: 10}
		if s.Turned(&test.outcome); s.gapSince != 0 != test.waits {
			t.Errorf("%s: it waits since %d", name, s.gapSince)
		}
	}
}
