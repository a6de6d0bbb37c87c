package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// traffic is a producer at a steady rate and the consumer of an exclusive subscription, with what both were told.
type traffic struct {
	t     testing.TB
	topic string
	name  string
	l     *ledger
	heard *audience
	pulse pulse

	stopSending, stopHearing context.CancelFunc
	sending, hearing         sync.WaitGroup
}

// pulse is when acknowledgements came.
type pulse struct {
	mu      sync.Mutex
	last    time.Time
	longest time.Duration
}

func (p *pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.longest = max(p.longest, now.Sub(p.last))
	}
	p.last = now
}

// pause is the longest time without an acknowledgement since it was last asked for, one that lasts included.
func (p *pulse) pause() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	longest := max(p.longest, time.Since(p.last))
	p.longest, p.last = 0, time.Now()
	return longest
}

// carry starts a producer of rate messages a second and a consumer, through any of the addresses, and waits until both
// are at work.
func carry(t testing.TB, d door, topic string, rate int) *traffic {
	t.Helper()
	return carryAs(t, d, topic, who{"mid-stream", rate, newLedger()})
}

// who is a producer and a consumer among several of a topic.
type who struct {
	name string // of the subscription, and what its messages begin with
	rate int
	l    *ledger // shared by all producers of a topic
}

func carryAs(t testing.TB, d door, topic string, w who) *traffic {
	t.Helper()
	tr := &traffic{t: t, topic: topic, name: w.name, l: w.l, heard: &audience{at: map[uint64]string{}}}
	sending, stopSending := context.WithCancel(context.WithoutCancel(t.Context()))
	hearing, stopHearing := context.WithCancel(context.WithoutCancel(t.Context()))
	tr.stopSending, tr.stopHearing = stopSending, stopHearing
	t.Cleanup(func() { // what a failed test leaves behind
		stopSending()
		stopHearing()
		tr.sending.Wait()
		tr.hearing.Wait()
	})
	p := d.produce(topic)
	k, err := d.dial().Consumer(t.Context(), topic, client.ConsumerConfig{
		Subscription: w.name, From: protocol.Position{Kind: protocol.Earliest}, OnGap: tr.heard.gap,
	})
	if err != nil {
		t.Fatal(err)
	}
	tr.sending.Go(func() { tr.send(sending, p, w.rate) }) // returns when sending ends
	tr.hearing.Go(func() { tr.hear(hearing, k) })         // returns when hearing ends
	tr.flows(100)
	return tr
}

// send sends a hundredth of the rate every ten milliseconds.
func (tr *traffic) send(ctx context.Context, p *client.Producer, rate int) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ctx.Err() == nil; {
		for range max(rate/100, 1) {
			payload := fmt.Sprintf("%s %s message %d", tr.topic, tr.name, i)
			i++
			err := p.SendAsync(ctx, client.Message{Payload: []byte(payload)}, func(r client.Result, err error) {
				tr.l.note(tr.t, payload, r, err)
				if err == nil {
					tr.pulse.beat(time.Now())
				} else {
					tr.t.Errorf("the producer was told of %q: %v", payload, err)
				}
			})
			if err != nil && ctx.Err() == nil {
				tr.t.Errorf("the producer takes no more messages: %v", err)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	if unknown, err := p.Close(last); unknown > 0 {
		tr.t.Errorf("the producer had %d messages without an outcome: %v", unknown, err)
	}
}

func (tr *traffic) hear(ctx context.Context, k *client.Consumer) {
	for {
		m, err := k.Receive(ctx)
		if err != nil {
			if ctx.Err() == nil {
				tr.t.Errorf("the consumer was told: %v", err)
			}
			break
		}
		tr.heard.message(m)
		if err := k.Ack(m); err != nil && ctx.Err() == nil {
			tr.t.Errorf("the consumer could not acknowledge: %v", err)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	if err := k.Close(last); err != nil {
		tr.t.Errorf("close the consumer: %v", err)
	}
}

// flows waits until n more messages were acknowledged.
func (tr *traffic) flows(n int) {
	tr.t.Helper()
	want := tr.l.count() + n
	eventually(tr.t, readyWithin, fmt.Sprintf("%d more messages are acknowledged", n), func() bool { return tr.l.count() >= want })
}

// end stops the producer, waits until the consumer has everything, stops it, and returns what it was handed.
func (tr *traffic) end() *audience {
	tr.t.Helper()
	tr.stopSending()
	tr.sending.Wait()
	missing := ""
	deadline := time.Now().Add(readyWithin)
	for {
		missing = tr.heard.lacks(tr.l)
		if missing == "" || time.Now().After(deadline) || !rest(tr.t.Context(), 20*time.Millisecond) {
			break
		}
	}
	tr.stopHearing()
	tr.hearing.Wait()
	if missing != "" {
		tr.t.Errorf("the old subscription: %s", missing)
	}
	return tr.heard
}

// proves wants of a fresh reader and of the old subscription that they hold everything acknowledged once, at its offset.
func (tr *traffic) proves(d door) *audience {
	tr.t.Helper()
	heard := tr.end()
	got, gaps := d.contents(tr.topic)
	tr.l.check(tr.t, got, gaps)
	heard.judge(tr.t, got)
	return heard
}

// audience is what the consumer of an exclusive subscription was handed.
type audience struct {
	mu    sync.Mutex
	at    map[uint64]string
	next  uint64 // behind the highest that came in turn
	again int    // handed out before
	late  int
	moved int // a reader finds them at another offset
	wrong []string
	gaps  []client.GapError
}

func (a *audience) gap(g client.GapError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gaps = append(a.gaps, g)
}

func (a *audience) message(m client.Message) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before, had := a.at[m.Offset]
	a.at[m.Offset] = string(m.Payload)
	switch {
	case had && before != string(m.Payload):
		a.wrong = append(a.wrong, fmt.Sprintf("offset %d was %q and then %q", m.Offset, before, m.Payload))
	case had:
		a.again++
	case m.Late:
		a.late++
	case m.Offset < a.next:
		a.wrong = append(a.wrong, fmt.Sprintf("offset %d came behind %d and was not called late", m.Offset, a.next-1))
	}
	a.next = max(a.next, m.Offset+1)
}

// lacks names what was acknowledged and not handed out.
func (a *audience) lacks(l *ledger) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	n, lowest := 0, uint64(0)
	for o, payload := range l.acked {
		if a.at[o] != payload {
			if n == 0 || o < lowest {
				lowest = o
			}
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d acknowledged messages are missing, the first %q at offset %d; gaps %v", n, len(l.acked), l.acked[lowest], lowest, a.gaps)
}

// judge holds what was handed out against what a fresh reader found. The order was judged as it came. What an owner handed
// out and could not acknowledge before it was given up was sent again to the next one: where both have it, the first is
// superseded and readers find the message at its second offset alone (R15).
func (a *audience) judge(t testing.TB, read map[uint64]string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.wrong {
		t.Error(w)
	}
	stored := map[string]bool{}
	for _, payload := range read {
		stored[payload] = true
	}
	for o, payload := range a.at {
		if read[o] == "" && stored[payload] {
			a.moved++
		} else if read[o] != payload {
			t.Errorf("the consumer had %q at offset %d, a reader finds %q", payload, o, read[o])
			return
		}
	}
}

// inTurn fails unless every message came once and in the order of offsets.
func (a *audience) inTurn(t testing.TB) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.again > 0 || a.late > 0 || a.moved > 0 {
		t.Errorf("the consumer was handed %d messages a second time, %d late and %d at two offsets", a.again, a.late, a.moved)
	}
}
