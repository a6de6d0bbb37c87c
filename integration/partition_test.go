package integration

import (
	"context"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// cutOwner cuts the owner off from the other brokers and not from the clients, then mends it: one that cannot renew its
// lease takes nothing, another serves, and nothing that was acknowledged is lost or has two values.
func cutOwner(t *testing.T, cut func(w *wires, owner int, others []int)) {
	t.Helper()
	w := newWires(t, 3)
	f, owner, tr := takeover(t, options{wires: w}, false, 500)
	before := f.partition("kept", 0).Epoch
	stuck := carryAs(t, owner.door, "kept", who{"stuck", 100, tr.l})
	at, others := 0, []int(nil)
	for i, b := range f.brokers {
		if b == owner {
			at = i
		} else {
			others = append(others, i)
		}
	}
	tr.pulse.pause()
	cut(w, at, others)
	rest(t.Context(), threeLeases)
	epochs := map[string]uint64{}
	for _, b := range f.others(owner) {
		epochs[b.name] = b.epochOf("kept")
	}
	w.heal()
	f.settled("kept")
	tr.flows(200)
	stuck.flows(50)
	t.Logf("epoch %d, cut off %v, then %d; longest pause %v", before, epochs, f.partition("kept", 0).Epoch, tr.pulse.pause())
	tr.stopSending()
	tr.sending.Wait()
	stuck.proves(f.door)
	tr.proves(f.door)
	for name, e := range epochs {
		if e <= before {
			t.Errorf("%s did not see the topic taken over: epoch %d", name, e)
		}
	}
}

// epochOf is the epoch of partition 0 as this broker knows it, 0 when it does not say.
func (b *broker) epochOf(topic string) uint64 {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, []string{b.clients()}, client.Config{Name: "epoch"})
	if err != nil {
		return 0
	}
	defer cl.Close()
	d, err := cl.Admin().TopicDescribe(ctx, protocol.TopicArgs{Topic: topic, Partition: -1})
	if err != nil || len(d.Partitions) == 0 {
		return 0
	}
	return d.Partitions[0].Epoch
}

func TestPartitionBothWays(t *testing.T) {
	t.Parallel()
	cutOwner(t, func(w *wires, owner int, _ []int) { w.isolate(owner) })
}

func TestPartitionOwnerIsNotHeard(t *testing.T) {
	t.Parallel()
	cutOwner(t, func(w *wires, owner int, others []int) {
		for _, o := range others {
			w.silence(owner, o)
		}
	})
}

func TestPartitionOwnerHearsNothing(t *testing.T) {
	t.Parallel()
	cutOwner(t, func(w *wires, owner int, others []int) {
		for _, o := range others {
			w.silence(o, owner)
		}
	})
}

// TestPartitionOneLink cuts one link of three: the owner still reaches the leader, so nothing moves.
func TestPartitionOneLink(t *testing.T) {
	t.Parallel()
	w := newWires(t, 3)
	f, owner, tr := takeover(t, options{wires: w}, false, 500)
	leader := f.leader()
	before := f.partition("kept", 0).Epoch
	a, b := -1, -1
	for i, x := range f.brokers {
		switch x {
		case owner:
			a = i
		case leader:
		default:
			b = i
		}
	}
	w.silence(a, b)
	w.silence(b, a)
	rest(t.Context(), threeLeases)
	if now := f.partition("kept", 0).Epoch; now != before || f.leader() != leader {
		t.Errorf("epoch %d became %d, the leader %s became %s although both reach each other", before, now, leader.name, f.leader().name)
	}
	w.heal()
	tr.flows(200)
	tr.proves(f.door).inTurn(t)
}

// TestLossMovesNothing drops 30 % of all packets between brokers for a minute (in CI a few seconds): gossip may suspect
// whom it likes, no topic of a healthy broker moves.
func TestLossMovesNothing(t *testing.T) {
	t.Parallel()
	w := newWires(t, 3)
	f := startCluster(t, 3, options{wires: w})
	f.create("lossy", 6)
	tr := carry(t, f.door, "lossy:0", 200)
	before := f.epochs("lossy")
	w.lose(30)
	rest(t.Context(), max(time.Duration(scaled(60))*time.Second, 10*time.Second))
	w.heal()
	tr.flows(100)
	if after := f.epochs("lossy"); after != before {
		t.Errorf("30 %% loss moved topics:\n%s\n%s", before, after)
	}
	tr.proves(f.door).inTurn(t)
}
