package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// takeover is a cluster of three with a topic under load, whose owner is, or is not, the leader.
func takeover(t *testing.T, o options, leads bool, rate int) (f *fleet, owner *broker, tr *traffic) {
	t.Helper()
	f = startCluster(t, 3, o)
	f.create("kept", 1)
	place := func() bool {
		leader := f.leader()
		if owner == nil || (owner == leader) != leads {
			owner = leader
			if !leads {
				owner = f.others(leader)[0]
			}
			f.place("kept", owner)
		}
		return (owner == f.leader()) == leads
	}
	place()
	tr = carry(t, f.door, "kept", rate)
	eventually(t, readyWithin, "the leader stays the leader", place) // on a busy machine it may change without a fault
	return f, owner, tr
}

// settled waits until nothing of a topic is orphaned and every partition is open.
func (f *fleet) settled(topic string) {
	f.t.Helper()
	var last []protocol.PartitionDescription
	nothingMissing(f.t, readyWithin, func() string {
		d, err := f.control().TopicDescribe(f.t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
		if err != nil {
			return err.Error()
		}
		last = d.Partitions
		for _, p := range last {
			if !strings.EqualFold(p.State, "open") {
				return "a partition is " + p.State + " " + p.Reason
			}
			for _, r := range p.Ranges {
				if strings.EqualFold(r.Status, "orphaned") {
					return "a range is orphaned"
				}
			}
		}
		return ""
	})
}

// killOwner kills the owner under load: writes go on, and when it is back every acknowledged message is read once, by a
// fresh reader and by the old subscription.
func killOwner(t *testing.T, o options, leads bool, rate int) (paused time.Duration) {
	t.Helper()
	f, owner, tr := takeover(t, o, leads, rate)
	before := f.partition("kept", 0)
	tr.pulse.pause()
	owner.kill()
	tr.flows(2 * rate)
	paused = tr.pulse.pause()
	after := f.partition("kept", 0)
	if after.Owner == owner.name || after.Epoch <= before.Epoch {
		t.Errorf("epoch %d of %s became epoch %d of %s", before.Epoch, before.Owner, after.Epoch, after.Owner)
	}
	orphaned := 0
	for _, r := range after.Ranges {
		if strings.EqualFold(r.Status, "orphaned") {
			orphaned++
		}
	}
	if orphaned == 0 {
		t.Errorf("what the lost disk holds is not called orphaned: %+v", after.Ranges)
	}
	owner.start()
	f.settled("kept")
	tr.flows(rate / 2)
	heard := tr.proves(f.door)
	t.Logf("writes went on after %v; %d messages acknowledged; the consumer was handed %d again and %d late", paused, tr.l.count(), heard.again, heard.late)
	return paused
}

func TestTakeoverOfTheLeader(t *testing.T) {
	t.Parallel()
	killOwner(t, options{}, true, 1000)
}

func TestTakeoverOfAFollower(t *testing.T) {
	t.Parallel()
	killOwner(t, options{}, false, 1000)
}

// TestTakeoverSkippedRangeComesLate: a subscription whose patience at the gap is over goes on behind it, and is handed
// what it missed, marked late, when the disk is back.
func TestTakeoverSkippedRangeComesLate(t *testing.T) {
	t.Parallel()
	o := options{env: []string{"DANUBE_SUBSCRIPTION_GAP_WAIT=1s"}}
	f, owner, tr := takeover(t, o, false, 500)
	slow := f.consumerThatWaits("kept", "slow") // has acknowledged nothing of what will be orphaned
	owner.kill()
	tr.flows(1000)
	passed := slow.next(t, 500)
	if len(slow.gaps) == 0 {
		t.Errorf("it passed from %d to %d and no gap was named", passed[0].Offset, passed[len(passed)-1].Offset)
	}
	owner.start()
	f.settled("kept")
	late := 0
	eventually(t, readyWithin, "late messages are delivered", func() bool {
		m, err := slow.receive(5 * time.Second)
		if err != nil {
			return false
		}
		if m.Late {
			late++
		}
		return late >= 100
	})
	tr.proves(f.door)
}

// patient is a consumer that takes messages when it is told.
type patient struct {
	k    *client.Consumer
	gaps chan client.GapError
}

func (f *fleet) consumerThatWaits(topic, sub string) *patient {
	f.t.Helper()
	p := &patient{gaps: make(chan client.GapError, 100)}
	k, err := f.dial().Consumer(f.t.Context(), topic, client.ConsumerConfig{
		Subscription: sub, From: protocol.Position{Kind: protocol.Earliest}, Queue: 10,
		OnGap: func(g client.GapError) { p.gaps <- g },
	})
	if err != nil {
		f.t.Fatal(err)
	}
	p.k = k
	return p
}

func (p *patient) receive(d time.Duration) (client.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	m, err := p.k.Receive(ctx)
	if err == nil {
		err = p.k.Ack(m)
	}
	return m, err
}

// next takes n messages.
func (p *patient) next(t testing.TB, n int) []client.Message {
	t.Helper()
	var all []client.Message
	for len(all) < n {
		m, err := p.receive(readyWithin)
		if err != nil {
			t.Fatalf("after %d messages: %v", len(all), err)
		}
		all = append(all, m)
	}
	return all
}

// TestTakeoverDiesAgain kills the broker that came back while what it holds is being taken back (A52).
func TestTakeoverDiesAgain(t *testing.T) {
	t.Parallel()
	f, owner, tr := takeover(t, options{}, false, 500)
	owner.kill()
	tr.flows(500)
	for i := range 3 {
		owner.launch()
		rest(t.Context(), time.Duration(200+300*i)*time.Millisecond)
		owner.kill()
	}
	tr.flows(500)
	owner.start()
	f.settled("kept")
	tr.proves(f.door)
}

// TestTakeoverPutsItWhereItWas: kills of every broker in turn, each back before the next dies.
func TestTakeoverInTurn(t *testing.T) {
	t.Parallel()
	f, _, tr := takeover(t, options{}, true, 500)
	for range max(scaled(40), 3) {
		owner := f.owner("kept", 0)
		owner.kill()
		tr.flows(500)
		owner.start()
		f.settled("kept")
	}
	tr.proves(f.door)
}
