package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// TestPowerLossKeepsEveryAck cuts the power of a real process under load, again and again, at random moments: with all
// that was not synced gone, or some of it torn (A1).
func TestPowerLossKeepsEveryAck(t *testing.T) {
	t.Parallel()
	disk := mountLossyDisk(t)
	b := startBroker(t, "n1", options{dir: filepath.Join(disk.dir, "data")})
	rnd := rand.New(rand.NewPCG(3, 3))
	topics := []string{"one", "two", "three"}
	ledgers := map[string]*ledger{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var loads []*sync.WaitGroup
	for _, topic := range topics {
		ledgers[topic] = newLedger()
		loads = append(loads, ledgers[topic].load(ctx, t, b.door, topic, topic))
	}
	for i := range max(scaled(60), 5) {
		l := ledgers[topics[i%3]]
		want := l.count() + 1 + rnd.IntN(1000)
		eventually(t, readyWithin, fmt.Sprintf("acknowledgements after loss %d", i), func() bool { return l.count() >= want })
		disk.losePower(b, uint64(i%3)*rnd.Uint64N(1<<32))
		b.start()
	}
	cancel()
	for _, wg := range loads {
		wg.Wait()
	}
	for _, topic := range topics {
		got, gaps := b.contents(topic)
		ledgers[topic].check(t, got, gaps)
		t.Logf("%s: %d acknowledged, %d read", topic, ledgers[topic].count(), len(got))
	}
}

// TestPowerLossRightAfterCreation: a topic made a moment before the loss, with a hundred messages and a subscription
// acknowledged, is there whole (A1).
func TestPowerLossRightAfterCreation(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{0, 1, 2} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			disk := mountLossyDisk(t)
			b := startBroker(t, "n1", options{dir: filepath.Join(disk.dir, "data")})
			sendEach(t, b.produce("fresh"), 0, 100, 100)
			err := b.dial().Admin().SubscriptionCreate(t.Context(), protocol.SubCreate{Topic: "fresh", Subscription: "s", Start: protocol.Position{Kind: protocol.Earliest}})
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.dial().Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "empty", Config: protocol.TopicConfig{Partitions: 3}})
			if err != nil {
				t.Fatal(err)
			}
			disk.losePower(b, seed)
			b.start()
			b.holds("fresh", 100, 100)
			if next := b.describe("fresh").Partitions[0].NextOffset; next != 100 {
				t.Errorf("next offset is %d", next)
			}
			if n := len(b.describe("empty").Partitions); n != 3 {
				t.Errorf("the empty topic has %d partitions", n)
			}
			k, err := b.dial().Consumer(t.Context(), "fresh", client.ConsumerConfig{Subscription: "s", Existing: true})
			if err != nil {
				t.Fatal(err)
			}
			if m, err := k.Receive(t.Context()); err != nil || m.Offset != 0 {
				t.Errorf("the subscription gives offset %d, %v", m.Offset, err)
			}
		})
	}
}

// TestPowerLossWhileStarting cuts the power again and again while the broker recovers from the last cut.
func TestPowerLossWhileStarting(t *testing.T) {
	t.Parallel()
	disk := mountLossyDisk(t)
	b := startBroker(t, "n1", options{dir: filepath.Join(disk.dir, "data")})
	sendEach(t, b.produce("kept"), 0, 300, 100)
	rnd := rand.New(rand.NewPCG(4, 4))
	disk.losePower(b, 1)
	for range max(scaled(100), 6) {
		b.launch()
		rest(t.Context(), randomUpTo(rnd, readySoon))
		disk.losePower(b, rnd.Uint64N(3)*rnd.Uint64N(1<<32))
	}
	b.start()
	b.holds("kept", 300, 100)
}
