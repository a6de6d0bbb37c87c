package broker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// eventually polls until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// large is message i of the topics that are damaged, 32 KiB.
func large(i int) []byte {
	return append(fmt.Appendf(nil, "large message %04d|", i), bytes.Repeat([]byte{byte(i)}, 32<<10)...)
}

// publishLarge sends the messages from..to-1, each a batch of its own.
func publishLarge(t testing.TB, c *client.Client, topic string, from, to int) {
	t.Helper()
	p, err := c.Producer(t.Context(), topic, client.ProducerConfig{Create: &protocol.TopicConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		if _, err := p.Send(t.Context(), client.Message{Payload: large(i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// spoil flips a bit of message i in the segment that holds it, once it is written there.
func spoil(t testing.TB, dir string, i int) {
	t.Helper()
	mark := large(i)[:20]
	eventually(t, "the message lies in a segment", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "wal", "*", "*", "*.seg"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			at := bytes.Index(text, mark)
			if at < 0 {
				continue
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt([]byte{text[at] ^ 1}, int64(at))
			if err = errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			return true
		}
		return false
	})
}

// withStatus returns the ranges of partition 0 that have a status.
func withStatus(t testing.TB, c *client.Client, topic, status string) [][2]uint64 {
	t.Helper()
	d, err := c.Admin().TopicDescribe(t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
	if err != nil {
		t.Fatal(err)
	}
	var out [][2]uint64
	for _, r := range d.Partitions[0].Ranges {
		if r.Status == status {
			out = append(out, [2]uint64{r.Start, r.End})
		}
	}
	return out
}

// Damage that a reader meets is committed as ORPHANED, also in the epoch that
// is open, and is known after a restart that reads nothing (R10). All else is served.
func TestDamageMetWhileServingIsCommitted(t *testing.T) {
	t.Parallel()
	const messages, bad = 60, 5
	for name, restart := range map[string]bool{"of the open epoch": false, "of an epoch that is over": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			small := func(c *broker.Config) {
				c.Memory, c.Storage.SegmentBytes, c.GapWait = 1<<20, 256<<10, 10*time.Millisecond
			}
			n := start(t, dir, small)
			c := dial(t, n)
			publishLarge(t, c, "hurt", 0, messages)
			if restart {
				n.close(t)()
				n = start(t, dir, small)
				c = dial(t, n)
			}
			spoil(t, dir, bad)
			cons := consumer(t, c, "hurt", client.ConsumerConfig{Subscription: "s", From: earliest})
			for i := range messages {
				if i == bad {
					continue
				}
				m := receive(t, cons)
				if m.Offset != uint64(i) || !bytes.Equal(m.Payload, large(i)) {
					t.Fatalf("got offset %d, want %d", m.Offset, i)
				}
				if err := cons.Ack(m); err != nil {
					t.Fatal(err)
				}
			}
			closeConsumer(t, cons)
			want := [][2]uint64{{bad, bad + 1}}
			eventually(t, "the damage is committed", func() bool { return slices.Equal(withStatus(t, c, "hurt", "ORPHANED"), want) })
			publishLarge(t, c, "hurt", messages, messages+2) // the epoch goes on
			n.close(t)()
			n = start(t, dir, small)
			c = dial(t, n)
			if got := withStatus(t, c, "hurt", "ORPHANED"); !slices.Equal(got, want) {
				t.Errorf("after a restart the orphaned ranges are %v", got)
			}
			cons = consumer(t, c, "hurt", client.ConsumerConfig{Subscription: "s"})
			for i := messages; i < messages+2; i++ {
				if m := receive(t, cons); m.Offset != uint64(i) {
					t.Errorf("got offset %d, want %d", m.Offset, i)
				}
			}
			closeConsumer(t, cons)
			again := consumer(t, c, "hurt", client.ConsumerConfig{Subscription: "other", From: earliest})
			for i := range messages + 2 {
				if i != bad {
					if m := receive(t, again); m.Offset != uint64(i) || !bytes.Equal(m.Payload, large(i)) {
						t.Fatalf("got offset %d, want %d", m.Offset, i)
					}
				}
			}
			closeConsumer(t, again)
		})
	}
}

// Damage is called damage also once it is committed as ORPHANED: a consumer is
// told so, and a verification names the file again.
func TestCommittedDamageIsStillCalledDamage(t *testing.T) {
	t.Parallel()
	const messages, bad = 60, 5
	dir := t.TempDir()
	small := func(c *broker.Config) {
		c.Memory, c.Storage.SegmentBytes, c.GapWait = 1<<20, 256<<10, 10*time.Millisecond
	}
	n := start(t, dir, small)
	c := dial(t, n)
	publishLarge(t, c, "hurt", 0, messages)
	spoil(t, dir, bad)
	for i := range 2 {
		p := verify(t, c, "hurt")
		if len(p.Findings) != 1 || p.Findings[0].From != bad || p.Findings[0].To != bad+1 || p.Findings[0].File == "" || p.Messages != messages-1 {
			t.Errorf("verification %d says %+v", i, p)
		}
		eventually(t, "the damage is committed", func() bool { return len(withStatus(t, c, "hurt", "ORPHANED")) == 1 })
	}
	told := make(chan client.GapError, 10)
	cons := consumer(t, c, "hurt", client.ConsumerConfig{Subscription: "s", From: earliest, OnGap: func(g client.GapError) { told <- g }})
	for range messages - 1 {
		receive(t, cons)
	}
	closeConsumer(t, cons)
	if g := <-told; g.Status != "damaged" || g.From != bad || g.To != bad+1 {
		t.Errorf("the consumer was told of %+v", g)
	}
}
