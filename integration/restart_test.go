package integration

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// ledger is what producers were told: the payload acknowledged at each offset.
type ledger struct {
	mu      sync.Mutex
	acked   map[uint64]string
	unknown map[string]bool
	refused map[string]bool
	wake    chan struct{}
}

func newLedger() *ledger {
	return &ledger{acked: map[uint64]string{}, unknown: map[string]bool{}, refused: map[string]bool{}, wake: make(chan struct{}, 1)}
}

func (l *ledger) note(t testing.TB, payload string, r client.Result, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var refused *protocol.Error
	var doubt *client.UnknownError
	switch {
	case err == nil:
		if other, twice := l.acked[r.Offset]; twice {
			t.Errorf("offset %d was acknowledged for %q and %q", r.Offset, other, payload)
		}
		l.acked[r.Offset] = payload
	case !errors.As(err, &doubt) && errors.As(err, &refused) && refused.Code.Meaning().NotStored:
		l.refused[payload] = true
	default:
		l.unknown[payload] = true
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// check wants of what a partition holds: everything acknowledged at its offset, nothing refused, nothing twice, and no
// gap but what was never given.
func (l *ledger) check(t testing.TB, got map[uint64]string, gaps []gapSeen) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	missing, lowest := 0, uint64(math.MaxUint64)
	for o, want := range l.acked {
		if got[o] != want {
			lowest = min(lowest, o)
			if missing++; missing <= 5 {
				t.Errorf("acknowledged %.40q at offset %d, read %.40q; gaps %v", want, o, got[o], gaps)
			}
		}
	}
	if missing > 0 {
		t.Fatalf("%d of %d acknowledged messages are not there, the first of them at offset %d; %d were read", missing, len(l.acked), lowest, len(got))
	}
	seen := map[string]uint64{}
	for o, payload := range got {
		if other, twice := seen[payload]; twice {
			t.Errorf("%.40q is at offsets %d and %d", payload, other, o)
		}
		seen[payload] = o
		if l.refused[payload] {
			t.Errorf("%.40q was refused as not stored and is at offset %d", payload, o)
		}
	}
	for _, g := range gaps {
		if g.status != "gap" {
			t.Errorf("offsets %d to %d are %s", g.from, g.to, g.status)
		}
	}
}

// load sends up to twenty thousand messages a second until its context ends; what they were told stands in the ledger.
func (l *ledger) load(ctx context.Context, t testing.TB, d door, topic, tag string) *sync.WaitGroup {
	return l.pour(ctx, t, d, brook{topic, tag, 100})
}

// brook is where messages go, what they end with, and how many go every five milliseconds.
type brook struct {
	topic, tag string
	each       int
}

// pour sends messages until its context ends; what they were told stands in the ledger.
func (l *ledger) pour(ctx context.Context, t testing.TB, d door, to brook) *sync.WaitGroup {
	p, tag := d.produce(to.topic), to.tag
	var wg sync.WaitGroup
	wg.Go(func() { // returns when ctx ends
		for i := 0; ctx.Err() == nil; i++ {
			if i%to.each == to.each-1 {
				rest(ctx, 5*time.Millisecond) // many rounds rather than large ones
			}
			payload := string(numbered(i, 20+i%500)) + tag
			err := p.SendAsync(ctx, client.Message{Payload: []byte(payload)}, func(r client.Result, err error) { l.note(t, payload, r, err) })
			if err != nil && ctx.Err() == nil {
				t.Errorf("producer %s takes no more messages: %v", tag, err)
				return
			}
		}
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
		defer cancel()
		if unknown, err := p.Close(last); unknown > 0 {
			t.Errorf("producer %s had %d messages without an outcome: %v", tag, unknown, err)
		}
	})
	return &wg
}

// TestRestartKeepsEveryAck kills the broker at random moments under load. The producers live through it: in the end
// every message has an outcome, what was acknowledged is there once, at its offset (A12a).
func TestRestartKeepsEveryAck(t *testing.T) {
	t.Parallel()
	kills := max(scaled(100), 4)
	rnd := rand.New(rand.NewPCG(2, 2))
	b := startBroker(t, "n1", options{})
	l := newLedger()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first, second := l.load(ctx, t, b.door, "kept", "a"), l.load(ctx, t, b.door, "kept", "b")
	for i := range kills {
		want := l.count() + 1 + rnd.IntN(3000)
		eventually(t, readyWithin, fmt.Sprintf("acknowledgements after kill %d", i), func() bool { return l.count() >= want })
		b.restart()
	}
	want := l.count() + 100
	eventually(t, readyWithin, "acknowledgements after the last kill", func() bool { return l.count() >= want })
	cancel()
	first.Wait()
	second.Wait()
	got, gaps := b.contents("kept")
	l.check(t, got, gaps)
	t.Logf("%d messages acknowledged over %d kills, %d read", l.count(), kills, len(got))
	list := b.must(nil, "topic", "list", "-o", "json")
	if !strings.Contains(string(list.stdout), "/default/kept") {
		t.Errorf("topic list lacks the topic: %s", list.stdout)
	}
}

// TestRestartStopUnderLoad ends the broker with SIGTERM while producers send: exit code 0 within five seconds, and
// nothing that was acknowledged is lost.
func TestRestartStopUnderLoad(t *testing.T) {
	b := startBroker(t, "n1", options{})
	l := newLedger()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loads []*sync.WaitGroup
	for i := range 4 {
		loads = append(loads, l.load(ctx, t, b.door, "stopped", fmt.Sprint(i)))
	}
	for range max(scaled(20), 2) {
		want := l.count() + 2000
		eventually(t, readyWithin, "acknowledgements", func() bool { return l.count() >= want })
		b.stop(5 * time.Second)
		b.start()
	}
	cancel()
	for _, wg := range loads {
		wg.Wait()
	}
	got, gaps := b.contents("stopped")
	l.check(t, got, gaps)
}

// TestRestartNeverSkipsACursor kills the broker while a consumer acknowledges: what comes again after the restart was
// acknowledged within the last commit interval, and nothing is skipped.
func TestRestartNeverSkipsACursor(t *testing.T) {
	t.Parallel()
	for _, kind := range []protocol.SubscriptionType{protocol.Exclusive, protocol.Shared} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			b := startBroker(t, "n1", options{})
			rounds := max(scaled(60), 3)
			p := b.produce("cursor")
			for i := range (rounds + 1) * perRound {
				if err := p.SendAsync(t.Context(), client.Message{Payload: numbered(i, 20)}, nil); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := &acker{ackedAt: map[uint64]time.Time{}}
			for round := range rounds {
				a.run(t, b, kind, 1500*time.Millisecond)
				b.restart()
				first := firstAgain(t, b, kind)
				for o := range first {
					if a.ackedAt[o].IsZero() {
						t.Fatalf("round %d: delivery goes on at %d, but %d was never acknowledged", round, first, o)
					}
				}
			}
			a.run(t, b, kind, 1500*time.Millisecond)
			b.restart() // for the producer to leave
		})
	}
}

// perRound is more than an acker acknowledges in one round: it rests after every 50.
const perRound = 8000

// acker acknowledges message after message, and remembers when.
type acker struct {
	ackedAt map[uint64]time.Time // the last time
	killed  time.Time            // just before the last kill
}

// run acknowledges for so long, then kills the broker. What comes again from before the last kill was acknowledged within
// the last commit interval.
func (a *acker) run(t testing.TB, b *broker, kind protocol.SubscriptionType, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	k, leave := subscribe(t, b, kind)
	defer leave()
	n := 0
	for {
		m, err := k.Receive(ctx)
		if err != nil {
			break
		}
		// The interval is 500 ms; the commit itself takes a while on a machine whose disk others use.
		if at := a.ackedAt[m.Offset]; !at.IsZero() && a.killed.Sub(at) > 5*time.Second {
			t.Errorf("offset %d comes again, it was acknowledged %v before the kill", m.Offset, a.killed.Sub(at))
		}
		if err := k.Ack(m); err != nil {
			t.Fatal(err)
		}
		a.ackedAt[m.Offset] = time.Now()
		if n++; n%50 == 0 {
			rest(ctx, 10*time.Millisecond) // so that acknowledgements go on until the kill
		}
	}
	if n == 0 {
		t.Fatal("nothing was delivered")
	}
	a.killed = time.Now()
	b.kill()
}

// subscribe returns a consumer over a client of its own; leave ends that without giving anything back.
func subscribe(t testing.TB, b *broker, kind protocol.SubscriptionType) (k *client.Consumer, leave func()) {
	t.Helper()
	cl := b.dial()
	k, err := cl.Consumer(t.Context(), "cursor", client.ConsumerConfig{
		Subscription: "s", Type: kind, Name: "c", From: protocol.Position{Kind: protocol.Earliest}})
	if err != nil {
		t.Fatal(err)
	}
	return k, cl.Close
}

// firstAgain is where a new consumer is served from. It gives the message back.
func firstAgain(t testing.TB, b *broker, kind protocol.SubscriptionType) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	k, leave := subscribe(t, b, kind)
	defer leave()
	m, err := k.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Close(ctx); err != nil {
		t.Fatal(err)
	}
	return m.Offset
}

// TestRestartKeepsConfirmedAcks: an acknowledgement that was confirmed never comes again.
func TestRestartKeepsConfirmedAcks(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("cursor"), 0, 40, 20)
	for round := range 3 {
		k, leave := subscribe(t, b, protocol.Shared)
		for range 10 {
			m, err := k.Receive(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := k.AckConfirmed(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
		b.kill()
		leave()
		b.start()
		if first := firstAgain(t, b, protocol.Shared); first != uint64(10*(round+1)) {
			t.Fatalf("after %d confirmed acknowledgements and a kill delivery goes on at %d", 10*(round+1), first)
		}
	}
}

// TestRestartIntervalIsNamed: the weaker promise stands in the ready line, in acknowledgements and in describe, and
// keeps what it promises, a kill of the process.
func TestRestartIntervalIsNamed(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{env: []string{"DANUBE_STORAGE_WAL_SYNC=interval"}})
	if b.ready["durability"] != "interval" {
		t.Errorf("the ready line says durability=%s", b.ready["durability"])
	}
	p := b.produce("weak")
	r, err := p.Send(t.Context(), client.Message{Payload: numbered(0, 20)})
	if err != nil || r.Level != protocol.LevelInterval {
		t.Fatalf("sent at level %v, %v", r.Level, err)
	}
	sendEach(t, p, 1, 99, 20)
	b.restart()
	b.holds("weak", 100, 20)
	if d := b.describe("weak"); d.Sync != "interval" {
		t.Errorf("describe says sync %q", d.Sync)
	}
	if text := string(b.must(nil, "topic", "describe", "weak").stdout); !strings.Contains(text, "not a power loss") {
		t.Errorf("describe says\n%s", text)
	}
}

// readySoon is about how long a start takes.
const readySoon = 600 * time.Millisecond

func randomUpTo(rnd *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rnd.Int64N(int64(d)))
}

// TestRestartKilledWhileStarting kills the broker again and again before it is ready.
func TestRestartKilledWhileStarting(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("kept"), 0, 300, 100)
	rnd := rand.New(rand.NewPCG(5, 5))
	for range max(scaled(200), 8) {
		b.kill()
		b.launch()
		rest(t.Context(), randomUpTo(rnd, readySoon))
	}
	b.restart()
	b.holds("kept", 300, 100)
}
