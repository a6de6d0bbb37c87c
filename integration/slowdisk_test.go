package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// crowd is many producers, each on a connection of its own, and how often they had to connect.
type crowd struct {
	producers []*client.Producer
	dialled   atomic.Int64
}

func (b *broker) crowd(n int) *crowd {
	b.t.Helper()
	c := &crowd{}
	dialer := func(ctx context.Context, network, address string) (net.Conn, error) {
		c.dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	for i := range n {
		cl, err := client.Dial(b.t.Context(), []string{b.address()}, client.Config{Name: fmt.Sprint("crowd", i), Dialer: dialer})
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(cl.Close)
		p, err := cl.Producer(b.t.Context(), fmt.Sprintf("slow-%d", i%8), client.ProducerConfig{Create: &protocol.TopicConfig{}})
		if err != nil {
			b.t.Fatal(err)
		}
		c.producers = append(c.producers, p)
	}
	return c
}

// send lets every producer send so many messages of a size at once, and waits for all outcomes. None may be an error.
func (c *crowd) send(t testing.TB, each, size int) {
	t.Helper()
	var wg sync.WaitGroup
	for i, p := range c.producers {
		wg.Go(func() { // returns when all is acknowledged
			for n := range each {
				err := p.SendAsync(t.Context(), client.Message{Payload: numbered(i*each+n, size)}, func(_ client.Result, err error) {
					if err != nil {
						t.Errorf("producer %d, message %d: %v", i, n, err)
					}
				})
				if err != nil {
					t.Errorf("producer %d takes no message %d: %v", i, n, err)
				}
			}
			if err := p.Flush(t.Context()); err != nil {
				t.Errorf("producer %d: %v", i, err)
			}
		})
	}
	wg.Wait()
}

// slowDisk is what the test and the figure of slow storage have in common: 64 producers with messages of a megabyte
// against a disk whose syncs take so long. Every message is acknowledged, in the end; nobody is disconnected; who gives
// himself a deadline is told that time ran out, and nothing else; a broker that only answers questions answers.
func slowDisk(t *testing.T, b *broker, slow time.Duration, each int) {
	const producers, size = 64, 1 << 20
	c := b.crowd(producers)
	impatient := b.produce("impatient")
	sendEach(t, impatient, 0, 1, 100)
	b.tell("sync %v", slow)
	syncs := b.reached("commit.synced")
	done := make(chan struct{})
	go func() { c.send(t, each, size); close(done) }() // returns when all is acknowledged
	eventually(t, readyWithin, "the disk is at work", func() bool { return b.reached("commit.synced") > syncs })
	if n := len(b.describe("impatient").Partitions); n != 1 {
		t.Errorf("beside them a topic is described with %d partitions", n)
	}
	short, cancel := context.WithTimeout(t.Context(), slow/4)
	defer cancel()
	if _, err := impatient.Send(short, client.Message{Payload: numbered(1, 100)}); !errors.Is(err, client.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a message with a deadline of %v: %v, want that time ran out", slow/4, err)
	}
	<-done
	if n := c.dialled.Load(); n != producers {
		t.Errorf("%d producers connected %d times", producers, n)
	}
	b.tell("sync 0s")
	if err := impatient.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.holds("impatient", 2, 100)
	total := uint64(0)
	for i := range 8 {
		total += b.describe(fmt.Sprintf("slow-%d", i)).Partitions[0].NextOffset
	}
	if total != producers*uint64(each) {
		t.Errorf("%d messages are stored, %d were acknowledged", total, producers*each)
	}
}

// TestHostileSlowDisk: slow storage makes producers slow, and nothing else (A71).
func TestHostileSlowDisk(t *testing.T) {
	b := startBroker(t, "n1", options{build: faulty(), env: []string{"DANUBE_MEMORY_LIMIT=64MiB"}})
	slowDisk(t, b, 250*time.Millisecond, 2)
	b.stop(readyWithin)
}
