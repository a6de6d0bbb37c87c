package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// kinds are the errors that must not look like one another, each with what says that an error is of it.
func kinds() map[string]error {
	return map[string]error{
		"no such topic":      client.ErrNoSuchTopic,
		"consumer busy":      &protocol.Error{Code: protocol.CodeConsumerBusy},
		"level not there":    &protocol.Error{Code: protocol.CodeLevelUnavailable},
		"not allowed":        client.ErrNotAllowed,
		"overloaded":         client.ErrOverloaded,
		"timed out":          client.ErrTimeout,
		"storage full":       &protocol.Error{Code: protocol.CodeStorageFull},
		"connection refused": syscall.ECONNREFUSED,
	}
}

// kindsOf names every kind that an error is of.
func kindsOf(err error) string {
	var all []string
	for name, sign := range kinds() {
		if errors.Is(err, sign) {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestBadInputFourErrors: no such topic, not allowed and unreachable are told apart, to a program and to a person, as
// soon as the broker can answer (A75).
func TestBadInputFourErrors(t *testing.T) {
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("there"), 0, 1, 100)
	cl := b.dial()
	first, err := cl.Consumer(t.Context(), "there", client.ConsumerConfig{Subscription: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close(t.Context())
	unreachable := fmt.Sprintf("127.0.0.1:%d", freePort(t))
	consume := func(topic string) error {
		_, err := cl.Consumer(t.Context(), topic, client.ConsumerConfig{Subscription: "mine"})
		return err
	}
	for name, c := range map[string]struct {
		call  func() error
		kinds string
		line  string
		words []string
	}{
		"no such topic": {func() error { return consume("nowhere") }, "no such topic",
			"consume nowhere -s mine", []string{"/default/nowhere does not exist"}},
		"a second consumer of an exclusive subscription": {func() error { return consume("there") }, "consumer busy",
			"consume there -s mine", []string{"exclusive", "taken by consumer"}},
		"a durability that is not configured": {func() error {
			_, err := cl.Producer(t.Context(), "warm", client.ProducerConfig{Create: &protocol.TopicConfig{Durability: "warm"}})
			return err
		}, "level not there", "topic create warm --durability warm", []string{"durability warm is not in this version"}},
		"nobody there": {func() error {
			_, err := client.Dial(t.Context(), []string{unreachable}, client.Config{Timeout: time.Second})
			return err
		}, "connection refused", "topic list --broker " + unreachable, []string{unreachable, "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			from := time.Now()
			if err := c.call(); kindsOf(err) != c.kinds {
				t.Errorf("%v is of the kind %q, want %q", err, kindsOf(err), c.kinds)
			}
			if took := time.Since(from); took > 5*time.Second {
				t.Errorf("the answer took %v", took)
			}
			b.run(nil, strings.Split(c.line, " ")...).clear(t, 1, c.words...)
		})
	}
}

// TestFaultsOverloaded holds the log still and gives the broker more than its memory: who waits, for the disk or for room,
// learns at his own deadline that time ran out; nobody is refused or disconnected meanwhile, and once the log goes on
// everything that was taken is there (A75, A71).
func TestFaultsOverloaded(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{build: faulty(), env: []string{"DANUBE_MEMORY_LIMIT=64MiB"}})
	const producers, size = 64, 1 << 20
	c := b.crowd(producers)
	b.tell("wait commit.written")
	var mu sync.Mutex
	told := map[string]int{}
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second) // longer than heartbeats and the time for a frame
	defer cancel()
	var wg sync.WaitGroup
	for i, p := range c.producers {
		wg.Go(func() { // returns after the deadline
			_, err := p.Send(ctx, client.Message{Payload: numbered(i, size)})
			mu.Lock()
			defer mu.Unlock()
			told[kindsOf(err)]++
		})
	}
	wg.Wait()
	if told["timed out"] != producers {
		t.Errorf("%d producers were told %v", producers, told)
	}
	b.tell("go commit.written")
	stored := map[string]int{}
	for i, p := range c.producers {
		if err := p.Flush(t.Context()); err != nil {
			t.Errorf("producer %d: %v", i, err)
		}
	}
	for i := range 8 {
		got, gaps := b.contents(fmt.Sprintf("slow-%d", i))
		for _, m := range got {
			stored[m]++
		}
		if len(gaps) > 0 {
			t.Errorf("gaps %v", gaps)
		}
	}
	for i := range producers {
		if n := stored[string(numbered(i, size))]; n != 1 {
			t.Errorf("the message of producer %d, which went on trying, is stored %d times", i, n)
		}
	}
}
